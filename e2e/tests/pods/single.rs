//! Pods by themselves.

use anyhow::{Result, ensure};
use berth_e2e::autoscaler;
use berth_e2e::kinds::{EVENT, POD, condition, text};
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::json;

use crate::pods::{all_run, all_wait, conclude, ends, gated, held, pod, run_ms, running};

async fn tiers(s: &Scenario<'_>) -> Result<()> {
    let (first, second) = (s.name("spot"), s.name("any"));
    for (name, tier, labels) in [(&first, "spot", &[("e2e/pool", "spot")][..]), (&second, "on-demand", &[])] {
        let mut flavor = manifest::flavor(name, labels);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        flavor["spec"]["tolerations"] = json!([{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]);
        s.apply(&flavor).await?;
    }
    let quotas = [(&*second, &[quota("cpu", "1")][..]), (&*first, &[quota("cpu", "1")])];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&quotas)], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    Ok(())
}

/// The first pod names spot at the beginning of its tiers and gets spot, although the queue lists spot last; the next pod waits for quota.
pub(crate) async fn admitted_by_tier_and_finished(stage: &Stage) -> Result<()> {
    let s = stage.scenario("single").await?;
    tiers(&s).await?;
    let spot = json!({"metadata": {"annotations": {"berth.dev/capacity-tiers": "spot"}}});
    s.apply(&pod(&s, "first", "1", &spot)).await?;
    all_run(&s, &["first"]).await?;
    let workload = s.workload("first", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    ensure!(text(&workload, "/metadata/name").starts_with("pod-first-"), "{}", workload["metadata"]["name"]);
    let started = s.object_is(POD, "first", "on its node", |p| !text(p, "/spec/nodeName").is_empty()).await?;
    ensure!(text(&started, "/spec/nodeName").starts_with("spot"), "{}", started["spec"]["nodeName"]);
    ensure!(started["spec"]["nodeSelector"]["e2e/pool"] == json!("spot"), "{}", started["spec"]["nodeSelector"]);
    ensure!(held(&started), "it is held until its end is booked");
    s.apply(&pod(&s, "second", "1", &spot)).await?;
    s.workload("second", "pending", |w| condition(w, "QuotaReserved") == "False").await?;
    ensure!(POD.get(&s.client, &s.namespace, "second").await?.is_some_and(|pod| gated(&pod)), "it waits");
    for name in ["first", "second"] {
        s.object_is(POD, name, "running", running).await?;
        ends(&s, name).await?;
        s.object_is(POD, name, "succeeded and let go", |p| text(p, "/status/phase") == "Succeeded" && !held(p)).await?;
        s.workload(name, "Finished", |w| condition(w, "Finished") == "True").await?;
    }
    conclude(s).await
}

/// A queue has two types of GPU, and a pod requires one of them by the affinity that users write. The queue lists the other type of GPU before the
/// required one.
pub(crate) async fn the_gpu_that_its_affinity_requires(stage: &Stage) -> Result<()> {
    let s = stage.scenario("gpu-type").await?;
    let (small, large) = (s.name("t4"), s.name("h100"));
    for (name, gpu_type) in [(&small, "t4"), (&large, "h100")] {
        let mut flavor = manifest::flavor(name, &[("gpu-type", gpu_type)]);
        flavor["spec"]["tolerations"] = json!([{"key": "nvidia.com/gpu", "operator": "Exists"}]);
        s.apply(&flavor).await?;
    }
    let covered = [quota("cpu", "8"), quota("nvidia.com/gpu", "8")];
    let quotas = [(&*small, &covered[..]), (&*large, &covered[..])];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&quotas)], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    for (name, types, flavor, node) in
        [("trained", &["h100"][..], &large, "gpu-h100"), ("either", &["h100", "t4"], &small, "gpu-t4")]
    {
        let terms = json!([{"matchExpressions": [{"key": "gpu-type", "operator": "In", "values": types}]}]);
        let required =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let container = json!({"name": "main", "image": "work",
            "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}});
        s.apply(&pod(&s, name, "1", &json!({"spec": {"affinity": required, "containers": [container]}}))).await?;
        all_run(&s, &[name]).await?;
        let workload = s.workload(name, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        let assigned = &workload["status"]["admission"]["podSetAssignments"][0]["flavors"];
        ensure!(assigned == &json!({"cpu": flavor, "nvidia.com/gpu": flavor}), "{name}: {assigned}");
        let bound = s.object_is(POD, name, "on its node", |p| !text(p, "/spec/nodeName").is_empty()).await?;
        ensure!(text(&bound, "/spec/nodeName").starts_with(node), "{name} is on {}", bound["spec"]["nodeName"]);
    }
    conclude(s).await
}

/// If the (scripted) autoscaler gets no node for a pod, Berth deletes the pod, and the pod that replaces it gets the next tier.
pub(crate) async fn autoscaler_gets_no_node(stage: &Stage) -> Result<()> {
    let s = stage.scenario("pod-scale-up-failed").await?;
    let (reserved, demand) = (s.name("reserved"), s.name("on-demand"));
    for (name, tier, pool) in [(&reserved, "reserved", "nowhere"), (&demand, "on-demand", "cpu")] {
        let mut flavor = manifest::flavor(name, &[("e2e/pool", pool)]);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        s.apply(&flavor).await?;
    }
    let cpu = [quota("cpu", "2")];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&[(&*reserved, &cpu[..]), (&*demand, &cpu)])], &json!({})))
        .await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    let tiers = json!({"default": ["reserved", "on-demand"], "patience": {"reserved": "40s"}});
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("policy")},
        "spec": {"clusterQueues": [s.name("cq")], "capacityTiers": tiers}}))
        .await?;
    s.apply(&pod(&s, "first", "1", &json!({}))).await?;
    let stuck =
        s.object_is(POD, "first", "on no node", |p| condition(p, "PodScheduled") == "False" && !gated(p)).await?;
    let words = "Node scale up in zones us-east5-b associated with this pod failed: out of resources";
    autoscaler::gets_no_node(&s.client, &stuck, words).await?;
    wait::until(STEP, "the pod is gone", || async {
        let left = POD.get(&s.client, &s.namespace, "first").await?;
        Ok(Seen::when(left.is_none(), || left.unwrap_or_default()["status"].to_string()))
    })
    .await?;
    wait::until(STEP, "the event about it", || async {
        let events = EVENT.list(&s.client, &s.namespace).await?;
        let reported = events.iter().find(|event| text(event, "/reason") == "EvictedDueToStockOut");
        let message = reported.is_some_and(|event| text(event, "/message").contains(words));
        Ok(Seen::when(message, || {
            format!("{:?}", events.iter().map(|event| text(event, "/reason")).collect::<Vec<_>>())
        }))
    })
    .await?;
    s.apply(&pod(&s, "second", "1", &run_ms(100))).await?;
    let second = s.object_is(POD, "second", "on its node", |p| !text(p, "/spec/nodeName").is_empty()).await?;
    ensure!(second["spec"]["nodeSelector"]["e2e/pool"] == json!("cpu"), "{}", second["spec"]["nodeSelector"]);
    s.object_is(POD, "second", "succeeded", |p| text(p, "/status/phase") == "Succeeded").await?;
    conclude(s).await
}

/// Berth does not change a pod without a queue, nor the pods of a Job.
pub(crate) async fn without_a_queue_nothing_happens(stage: &Stage) -> Result<()> {
    let s = stage.scenario("untouched").await?;
    s.simple_queue("1", &json!({})).await?;
    let mut plain = pod(&s, "plain", "1", &json!({}));
    plain["metadata"]["labels"] = json!({"mine": "yes"});
    let stored = s.apply(&plain).await?;
    ensure!(!gated(&stored) && !held(&stored), "{stored}");
    ensure!(stored["metadata"]["labels"] == json!({"mine": "yes"}), "{}", stored["metadata"]["labels"]);
    all_run(&s, &["plain"]).await?;
    // The queue's name in the pod template of a Job has no effect, because the Job as a whole is admitted.
    s.create(s.job("work").cpu("1").pod_label("kueue.x-k8s.io/queue-name", "queue").run_ms(300)).await?;
    s.admitted("work").await?;
    for child in s.pods_of("work").await? {
        ensure!(!gated(&child) && !held(&child), "{child}");
    }
    s.finished("work").await?;
    ensure!(s.workload_of("plain").await?.is_none(), "a pod without a queue has no Workload");
    conclude(s).await
}

/// A pod with contradictory fields is refused, and the message names the field.
pub(crate) async fn refused(stage: &Stage) -> Result<()> {
    let s = stage.scenario("refused-pods").await?;
    s.simple_queue("0", &json!({})).await?;
    let grouped = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}});
    let total = |text: &str| {
        json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": text}}})
    };
    for (more, word) in [
        (grouped, "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]"),
        (total("0"), "greater than 0"),
        (
            json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "A_b"}}}),
            "metadata.labels[kueue.x-k8s.io/queue-name]",
        ),
    ] {
        let error = s.apply(&pod(&s, "bad", "1", &more)).await.err().map(|e| format!("{e:#}")).unwrap_or_default();
        ensure!(error.contains(word), "{word:?}: {error:?}");
    }
    s.apply(&pod(&s, "good", "1", &run_ms(100))).await?;
    all_wait(&s, &["good"]).await?;
    conclude(s).await
}
