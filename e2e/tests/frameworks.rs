//! Tests with the frameworks themselves, from PyPI, and the pods that Berth renders: the commands and the environment of a TrainingJob's pods run as
//! processes of this machine and finish an all-reduce. Only `make night` runs these tests (`BERTH_FRAMEWORKS=1`).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use berth_e2e::frameworks::{mounted_files, python, run_pods};
use berth_e2e::kinds::{POD, TRAINING_JOB, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

const WORKERS: i64 = 3;

/// A TrainingJob of the kind `framework` whose workers run the command `command`.
fn training(s: &Scenario<'_>, name: &str, framework: &str, command: &[&str], more: &Value) -> Value {
    let mut spec = json!({"resources": {"maxReplicas": WORKERS, "replicaResources": {"cpu": "1"}}});
    berth_e2e::manifest::merge(
        &mut spec,
        &json!({"jobType": framework, "schedulingConfig": {"queue": "queue"},
        "template": {"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}},
            "spec": {"containers": [{"name": "main", "image": "example.invalid/nothing", "command": command}]}}}),
    );
    berth_e2e::manifest::merge(&mut spec, more);
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"namespace": s.namespace, "name": name},
        "spec": spec})
}

/// Waits until `wanted` pods of the TrainingJob run, and returns the pods.
async fn pods(s: &Scenario<'_>, name: &str, wanted: i64) -> Result<Vec<Value>> {
    wait::until(STEP, &format!("the pods of {name} run"), || async {
        let mut all = POD.list(&s.client, &s.namespace).await?;
        all.retain(|pod| {
            pod["metadata"]["labels"]["berth.dev/training-job"] == json!(name)
                && text(pod, "/status/phase") == "Running"
        });
        let count = i64::try_from(all.len())?;
        Ok(if count == wanted { Seen::Yes(all) } else { Seen::NotYet(format!("{count} run")) })
    })
    .await
}

/// Host name of a pod in the cluster.
fn host(pod: &Value) -> String {
    format!("{}.{}", text(pod, "/spec/hostname"), text(pod, "/spec/subdomain"))
}

/// Deletes a TrainingJob and waits until it is gone.
async fn end(s: &Scenario<'_>, name: &str) -> Result<()> {
    TRAINING_JOB.delete(&s.client, &s.namespace, name).await?;
    wait::until(STEP, &format!("{name} is gone"), || async {
        let gone = TRAINING_JOB.get(&s.client, &s.namespace, name).await?.is_none();
        Ok(Seen::when(gone, || "still there".to_owned()))
    })
    .await
}

async fn all_reduce(s: &Scenario<'_>, python: &Path) -> Result<()> {
    let elastic = json!({"resources": {"minReplicas": 2}, "elasticConfig": {"enabled": true}});
    let paddle = ["python", "-m", "paddle.distributed.launch", "paddle_allreduce.py"];
    for (name, framework, command, more) in [
        ("env", "PyTorchJob", &["python", "torch_allreduce.py"][..], json!({})),
        ("torchrun", "PyTorchJob", &["torchrun", "torch_allreduce.py"], json!({})),
        ("elastic", "PyTorchJob", &["torchrun", "torch_allreduce.py"], elastic),
        ("jax", "JAXJob", &["python", "jax_allreduce.py"], json!({})),
        ("paddle", "PaddleJob", &paddle, json!({})),
    ] {
        s.apply(&training(s, name, framework, command, &more)).await?;
        let pods = pods(s, name, WORKERS).await?;
        let backend = pods
            .iter()
            .flat_map(|pod| items(pod, "/spec/containers/0/env"))
            .find(|v| text(v, "/name") == "PET_RDZV_BACKEND");
        ensure!(
            backend.is_some() == (name == "elastic"),
            "{name}: the rendezvous of workers that come and go: {backend:?}"
        );
        let hosts: Vec<String> = pods.iter().map(host).collect();
        let python = python.to_path_buf();
        let outputs = tokio::task::spawn_blocking(move || run_pods(&python, &pods, &hosts, &BTreeMap::new())).await?;
        let outputs = outputs.with_context(|| format!("training {name}"))?;
        let sum = format!("of {WORKERS}: sum {}", WORKERS * (WORKERS + 1) / 2);
        ensure!(outputs.iter().all(|output| output.contains(&sum)), "{name}: no {sum:?} in {outputs:#?}");
        println!("{name}: {WORKERS} processes, {sum}");
        end(s, name).await?;
    }
    Ok(())
}

/// Only the launcher of an MPIJob runs as a process of this test. The launcher's Open MPI itself starts the ranks on the hosts in the file that the launcher
/// reads.
async fn open_mpi(s: &Scenario<'_>, python: &Path) -> Result<()> {
    let name = "mpi";
    s.apply(&training(s, name, "MPIJob", &["sh", "mpi_launcher.sh"], &json!({}))).await?;
    let pods = pods(s, name, WORKERS + 1).await?;
    let (launcher, workers): (Vec<Value>, Vec<Value>) =
        pods.iter().cloned().partition(|pod| pod["metadata"]["labels"]["berth.dev/training-role"] == "launcher");
    ensure!(launcher.len() == 1, "one launcher: {launcher:#?}");
    let files = mounted_files(&s.client, &launcher[0]).await?;
    let hosts: Vec<String> = pods.iter().map(host).collect();
    let python = python.to_path_buf();
    let outputs = tokio::task::spawn_blocking(move || run_pods(&python, &launcher, &hosts, &files)).await?;
    let output = outputs.context("training mpi")?.concat();
    for worker in &workers {
        let line = format!("of {WORKERS}: sum {} on {}\n", WORKERS * (WORKERS + 1) / 2, text(worker, "/spec/hostname"));
        ensure!(output.matches(&line).count() == 1, "one rank {line:?} in {output}");
    }
    println!("{name}: a rank on each of {} hosts", workers.len());
    end(s, name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frameworks_find_each_other() -> Result<()> {
    if std::env::var_os("BERTH_FRAMEWORKS").is_none_or(|asked| asked.is_empty()) {
        println!(
            "skipped: frameworks; `make night` sets BERTH_FRAMEWORKS=1 and installs PyTorch, JAX, Paddle and Open MPI from PyPI"
        );
        return Ok(());
    }
    let python = tokio::task::spawn_blocking(python).await??;
    let stage = Stage::start("frameworks", &[Pool::cpu("cpu", 4, Tier::OnDemand)], ManagerOptions::default()).await?;
    let reported = async {
        let s = stage.scenario("frameworks").await?;
        s.simple_queue("8", &json!({})).await?;
        all_reduce(&s, &python).await?;
        open_mpi(&s, &python).await?;
        s.conclude().await
    };
    let outcome = reported.await;
    if outcome.is_err() {
        stage.plane.keep_files();
    }
    stage.stop().await;
    outcome
}
