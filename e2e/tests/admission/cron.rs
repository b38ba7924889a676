//! A CronJob whose template has the queue's name and the tiers of its Jobs: its Jobs wait, run and end like any other Job.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, Kind, condition, text};
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::quickstart::flavor_of;
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

use crate::admission::POOL;

const TIERS: &str = "berth.dev/capacity-tiers";

/// Time until the next full minute, with some time for the CronJob controller to create the Job.
const FIRING: Duration = Duration::from_secs(75);

/// A queue with quota of one cpu on demand and one cpu on spot, in this order.
async fn queues(s: &Scenario<'_>) -> Result<()> {
    let (demand, spot) = (s.name("on-demand"), s.name("spot"));
    for (name, tier, pool) in [(&demand, "on-demand", "blue"), (&spot, "spot", "green")] {
        let mut flavor = manifest::flavor(name, &[(POOL, pool)]);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        s.apply(&flavor).await?;
    }
    let cpu = [quota("cpu", "1")];
    let quotas = [(demand.as_str(), cpu.as_slice()), (spot.as_str(), cpu.as_slice())];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&quotas)], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    Ok(())
}

pub(crate) async fn fired_and_by_hand(stage: &Stage) -> Result<()> {
    let s = stage.scenario("cronjob").await?;
    queues(&s).await?;
    let queue = s.name("cq");
    s.create(s.job("before").endless().annotation(TIERS, "spot")).await?;
    s.admitted("before").await?;
    // The CronJob's template does not suspend its Jobs, as users write templates. The Jobs run for longer than a Job may run without quota (invariant
    // L3), so that they are not over before Berth has suspended them.
    let template = s.job("").run_ms(11_000).annotation(TIERS, "spot").manifest();
    let mut spec = template["spec"].clone();
    spec.as_object_mut().context("a job's spec")?.remove("suspend");
    let manifest = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": s.namespace, "name": "nightly"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {
            "metadata": {"labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"]},
            "spec": spec}},
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

    // The tier that the CronJob's template names is full, so Berth suspends the CronJob's Job, which waits with a Workload of its own although the queue's
    // other tier is free.
    let waiting = s.pending(&fired).await?;
    ensure!(text(&waiting, "/spec/queueName") == "queue", "{}", waiting["spec"]);
    s.next_second().await;
    s.stage.plane.kubectl(&["create", "job", "--namespace=cronjob", "--from=cronjob/nightly", "by-hand"]).await?;
    s.pending("by-hand").await?;
    s.stays_pending(&fired).await?;
    wait::until(STEP, "suspended jobs have no pods", || async {
        let pods = s.pods_of(&fired).await?.len() + s.pods_of("by-hand").await?.len();
        Ok(if pods == 0 { Seen::Yes(()) } else { Seen::NotYet(format!("{pods} pods")) })
    })
    .await?;
    s.object_is(CLUSTER_QUEUE, &queue, "two wait", |q| q["status"]["pendingWorkloads"] == json!(2)).await?;

    s.remove("before").await?;
    for name in [fired.as_str(), "by-hand"] {
        let workload = s.workload(name, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        ensure!(flavor_of(&workload) == s.name("spot"), "{name}: {}", workload["status"]["admission"]);
        s.finished(name).await?;
        for node in s.nodes_of(name, 1).await? {
            ensure!(node.starts_with("green"), "a pod of {name} ran on {node}");
        }
    }
    s.object_is(CLUSTER_QUEUE, &queue, "nothing reserved", |q| reserved(q, "total") == 0).await?;
    kind.delete(&s.client, &s.namespace, "nightly").await?;
    s.conclude().await
}
