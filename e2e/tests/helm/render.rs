//! Tests of the objects that the chart renders for its values, case by case, and of Helm's own lint of the chart.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::helm::{Helm, KUBERNETES, chart};
use berth_e2e::kinds::text;
use futures::{StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Case {
    name: String,
    /// Namespace of the release; an empty name means Berth's default namespace.
    namespace: String,
    values: Value,
    has: Vec<String>,
    lacks: Vec<String>,
    own: Vec<String>,
    says: BTreeMap<String, BTreeMap<String, Value>>,
    refused: Vec<String>,
}

/// Whether Helm's message contains all of `parts`; Helm 3 writes paths with dots.
fn names(message: &str, parts: &[String]) -> bool {
    let dotted = |part: &str| part.trim_start_matches('/').replace('/', ".");
    parts.iter().all(|part| message.contains(part.as_str()) || message.contains(&dotted(part)))
}

fn holds(case: &Case, objects: &[Value]) -> Result<()> {
    let find =
        |key: &str| objects.iter().find(|o| format!("{}/{}", text(o, "/kind"), text(o, "/metadata/name")) == key);
    for key in &case.has {
        ensure!(find(key).is_some(), "no {key}");
    }
    for key in &case.lacks {
        ensure!(find(key).is_none(), "{key} is there");
    }
    if !case.own.is_empty() {
        let named =
            |o: &&Value| text(o, "/kind") != "CustomResourceDefinition" && text(o, "/metadata/name").contains("berth");
        let own: Vec<String> = objects
            .iter()
            .filter(named)
            .map(|o| format!("{}/{}", text(o, "/kind"), text(o, "/metadata/name")))
            .filter(|key| !case.own.contains(key))
            .collect();
        ensure!(own.is_empty(), "called after Berth are also {own:?}");
    }
    for (key, fields) in &case.says {
        let object = find(key).with_context(|| format!("no {key}"))?;
        for (pointer, wanted) in fields {
            let found = object.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(found == wanted, "{key} {pointer} is {found}, not {wanted}");
        }
    }
    Ok(())
}

async fn check(helm: &Helm, number: usize, case: &Case) -> Result<()> {
    let mut values = case.values.clone();
    // The CRDs are left out in a case that does not look at them, because rendering a megabyte of CRDs takes longer than the rest of the case.
    if values.get("crds").is_none() {
        values["crds"] = json!({"install": false});
    }
    let path = std::env::temp_dir().join(format!("berth-e2e-values-{}-{number}.json", std::process::id()));
    std::fs::write(&path, values.to_string())?;
    let (folder, file) = (chart().display().to_string(), path.display().to_string());
    let namespace = if case.namespace.is_empty() { "berth-system" } else { &case.namespace };
    let output =
        helm.run(&["template", "berth", &folder, KUBERNETES, "--namespace", namespace, "--values", &file]).await?;
    std::fs::remove_file(&path)?;
    if case.refused.is_empty() {
        ensure!(output.ok, "{}", output.err);
        return holds(case, &berth_e2e::kinds::parse(&output.out)?);
    }
    ensure!(!output.ok, "accepted");
    ensure!(names(&output.err, &case.refused), "the message lacks one of {:?}: {}", case.refused, output.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chart_values_render_what_their_cases_expect() -> Result<()> {
    let helm = Helm::new(None).await?;
    let path = repository().join("e2e/cases/helm/values.yaml");
    let cases: Vec<Case> = serde_saphyr::from_str(&std::fs::read_to_string(&path)?)?;
    ensure!(cases.len() >= 15, "only {} cases read", cases.len());
    let checks = cases.iter().enumerate().map(|(number, case)| {
        let helm = &helm;
        async move { check(helm, number, case).await.with_context(|| case.name.clone()) }
    });
    futures::stream::iter(checks).buffer_unordered(2).try_collect::<Vec<()>>().await.map(drop)
}

#[tokio::test]
async fn chart_passes_strict_lint_without_warnings() -> Result<()> {
    let helm = Helm::new(None).await?;
    let chart = chart().display().to_string();
    let output = helm.ok(&["lint", "--strict", KUBERNETES, &chart]).await?;
    ensure!(!output.contains("[WARNING]") && !output.contains("[ERROR]"), "{output}");
    Ok(())
}

/// The value that follows `mark` in the first line of a repository file that begins with `mark`.
fn behind(file: &str, mark: &str) -> Result<String> {
    let text = std::fs::read_to_string(repository().join(file)).with_context(|| format!("reading {file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(mark)).with_context(|| format!("{file}: no {mark}"))?;
    Ok(line.trim().trim_matches('"').to_owned())
}

#[test]
fn chart_versions_equal_workspace_version() -> Result<()> {
    let version = behind("Cargo.toml", "version = ")?;
    for mark in ["version: ", "appVersion: "] {
        let chart = behind("charts/berth/Chart.yaml", mark)?;
        ensure!(chart == version, "the chart's {mark}{chart} is not the workspace's {version}");
    }
    Ok(())
}
