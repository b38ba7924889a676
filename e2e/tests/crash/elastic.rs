//! Stories of the crash table about TrainingJobs that change the number of their workers while they run.

use anyhow::Result;
use berth_e2e::kinds::TRAINING_JOB;
use berth_e2e::manifest::{merge, priority_class};
use berth_e2e::scenario::Scenario;
use futures::FutureExt;
use serde_json::{Value, json};

use crate::crash::StoryRun;
use crate::crash::trainings::{brief, endless, phase, run, saves_on_request, training};

/// The spec of a TrainingJob with two to four workers; the fields of `more` are merged into it.
fn two_to_four(more: &Value) -> Value {
    let mut spec = json!({"resources": {"minReplicas": 2, "maxReplicas": 4}, "elasticConfig": {"enabled": true}});
    merge(&mut spec, more);
    spec
}

/// Creates a TrainingJob and waits until it runs with four workers; `more` is merged into its spec. The test's queue has quota for the four workers of this
/// TrainingJob and for no other job.
async fn runs_with_four(s: &Scenario<'_>, more: &Value) -> Result<()> {
    s.simple_queue("4", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    s.apply(&priority_class(&s.name("high"), 100)).await?;
    s.apply(&training(s, "elastic", &endless(), &two_to_four(more))).await?;
    run(s, "elastic", 4).await?;
    phase(s, "elastic", "Running").await
}

/// Creates a TrainingJob of two workers with a higher priority than the running one.
async fn urgent(s: &Scenario<'_>) -> Result<()> {
    let priority = json!({"schedulingConfig": {"priority": s.name("high")}});
    s.apply(&training(s, "urgent", &brief(), &priority)).await.map(drop)
}

/// Story: a TrainingJob gives up two of its workers for a TrainingJob of higher priority, and runs on.
pub(crate) fn shrinks<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        runs_with_four(s, &json!({})).await?;
        urgent(s).await?;
        phase(s, "urgent", "Succeeded").await?;
        run(s, "elastic", 2).await
    }
    .boxed()
}

/// Story: an elastic TrainingJob whose workers learn their number only at their start, so that all workers start again after a scale-down.
pub(crate) fn restarts<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        runs_with_four(s, &json!({"jobType": "JAXJob"})).await?;
        urgent(s).await?;
        phase(s, "urgent", "Succeeded").await?;
        run(s, "elastic", 2).await
    }
    .boxed()
}

/// Story: an elastic TrainingJob that saves checkpoints; Berth asks it to save before the scale-down.
pub(crate) fn saves_before_it_shrinks<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        runs_with_four(s, &json!({"checkpoint": {"interval": "10m"}})).await?;
        urgent(s).await?;
        saves_on_request(s, "elastic", "berth.dev/save-by").await?;
        phase(s, "urgent", "Succeeded").await?;
        run(s, "elastic", 2).await
    }
    .boxed()
}

/// Story: a TrainingJob scales up into the quota that another TrainingJob leaves.
pub(crate) fn grows<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("4", &json!({})).await?;
        s.apply(&training(s, "neighbour", &endless(), &json!({}))).await?;
        run(s, "neighbour", 2).await?;
        let intervals = json!({"elasticConfig": {"scalePolicy": {"scaleUpStep": 2, "scaleUpCooldown": "1s"}}});
        s.apply(&training(s, "elastic", &endless(), &two_to_four(&intervals))).await?;
        run(s, "elastic", 2).await?;
        TRAINING_JOB.delete(&s.client, &s.namespace, "neighbour").await?;
        run(s, "elastic", 4).await
    }
    .boxed()
}
