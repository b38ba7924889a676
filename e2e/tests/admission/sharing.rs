//! Admission fair sharing: of two LocalQueues of one ClusterQueue, the one that used less in the recent past is served before the other.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{LOCAL_QUEUE, text};
use berth_e2e::manifest::{Job, cluster_queue, flavor, group, local_queue, priority_class, quota};
use berth_e2e::quota_tree::thousandths;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

/// The half-life of usage is short enough that the test sees usage rise and fall; between two looks of the test the usage changes little.
pub(crate) const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
admissionFairSharing:
  usageHalfLifeTime: 60s
  usageSamplingInterval: 1s
";

/// Consumed cpu in the status of a LocalQueue, in thousandths; an absent value is 0.
fn consumed(queue: &Value) -> i128 {
    let status = &queue["status"]["fairSharing"]["admissionFairSharingStatus"];
    status["consumedResources"].get("cpu").and_then(thousandths).unwrap_or(0)
}

async fn consumption(s: &Scenario<'_>, queue: &str) -> Result<i128> {
    let found = LOCAL_QUEUE.get(&s.client, &s.namespace, queue).await?.context("the LocalQueue exists")?;
    Ok(consumed(&found))
}

/// A job that uses the full quota of the queue.
fn full_size_job(s: &Scenario<'_>, name: &str, queue: &str, class: &str) -> Job {
    let class = s.name(class);
    Job::new(&s.namespace, name, queue).cpu("4").endless().label("kueue.x-k8s.io/priority-class", &class)
}

pub(crate) async fn less_used_first(stage: &Stage) -> Result<()> {
    let s = stage.scenario("usage-order").await?;
    for (class, value) in [("low", 10), ("high", 100)] {
        s.apply(&priority_class(&s.name(class), value)).await?;
    }
    s.apply(&flavor(&s.name("flavor"), &[])).await?;
    let groups = [group(&[(&s.name("flavor"), &[quota("cpu", "4")])])];
    let scope = json!({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    s.apply(&cluster_queue(&s.name("cq"), &groups, &scope)).await?;
    for name in ["busy", "calm"] {
        s.apply(&local_queue(&s.namespace, name, &s.name("cq"))).await?;
    }
    s.create(full_size_job(&s, "long", "busy", "low")).await?;
    s.admitted("long").await?;
    // The expected consumption is what remains of four cpus used for five seconds, with a half-life of a minute.
    let used = s.object_is(LOCAL_QUEUE, "busy", "at least 220m consumed", |q| consumed(q) >= 220).await?;
    let status = &used["status"]["fairSharing"]["admissionFairSharingStatus"];
    ensure!(!text(status, "/lastUpdate").is_empty(), "{status}");
    ensure!(consumed(&used) <= 4000, "nobody can have used more than there is: {status}");
    ensure!(consumption(&s, "calm").await? == 0, "calm has used nothing yet");

    // The job of the queue busy is created before the job of the queue calm, and yet the job of calm is admitted before it.
    s.create(full_size_job(&s, "early", "busy", "low")).await?;
    s.pending("early").await?;
    s.next_second().await;
    s.create(full_size_job(&s, "late", "calm", "low")).await?;
    s.pending("late").await?;
    s.remove("long").await?;
    s.admitted("late").await?;
    s.stays_pending("early").await?;

    // Now the queue calm uses the quota and the consumption of busy decays: busy is served before calm, even against a higher priority.
    s.create(full_size_job(&s, "urgent", "calm", "high")).await?;
    s.pending("urgent").await?;
    wait::until(STEP, "calm has consumed more than busy", || async {
        let (busy, calm) = (consumption(&s, "busy").await?, consumption(&s, "calm").await?);
        Ok(Seen::when(calm > busy + 50 && busy > 0, || format!("busy {busy}m, calm {calm}m")))
    })
    .await?;
    s.remove("late").await?;
    s.admitted("early").await?;
    s.stays_pending("urgent").await?;

    // While any consumption is left, Berth goes on updating the statuses of the LocalQueues; the LocalQueues are deleted, so that writes come to
    // rest.
    for job in ["urgent", "early"] {
        s.remove(job).await?;
    }
    for name in ["busy", "calm"] {
        LOCAL_QUEUE.delete(&s.client, &s.namespace, name).await?;
    }
    s.conclude().await
}
