//! Fair sharing: tenants of one cohort get what they weigh, whoever came first and whatever the priority.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, WORKLOAD, condition, text};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::json;

use crate::{basics, job, queue, within};

/// Jobs of a queue that hold quota and are not on their way out.
async fn running(s: &Scenario<'_>, queue: &str) -> Result<usize> {
    let workloads = WORKLOAD.list(&s.client, &s.namespace).await?;
    let counts = |w: &&serde_json::Value| {
        text(w, "/spec/queueName") == queue && condition(w, "Admitted") == "True" && condition(w, "Evicted") != "True"
    };
    Ok(workloads.iter().filter(counts).count())
}

/// Waits until the queues run so many jobs each, and stay there.
async fn settle(s: &Scenario<'_>, wanted: &[(&str, usize)]) -> Result<()> {
    let look = || async {
        let mut found = Vec::new();
        for (queue, _) in wanted {
            found.push((*queue, running(s, queue).await?));
        }
        Ok(Seen::when(found == wanted, || format!("{found:?}")))
    };
    wait::until(STEP, &format!("running {wanted:?}"), look).await?;
    wait::stays(std::time::Duration::from_secs(3), &format!("running {wanted:?}"), look).await
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
    // The shares are told in status: in thousandths of what the cohort lends, by weight.
    for name in ["a", "b", "c"] {
        let share = |q: &serde_json::Value| q["status"]["fairSharing"]["weightedShare"] == json!(250);
        s.object_is(CLUSTER_QUEUE, &s.name(name), "weightedShare 250", share).await?;
    }
    s.conclude().await
}

/// Requirement C.1: a flood of high-priority jobs of one tenant does not take the others' shares.
pub(crate) async fn no_monopoly(stage: &Stage) -> Result<()> {
    let s = stage.scenario("monopoly").await?;
    tenants(&s, &[("modest", "1"), ("quiet", "1"), ("loud", "1")]).await?;
    flood(&s, "modest", 4, "low").await?;
    flood(&s, "quiet", 4, "low").await?;
    settle(&s, &[("modest", 4), ("quiet", 4), ("loud", 0)]).await?;
    flood(&s, "loud", 24, "high").await?;
    wait::until(STEP, "the loud tenant has its share", || async {
        let loud = running(&s, "loud").await?;
        Ok(Seen::when(loud >= 2, || format!("{loud} run")))
    })
    .await?;
    wait::stays(std::time::Duration::from_secs(5), "no tenant is below its share", || async {
        let (modest, quiet, loud) =
            (running(&s, "modest").await?, running(&s, "quiet").await?, running(&s, "loud").await?);
        let fair = modest >= 2 && quiet >= 2 && loud <= 3;
        Ok(Seen::when(fair, || format!("modest {modest}, quiet {quiet}, loud {loud}")))
    })
    .await?;
    let total = running(&s, "modest").await? + running(&s, "quiet").await? + running(&s, "loud").await?;
    ensure!(total == 8, "all of the pool is used: {total}");
    s.conclude().await
}
