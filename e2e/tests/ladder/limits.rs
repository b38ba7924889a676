//! Limits of a QueuePolicy, and policies that the API server or Berth refuse with words.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{QUEUE_POLICY, condition, condition_object, text};
use berth_e2e::manifest::priority_class;
use berth_e2e::scenario::Stage;
use serde_json::{Value, json};

use crate::{message, policy};

pub(crate) async fn named_and_kept(stage: &Stage) -> Result<()> {
    let s = stage.scenario("limits").await?;
    s.simple_queue("20", &json!({})).await?;
    s.apply(&priority_class(&s.name("high"), 1000)).await?;
    let limits = json!({"maxJobs": 2, "priorityRange": {"min": 0, "max": 100}});
    policy(&s, &json!({"admission": limits})).await?;
    s.object_is(QUEUE_POLICY, &s.name("policy"), "active", |p| condition(p, "Active") == "True").await?;
    s.create(s.job("high").label("kueue.x-k8s.io/priority-class", &s.name("high"))).await?;
    let waiting = s.pending("high").await?;
    let expected = format!(
        "QueuePolicy {}: spec.admission.priorityRange.max is 100, and the workload's priority is 1000",
        s.name("policy")
    );
    ensure!(message(&waiting, "QuotaReserved") == expected, "{}", message(&waiting, "QuotaReserved"));
    let reason = condition_object(&waiting, "QuotaReserved").map(|c| text(c, "/reason").to_owned());
    ensure!(reason.as_deref() == Some("AdmissionLimit"), "{reason:?}");
    for name in ["one", "two"] {
        s.create(s.job(name).endless()).await?;
        s.admitted(name).await?;
    }
    s.create(s.job("three").endless()).await?;
    let waiting = s.pending("three").await?;
    ensure!(message(&waiting, "QuotaReserved").contains("maxJobs"), "{}", message(&waiting, "QuotaReserved"));
    s.stays_pending("three").await?;
    s.remove("one").await?;
    s.admitted("three").await?;
    s.conclude().await
}

pub(crate) async fn refused_with_words(stage: &Stage) -> Result<()> {
    let s = stage.scenario("bad-policies").await?;
    let object = |spec: &Value| {
        json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("bad")},
            "spec": spec})
    };
    // Server-side apply reads lists before any rule does; what is refused of every field is in e2e/cases/fields.
    for (spec, words) in [
        (json!({}), "one of the fields in [clusterQueues clusterQueueSelector] must be set"),
        (json!({"clusterQueues": ["a", "a"]}), "spec.clusterQueues"),
    ] {
        let refused = s.apply(&object(&spec)).await;
        let told = refused.map_or_else(|error| format!("{error:#}"), |_| format!("accepted: {spec}"));
        ensure!(told.contains(words), "{spec}: expected {words:?}, got {told}");
    }
    s.apply(&object(&json!({"clusterQueues": ["no-such-queue"]}))).await?;
    let shown =
        s.object_is(QUEUE_POLICY, &s.name("bad"), "Active=False", |p| condition(p, "Active") == "False").await?;
    ensure!(message(&shown, "Active").contains("no-such-queue"), "{}", shown["status"]);
    s.conclude().await
}

pub(crate) async fn preemption_is_bounded(stage: &Stage) -> Result<()> {
    let s = stage.scenario("bounds").await?;
    s.simple_queue("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    for (name, value) in [("near", 9), ("far", 10)] {
        s.apply(&priority_class(&s.name(name), value)).await?;
    }
    policy(&s, &json!({"preemption": {"minPriorityDifference": 10, "protectedRunningTime": "6s"}})).await?;
    s.object_is(QUEUE_POLICY, &s.name("policy"), "active", |p| condition(p, "Active") == "True").await?;
    s.create(s.job("low").endless()).await?;
    s.admitted("low").await?;
    for name in ["near", "far"] {
        s.create(s.job(name).endless().label("kueue.x-k8s.io/priority-class", &s.name(name))).await?;
        s.pending(name).await?;
    }
    s.stays_pending("far").await?;
    // Nothing happens but that time passes.
    s.admitted("far").await?;
    let low = s.workload("low", "preempted", |w| condition(w, "Preempted") == "True").await?;
    ensure!(message(&low, "Preempted").contains("prioritization in the ClusterQueue"), "{}", low["status"]);
    s.stays_pending("near").await?;
    s.conclude().await
}
