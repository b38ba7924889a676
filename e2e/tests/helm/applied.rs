//! Tests of charts/kustomize on a control plane, applied by the command in the first line of its kustomization.yaml; and of the chart's objects for a cluster
//! with the Prometheus operator, validated by that operator's own CRDs.

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::{self, repository};
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::helm::{Helm, NAMESPACE};
use berth_e2e::kinds::{self, CRD, DEPLOYMENT, condition, items, text};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{MUTATING, NAMES, VALIDATING};
use kube::Client;
use serde_json::{Value, json};

/// Kinds whose API versions differ in their fields, so that v1beta1 is served by conversion.
const CONVERTED: [&str; 5] = ["clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"];

async fn accepted(plane: &ControlPlane, client: &Client) -> Result<()> {
    let apply = ["apply", "--server-side", "-k", "charts/kustomize"];
    let first = plane.kubectl(&apply).await?;
    let again = plane.kubectl(&apply).await?;
    let count = |message: &str| message.lines().filter(|line| line.ends_with(" serverside-applied")).count();
    ensure!(count(&first) == first.lines().count() && count(&again) == count(&first), "{first}\nand then\n{again}");
    for file in std::fs::read_dir(repository().join("crds"))? {
        let name = file?.file_name().into_string().ok().and_then(|n| n.strip_suffix(".yaml").map(str::to_owned));
        let Some(name) = name else { continue };
        let definition = wait::until(STEP, &format!("{name} is Established"), || async {
            let definition = CRD.get(client, "", &name).await?.with_context(|| format!("no CRD {name}"))?;
            let there = condition(&definition, "Established") == "True";
            Ok(if there { Seen::Yes(definition) } else { Seen::NotYet(definition["status"].to_string()) })
        })
        .await?;
        let converted = CONVERTED.iter().any(|kind| name == format!("{kind}.kueue.x-k8s.io"));
        let strategy = if converted { "Webhook" } else { "None" };
        ensure!(
            text(&definition, "/spec/conversion/strategy") == strategy,
            "{name}: {}",
            definition["spec"]["conversion"]
        );
        let served = items(&definition, "/spec/versions").iter().all(|version| version["served"] == json!(true));
        ensure!(served, "a version of {name} is not served");
    }
    for (kind, name) in [(MUTATING, NAMES[0]), (VALIDATING, NAMES[1])] {
        let configuration = kind.get(client, "", name).await?.with_context(|| format!("no {name}"))?;
        ensure!(items(&configuration, "/webhooks").len() > 5, "{name}: {}", configuration["webhooks"]);
    }
    wait::until(STEP, "the Deployment's pods are made and placed", || async {
        let deployment = DEPLOYMENT.get(client, NAMESPACE, "berth-controller-manager").await?.unwrap_or_default();
        Ok(Seen::when(deployment["status"]["readyReplicas"] == json!(2), || deployment["status"].to_string()))
    })
    .await
}

/// The test writes namespaces into the webhook configurations, as Berth does for the namespaces in which it manages all jobs: applying the same manifests again
/// is a conflict of field managers, unless the apply is forced.
async fn upgraded(plane: &ControlPlane, client: &Client) -> Result<()> {
    let configuration = MUTATING.get(client, "", NAMES[0]).await?.with_context(|| format!("no {}", NAMES[0]))?;
    let mut webhooks = configuration["webhooks"].clone();
    let opted_in = webhooks.as_array_mut().into_iter().flatten().filter(|w| text(w, "/name").contains("-opted-in"));
    let chosen = json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]}]);
    let mut reported = 0;
    for webhook in opted_in {
        webhook["namespaceSelector"] = json!({"matchExpressions": chosen});
        reported += 1;
    }
    ensure!(reported > 0, "{configuration}");
    MUTATING.patch(client, "", NAMES[0], &json!({"webhooks": webhooks})).await?;
    let apply = ["apply", "--server-side", "-k", "charts/kustomize"];
    let refused = plane.kubectl(&apply).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("--force-conflicts"), "an upgrade without it says {refused:?}");
    plane.kubectl(&[&apply[..], &["--force-conflicts"]].concat()).await.map(drop)
}

/// The chart's objects for the Prometheus operator, which the chart renders if its values `prometheus` say so.
async fn monitors(plane: &ControlPlane) -> Result<Vec<Value>> {
    let path = plane.folder().join("monitored.json");
    let on = json!({"enabled": true, "labels": {"team": "a"}});
    std::fs::write(
        &path,
        json!({"crds": {"install": false}, "prometheus": {"serviceMonitor": on, "rules": on}}).to_string(),
    )?;
    let rendered = Helm::new(None).await?.render(&path).await?;
    Ok(rendered
        .into_iter()
        .filter(|object| text(object, "/apiVersion").starts_with("monitoring.coreos.com/"))
        .collect())
}

async fn monitored(plane: &ControlPlane, client: &Client) -> Result<()> {
    let module = tokio::task::spawn_blocking(binaries::prometheus_operator_module).await??;
    for kind in ["servicemonitors", "prometheusrules"] {
        let path = module.join(format!("example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"));
        for definition in kinds::parse(&std::fs::read_to_string(&path).with_context(|| path.display().to_string())?)? {
            kinds::apply(client, &definition).await?;
        }
    }
    let objects = monitors(plane).await?;
    let mut kinds: Vec<&str> = objects.iter().map(|object| text(object, "/kind")).collect();
    kinds.sort_unstable();
    ensure!(kinds == ["PrometheusRule", "ServiceMonitor"], "{kinds:?}");
    let path = plane.folder().join("monitors.json");
    std::fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    let file = path.display().to_string();
    // With `--validate=strict` the API server refuses an object that has an unknown field or an invalid rule.
    wait::until(STEP, "the monitors are accepted", || async {
        plane.kubectl(&["apply", "--server-side", "--validate=strict", "-f", &file]).await.map(|_| Seen::Yes(()))
    })
    .await?;
    for object in &objects {
        let found = plane
            .kubectl(&[
                "get",
                text(object, "/kind"),
                text(object, "/metadata/name"),
                "--namespace",
                NAMESPACE,
                "-o",
                "json",
            ])
            .await?;
        let stored: Value = serde_json::from_str(&found)?;
        ensure!(stored["spec"] == object["spec"], "{} is stored as {}", text(object, "/kind"), stored["spec"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_manifests_are_accepted() -> Result<()> {
    let plane = ControlPlane::start(Options { name: "kustomize".to_owned(), ..Options::default() }).await?;
    let client = plane.client();
    let outcome = async {
        nodes::create(&client, &[Pool::cpu("cpu", 2, Tier::OnDemand)]).await?;
        accepted(&plane, &client).await.context("charts/kustomize")?;
        upgraded(&plane, &client).await.context("an upgrade of charts/kustomize")?;
        monitored(&plane, &client).await.context("for the Prometheus operator")
    }
    .await;
    if outcome.is_err() {
        plane.keep_files();
    }
    plane.stop().await;
    outcome
}
