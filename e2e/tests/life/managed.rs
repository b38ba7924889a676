//! Who is managed, and what a Workload takes over from its job and from the class that it names.

use std::time::Duration;

use anyhow::{Result, ensure};
use berth_e2e::kinds::{JOB, WORKLOAD_PRIORITY_CLASS, condition};
use berth_e2e::manifest::{Job, priority_class};
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

/// A job that names no queue waits as well, until it names one.
pub(crate) async fn without_queue(stage: &Stage) -> Result<()> {
    let s = stage.scenario("without-queue").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(Job::new(&s.namespace, "plain", "")).await?;
    let workload = s.workload("plain", "made", |_| true).await?;
    ensure!(workload["spec"].get("queueName").is_none_or(|name| name == ""), "{}", workload["spec"]["queueName"]);
    s.stays_pending("plain").await?;
    JOB.patch(&s.client, &s.namespace, "plain", &json!({"metadata": {"labels": {QUEUE: "queue"}}})).await?;
    s.finished("plain").await?;
    s.conclude().await
}

/// In a namespace that is not managed, jobs run as they are.
pub(crate) async fn left_alone(stage: &Stage) -> Result<()> {
    let s = stage.scenario("left-alone").await?;
    s.simple_queue("0", &json!({})).await?;
    for (name, queue) in [("plain", ""), ("queued", "queue")] {
        s.create(Job::new(&s.namespace, name, queue).spec(&json!({"suspend": false}))).await?;
        s.job_is(name, "Complete", |job| condition(job, "Complete") == "True").await?;
        let workload = s.workload_of(name).await?;
        ensure!(workload.is_none(), "{name} has a Workload: {workload:?}");
    }
    s.conclude().await
}

pub(crate) async fn labels_copied(stage: &Stage) -> Result<()> {
    let s = stage.scenario("labels-copied").await?;
    s.simple_queue("1", &json!({})).await?;
    let job = s.job("first").label("e2e.berth.dev/project", "vision").label("e2e.berth.dev/other", "x");
    s.create(job).await?;
    s.finished("first").await?;
    let workload = s.workload("first", "there", |_| true).await?;
    let labels = &workload["metadata"]["labels"];
    ensure!(labels["e2e.berth.dev/project"] == "vision" && labels.get("e2e.berth.dev/other").is_none(), "{labels}");
    s.conclude().await
}

/// The class `default` for those that name none, a class whose value changes, and another class for a job that waits.
pub(crate) async fn priority_classes(stage: &Stage) -> Result<()> {
    let s = stage.scenario("classes").await?;
    s.simple_queue("1", &json!({})).await?;
    let (low, high) = (s.name("low"), s.name("high"));
    s.apply(&priority_class(&low, 10)).await?;
    s.apply(&priority_class(&high, 100)).await?;
    let of = |workload: &Value, class: &str, value: i32| {
        workload["spec"]["priority"] == json!(value) && workload["spec"]["priorityClassRef"]["name"] == json!(class)
    };
    s.create(s.job("holder").label(CLASS, &high).endless()).await?;
    s.admitted("holder").await?;
    let created = s.create(s.job("plain").endless()).await?;
    ensure!(created["metadata"]["labels"][CLASS] == "default", "{}", created["metadata"]["labels"]);
    s.workload("plain", "the priority of the class `default`", |w| of(w, "default", 5)).await?;
    s.create(s.job("climber").label(CLASS, &low).endless()).await?;
    s.workload("climber", "the priority of its class", |w| of(w, &low, 10)).await?;
    // A class that gets another value takes the waiting and the running along.
    for (class, value, job) in [(&low, 20, "climber"), (&high, 200, "holder")] {
        WORKLOAD_PRIORITY_CLASS.patch(&s.client, "", class, &json!({"value": value})).await?;
        s.workload(job, "the new value of its class", |w| of(w, class, value)).await?;
    }
    JOB.patch(&s.client, &s.namespace, "plain", &json!({"metadata": {"labels": {CLASS: high}}})).await?;
    s.workload("plain", "the priority of its new class", |w| of(w, &high, 200)).await?;
    s.remove("holder").await?;
    s.admitted("plain").await?;
    s.pending("climber").await?;
    for job in ["plain", "climber"] {
        s.remove(job).await?;
    }
    wait::stays(Duration::from_millis(500), "nothing comes back", || async {
        Ok(Seen::when(s.workload_of("plain").await?.is_none(), String::new))
    })
    .await?;
    s.conclude().await
}
