//! Queues: both queueing strategies, stop policies, queues that are created late, namespace selectors, priorities.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, Kind, LOCAL_QUEUE, condition, condition_object, text};
use berth_e2e::manifest::{local_queue, priority_class};
use berth_e2e::scenario::Stage;
use serde_json::json;

const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";

pub(crate) async fn strict_fifo(stage: &Stage) -> Result<()> {
    let s = stage.scenario("strict-fifo").await?;
    s.simple_queue("4", &json!({"queueingStrategy": "StrictFIFO"})).await?;
    s.create(s.job("running").cpu("2").endless()).await?;
    s.admitted("running").await?;
    s.create(s.job("head").cpu("3").endless()).await?;
    s.pending("head").await?;
    // Creation times are in whole seconds, and Workloads of equal time are ordered by name: the small job must be created in a later second than the
    // head.
    s.stays_pending("head").await?;
    // The small job would fit into the quota, but with the strategy StrictFIFO the head of the queue blocks it.
    s.create(s.job("small").cpu("1").endless()).await?;
    s.job_is("small", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    s.stays_pending("small").await?;
    s.remove("running").await?;
    s.admitted("head").await?;
    s.admitted("small").await?;
    s.conclude().await
}

pub(crate) async fn best_effort_fifo(stage: &Stage) -> Result<()> {
    let s = stage.scenario("best-effort").await?;
    s.simple_queue("4", &json!({"queueingStrategy": "BestEffortFIFO"})).await?;
    s.create(s.job("running").cpu("2").endless()).await?;
    s.admitted("running").await?;
    s.create(s.job("head").cpu("3").endless()).await?;
    s.pending("head").await?;
    s.create(s.job("small").cpu("1").endless()).await?;
    s.admitted("small").await?;
    s.stays_pending("head").await?;
    s.remove("running").await?;
    s.admitted("head").await?;
    s.conclude().await
}

pub(crate) async fn hold(stage: &Stage) -> Result<()> {
    let s = stage.scenario("hold").await?;
    s.simple_queue("4", &json!({})).await?;
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "Hold"})).await?;
    let held = s.object_is(CLUSTER_QUEUE, &s.name("cq"), "Active=False", |q| condition(q, "Active") == "False").await?;
    let active = condition_object(&held, "Active").cloned().unwrap_or_default();
    ensure!(text(&active, "/reason") == "Stopped", "{active}");
    s.object_is(LOCAL_QUEUE, "queue", "Active=False", |q| condition(q, "Active") == "False").await?;
    s.create(s.job("late").endless()).await?;
    s.pending("late").await?;
    s.stays_pending("late").await?;
    let running = s.get_job("running").await?;
    ensure!(running["spec"]["suspend"] == json!(false), "Hold leaves running jobs alone");
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
    s.admitted("late").await?;
    s.conclude().await
}

pub(crate) async fn hold_and_drain(stage: &Stage) -> Result<()> {
    let s = stage.scenario("drain").await?;
    s.simple_queue("4", &json!({})).await?;
    s.create(s.job("running").pods(2).endless().termination_ms(800)).await?;
    s.admitted("running").await?;
    s.nodes_of("running", 2).await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "HoldAndDrain"})).await?;
    let evicted = s.workload("running", "Evicted", |w| condition(w, "Evicted") == "True").await?;
    let reason = condition_object(&evicted, "Evicted").cloned().unwrap_or_default();
    ensure!(text(&reason, "/reason") == "ClusterQueueStopped", "{reason}");
    s.job_is("running", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    s.workload("running", "quota released", |w| condition(w, "QuotaReserved") == "False").await?;
    s.stays_pending("running").await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
    s.admitted("running").await?;
    s.conclude().await
}

pub(crate) async fn local_queue_hold(stage: &Stage) -> Result<()> {
    let s = stage.scenario("local-hold").await?;
    s.simple_queue("4", &json!({})).await?;
    s.apply(&local_queue(&s.namespace, "other", &s.name("cq"))).await?;
    LOCAL_QUEUE.patch(&s.client, &s.namespace, "queue", &json!({"spec": {"stopPolicy": "Hold"}})).await?;
    let held = s.object_is(LOCAL_QUEUE, "queue", "Active=False", |q| condition(q, "Active") == "False").await?;
    let active = condition_object(&held, "Active").cloned().unwrap_or_default();
    ensure!(text(&active, "/reason") == "Stopped", "{active}");
    s.create(s.job("held")).await?;
    s.create(berth_e2e::manifest::Job::new(&s.namespace, "free", "other")).await?;
    s.finished("free").await?;
    s.stays_pending("held").await?;
    LOCAL_QUEUE.patch(&s.client, &s.namespace, "queue", &json!({"spec": {"stopPolicy": "None"}})).await?;
    s.finished("held").await?;
    s.conclude().await
}

pub(crate) async fn created_after_its_jobs(stage: &Stage) -> Result<()> {
    let s = stage.scenario("queue-later").await?;
    // The job `early` waits suspended; the job `eager` arrives running, and Berth must suspend it although its queue does not exist.
    s.create(s.job("early")).await?;
    s.create(s.job("eager").spec(&json!({"suspend": false})).endless()).await?;
    s.job_is("eager", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    s.stays_pending("early").await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    let orphan = s.object_is(LOCAL_QUEUE, "queue", "Active=False", |q| condition(q, "Active") == "False").await?;
    let active = condition_object(&orphan, "Active").cloned().unwrap_or_default();
    ensure!(text(&active, "/reason") == "ClusterQueueDoesNotExist", "{active}");
    s.stays_pending("early").await?;
    s.simple_queue("2", &json!({})).await?;
    s.object_is(LOCAL_QUEUE, "queue", "Active=True", |q| condition(q, "Active") == "True").await?;
    s.finished("early").await?;
    s.admitted("eager").await?;
    s.conclude().await
}

pub(crate) async fn namespace_selector(stage: &Stage) -> Result<()> {
    let s = stage.scenario("namespaces").await?;
    s.simple_queue("2", &json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}})).await?;
    s.create(s.job("outsider")).await?;
    // Berth may see the job before its queue, and until it sees the queue the Workload has another message.
    s.workload("outsider", "told that its namespace is not selected", |w| {
        let message = condition_object(w, "QuotaReserved").map(|c| text(c, "/message")).unwrap_or_default();
        message.contains("namespace doesn't match ClusterQueue selector")
    })
    .await?;
    s.pending("outsider").await?;
    s.stays_pending("outsider").await?;
    let namespaces = Kind::of(&json!({"apiVersion": "v1", "kind": "Namespace"}))?;
    namespaces.patch(&s.client, "", &s.namespace, &json!({"metadata": {"labels": {"team": "blue"}}})).await?;
    s.finished("outsider").await?;
    s.conclude().await
}

pub(crate) async fn priorities(stage: &Stage) -> Result<()> {
    let s = stage.scenario("priorities").await?;
    s.simple_queue("1", &json!({})).await?;
    let [low, high] = [("low", 10), ("high", 1000)].map(|(name, value)| (s.name(name), value));
    for (name, value) in [&low, &high] {
        s.apply(&priority_class(name, *value)).await?;
    }
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    for (name, class) in [("none", None), ("lower", Some(&low.0)), ("higher", Some(&high.0))] {
        let job = s.job(name).run_ms(500);
        s.create(if let Some(class) = class { job.label(PRIORITY_LABEL, class) } else { job }).await?;
        s.pending(name).await?;
    }
    let higher = s.workload("higher", "priority 1000", |w| w["spec"]["priority"] == json!(1000)).await?;
    ensure!(text(&higher, "/spec/priorityClassRef/name") == high.0, "{}", higher["spec"]["priorityClassRef"]);
    s.remove("running").await?;
    let mut admitted = Vec::new();
    for name in ["higher", "lower", "none"] {
        s.finished(name).await?;
        let workload = s.workload(name, "there", |_| true).await?;
        let at = condition_object(&workload, "QuotaReserved").map(|c| text(c, "/lastTransitionTime").to_owned());
        let finished = condition_object(&workload, "Finished").map(|c| text(c, "/lastTransitionTime").to_owned());
        admitted.push((name, at.unwrap_or_default(), finished.unwrap_or_default()));
    }
    // The queue has quota for one job at a time, so each job was finished before the next job was admitted.
    ensure!(admitted.windows(2).all(|w| w[0].2 <= w[1].1), "admitted and finished at {admitted:?}");
    ensure!(kinds::condition(&higher, "Finished") != "True", "it had to wait");
    s.conclude().await
}
