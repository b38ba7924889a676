//! Workloads that are evicted, admitted again, or deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use berth_e2e::kinds::{JOB, LOCAL_QUEUE, WORKLOAD, condition, items, text};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

use crate::life::because;

/// A finished job's Workload is deleted some time after the job's end; the job stays, and gets no other Workload.
pub(crate) async fn finished(stage: &Stage) -> Result<()> {
    let s = stage.scenario("finished-goes").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("first")).await?;
    s.finished("first").await?;
    wait::stays(Duration::from_secs(2), "its Workload is kept for a while", || async {
        Ok(Seen::when(s.workload_of("first").await?.is_some(), || "gone".to_owned()))
    })
    .await?;
    wait::until(STEP, "its Workload is gone", || async {
        let found = s.workload_of("first").await?;
        Ok(Seen::when(found.is_none(), || format!("{:?}", found.map(|w| w["status"].clone()))))
    })
    .await?;
    wait::stays(Duration::from_secs(1), "the job stays as it is", || async {
        let (job, workload) = (s.get_job("first").await?, s.workload_of("first").await?);
        Ok(Seen::when(condition(&job, "Complete") == "True" && workload.is_none(), || format!("{workload:?}")))
    })
    .await?;
    s.conclude().await
}

async fn active(s: &Scenario<'_>, workload: &Value, active: bool) -> Result<Value> {
    let name = text(workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": active}})).await
}

/// A job that ran out of its time is deleted with its Workload; a job that its user deactivated stays.
pub(crate) async fn deactivated(stage: &Stage) -> Result<()> {
    let s = stage.scenario("deactivated-goes").await?;
    s.simple_queue("2", &json!({})).await?;
    s.create(s.job("by-user").endless()).await?;
    let workload = s.admitted("by-user").await?;
    active(&s, &workload, false).await?;
    s.workload("by-user", "deactivated and without quota", |w| {
        because(w, "Evicted", "Deactivated") && condition(w, "QuotaReserved") == "False"
    })
    .await?;
    s.create(s.job("out-of-time").label("kueue.x-k8s.io/max-exec-time-seconds", "1").endless()).await?;
    s.workload("out-of-time", "deactivated", |w| because(w, "Evicted", "DeactivatedDueToMaximumExecutionTimeExceeded"))
        .await?;
    wait::until(STEP, "the job and its Workload are gone", || async {
        let job = JOB.get(&s.client, &s.namespace, "out-of-time").await?.is_some();
        let workload = s.workload_of("out-of-time").await?.is_some();
        Ok(Seen::when(!job && !workload, || format!("job: {job}, Workload: {workload}")))
    })
    .await?;
    wait::stays(Duration::from_secs(1), "what the user deactivated stays", || async {
        let (job, workload) = (s.get_job("by-user").await?, s.workload_of("by-user").await?);
        Ok(Seen::when(workload.is_some() && job["spec"]["suspend"] == json!(true), || format!("{workload:?}")))
    })
    .await?;
    s.conclude().await
}

/// The user deactivates a Workload while its job runs, and activates it again.
pub(crate) async fn reactivated(stage: &Stage) -> Result<()> {
    let s = stage.scenario("reactivated").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("first").endless()).await?;
    let workload = s.admitted("first").await?;
    s.nodes_of("first", 1).await?;
    active(&s, &workload, false).await?;
    let stopped = s
        .workload("first", "deactivated and without quota", |w| {
            because(w, "Evicted", "Deactivated")
                && because(w, "QuotaReserved", "PendingEvaluation")
                && condition(w, "Requeued") == "False"
        })
        .await?;
    ensure!(s.get_job("first").await?["spec"]["suspend"] == json!(true), "it runs on");
    // Another job gets the quota of the deactivated job.
    s.create(s.job("second")).await?;
    s.finished("second").await?;
    active(&s, &stopped, true).await?;
    let back = s.admitted("first").await?;
    ensure!(because(&back, "Requeued", "Reactivated"), "{}", back["status"]["conditions"]);
    let evictions = items(&back, "/status/schedulingStats/evictions");
    ensure!(evictions.len() == 1 && evictions[0]["reason"] == "Deactivated", "{evictions:?}");
    s.conclude().await
}

/// A job whose pods do not become ready is requeued, and is deactivated after the last try.
pub(crate) async fn pods_not_ready(stage: &Stage) -> Result<()> {
    let s = stage.scenario("not-ready").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("lost").pod_spec(&json!({"nodeSelector": {"e2e.berth.dev/pool": "nowhere"}}))).await?;
    s.admitted("lost").await?;
    let sent_back = s.workload("lost", "PodsReadyTimeout", |w| because(w, "Evicted", "PodsReadyTimeout")).await?;
    ensure!(sent_back["status"]["requeueState"]["count"] == json!(1), "{}", sent_back["status"]["requeueState"]);
    let last = s.workload("lost", "no more tries", |w| because(w, "Evicted", "DeactivatedDueToRequeuingLimitExceeded"));
    let last = last.await?;
    ensure!(last["spec"]["active"] == json!(false), "{}", last["spec"]["active"]);
    wait::until(STEP, "the job is gone, as the retention says", || async {
        let job = JOB.get(&s.client, &s.namespace, "lost").await?.is_some();
        Ok(Seen::when(!job, || "there".to_owned()))
    })
    .await?;
    s.conclude().await
}

/// A LocalQueue that is drained evicts its jobs, and admits them again after it is opened.
pub(crate) async fn local_queue_drained(stage: &Stage) -> Result<()> {
    let s = stage.scenario("local-drain").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("first").endless()).await?;
    s.admitted("first").await?;
    s.nodes_of("first", 1).await?;
    let policy = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    LOCAL_QUEUE.patch(&s.client, &s.namespace, "queue", &policy("HoldAndDrain")).await?;
    s.workload("first", "evicted with the queue and without quota", |w| {
        because(w, "Evicted", "LocalQueueStopped") && condition(w, "QuotaReserved") == "False"
    })
    .await?;
    s.stays_pending("first").await?;
    LOCAL_QUEUE.patch(&s.client, &s.namespace, "queue", &policy("None")).await?;
    let back = s.admitted("first").await?;
    ensure!(because(&back, "Requeued", "LocalQueueRestarted"), "{}", back["status"]["conditions"]);
    s.conclude().await
}
