//! TrainingJobs on a real control plane: their users' view from the queue to the end, and the environment variables in the pods that the frameworks
//! need.

mod bad;
mod checkpoints;
mod elastic;
mod life;
mod places;
mod stops;
mod stores;

use anyhow::Result;
use berth_e2e::kinds::{POD, TRAINING_JOB, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::merge;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use berth_e2e::wait::{self, Seen};
use futures::FutureExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);
const ACCELERATOR: &str = "NVIDIA-H100-80GB-HBM3";

/// A TrainingJob of two workers with one cpu each in the LocalQueue `queue`; `more` is merged into its spec.
fn training(s: &Scenario<'_>, name: &str, job_type: &str, more: &Value) -> Value {
    let mut spec = json!({
        "jobType": job_type,
        "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
        "schedulingConfig": {"queue": "queue"},
        "template": pods(&json!({"e2e.berth.dev/run-ms": "1500"})),
    });
    merge(&mut spec, more);
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"namespace": s.namespace, "name": name}, "spec": spec})
}

/// A pod template whose annotations say how long its pods run and how they end.
fn pods(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}, "spec": {"terminationGracePeriodSeconds": 5,
        "containers": [{"name": "main", "image": "example.invalid/nothing"}]}})
}

/// Part of a TrainingJob's spec: pods that run until they are deleted, and take 700 ms to end.
fn endless() -> Value {
    json!({"template": pods(&json!({"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "700"}))})
}

/// Waits until `check` holds for a TrainingJob.
async fn is(s: &Scenario<'_>, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
    wait::until(LIMIT, &format!("training job {name} is {what}"), || async {
        Ok(match TRAINING_JOB.get(&s.client, &s.namespace, name).await? {
            Some(job) if check(&job) => Seen::Yes(job),
            Some(job) => Seen::NotYet(job["status"].to_string()),
            None => Seen::NotYet("absent".to_owned()),
        })
    })
    .await
}

async fn phase(s: &Scenario<'_>, name: &str, wanted: &str) -> Result<Value> {
    is(s, name, wanted, |job| text(job, "/status/phase") == wanted).await
}

/// Pods of a TrainingJob, by their label.
async fn pods_of(s: &Scenario<'_>, name: &str) -> Result<Vec<Value>> {
    let mut all = POD.list(&s.client, &s.namespace).await?;
    all.retain(|pod| pod["metadata"]["labels"]["berth.dev/training-job"] == json!(name));
    Ok(all)
}

/// Waits until the status of a TrainingJob whose pods run on has the number of the pods' nodes.
async fn nodes_are_reported(s: &Scenario<'_>, name: &str) -> Result<()> {
    let pods = pods_of(s, name).await?;
    let nodes: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    let reported_by = |job: &Value| job["status"]["allocatedResources"]["nodes"] == json!(nodes.len());
    is(s, name, &format!("told to be on {nodes:?}"), reported_by).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_jobs() -> Result<()> {
    let pools = [
        Pool::cpu("cpu", 2, Tier::OnDemand),
        Pool::gpu("gpu", 4, Tier::OnDemand).label("nvidia.com/gpu.product", ACCELERATOR),
        places::rack("left"),
        places::rack("right"),
    ];
    // The programs of object stores are built or installed before any wait begins, because that may take minutes.
    berth_e2e::gcs::program().await?;
    let azurite = berth_e2e::azure::program().await?;
    let stage = Stage::start("training", &pools, ManagerOptions::default()).await?;
    let s = &stage;
    let mut runs: Vec<Run<'_>> = vec![
        ("pytorch", life::pytorch(s).boxed()),
        ("frameworks", life::frameworks(s).boxed()),
        ("failing-worker", life::failing(s).boxed()),
        ("restarted-worker", life::starts_again(s).boxed()),
        ("lost-node", life::loses_a_node(s).boxed()),
        ("kept-part", stops::kept_part(s).boxed()),
        ("preempted", stops::preempted(s).boxed()),
        ("elastic", elastic::grows_and_shrinks(s).boxed()),
        ("restarts-elastic", elastic::restarts(s).boxed()),
        ("saves-first", checkpoints::saves_first(s).boxed()),
        ("saves-workers", checkpoints::saves_workers(s).boxed()),
        ("checkpoint-store", stores::kept_in_s3(s).boxed()),
        ("checkpoint-gcs", stores::kept_in_gcs(s).boxed()),
        ("checkpoint-files", stores::kept_in_files(s).boxed()),
        ("bad-stores", stores::refused_or_reported(s).boxed()),
        ("suspended", stops::suspended(s).boxed()),
        ("max-wait", stops::waits_too_long(s).boxed()),
        ("gang-timeout", stops::pods_never_ready(s).boxed()),
        ("one-rack", places::on_one_rack(s).boxed()),
        ("training-deleted", stops::deleted(s).boxed()),
        ("bad-training", bad::refused_or_reported(s).boxed()),
    ];
    if let Some(program) = &azurite {
        runs.push(("checkpoint-azure", stores::kept_in_azure(s, program).boxed()));
    }
    let outcome = run_all(&stage, runs).await;
    stage.stop().await;
    outcome
}
