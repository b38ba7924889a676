//! Scenarios in which a TrainingJob is stopped before its end and comes back.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, TRAINING_JOB, condition, condition_object, text};
use berth_e2e::manifest;
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use crate::training::elastic::live;
use crate::training::{LIMIT, endless, is, phase, pods_of, training};

/// Waits until no pod of a TrainingJob is left.
pub(crate) async fn still(s: &Scenario<'_>, name: &str) -> Result<()> {
    wait::until(LIMIT, &format!("no pods of {name}"), || async {
        let left = pods_of(s, name).await?.len();
        Ok(Seen::when(left == 0, || format!("{left} pods")))
    })
    .await
}

/// A job of higher priority preempts a TrainingJob, which is admitted again when there is quota, with the same Workload.
pub(crate) async fn preempted(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("preempted").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    for (class, value) in [("low", 10), ("high", 100)] {
        s.apply(&manifest::priority_class(&s.name(class), value)).await?;
    }
    let of = |class: &str| {
        let mut more = endless();
        more["schedulingConfig"] = json!({"priority": s.name(class)});
        more
    };
    s.apply(&training(s, "low", "PyTorchJob", &of("low"))).await?;
    phase(s, "low", "Running").await?;
    let before = s.workload_of("low").await?.context("workload")?;
    s.apply(&training(s, "high", "PyTorchJob", &of("high"))).await?;
    let waiting = phase(s, "low", "Queued").await?;
    let admitted = condition_object(&waiting, "Admitted").cloned().unwrap_or_default();
    ensure!(!text(&admitted, "/message").is_empty(), "{admitted}");
    phase(s, "high", "Running").await?;
    still(s, "low").await?;
    ensure!(JOB.get(&s.client, &s.namespace, "low-worker").await?.is_none(), "its Job is left");
    TRAINING_JOB.delete(&s.client, &s.namespace, "high").await?;
    let running = phase(s, "low", "Running").await?;
    let reasons: Vec<&str> =
        berth_e2e::kinds::items(&running, "/status/events").iter().map(|e| text(e, "/reason")).collect();
    ensure!(reasons.contains(&"Preempted"), "{reasons:?}");
    let after = s.workload_of("low").await?.context("workload")?;
    ensure!(text(&after, "/metadata/uid") == text(&before, "/metadata/uid"), "another Workload");
    scenario.conclude().await
}

/// A user suspends a TrainingJob: its pods end, its quota is free, and the job can be resumed.
pub(crate) async fn suspended(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("suspended").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    s.apply(&training(s, "paused", "PyTorchJob", &endless())).await?;
    phase(s, "paused", "Running").await?;
    TRAINING_JOB.patch(&s.client, &s.namespace, "paused", &json!({"spec": {"suspend": true}})).await?;
    phase(s, "paused", "Suspended").await?;
    still(s, "paused").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    TRAINING_JOB.patch(&s.client, &s.namespace, "paused", &json!({"spec": {"suspend": false}})).await?;
    phase(s, "paused", "Running").await?;
    scenario.conclude().await
}

/// A user's finalizer keeps the Job of a suspended TrainingJob: the pods end nevertheless and the quota is free; the TrainingJob can run again after
/// the Job is gone.
pub(crate) async fn kept_part(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("kept-part").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    s.apply(&training(s, "kept", "PyTorchJob", &endless())).await?;
    phase(s, "kept", "Running").await?;
    let finalizers = |all: Value| json!({"metadata": {"finalizers": all}});
    JOB.patch(&s.client, &s.namespace, "kept-worker", &finalizers(json!(["example.com/keeps"]))).await?;
    TRAINING_JOB.patch(&s.client, &s.namespace, "kept", &json!({"spec": {"suspend": true}})).await?;
    phase(s, "kept", "Suspended").await?;
    still(s, "kept").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    let left = JOB.get(&s.client, &s.namespace, "kept-worker").await?.context("its Job")?;
    ensure!(!text(&left, "/metadata/deletionTimestamp").is_empty(), "{}", left["metadata"]);
    TRAINING_JOB.patch(&s.client, &s.namespace, "kept", &json!({"spec": {"suspend": false}})).await?;
    s.workload("kept", "waiting for what is left", |workload| {
        let waits = condition_object(workload, "QuotaReserved").cloned().unwrap_or_default();
        text(&waits, "/message").ends_with("kept-worker of its last run, which is being deleted")
    })
    .await?;
    // Berth does not go on deleting the Job, so the Job's resourceVersion stays the same after the job controller's last write.
    let version = |job: Option<Value>| job.map(|job| text(&job, "/metadata/resourceVersion").to_owned());
    let mut versions = Vec::new();
    for _ in 0..5 {
        versions.push(version(JOB.get(&s.client, &s.namespace, "kept-worker").await?).context("its Job")?);
        if versions.iter().rev().nth(1) == versions.last() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    ensure!(versions.len() > 1 && versions.iter().rev().nth(1) == versions.last(), "{versions:?}");
    JOB.patch(&s.client, &s.namespace, "kept-worker", &finalizers(Value::Null)).await?;
    phase(s, "kept", "Running").await?;
    scenario.conclude().await
}

/// A TrainingJob waits longer than its `maxWaitTime`, and fails.
pub(crate) async fn waits_too_long(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("max-wait").await?;
    let s = &scenario;
    s.simple_queue("1", &json!({})).await?;
    s.apply(&training(s, "late", "PyTorchJob", &json!({"schedulingConfig": {"maxWaitTime": "2s"}}))).await?;
    phase(s, "late", "Queued").await?;
    let failed = phase(s, "late", "Failed").await?;
    let why = condition_object(&failed, "Failed").cloned().unwrap_or_default();
    ensure!(text(&why, "/reason") == "MaxWaitTimeExceeded" && text(&why, "/message").contains("2s"), "{why}");
    let workload = s.workload("late", "Finished", |w| condition(w, "Finished") == "True").await?;
    let end = condition_object(&workload, "Finished").cloned().unwrap_or_default();
    ensure!(text(&end, "/reason") == "MaxWaitTimeExceeded", "{end}");
    s.warned("late", "MaxWaitTimeExceeded", &["2s"]).await?;
    ensure!(pods_of(s, "late").await?.is_empty(), "it had pods");
    scenario.conclude().await
}

/// If a gang is admitted, but no node fits its pods, Berth releases the gang with all of its pods, and another job gets the quota.
pub(crate) async fn pods_never_ready(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("gang-timeout").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    let mut nowhere = endless();
    nowhere["template"]["spec"]["nodeSelector"] = json!({"e2e.berth.dev/no-such": "node"});
    nowhere["schedulingConfig"] = json!({"schedulingTimeout": "2s"});
    s.apply(&training(s, "stuck", "PyTorchJob", &nowhere)).await?;
    let starting = phase(s, "stuck", "Pending").await?;
    ensure!(!starting.is_null(), "admitted and starting");
    let released = is(s, "stuck", "released", |job| condition(job, "SchedulingTimeout") == "True").await?;
    let why = condition_object(&released, "SchedulingTimeout").cloned().unwrap_or_default();
    ensure!(text(&why, "/message").contains("2s"), "{why}");
    s.warned("stuck", "SchedulingTimeout", &["not all pods had nodes 2s after the admission"]).await?;
    still(s, "stuck").await?;
    s.apply(&training(s, "next", "PyTorchJob", &json!({}))).await?;
    phase(s, "next", "Succeeded").await?;
    let workload = s.workload_of("stuck").await?.context("workload")?;
    let found_condition: Value = condition_object(&workload, "Requeued").cloned().unwrap_or_default();
    ensure!(
        text(&found_condition, "/reason") == "SchedulingTimeout" && text(&found_condition, "/status") == "False",
        "{found_condition}"
    );
    scenario.conclude().await
}

/// A TrainingJob is deleted while it runs: its quota is free only after its slow pods are gone.
pub(crate) async fn deleted(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("training-deleted").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    s.apply(&training(s, "gone", "PyTorchJob", &endless())).await?;
    phase(s, "gone", "Running").await?;
    s.apply(&training(s, "next", "PyTorchJob", &json!({}))).await?;
    phase(s, "next", "Queued").await?;
    TRAINING_JOB.delete(&s.client, &s.namespace, "gone").await?;
    s.workload("next", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    // A pod that has ended may still exist for a moment.
    ensure!(live(s, "gone").await? == 0, "the next one was admitted while pods were left");
    // A new TrainingJob of the same name is another object, with a run of its own.
    phase(s, "next", "Succeeded").await?;
    s.apply(&training(s, "gone", "PyTorchJob", &json!({}))).await?;
    phase(s, "gone", "Succeeded").await?;
    scenario.conclude().await
}
