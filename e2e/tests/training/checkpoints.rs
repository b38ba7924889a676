//! TrainingJobs that save checkpoints: the annotations that their pods get before a stop, and the step from which they go on.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{JOB, TRAINING_JOB, condition_object, items, text};
use berth_e2e::manifest::{self, merge};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::training::{LIMIT, endless, is, nodes_are_reported, phase, pods_of, training};

/// A TrainingJob is asked to save before it is stopped, is stopped as soon as it has saved, and goes on from its checkpoint after it is admitted
/// again.
pub(crate) async fn saves_first(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("saves-first").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    for (class, value) in [("low", 10), ("high", 100)] {
        s.apply(&manifest::priority_class(&s.name(class), value)).await?;
    }
    let of = |class: &str, more: Value| {
        let mut spec = endless();
        merge(&mut spec, &json!({"schedulingConfig": {"priority": s.name(class)}}));
        merge(&mut spec, &more);
        spec
    };
    let saving = json!({"checkpoint": {"interval": "10m"}});
    s.apply(&training(s, "saves", "PyTorchJob", &of("low", saving))).await?;
    phase(s, "saves", "Running").await?;
    nodes_are_reported(s, "saves").await?;
    s.apply(&training(
        s,
        "meek",
        "PyTorchJob",
        &of("high", json!({"schedulingConfig": {"preemptionPolicy": "Never"}})),
    ))
    .await?;
    phase(s, "meek", "Queued").await?;
    s.apply(&training(s, "urgent", "PyTorchJob", &of("high", json!({})))).await?;
    let asked = is(s, "saves", "asked to save", |job| {
        condition_object(job, "CheckpointRequested").is_some_and(|condition| text(condition, "/status") == "True")
    })
    .await?;
    let stop_at = annotated_pods(s, "saves", "berth.dev/stop-at").await?;
    let why = condition_object(&asked, "CheckpointRequested").cloned().unwrap_or_default();
    ensure!(text(&why, "/message").contains(&stop_at), "{why} against {stop_at}");
    ensure!(text(&why, "/reason") == "Preempted", "{why}");
    let job = JOB.get(&s.client, &s.namespace, "saves-worker").await?.context("its Job")?;
    ensure!(job["metadata"]["deletionTimestamp"].is_null(), "stopped before its time: {job}");
    save(s, "saves", 1200).await?;
    // The job is stopped after it has saved, long before its thirty seconds to save are over.
    phase(s, "urgent", "Running").await?;
    let found_condition = is(s, "saves", "told that it saved", |job| {
        condition_object(job, "CheckpointRequested").is_some_and(|c| text(c, "/reason") == "CheckpointSaved")
    })
    .await?;
    let reasons: Vec<&str> =
        items(&found_condition, "/status/events").iter().map(|event| text(event, "/reason")).collect();
    ensure!(reasons.contains(&"CheckpointRequested") && reasons.contains(&"CheckpointSaved"), "{reasons:?}");
    for name in ["urgent", "meek"] {
        TRAINING_JOB.delete(&s.client, &s.namespace, name).await?;
    }
    phase(s, "saves", "Running").await?;
    let job = JOB.get(&s.client, &s.namespace, "saves-worker").await?.context("its Job")?;
    let variables = items(&job, "/spec/template/spec/containers/0/env");
    for (name, value) in [("BERTH_RESUME_STEP", "1200"), ("BERTH_RESUME_URI", "s3://checkpoints/saves/step-1200")] {
        ensure!(variables.contains(&json!({"name": name, "value": value})), "{name}: {variables:?}");
    }
    scenario.conclude().await
}

/// An elastic TrainingJob is asked to save before it gives up workers, gives them up as soon as it has saved, and runs on.
pub(crate) async fn saves_workers(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("saves-workers").await?;
    let s = &scenario;
    s.simple_queue("4", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    s.apply(&manifest::priority_class(&s.name("high"), 100)).await?;
    let mut elastic = endless();
    let more = json!({
        "resources": {"minReplicas": 2, "maxReplicas": 4},
        "elasticConfig": {"enabled": true},
        "checkpoint": {"interval": "10m"},
    });
    merge(&mut elastic, &more);
    s.apply(&training(s, "elastic", "PyTorchJob", &elastic)).await?;
    phase(s, "elastic", "Running").await?;
    let mut urgent = endless();
    merge(&mut urgent, &json!({"schedulingConfig": {"priority": s.name("high")}}));
    s.apply(&training(s, "urgent", "PyTorchJob", &urgent)).await?;
    annotated_pods(s, "elastic", "berth.dev/save-by").await?;
    let asked = is(s, "elastic", "asked to save", |job| {
        condition_object(job, "CheckpointRequested").is_some_and(|condition| text(condition, "/status") == "True")
    })
    .await?;
    let why = condition_object(&asked, "CheckpointRequested").cloned().unwrap_or_default();
    ensure!(text(&why, "/reason") == "ScalingDown", "{why}");
    let workers = || async {
        let job = JOB.get(&s.client, &s.namespace, "elastic-worker").await?.context("its Job")?;
        anyhow::Ok(job["spec"]["completions"].as_i64().unwrap_or_default())
    };
    ensure!(workers().await? == 4, "workers went before their time");
    save(s, "elastic", 300).await?;
    // The workers end after the job has saved, long before its thirty seconds to save are over.
    phase(s, "urgent", "Running").await?;
    ensure!(workers().await? == 2, "{} workers", workers().await?);
    let found_condition = is(s, "elastic", "told that it saved", |job| {
        condition_object(job, "CheckpointRequested").is_some_and(|c| text(c, "/reason") == "CheckpointSaved")
    })
    .await?;
    ensure!(text(&found_condition, "/status/phase") == "Running", "{}", found_condition["status"]);
    scenario.conclude().await
}

/// Reports a checkpoint of a TrainingJob by the job's annotations.
pub(crate) async fn save(s: &Scenario<'_>, name: &str, step: u32) -> Result<()> {
    let saved = json!({"metadata": {"annotations": {
        "berth.dev/last-checkpoint-time": Timestamp::now().to_string(),
        "berth.dev/last-checkpoint-step": step.to_string(),
        "berth.dev/last-checkpoint-uri": format!("s3://checkpoints/{name}/step-{step}"),
    }}});
    TRAINING_JOB.patch(&s.client, &s.namespace, name, &saved).await?;
    Ok(())
}

/// The value of the annotation `key`, which is a time, after all pods of a TrainingJob have the annotation: until that time the pods may go on.
async fn annotated_pods(s: &Scenario<'_>, name: &str, key: &str) -> Result<String> {
    wait::until(LIMIT, &format!("pods of {name} are told"), || async {
        let pods = pods_of(s, name).await?;
        let annotation = |pod: &Value| pod["metadata"]["annotations"][key].as_str().map(str::to_owned);
        let reported: Option<Vec<String>> = pods.iter().map(annotation).collect();
        Ok(match reported.and_then(|reported| reported.first().cloned()) {
            Some(first) => Seen::Yes(first),
            None => Seen::NotYet(format!("{} pods", pods.len())),
        })
    })
    .await
}
