//! The story of a training, as `make demo` runs it: every step comes, `kubectl get tj -w` shows it, and `kubectl describe` explains it.

use anyhow::{Result, anyhow, ensure};
use berth_e2e::examples;
use berth_e2e::manager::ManagerOptions;
use berth_e2e::process::{Guarded, Launch};
use berth_e2e::scenario::Stage;
use berth_e2e::story::{self, HERO, NAMESPACE};
use berth_e2e::wait::{self, STEP, Seen};
use std::path::Path;
use std::time::Duration;

const PHASES: [&str; 6] = ["Pending", "Queued", "Running", "Succeeded", "Failed", "Suspended"];
const TIERS: [&str; 3] = ["reserved", "on-demand", "spot"];
/// States of the training in their order; between two of these states kubectl may show that the training starts.
const TURNS: [&str; 7] = [
    "Running on spot",
    "Queued",
    "Running on on-demand",
    "Queued",
    "Running on on-demand",
    "Queued",
    "Running on reserved",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_story_ends_running_on_reserved_capacity() -> Result<()> {
    let stage = Stage::start("story", &story::pools(), ManagerOptions::default()).await?;
    let outcome = match run_story(&stage).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow!(stage.failure(NAMESPACE, &e).await)),
    };
    stage.stop().await;
    outcome
}

async fn run_story(stage: &Stage) -> Result<()> {
    let watched = watch(stage)?;
    let _props = story::run(&stage.client, &|turn| println!("story: {turn}")).await?;
    seen_in_order(watched).await?;
    let table = stage.plane.kubectl(&["-n", NAMESPACE, "get", "tj"]).await?;
    let row = table.lines().find(|line| line.starts_with(HERO)).unwrap_or_default();
    ensure!(row.contains("Running") && row.contains("reserved") && row.contains("4/4"), "{table}");
    let words = stage.plane.kubectl(&["-n", NAMESPACE, "describe", "tj", HERO]).await?;
    for word in [
        "admitted by clusterQueue story-research: flavor story-spot (spot capacity)",
        "admitted by clusterQueue story-research: flavor story-on-demand (on-demand capacity); it goes on from its",
        "Admitted by ClusterQueue story-research: flavor story-reserved (reserved capacity)",
        "it goes on from its checkpoint of step ",
        "took nodes back and had no others",
        "CheckpointRequested",
        "CheckpointSaved",
        "Preempted",
        "a Workload of ClusterQueue story-production takes the quota that this job holds of ClusterQueue story-research: \
            InCohortReclamation",
        "ClimbedBack",
        "goes back up from on-demand to reserved capacity",
    ] {
        ensure!(words.contains(word), "{word:?} is not told:\n{words}");
    }
    ensure!(!words.contains("CheckpointStoreUnavailable"), "its store is there all the time:\n{words}");
    // The clean-up deletes the objects while the training runs.
    examples::clean_up(&stage.plane, &examples::folder("training-story")).await?;
    stage.observer.conclude(Duration::from_secs(6)).await?;
    stage.manager.recomputes().await
}

/// Starts `kubectl get tj -w`, whose output is in the process's log.
fn watch(stage: &Stage) -> Result<Guarded> {
    let kubeconfig = stage.plane.kubeconfig().display().to_string();
    let args = ["--kubeconfig", kubeconfig.as_str(), "-n", NAMESPACE, "get", "tj", "-w"].map(str::to_owned);
    Guarded::start(Launch {
        name: "kubectl",
        program: Path::new("kubectl"),
        args: args.to_vec(),
        env: vec![("KUBECACHEDIR".to_owned(), stage.plane.kubeconfig().with_extension("cache").display().to_string())],
        folder: stage.plane.folder(),
        doomed: None,
        restarts: false,
    })
}

/// Waits until kubectl has printed the last state of the training, and checks that it has printed all states in their order.
async fn seen_in_order(mut watched: Guarded) -> Result<()> {
    let seen = wait::until(STEP, "kubectl shows the end of the story", || async {
        let text = std::fs::read_to_string(watched.log())?;
        let seen = states(&text);
        let over = seen.last().map(String::as_str) == TURNS.last().copied();
        Ok(if over { Seen::Yes(seen) } else { Seen::NotYet(watched.tail(3)) })
    })
    .await;
    ensure!(watched.ended().is_none(), "kubectl ended: {}", watched.tail(10));
    let seen = seen?;
    let mut rest = seen.iter();
    for turn in TURNS {
        ensure!(rest.any(|state| state == turn), "{turn:?} is missing, or comes too late, in {seen:?}");
    }
    Ok(())
}

/// The states of the training in the rows that kubectl printed, without repetitions. In the output of `kubectl get tj -w` a column without a value is blank.
fn states(text: &str) -> Vec<String> {
    let mut states = Vec::new();
    for row in text.lines().filter(|line| line.split_whitespace().next() == Some(HERO)) {
        let one_of = |words: &[&str]| row.split_whitespace().find(|word| words.contains(word));
        let phase = one_of(&PHASES).unwrap_or("new");
        states.push(one_of(&TIERS).map_or_else(|| phase.to_owned(), |tier| format!("{phase} on {tier}")));
    }
    states.dedup();
    states
}
