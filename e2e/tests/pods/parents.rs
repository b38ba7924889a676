//! Tests of Deployments and StatefulSets whose pods are queued.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{AUTOSCALER, DEPLOYMENT, Kind, POD, STATEFUL_SET, WORKLOAD, condition, text};
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::quickstart::flavor_of;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::pods::{all_run, conclude, counts};

/// Time limit for a HorizontalPodAutoscaler, which acts every 15 s.
const LOOKS: Duration = Duration::from_secs(120);

fn parent(s: &Scenario<'_>, kind: Kind, replicas: u32) -> Value {
    let mut object = json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"namespace": s.namespace, "name": "web", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}]}}}});
    if kind == STATEFUL_SET {
        object["spec"]["serviceName"] = json!("web");
    }
    object
}

/// Writes only the scale of a Deployment or StatefulSet, as an autoscaler does.
async fn scale(s: &Scenario<'_>, kind: Kind, replicas: u32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    kind.api(&s.client, &s.namespace).patch_scale("web", &PatchParams::default(), &patch).await?;
    Ok(())
}

pub(crate) async fn a_deployment_grows_as_an_autoscaler_wants(stage: &Stage) -> Result<()> {
    let s = stage.scenario("deployment").await?;
    s.simple_queue("2", &json!({})).await?;
    let stored = s.apply(&parent(&s, DEPLOYMENT, 1)).await?;
    let labels = json!({"app": "web", "kueue.x-k8s.io/queue-name": "queue", "kueue.x-k8s.io/managed": "true"});
    ensure!(stored["spec"]["template"]["metadata"]["labels"] == labels, "{stored}");
    counts(&s, 1, 0).await?;
    scale(&s, DEPLOYMENT, 3).await?;
    let pods = counts(&s, 2, 1).await?;
    // Berth may create the Workload of the waiting pod a moment after the pod, so the test waits for each pod's Workload.
    for pod in &pods {
        s.workload(text(pod, "/metadata/name"), "made", |_| true).await?;
    }
    // A running pod is deleted: the waiting pod gets its quota.
    let gone = pods.iter().find(|pod| crate::pods::running(pod)).context("a running pod")?;
    POD.delete(&s.client, &s.namespace, text(gone, "/metadata/name")).await?;
    wait::until(STEP, "two others run", || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let other = |p: &&Value| crate::pods::running(p) && text(p, "/metadata/name") != text(gone, "/metadata/name");
        let run = pods.iter().filter(other).count();
        Ok(Seen::when(run == 2, || format!("{run} run")))
    })
    .await?;
    scale(&s, DEPLOYMENT, 1).await?;
    counts(&s, 1, 0).await?;
    conclude(s).await
}

/// Waits until the Deployment's HorizontalPodAutoscaler has set its number of replicas to `replicas`.
async fn scaled(s: &Scenario<'_>, replicas: u32) -> Result<()> {
    wait::until(LOOKS, &format!("{replicas} replicas by the autoscaler"), || async {
        let web = DEPLOYMENT.get(&s.client, &s.namespace, "web").await?.unwrap_or_default();
        let autoscaler = AUTOSCALER.get(&s.client, &s.namespace, "web").await?.unwrap_or_default();
        let there = web["spec"]["replicas"] == json!(replicas);
        Ok(Seen::when(there, || format!("{}, {}", web["spec"]["replicas"], autoscaler["status"])))
    })
    .await
}

/// The real HorizontalPodAutoscaler, without metrics, keeps a Deployment within the autoscaler's bounds, and each pod that it adds is queued.
pub(crate) async fn an_autoscaler_moves_its_bounds(stage: &Stage) -> Result<()> {
    let s = stage.scenario("autoscaled").await?;
    s.simple_queue("2", &json!({})).await?;
    s.apply(&parent(&s, DEPLOYMENT, 1)).await?;
    counts(&s, 1, 0).await?;
    s.apply(&json!({"apiVersion": AUTOSCALER.api_version, "kind": AUTOSCALER.kind,
        "metadata": {"namespace": s.namespace, "name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": "web"},
            "minReplicas": 3, "maxReplicas": 5}}))
        .await?;
    scaled(&s, 3).await?;
    counts(&s, 2, 1).await?;
    AUTOSCALER.patch(&s.client, &s.namespace, "web", &json!({"spec": {"minReplicas": 1, "maxReplicas": 1}})).await?;
    scaled(&s, 1).await?;
    counts(&s, 1, 0).await?;
    AUTOSCALER.delete(&s.client, &s.namespace, "web").await?;
    conclude(s).await
}

pub(crate) async fn a_stateful_set_scales_to_zero_and_back(stage: &Stage) -> Result<()> {
    let s = stage.scenario("statefulset").await?;
    s.simple_queue("3", &json!({})).await?;
    s.apply(&parent(&s, STATEFUL_SET, 2)).await?;
    all_run(&s, &["web-0", "web-1"]).await?;
    let workload = s.workload("web", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    let name = text(&workload, "/metadata/name").to_owned();
    ensure!(name.starts_with("statefulset-web-"), "{name}");
    ensure!(WORKLOAD.list(&s.client, &s.namespace).await?.len() == 1, "one for all its pods");
    let patch = json!({"spec": {"replicas": 3}});
    let error = STATEFUL_SET.patch(&s.client, &s.namespace, "web", &patch).await.err().map(|e| format!("{e:#}"));
    ensure!(error.as_deref().is_some_and(|text| text.contains("spec.replicas")), "{error:?}");
    // A deleted pod is created again under its name, without another admission.
    POD.delete(&s.client, &s.namespace, "web-1").await?;
    counts(&s, 2, 0).await?;
    STATEFUL_SET.patch(&s.client, &s.namespace, "web", &json!({"spec": {"replicas": 0}})).await?;
    counts(&s, 0, 0).await?;
    s.object_is(WORKLOAD, &name, "on hold", |w| {
        condition(w, "QuotaReserved") == "False" && w["status"].to_string().contains("OnHold")
    })
    .await?;
    s.object_is(STATEFUL_SET, "web", "scaled down", |set| set["status"]["replicas"] == json!(0)).await?;
    STATEFUL_SET.patch(&s.client, &s.namespace, "web", &patch).await?;
    all_run(&s, &["web-0", "web-1", "web-2"]).await?;
    s.object_is(WORKLOAD, &name, "of three pods", |w| w["spec"]["podSets"][0]["count"] == json!(3)).await?;
    conclude(s).await
}

/// A Deployment and a StatefulSet name spot at the beginning of their tiers, and their queue tries on-demand capacity at first: each pod of the
/// Deployment gets spot, and all pods of the StatefulSet get spot at once.
pub(crate) async fn they_take_the_tier_that_they_name(stage: &Stage) -> Result<()> {
    let s = stage.scenario("parent-tiers").await?;
    let (demand, spot) = (s.name("on-demand"), s.name("spot"));
    for (name, tier, pool) in [(&demand, "on-demand", "cpu"), (&spot, "spot", "spot")] {
        let mut flavor = manifest::flavor(name, &[("e2e/pool", pool)]);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        flavor["spec"]["tolerations"] = json!([{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]);
        s.apply(&flavor).await?;
    }
    let cpu = [quota("cpu", "4")];
    let quotas = [(demand.as_str(), cpu.as_slice()), (spot.as_str(), cpu.as_slice())];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&quotas)], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    for (kind, name) in [(DEPLOYMENT, "deployed"), (STATEFUL_SET, "numbered")] {
        let mut object = parent(&s, kind, 2);
        let tiers = json!({"berth.dev/capacity-tiers": "spot,on-demand"});
        let own = json!({"metadata": {"name": name, "annotations": tiers}, "spec": {
            "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}}}});
        manifest::merge(&mut object, &own);
        s.apply(&object).await?;
    }
    for pod in counts(&s, 4, 0).await? {
        let (name, node) = (text(&pod, "/metadata/name"), text(&pod, "/spec/nodeName"));
        ensure!(node.starts_with("spot"), "pod {name} is on {node}");
    }
    let workloads = WORKLOAD.list(&s.client, &s.namespace).await?;
    ensure!(workloads.len() == 3, "one for each pod of the Deployment, one for the StatefulSet: {}", workloads.len());
    for workload in &workloads {
        ensure!(flavor_of(workload) == spot, "{}: {}", workload["metadata"]["name"], workload["status"]["admission"]);
    }
    conclude(s).await
}

/// The command `kubectl delete namespace` ends for a namespace with a Deployment and a StatefulSet, of whose pods some run and some wait, and no
/// quota stays reserved.
pub(crate) async fn they_go_with_their_namespace(stage: &Stage) -> Result<()> {
    let s = stage.scenario("parents-end").await?;
    s.simple_queue("3", &json!({})).await?;
    s.apply(&parent(&s, STATEFUL_SET, 2)).await?;
    counts(&s, 2, 0).await?;
    s.apply(&parent(&s, DEPLOYMENT, 2)).await?;
    counts(&s, 3, 1).await?;
    s.ends_with_its_namespace().await?;
    s.conclude().await
}
