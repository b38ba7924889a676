//! Stories of the crash table about TrainingJobs of a fixed size, and helper functions for TrainingJobs of any size.

use anyhow::Result;
use berth_e2e::kinds::{POD, TRAINING_JOB, condition, text};
use berth_e2e::manifest::merge;
use berth_e2e::scenario::Scenario;
use berth_e2e::wait::{self, Seen};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::crash::{PATIENCE, StoryRun, comes};

/// A TrainingJob of two workers with one cpu each in the LocalQueue `queue`; the annotations `life` say how long its pods run, and `more` is merged
/// into its spec.
pub(crate) fn training(s: &Scenario<'_>, name: &str, life: &Value, more: &Value) -> Value {
    let mut spec = json!({
        "jobType": "PyTorchJob",
        "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
        "schedulingConfig": {"queue": "queue"},
        "template": {"metadata": {"annotations": life}, "spec": {"terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "example.invalid/nothing"}]}},
    });
    merge(&mut spec, more);
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"namespace": s.namespace, "name": name}, "spec": spec})
}

/// Annotations of pods that end soon.
pub(crate) fn brief() -> Value {
    json!({"e2e.berth.dev/run-ms": "700"})
}

/// Annotations of pods that run until they are deleted, and then take a moment to end.
pub(crate) fn endless() -> Value {
    json!({"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "400"})
}

/// Waits until a TrainingJob is in the phase `wanted`.
pub(crate) async fn phase(s: &Scenario<'_>, name: &str, wanted: &str) -> Result<()> {
    comes(s, TRAINING_JOB, name, wanted, |job| text(job, "/status/phase") == wanted).await
}

/// Pods of a TrainingJob.
async fn pods_of(s: &Scenario<'_>, name: &str) -> Result<Vec<Value>> {
    let mut all = POD.list(&s.client, &s.namespace).await?;
    all.retain(|pod| pod["metadata"]["labels"]["berth.dev/training-job"] == json!(name));
    Ok(all)
}

/// Waits until a TrainingJob has `count` pods, and all of them run.
pub(crate) async fn run(s: &Scenario<'_>, name: &str, count: usize) -> Result<()> {
    wait::until(PATIENCE, &format!("{count} running pods of {name}"), || async {
        let pods = pods_of(s, name).await?;
        let phases: Vec<&str> = pods.iter().map(|pod| text(pod, "/status/phase")).collect();
        let running = phases.iter().all(|phase| *phase == "Running");
        Ok(Seen::when(running && pods.len() == count, || format!("{phases:?}")))
    })
    .await
}

/// Waits until all pods of a TrainingJob were asked to save, by the annotation `key`, and then reports that the job has saved.
pub(crate) async fn saves_on_request(s: &Scenario<'_>, name: &str, key: &str) -> Result<()> {
    wait::until(PATIENCE, &format!("pods of {name} have {key}"), || async {
        let pods = pods_of(s, name).await?;
        let found = pods.iter().filter(|pod| pod["metadata"]["annotations"].get(key).is_some()).count();
        Ok(Seen::when(found > 0 && found == pods.len(), || format!("{found} of {}", pods.len())))
    })
    .await?;
    let saved = json!({"metadata": {"annotations": {
        "berth.dev/last-checkpoint-time": Timestamp::now().to_string(),
        "berth.dev/last-checkpoint-step": "100",
        "berth.dev/last-checkpoint-uri": "s3://checkpoints/step-100",
    }}});
    TRAINING_JOB.patch(&s.client, &s.namespace, name, &saved).await.map(drop)
}

/// Story: two TrainingJobs run one after the other.
pub(crate) fn runs<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        for name in ["one", "two"] {
            s.apply(&training(s, name, &brief(), &json!({}))).await?;
        }
        for name in ["one", "two"] {
            phase(s, name, "Succeeded").await?;
            s.workload(name, "Finished", |w| condition(w, "Finished") == "True").await?;
        }
        Ok(())
    }
    .boxed()
}

/// Story: the user suspends a running TrainingJob; another TrainingJob gets the quota, and the first one is resumed later.
pub(crate) fn pauses<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        s.apply(&training(s, "paused", &endless(), &json!({}))).await?;
        phase(s, "paused", "Running").await?;
        let suspend = |suspend: bool| json!({"spec": {"suspend": suspend}});
        TRAINING_JOB.patch(&s.client, &s.namespace, "paused", &suspend(true)).await?;
        phase(s, "paused", "Suspended").await?;
        s.apply(&training(s, "next", &brief(), &json!({}))).await?;
        phase(s, "next", "Succeeded").await?;
        TRAINING_JOB.patch(&s.client, &s.namespace, "paused", &suspend(false)).await?;
        run(s, "paused", 2).await
    }
    .boxed()
}

/// Story: Berth asks a TrainingJob to save before it stops it because the queue is drained.
pub(crate) fn saves_before_it_stops<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        s.apply(&training(s, "saves", &endless(), &json!({"checkpoint": {"interval": "10m"}}))).await?;
        phase(s, "saves", "Running").await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "HoldAndDrain"})).await?;
        saves_on_request(s, "saves", "berth.dev/stop-at").await?;
        run(s, "saves", 0).await?;
        s.workload("saves", "quota released", |w| condition(w, "QuotaReserved") == "False").await.map(drop)
    }
    .boxed()
}
