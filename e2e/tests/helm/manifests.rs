//! The test that charts/kustomize equals the chart with its default values.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::helm::Helm;
use berth_e2e::kinds::{self, text};
use serde_json::Value;

/// The generated file of charts/kustomize.
const FILE: &str = "charts/kustomize/berth.yaml";
/// Beginnings of lines that only an object of a Helm release has.
const HELMS: [&str; 3] = ["app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ", "helm.sh/resource-policy: "];

/// The chart's rendered text without its CRDs and without the parts that only Helm reads.
fn plain(rendered: &str) -> String {
    let mut out = String::from(
        "# Generated from charts/berth by `UPDATE=1 cargo test --test e2e -- helm::manifests`; do not edit.\n",
    );
    let kept = rendered.lines().filter(|line| !HELMS.iter().any(|mark| line.trim_start().starts_with(mark)));
    let kept = kept.filter(|line| !line.trim().is_empty() && !line.starts_with("# Source: "));
    let mut kept = kept.map(str::trim_end).peekable();
    while let Some(line) = kept.next() {
        // An `annotations:` line is left out if Helm alone reads all of its entries.
        let inner = |next: &&str| next.starts_with("    ");
        if line != "  annotations:" || kept.peek().is_some_and(inner) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Objects by kind and name, without the parts that only Helm reads.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let strip = |mut object: Value| {
        for (place, keys) in [
            ("labels", &["app.kubernetes.io/managed-by", "helm.sh/chart"][..]),
            ("annotations", &["helm.sh/resource-policy"][..]),
        ] {
            let Some(map) = object["metadata"].get_mut(place).and_then(Value::as_object_mut) else { continue };
            map.retain(|key, _| !keys.contains(&key.as_str()));
            if map.is_empty() {
                object["metadata"].as_object_mut().map(|metadata| metadata.remove(place));
            }
        }
        object
    };
    let key = |o: &Value| format!("{} {}", text(o, "/kind"), kinds::key(o));
    objects.into_iter().map(|o| (key(&o), strip(o))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_manifests_equal_those_of_the_chart() -> Result<()> {
    let helm = Helm::new(None).await?;
    let none = std::env::temp_dir().join(format!("berth-e2e-no-crds-{}.json", std::process::id()));
    std::fs::write(&none, r#"{"crds": {"install": false}}"#)?;
    let wanted = plain(&helm.render_text(&none).await?);
    std::fs::remove_file(&none)?;
    let path = repository().join(FILE);
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(&path, &wanted)?;
    }
    let found = std::fs::read_to_string(&path).with_context(|| format!("reading {FILE}"))?;
    // Helm 3 writes the same objects in another order, so the text is compared only under Helm 4.
    ensure!(found == wanted || helm.is_3(), "{FILE} is not what the chart renders: run this test with UPDATE=1");

    let rendered = by_name(helm.render(Path::new("/dev/null")).await?);
    let mut kubectl = std::process::Command::new("kubectl");
    let output = kubectl.args(["kustomize", "charts/kustomize"]).current_dir(repository()).output();
    let output = output.context("running kubectl kustomize")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut built = by_name(kinds::parse(&String::from_utf8_lossy(&output.stdout))?);
    ensure!(built.remove("Namespace berth-system").is_some(), "the manifests make their namespace");
    let names = |map: &BTreeMap<String, Value>| map.keys().cloned().collect::<Vec<_>>();
    ensure!(names(&built) == names(&rendered), "{:?}\nis not\n{:?}", names(&built), names(&rendered));
    for (name, object) in &rendered {
        ensure!(built.get(name) == Some(object), "{name} differs:\n{}\nthe chart says\n{object}", built[name]);
    }
    Ok(())
}
