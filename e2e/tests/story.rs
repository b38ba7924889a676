//! The story of a training, as `make demo` tells it: every turn of it comes, and kubectl tells it in words.

use anyhow::{Result, anyhow, ensure};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::scenario::Stage;
use berth_e2e::story::{self, HERO, NAMESPACE};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_gets_through() -> Result<()> {
    let stage = Stage::start("story", &story::pools(), ManagerOptions::default()).await?;
    let outcome = match told(&stage).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow!(stage.failure(NAMESPACE, &e).await)),
    };
    stage.stop().await;
    outcome
}

async fn told(stage: &Stage) -> Result<()> {
    story::tell(&stage.client, &|turn| println!("story: {turn}")).await?;
    let table = stage.plane.kubectl(&["-n", NAMESPACE, "get", "tj"]).await?;
    let row = table.lines().find(|line| line.starts_with(HERO)).unwrap_or_default();
    ensure!(row.contains("Running") && row.contains("reserved") && row.contains("4/4"), "{table}");
    let words = stage.plane.kubectl(&["-n", NAMESPACE, "describe", "tj", HERO]).await?;
    for word in [
        "took nodes back and had no others",
        "CheckpointRequested",
        "CheckpointSaved",
        "Preempted",
        "ClusterQueue story-production",
        "ClusterQueue story-research",
        "ClimbedBack",
        "goes back up from on-demand to reserved capacity",
    ] {
        ensure!(words.contains(word), "{word:?} is not told:\n{words}");
    }
    stage.observer.conclude(Duration::from_secs(6)).await
}
