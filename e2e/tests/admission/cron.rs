//! A CronJob whose template carries the queue's name: what it fires queues, runs and ends like any other Job.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, Kind, condition, text};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

/// The next full minute, and time for the controller to see it.
const FIRING: Duration = Duration::from_secs(75);

pub(crate) async fn fired_and_by_hand(stage: &Stage) -> Result<()> {
    let s = stage.scenario("cronjob").await?;
    s.simple_queue("1", &json!({})).await?;
    let queue = s.name("cq");
    s.create(s.job("before").endless()).await?;
    s.admitted("before").await?;
    // As users write it: nothing in the template says that its jobs begin suspended. They run long enough not to be over
    // before Berth has suspended them.
    let template = s.job("").run_ms(5000).manifest();
    let mut spec = template["spec"].clone();
    spec.as_object_mut().context("a job's spec")?.remove("suspend");
    let manifest = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": s.namespace, "name": "nightly"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {
            "metadata": {"labels": template["metadata"]["labels"]}, "spec": spec}},
    });
    let cron = s.apply(&manifest).await?;
    let kind = Kind::of(&manifest)?;
    let fired = wait::until(FIRING, "the schedule fires", || async {
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let mine = |job: &&Value| text(job, "/metadata/ownerReferences/0/uid") == text(&cron, "/metadata/uid");
        let found = jobs.iter().find(mine).cloned();
        Ok(found
            .map_or_else(|| Seen::NotYet(format!("{:?}", jobs.iter().map(kinds::key).collect::<Vec<_>>())), Seen::Yes))
    })
    .await?;
    kind.patch(&s.client, &s.namespace, "nightly", &json!({"spec": {"suspend": true}})).await?;
    let made = fired["metadata"]["annotations"].to_string();
    ensure!(made.contains("cronjob-scheduled-timestamp"), "not made by the CronJob's controller: {made}");
    let fired = text(&fired, "/metadata/name").to_owned();

    // The queue is full: the job is suspended and waits as a Workload of its own.
    let waiting = s.pending(&fired).await?;
    ensure!(text(&waiting, "/spec/queueName") == "queue", "{}", waiting["spec"]);
    s.next_second().await;
    s.stage.plane.kubectl(&["create", "job", "--namespace=cronjob", "--from=cronjob/nightly", "by-hand"]).await?;
    s.pending("by-hand").await?;
    s.stays_pending(&fired).await?;
    wait::until(Duration::from_secs(20), "suspended jobs have no pods", || async {
        let pods = s.pods_of(&fired).await?.len() + s.pods_of("by-hand").await?.len();
        Ok(if pods == 0 { Seen::Yes(()) } else { Seen::NotYet(format!("{pods} pods")) })
    })
    .await?;
    s.object_is(CLUSTER_QUEUE, &queue, "two wait", |q| q["status"]["pendingWorkloads"] == json!(2)).await?;

    s.remove("before").await?;
    for name in [fired.as_str(), "by-hand"] {
        s.workload(name, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        s.finished(name).await?;
    }
    s.object_is(CLUSTER_QUEUE, &queue, "nothing reserved", |q| reserved(q, "total") == 0).await?;
    kind.delete(&s.client, &s.namespace, "nightly").await?;
    s.conclude().await
}
