//! Fair sharing: each tenant of a cohort gets a share by its weight, whatever the order of arrival and the priorities.

use std::time::Duration;

use anyhow::Result;
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, WORKLOAD, condition, text};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

use crate::preemption::{basics, job, queue, within};

/// Number of jobs of the flood that exist at any time, which is more than the cohort's quota has room for.
const FLOOD: usize = 12;
/// Time limit, on a busy machine, for a tenant to have its share after its arrival: four jobs have to be stopped for it.
const SHARE_WITHIN: Duration = Duration::from_secs(30);

/// Numbers of a queue's jobs: running, waiting and ended.
#[derive(Debug, Default)]
struct QueueUsage {
    /// Number of jobs that hold quota and are not being evicted.
    running: usize,
    /// Number of jobs that hold no quota or are being evicted.
    waiting: usize,
    /// Jobs that have finished.
    ended: usize,
}

async fn queue_usage(s: &Scenario<'_>, queue: &str) -> Result<QueueUsage> {
    let mut found = QueueUsage::default();
    for workload in WORKLOAD.list(&s.client, &s.namespace).await? {
        if text(&workload, "/spec/queueName") != queue {
            continue;
        }
        if condition(&workload, "Finished") == "True" {
            found.ended += 1;
        } else if condition(&workload, "Admitted") == "True" && condition(&workload, "Evicted") != "True" {
            found.running += 1;
        } else {
            found.waiting += 1;
        }
    }
    Ok(found)
}

/// Number of a queue's jobs that hold quota and are not being evicted.
async fn running(s: &Scenario<'_>, queue: &str) -> Result<usize> {
    Ok(queue_usage(s, queue).await?.running)
}

/// Waits until the queues run the numbers of jobs in `wanted`, and checks that the numbers stay the same.
async fn settle(s: &Scenario<'_>, wanted: &[(&str, usize)]) -> Result<()> {
    let look = || async {
        let mut found = Vec::new();
        for (queue, _) in wanted {
            found.push((*queue, running(s, queue).await?));
        }
        Ok(Seen::when(found == wanted, || format!("{found:?}")))
    };
    wait::until(STEP, &format!("running {wanted:?}"), look).await?;
    wait::stays(Duration::from_secs(3), &format!("running {wanted:?}"), look).await
}

async fn flood(s: &Scenario<'_>, queue: &str, count: usize, class: &str) -> Result<()> {
    for index in 0..count {
        s.create(job(s, &format!("{queue}-{class}-{index}"), queue, "1", class)).await?;
    }
    Ok(())
}

async fn tenants(s: &Scenario<'_>, weights: &[(&str, &str)]) -> Result<()> {
    basics(s).await?;
    for (name, weight) in weights {
        let mut spec =
            within(s, "cohort", &json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}));
        spec["fairSharing"] = json!({"weight": weight});
        queue(s, name, "0", &spec).await?;
    }
    queue(s, "pool", "8", &within(s, "cohort", &json!({}))).await
}

pub(crate) async fn three_tenants(stage: &Stage) -> Result<()> {
    let s = stage.scenario("three-tenants").await?;
    tenants(&s, &[("a", "1"), ("b", "1"), ("c", "2")]).await?;
    flood(&s, "a", 9, "low").await?;
    settle(&s, &[("a", 8), ("b", 0), ("c", 0)]).await?;
    flood(&s, "b", 9, "low").await?;
    settle(&s, &[("a", 4), ("b", 4), ("c", 0)]).await?;
    flood(&s, "c", 9, "low").await?;
    settle(&s, &[("a", 2), ("b", 2), ("c", 4)]).await?;
    // The statuses show the shares in thousandths of the cohort's lendable quota, divided by the weight.
    for name in ["a", "b", "c"] {
        let share = |q: &Value| q["status"]["fairSharing"]["weightedShare"] == json!(250);
        s.object_is(CLUSTER_QUEUE, &s.name(name), "weightedShare 250", share).await?;
    }
    s.conclude().await
}

/// Requirement C.1: a flood of high-priority jobs of one tenant, which has all quota already and whose ended jobs are followed by others, does not
/// keep another tenant from its share.
pub(crate) async fn no_monopoly(stage: &Stage) -> Result<()> {
    let s = stage.scenario("monopoly").await?;
    tenants(&s, &[("modest", "1"), ("loud", "1")]).await?;
    tokio::select! {
        failed = keeps_flooding(&s, "loud") => failed?,
        done = gets_its_share(&s) => done?,
    }
    // After the flood the other tenant, which waited longest, gets the rest of the quota.
    settle(&s, &[("modest", 6), ("loud", 0)]).await?;
    s.conclude().await
}

/// Keeps a tenant's queue full of high-priority jobs: a new job follows each job that ends. The function never ends by itself, and returns only an error.
async fn keeps_flooding(s: &Scenario<'_>, queue: &str) -> Result<()> {
    let mut made = 0_usize;
    loop {
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let is_of = |job: &&Value| job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == json!(queue);
        let left = jobs.iter().filter(is_of).filter(|job| condition(job, "Complete") != "True").count();
        for _ in left..FLOOD {
            let next = job(s, &format!("{queue}-{made}"), queue, "1", "high");
            s.create(next.pod_annotation("e2e.berth.dev/outcome", "succeed").run_ms(1500)).await?;
            made += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A tenant arrives with jobs of low priority when the flood holds all quota, and soon has half of the quota for as long as the flood goes on.
async fn gets_its_share(s: &Scenario<'_>) -> Result<()> {
    wait::until(STEP, "the flood holds everything, and jobs of it have come and gone", || async {
        let loud = queue_usage(s, "loud").await?;
        Ok(Seen::when(loud.running == 8 && loud.waiting > 0 && loud.ended >= 4, || format!("{loud:?}")))
    })
    .await?;
    flood(s, "modest", 6, "low").await?;
    let look = || async {
        let (modest, loud) = (queue_usage(s, "modest").await?, queue_usage(s, "loud").await?);
        Ok(Seen::when(modest.running >= 4 && loud.waiting > 0, || format!("modest {modest:?}, loud {loud:?}")))
    };
    wait::until(SHARE_WITHIN, "the modest tenant has its share, while the flood wants more", look).await?;
    let before = queue_usage(s, "loud").await?.ended;
    wait::stays(Duration::from_secs(6), "the modest tenant keeps its share, while the flood wants more", look).await?;
    wait::until(STEP, "jobs of the flood end, and others follow them", || async {
        let after = queue_usage(s, "loud").await?;
        Ok(Seen::when(after.ended >= before + 3, || format!("{before} had ended, and then {after:?}")))
    })
    .await
}
