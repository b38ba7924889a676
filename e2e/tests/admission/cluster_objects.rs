//! Kubernetes' own settings that concern a job, namely PriorityClasses, LimitRanges, ResourceQuotas, RuntimeClasses, the scheduler, and the placement of pods.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use berth_e2e::kinds::{condition_object, items, text};
use berth_e2e::observer::Scope;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use crate::admission::POOL;

/// Jobs whose pods name plain PriorityClasses are admitted in the order of these classes.
pub(crate) async fn priority_classes(stage: &Stage) -> Result<()> {
    let s = stage.scenario("pod-priorities").await?;
    s.simple_queue("1", &json!({})).await?;
    for (name, value) in [("low", 10), ("high", 1000)] {
        s.apply(
            &json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": s.name(name)},
            "value": value, "preemptionPolicy": "Never"}),
        )
        .await?;
    }
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    for name in ["low", "high"] {
        s.create(s.job(name).run_ms(500).pod_spec(&json!({"priorityClassName": s.name(name)}))).await?;
        s.pending(name).await?;
    }
    let high = s.workload("high", "priority 1000", |w| w["spec"]["priority"] == json!(1000)).await?;
    let class = &high["spec"]["priorityClassRef"];
    ensure!(class["kind"] == json!("PriorityClass") && class["name"] == json!(s.name("high")), "{class}");
    s.remove("running").await?;
    s.finished("high").await?;
    s.finished("low").await?;
    let at = |workload: &Value, kind: &str| {
        condition_object(workload, kind).map(|c| text(c, "/lastTransitionTime").to_owned()).unwrap_or_default()
    };
    let (high, low) = (s.workload("high", "there", |_| true).await?, s.workload("low", "there", |_| true).await?);
    // The queue has quota for one job at a time: the job of high priority was finished before the job of low priority got its quota.
    ensure!(at(&high, "Finished") <= at(&low, "QuotaReserved"), "{} {}", high["status"], low["status"]);
    s.conclude().await
}

/// Berth charges the requests that a LimitRange fills in, the requests of sidecars and the overhead of a RuntimeClass; and jobs also run where a
/// ResourceQuota counts pods.
pub(crate) async fn limits(stage: &Stage) -> Result<()> {
    let s = stage.scenario("limits").await?;
    s.simple_queue("4", &json!({})).await?;
    let place = json!({"namespace": s.namespace, "name": "of-the-namespace"});
    s.apply(&json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": place, "spec": {"limits": [
        {"type": "Container", "defaultRequest": {"cpu": "1500m"}, "max": {"cpu": "3"}, "default": {"cpu": "2"}}]}}))
        .await?;
    s.apply(&json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": place,
        "spec": {"hard": {"requests.cpu": "3", "pods": "2"}}}))
        .await?;
    s.apply(&json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": s.name("sandbox")},
        "handler": "sandbox", "overhead": {"podFixed": {"cpu": "250m"}}}))
        .await?;
    // The test waits until Berth's view agrees with fresh lists, because Berth must have seen the LimitRange before the job is created.
    stage.manager.recomputes_in(&Scope::of(&s.namespace)).await?;
    s.create(s.job("silent").pods(2).requests(&[]).endless()).await?;
    let workload = s.admitted("silent").await?;
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"];
    ensure!(usage == &json!("3"), "two pods of 1500m: {usage}");
    s.nodes_of("silent", 2).await?;
    // The queue has quota for one more job; the namespace's ResourceQuota keeps that job's pod from being created until the first job is gone.
    s.create(s.job("next").run_ms(200)).await?;
    s.admitted("next").await?;
    wait::stays(std::time::Duration::from_secs(2), "no pod of the second job is made", || async {
        let pods = s.pods_of("next").await?.len();
        Ok(Seen::when(pods == 0, || format!("{pods} pods")))
    })
    .await?;
    // A job above the limits of the LimitRange is not admitted, and its message names the limits.
    s.create(s.job("large").cpu("4")).await?;
    let large = s.pending("large").await?;
    let condition = condition_object(&large, "QuotaReserved").cloned().unwrap_or_default();
    ensure!(text(&condition, "/message").contains("must not exceed its limits"), "{condition}");
    s.remove("silent").await?;
    s.finished("next").await?;
    // Berth charges a sidecar and the overhead of the RuntimeClass, as the API server counts them.
    let sidecar = json!({"name": "side", "image": "example.invalid/nothing", "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "500m"}}});
    s.create(s.job("sandboxed").endless().pod_spec(&json!({
        "runtimeClassName": s.name("sandbox"), "initContainers": [sidecar]})))
        .await?;
    let workload = s.admitted("sandboxed").await?;
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"];
    ensure!(usage == &json!("1750m"), "1 and 500m and 250m: {usage}");
    s.nodes_of("sandboxed", 1).await?;
    let pods = s.pods_of("sandboxed").await?;
    ensure!(pods.iter().all(|pod| text(pod, "/spec/overhead/cpu") == "250m"), "{pods:?}");
    s.remove("sandboxed").await?;
    s.conclude().await
}

/// The scheduler, the topology spread and the required affinity of a job's template reach the pods, beside the fields that the flavor adds.
pub(crate) async fn placement(stage: &Stage) -> Result<()> {
    let s = stage.scenario("pod-placement").await?;
    s.simple_queue("8", &json!({})).await?;
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"spread": "yes"}}}]);
    s.create(s.job("spread").pods(2).endless().pod_label("spread", "yes").pod_spec(&json!({
        "topologySpreadConstraints": spread})))
        .await?;
    s.admitted("spread").await?;
    let nodes: BTreeSet<String> = s.nodes_of("spread", 2).await?.into_iter().collect();
    ensure!(nodes.len() == 2, "both on {nodes:?}");
    let term = json!({"matchExpressions": [{"key": POOL, "operator": "In", "values": ["green"]}]});
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    s.create(s.job("green").endless().pod_spec(&json!({ "affinity": affinity }))).await?;
    s.admitted("green").await?;
    let nodes = s.nodes_of("green", 1).await?;
    ensure!(nodes.iter().all(|node| node.starts_with("green")), "{nodes:?}");
    s.create(s.job("other").endless().pod_spec(&json!({"schedulerName": "nobody"}))).await?;
    s.admitted("other").await?;
    let pods = wait::until(wait::STEP, "its pod is there", || async {
        let pods = s.pods_of("other").await?;
        Ok(if pods.is_empty() { Seen::NotYet("none".to_owned()) } else { Seen::Yes(pods) })
    })
    .await?;
    for pod in &pods {
        ensure!(text(pod, "/spec/schedulerName") == "nobody" && text(pod, "/spec/nodeName").is_empty(), "{pod}");
        ensure!(items(pod, "/spec/schedulingGates").is_empty(), "it is free to be bound by whom it names: {pod}");
    }
    s.conclude().await
}
