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
    for (spec, words) in [
        (json!({}), "one of the fields in [clusterQueues clusterQueueSelector] must be set"),
        (json!({"clusterQueues": ["a", "a"]}), "spec.clusterQueues"),
        (json!({"clusterQueues": ["A!"]}), "spec.clusterQueues[0]"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"default": ["gold"]}}), "spec.capacityTiers.default[0]"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"default": ["spot", "spot"]}}), "must be unique"),
        (
            json!({"clusterQueues": ["a"], "capacityTiers": {"patience": {"gold": "1m"}}}),
            "keys must be reserved, on-demand or spot",
        ),
        (
            json!({"clusterQueues": ["a"], "capacityTiers": {"patience": {"spot": "soon"}}}),
            "spec.capacityTiers.patience.spot",
        ),
        (
            json!({"clusterQueues": ["a"], "capacityTiers": {"stockOutOn": ["Slow"]}}),
            "spec.capacityTiers.stockOutOn[0]",
        ),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"backoff": {"factor": 0}}}), "greater than or equal to 1"),
        (json!({"clusterQueues": ["a"], "admission": {"maxJobs": -1}}), "greater than or equal to 0"),
        (json!({"clusterQueues": ["a"], "preemption": {"maxEvictedPercent": 50}}), "greater than or equal to 100"),
        (json!({"clusterQueues": ["a"], "preemption": {"protectedRunningTime": "-1m"}}), "protectedRunningTime"),
        (json!({"clusterQueues": ["a"], "preemption": {"gracePeriod": "a while"}}), "spec.preemption.gracePeriod"),
        (json!({"clusterQueues": ["a"], "borrowingRatioPercent": -1}), "greater than or equal to 0"),
        (
            json!({"clusterQueues": ["a"], "capacityTiers": {"maxSharePercent": {"spot": 101}}}),
            "less than or equal to 100",
        ),
        (
            json!({"clusterQueues": ["a"], "capacityTiers": {"maxSharePercent": {"preemptible": 1}}}),
            "keys must be reserved, on-demand or spot",
        ),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"selectors": "Ignore"}}), "spec.capacityTiers.selectors"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"backoff": {"initial": "1 m"}}}), "backoff.initial"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"backoff": {"max": "long"}}}), "backoff.max"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"backoff": {"decay": "-1s"}}}), "backoff.decay"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"climbBack": {"when": "Later"}}}), "climbBack.when"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"climbBack": {"minStay": "x"}}}), "climbBack.minStay"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"climbBack": {"hysteresis": ""}}}), "climbBack.hysteresis"),
        (json!({"clusterQueues": ["a"], "capacityTiers": {"climbBack": {"maxTimes": 101}}}), "climbBack.maxTimes"),
        (json!({"clusterQueues": ["a"], "admission": {"maxGPUsPerJob": -1}}), "spec.admission.maxGPUsPerJob"),
        (json!({"clusterQueues": ["a"], "preemption": {"minPriorityDifference": -1}}), "minPriorityDifference"),
        (json!({"clusterQueues": ["a"], "preemption": {"maxVictims": -1}}), "spec.preemption.maxVictims"),
        (json!({"clusterQueues": ["a"], "waitingTimeBonus": {}}), "spec.waitingTimeBonus.pointsPerHour"),
        (json!({"clusterQueues": ["a"], "waitingTimeBonus": {"pointsPerHour": 0}}), "greater than or equal to 1"),
        (
            json!({"clusterQueues": ["a"], "admission": {"priorityRange": {"min": 2, "max": 1}}}),
            "min must not be greater than max",
        ),
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
