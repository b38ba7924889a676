//! Every folder of `examples/` is applied as its README says, on the nodes it needs, and everything in it finishes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, NODE, POD, TRAINING_JOB, WORKLOAD, condition, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::quickstart;
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, Seen};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

/// The nodes for all examples together.
fn pools() -> Vec<Pool> {
    let mut pools = quickstart::pools();
    pools.push(Pool::cpu("cpu", 2, Tier::OnDemand));
    pools.push(Pool::gpu("gpu", 2, Tier::OnDemand));
    pools
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_are_applied_and_finish() -> Result<()> {
    let stage = Stage::start("examples", &pools(), ManagerOptions::default()).await?;
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(repository().join("examples"))?.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
    // The story needs machines that come and go: `story.rs` tells it.
    folders.retain(|path| path.is_dir() && !path.ends_with("training-story"));
    folders.sort();
    let runs = folders.iter().map(|folder| {
        let stage = &stage;
        async move { example(stage, folder).await.with_context(|| folder.display().to_string()) }
    });
    let outcome = match futures::future::try_join_all(runs).await {
        Ok(_) if folders.is_empty() => Err(anyhow!("no examples were found")),
        Ok(_) => judged(&stage).await,
        Err(e) => Err(e),
    };
    let outcome = match outcome {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow!(stage.failure("", &e).await)),
    };
    stage.stop().await;
    outcome
}

async fn judged(stage: &Stage) -> Result<()> {
    stage.observer.conclude(Duration::from_secs(6)).await?;
    stage.manager.recomputes().await
}

/// The files that the README tells to apply, in its order.
fn told_to_apply(folder: &Path) -> Result<Vec<PathBuf>> {
    let readme = std::fs::read_to_string(folder.join("README.md")).context("an example has a README.md")?;
    let words: Vec<&str> = readme.split(|c: char| c.is_whitespace() || c == '`').collect();
    let mut files: Vec<PathBuf> = Vec::new();
    for pair in words.windows(2).filter(|pair| pair[0] == "-f") {
        let path = repository().join(pair[1]);
        if !files.contains(&path) {
            files.push(path);
        }
    }
    let mut there = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            ensure!(files.contains(&path), "the README does not tell to apply {}", path.display());
            there += 1;
        }
    }
    ensure!(there > 0, "nothing to apply");
    Ok(files)
}

async fn example(stage: &Stage, folder: &Path) -> Result<()> {
    let client = &stage.client;
    let (mut jobs, mut training, mut queues) = (Vec::new(), Vec::new(), Vec::new());
    for file in told_to_apply(folder)? {
        for object in kinds::parse(&std::fs::read_to_string(&file)?).with_context(|| file.display().to_string())? {
            match text(&object, "/kind") {
                "Namespace" => {
                    berth_e2e::control_plane::create_namespace(client, text(&object, "/metadata/name"), &[]).await?;
                    continue;
                }
                "Job" => jobs.push((
                    text(&object, "/metadata/namespace").to_owned(),
                    text(&object, "/metadata/name").to_owned(),
                )),
                "TrainingJob" => training.push((
                    text(&object, "/metadata/namespace").to_owned(),
                    text(&object, "/metadata/name").to_owned(),
                )),
                "ClusterQueue" => queues.push(text(&object, "/metadata/name").to_owned()),
                _ => {}
            }
            kinds::apply(client, &object).await?;
        }
    }
    ensure!(!jobs.is_empty() || !training.is_empty(), "an example shows at least one job");
    for (namespace, name) in &training {
        wait::until(LIMIT, &format!("training job {namespace}/{name} has succeeded"), || async {
            let job = TRAINING_JOB.get(client, namespace, name).await?.unwrap_or_default();
            Ok(Seen::when(text(&job, "/status/phase") == "Succeeded", || job["status"].to_string()))
        })
        .await?;
    }
    let mut wrong = Vec::new();
    for (namespace, name) in &jobs {
        wait::until(LIMIT, &format!("job {namespace}/{name} is done"), || async {
            let job = JOB.get(client, namespace, name).await?.unwrap_or_default();
            Ok(Seen::when(condition(&job, "Complete") == "True", || job["status"].to_string()))
        })
        .await?;
        let owned = |o: &Value| items(o, "/metadata/ownerReferences").iter().any(|r| text(r, "/name") == name);
        let workload = WORKLOAD.list(client, namespace).await?.into_iter().find(owned).context("its workload")?;
        ensure!(!quickstart::flavor_of(&workload).is_empty(), "{name} ran without having been admitted");
        let flavor = quickstart::flavor_of(&workload).to_owned();
        for pod in POD.list(client, namespace).await?.iter().filter(|p| owned(p)) {
            let node = NODE.get(client, "", text(pod, "/spec/nodeName")).await?.context("the pod's node")?;
            let tier = quickstart::tier_of(&node);
            if ["reserved", "on-demand", "spot"].contains(&flavor.as_str()) && tier != flavor {
                wrong.push(format!("{name} was admitted to {flavor} and ran on {tier}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    for queue in &queues {
        wait::until(LIMIT, &format!("queue {queue} holds nothing"), || async {
            let queue = CLUSTER_QUEUE.get(client, "", queue).await?.unwrap_or_default();
            Ok(Seen::when(reserved(&queue, "total") == 0, || queue["status"].to_string()))
        })
        .await?;
    }
    println!("example {}: {} jobs finished", folder.display(), jobs.len() + training.len());
    Ok(())
}
