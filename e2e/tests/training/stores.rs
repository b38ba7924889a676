//! Tests of checkpoints in stores of each protocol. Berth reports the checkpoints of a TrainingJob, keeps the last ones, deletes older ones, and lets
//! TrainingJobs go on from a checkpoint.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use berth_e2e::azure::Azure;
use berth_e2e::bucket::{Bucket, credentials};
use berth_e2e::folder::Folder;
use berth_e2e::gcs::Gcs;
use berth_e2e::kinds::{CHECKPOINT_STORE, JOB, TRAINING_JOB, condition, condition_object, items, text};
use berth_e2e::manager::NAMESPACE;
use berth_e2e::manifest::merge;
use berth_e2e::s3::S3;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::trainer::{NEVER_MS, Run, SAVES_EVERY, STEPS, Trainer};
use serde_json::{Value, json};

use crate::training::stops::still;
use crate::training::{endless, is, phase, training};

/// The Secret with credentials that the chart lets Berth read.
const CREDENTIALS: &str = "berth-checkpoint-credentials";

fn store(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "CheckpointStore", "metadata": {"name": name}, "spec": spec})
}

/// A TrainingJob keeps its checkpoints in a store with the S3 protocol.
pub(crate) async fn kept_in_s3(stage: &Stage) -> Result<()> {
    kept(stage, "checkpoint-store", &Bucket::S3(S3::start("checkpoints").await?)).await
}

/// A TrainingJob keeps its checkpoints in a store with the protocol of Google Cloud Storage, whose times have a resolution of seconds.
pub(crate) async fn kept_in_gcs(stage: &Stage) -> Result<()> {
    kept(stage, "checkpoint-gcs", &Bucket::Gcs(Gcs::start(stage.plane.folder(), "checkpoints").await?)).await
}

/// A TrainingJob keeps its checkpoints as files in a folder that Berth can also read.
pub(crate) async fn kept_in_files(stage: &Stage) -> Result<()> {
    kept(stage, "checkpoint-files", &Bucket::Folder(Folder::make(stage.plane.folder(), "checkpoints")?)).await
}

/// A TrainingJob keeps its checkpoints in a store with the protocol of Azure, served by Azurite.
pub(crate) async fn kept_in_azure(stage: &Stage, program: &Path) -> Result<()> {
    let azure = Azure::start(program, stage.plane.folder(), "checkpoints").await?;
    kept(stage, "checkpoint-azure", &Bucket::Azure(azure)).await
}

/// Tests the complete life of a TrainingJob's checkpoints, which its pods write into the bucket.
async fn kept(stage: &Stage, name: &str, bucket: &Bucket) -> Result<()> {
    let scenario = stage.scenario(name).await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    let client = bucket.client();
    let trainer = Trainer::start(&s.client, &s.namespace, bucket);
    // The Secret has the credentials for the stores of all protocols, because scenarios with different stores apply the same Secret at the same time.
    s.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CREDENTIALS, "namespace": NAMESPACE},
        "stringData": credentials()}))
        .await?;
    let mut main = json!({"prefix": "runs"});
    if !matches!(bucket, Bucket::Folder(_)) {
        main["credentialsSecret"] = json!(CREDENTIALS);
    }
    merge(&mut main, &bucket.spec());
    s.apply(&store(&s.name("main"), &main)).await?;
    let mut spec = endless();
    let saving = json!({
        "checkpoint": {"store": s.name("main"), "interval": "5s", "maxCheckpoints": 2},
        "template": {"metadata": {"annotations": {(SAVES_EVERY): "1000"}}},
    });
    merge(&mut spec, &saving);
    s.apply(&training(s, "saves", "PyTorchJob", &spec)).await?;
    phase(s, "saves", "Running").await?;
    let base = format!("{}/runs/{}/saves", bucket.uri(), s.namespace);
    ensure!(variable(s, "BERTH_CHECKPOINT_URI").await?.as_deref() == Some(base.as_str()), "where it saves");
    ensure!(variable(s, "BERTH_RESUME_URI").await?.is_none(), "there is nothing yet");
    // A folder with weights but without `checkpoint.json` is an incomplete checkpoint, which Berth must not count.
    client.put(&format!("{base}/step-9/rank-0.pt"), "weights").await?;
    saves(s, 3 * STEPS).await?;
    trainer.set_intervals("saves", NEVER_MS, 0).await?;
    trainer.rest("saves").await?;
    let last = trainer.saved("saves").context("it has saved")?;
    let shown = is(s, "saves", "left with the last two", |job| {
        let reported = &job["status"]["checkpoint"];
        reported["latest"]["step"] == json!(last) && reported["count"] == json!(2)
    })
    .await?;
    let latest = &shown["status"]["checkpoint"]["latest"];
    ensure!(text(latest, "/path") == format!("{base}/step-{last}") && latest["epoch"] == json!(1), "{latest}");
    ensure!(
        text(latest, "/metadata/loss") == "0.5" && latest["sizeBytes"].as_i64().is_some_and(|n| n > 14),
        "{latest}"
    );
    for step in (1..=last / STEPS).map(|number| number * STEPS) {
        let kept = step > last - 2 * STEPS;
        for file in ["checkpoint.json", "rank-0.pt", "rank-1.pt"] {
            let there = client.has(&format!("{base}/step-{step}/{file}")).await?;
            ensure!(there == kept, "{file} of step {step} of {last}: {there}");
        }
    }
    ensure!(client.has(&format!("{base}/step-9/rank-0.pt")).await?, "what is being written is left alone");
    is(s, "saves", "told that it is late", |job| condition(job, "CheckpointOverdue") == "True").await?;
    // From here on the trainer does not complete a checkpoint until the test lets it, so that the test sees Berth's wait for the checkpoint.
    trainer.set_intervals("saves", NEVER_MS, NEVER_MS).await?;
    TRAINING_JOB.patch(&s.client, &s.namespace, "saves", &json!({"spec": {"suspend": true}})).await?;
    is(s, "saves", "asked to save", |job| condition(job, "CheckpointRequested") == "True").await?;
    trainer.set_intervals("saves", NEVER_MS, 0).await?;
    is(s, "saves", "seen to have saved", |job| {
        condition_object(job, "CheckpointRequested")
            .is_some_and(|reported| text(reported, "/reason") == "CheckpointSaved")
    })
    .await?;
    still(s, "saves").await?;
    let saved = trainer.saved("saves");
    ensure!(saved == Some(last + STEPS), "it was told to save once: {saved:?} after {last}");
    TRAINING_JOB.patch(&s.client, &s.namespace, "saves", &json!({"spec": {"suspend": false}})).await?;
    let running = phase(s, "saves", "Running").await?;
    let step = last + STEPS;
    ensure!(variable(s, "BERTH_RESUME_STEP").await? == Some(step.to_string()), "{}", running["status"]);
    let from = variable(s, "BERTH_RESUME_URI").await?;
    ensure!(from == Some(format!("{base}/step-{step}")), "it is to go on from {from:?}");
    let workers = JOB.get(&s.client, &s.namespace, "saves-worker").await?.context("its Job")?;
    let (run, wanted) = (trainer.run(&workers).await?, Run { resumed: Some(step), before: Some(step) });
    ensure!(run == wanted, "{run:?}, where {step} was saved last");
    let begun = format!("step-{step}");
    is(s, "saves", "told where it began", |job| text(job, "/status/checkpoint/resumedFrom") == begun).await?;
    // The job saves further checkpoints after the step from which it went on.
    saves(s, step + STEPS).await?;
    drop(trainer);
    scenario.conclude().await
}

/// Waits until the TrainingJob's status shows a checkpoint of at least the step `step`.
async fn saves(s: &Scenario<'_>, step: i64) -> Result<()> {
    let reported_by = |job: &Value| job["status"]["checkpoint"]["latest"]["step"].as_i64() >= Some(step);
    is(s, "saves", &format!("told of step {step}"), reported_by).await.map(drop)
}

/// Tests CheckpointStores that do not exist, that refuse Berth's access, and that the API server refuses.
pub(crate) async fn refused_or_reported(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("bad-stores").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    for (spec, words) in [
        (json!({}), "exactly one of the fields in [s3 gcs azure fileSystem] must be set"),
        (
            json!({"s3": {"bucket": "abc"}, "gcs": {"bucket": "abc"}}),
            "exactly one of the fields in [s3 gcs azure fileSystem]",
        ),
        (json!({"s3": {"bucket": "A_b"}}), "spec.s3.bucket"),
        (json!({"s3": {"bucket": "abc", "endpoint": "minio:9000"}}), "spec.s3.endpoint"),
        (json!({"s3": {"bucket": "abc", "region": "a b"}}), "spec.s3.region"),
        (json!({"gcs": {}}), "spec.gcs.bucket"),
        (json!({"gcs": {"bucket": "abc", "endpoint": "storage:4443"}}), "spec.gcs.endpoint"),
        (json!({"azure": {"account": "A", "container": "abc"}}), "spec.azure.account"),
        (json!({"azure": {"account": "abc", "container": "-"}}), "spec.azure.container"),
        (json!({"azure": {"account": "abc", "container": "abc", "endpoint": "x"}}), "spec.azure.endpoint"),
        (json!({"fileSystem": {"path": "mnt"}}), "spec.fileSystem.path"),
        (json!({"fileSystem": {"path": "/mnt"}, "credentialsSecret": "a"}), "a fileSystem has none"),
        (json!({"s3": {"bucket": "abc"}, "prefix": "../x"}), "spec.prefix"),
        (json!({"s3": {"bucket": "abc"}, "credentialsSecret": "A!"}), "spec.credentialsSecret"),
        (json!({"s3": {"bucket": "abc"}, "caBundle": "x"}), "spec.caBundle"),
    ] {
        let refused = s.apply(&store(&s.name("bad"), &spec)).await;
        let message = refused.map_or_else(|error| format!("{error:#}"), |_| format!("accepted: {spec}"));
        ensure!(message.contains(words), "{spec}: expected {words:?}, got {message}");
    }
    let mut spec = endless();
    merge(&mut spec, &json!({"checkpoint": {"store": s.name("none")}}));
    s.apply(&training(s, "lost", "PyTorchJob", &spec)).await?;
    let stalled = is(s, "lost", "stalled", |job| condition(job, "Stalled") == "True").await?;
    let why = condition_object(&stalled, "Stalled").cloned().unwrap_or_default();
    ensure!(
        text(&why, "/reason") == "CheckpointStoreNotFound" && text(&why, "/message").contains(&s.name("none")),
        "{why}"
    );
    s.warned("lost", "CheckpointStoreNotFound", &[&s.name("none")]).await?;
    // The store names a Secret that Berth has no right to read.
    let closed =
        json!({"s3": {"bucket": "abc", "endpoint": "http://127.0.0.1:1"}, "credentialsSecret": "somebody-elses"});
    s.apply(&store(&s.name("none"), &closed)).await?;
    let message = is(s, "lost", "told why", |job| condition(job, "CheckpointStoreUnavailable") == "True").await?;
    let why = condition_object(&message, "CheckpointStoreUnavailable").cloned().unwrap_or_default();
    ensure!(text(&why, "/message").contains("spec.credentialsSecret"), "{why}");
    ensure!(JOB.get(&s.client, &s.namespace, "lost-worker").await?.is_none(), "it began without its checkpoint");
    TRAINING_JOB.delete(&s.client, &s.namespace, "lost").await?;
    CHECKPOINT_STORE.delete(&s.client, "", &s.name("none")).await?;
    scenario.conclude().await
}

/// The value of a variable in the first container of the workers' Job.
async fn variable(s: &Scenario<'_>, name: &str) -> Result<Option<String>> {
    let job = JOB.get(&s.client, &s.namespace, "saves-worker").await?.context("its Job")?;
    let all = items(&job, "/spec/template/spec/containers/0/env");
    Ok(all.iter().find(|one| one["name"] == name).and_then(|one| one["value"].as_str()).map(str::to_owned))
}
