//! The frameworks themselves, from PyPI, under what Berth renders: commands and environment of a TrainingJob's pods run as processes
//! of this machine and finish an all-reduce. In `make night` (`BERTH_FRAMEWORKS=1`).

use anyhow::{Context, Result, ensure};
use berth_e2e::frameworks::{python, run_pods};
use berth_e2e::kinds::{POD, TRAINING_JOB, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

const WORKERS: i64 = 3;

/// A TrainingJob whose workers run that command.
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

/// Its pods, when all of them run.
async fn pods(s: &Scenario<'_>, name: &str) -> Result<Vec<Value>> {
    wait::until(STEP, &format!("the pods of {name} run"), || async {
        let mut all = POD.list(&s.client, &s.namespace).await?;
        all.retain(|pod| {
            pod["metadata"]["labels"]["berth.dev/training-job"] == json!(name)
                && text(pod, "/status/phase") == "Running"
        });
        let count = i64::try_from(all.len())?;
        Ok(if count == WORKERS { Seen::Yes(all) } else { Seen::NotYet(format!("{count} run")) })
    })
    .await
}

async fn all_reduce(s: &Scenario<'_>, python: &std::path::Path) -> Result<()> {
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
        let pods = pods(s, name).await?;
        let backend = pods
            .iter()
            .flat_map(|pod| items(pod, "/spec/containers/0/env"))
            .find(|v| text(v, "/name") == "PET_RDZV_BACKEND");
        ensure!(
            backend.is_some() == (name == "elastic"),
            "{name}: the rendezvous of workers that come and go: {backend:?}"
        );
        let host = |pod: &Value| format!("{}.{}", text(pod, "/spec/hostname"), text(pod, "/spec/subdomain"));
        let hosts: Vec<String> = pods.iter().map(host).collect();
        let python = python.to_path_buf();
        let outputs = tokio::task::spawn_blocking(move || run_pods(&python, &pods, &hosts)).await?;
        let outputs = outputs.with_context(|| format!("training {name}"))?;
        let sum = format!("of {WORKERS}: sum {}", WORKERS * (WORKERS + 1) / 2);
        ensure!(outputs.iter().all(|output| output.contains(&sum)), "{name}: no {sum:?} in {outputs:#?}");
        println!("{name}: {WORKERS} processes, {sum}");
        TRAINING_JOB.delete(&s.client, &s.namespace, name).await?;
        wait::until(STEP, &format!("{name} is gone"), || async {
            let gone = TRAINING_JOB.get(&s.client, &s.namespace, name).await?.is_none();
            Ok(Seen::when(gone, || "still there".to_owned()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frameworks_find_each_other() -> Result<()> {
    if std::env::var_os("BERTH_FRAMEWORKS").is_none_or(|asked| asked.is_empty()) {
        println!("not run: `make night` sets BERTH_FRAMEWORKS=1 and installs PyTorch, JAX and Paddle from PyPI");
        return Ok(());
    }
    let python = tokio::task::spawn_blocking(python).await??;
    let stage = Stage::start("frameworks", &[Pool::cpu("cpu", 4, Tier::OnDemand)], ManagerOptions::default()).await?;
    let told = async {
        let s = stage.scenario("frameworks").await?;
        s.simple_queue("8", &json!({})).await?;
        all_reduce(&s, &python).await?;
        s.conclude().await
    };
    let outcome = told.await;
    if outcome.is_err() {
        stage.plane.keep_files();
    }
    stage.stop().await;
    outcome
}
