//! An elastic TrainingJob that follows the idle quota of its queue.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, WORKLOAD, condition, condition_object, items, text};
use berth_e2e::manifest::{self, merge};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use crate::training::checkpoints::save;
use crate::training::life::ends;
use crate::training::{LIMIT, endless, is, phase, pods_of, training};

/// Pause between two checkpoints of a TrainingJob that saves all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of a TrainingJob's pods that have not ended.
pub(crate) async fn live(s: &Scenario<'_>, name: &str) -> Result<usize> {
    let all = pods_of(s, name).await?;
    Ok(all.iter().filter(|pod| !["Failed", "Succeeded"].contains(&text(pod, "/status/phase"))).count())
}

/// Waits until a TrainingJob runs with `workers` workers, all of which are ready, and holds quota for them.
async fn runs_with(s: &Scenario<'_>, name: &str, workers: usize) -> Result<Value> {
    let wanted = format!("{workers}/{workers}");
    let job = is(s, name, &format!("running with {wanted}"), |job| {
        ensure_bounds(job).is_ok()
            && text(job, "/status/phase") == "Running"
            && text(job, "/status/workers") == wanted
            && text(job, "/status/allocatedResources/cpu") == workers.to_string()
    })
    .await?;
    wait::until(LIMIT, &format!("{workers} pods of {name}"), || async {
        let found = live(s, name).await?;
        Ok(Seen::when(found == workers, || format!("{found} pods")))
    })
    .await?;
    Ok(job)
}

/// Checks by a TrainingJob's status that it has two to four workers.
fn ensure_bounds(job: &Value) -> Result<()> {
    let reported = text(job, "/status/workers").split_once('/').and_then(|(_, wanted)| wanted.parse::<i64>().ok());
    ensure!(reported.is_none_or(|wanted| (2..=4).contains(&wanted)), "{}", job["status"]);
    Ok(())
}

/// Creates an elastic TrainingJob of 2 to 4 workers of the kind `framework`, which starts with 2 workers because a neighbour holds the rest of the queue's
/// quota. The function that creates the elastic TrainingJob also creates a priority class `urgent` of higher priority.
async fn small_beside_a_neighbour(s: &Scenario<'_>, framework: &str, other: &Value) -> Result<Value> {
    s.simple_queue("4", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    s.apply(&manifest::priority_class(&s.name("urgent"), 100)).await?;
    s.apply(&training(s, "neighbour", "PyTorchJob", &endless())).await?;
    phase(s, "neighbour", "Running").await?;
    let mut more = endless();
    let elastic = json!({
        "resources": {"minReplicas": 2, "maxReplicas": 4},
        "elasticConfig": {"enabled": true, "scalePolicy": {"scaleUpStep": 2, "scaleUpCooldown": "1s"}},
    });
    merge(&mut more, &elastic);
    merge(&mut more, other);
    s.apply(&training(s, "elastic", framework, &more)).await?;
    let small = runs_with(s, "elastic", 2).await?;
    ensure!(condition(&small, "Elastic") == "True", "{}", small["status"]);
    Ok(small)
}

/// Checks that no Workload of the elastic TrainingJob was evicted.
async fn was_not_evicted(s: &Scenario<'_>) -> Result<()> {
    let slices = WORKLOAD.list(&s.client, &s.namespace).await?;
    let own: Vec<_> = slices.iter().filter(|w| text(w, "/metadata/name").contains("-elastic-")).collect();
    ensure!(!own.is_empty(), "no Workload is its own");
    ensure!(own.iter().all(|w| condition(w, "Evicted").is_empty()), "it was evicted");
    Ok(())
}

/// An elastic TrainingJob starts with the free quota, scales up after another job has ended, gives up workers for a new job of higher priority, scales up
/// again, and ends. The jobs beside the elastic TrainingJob end when the test lets them end, and not after a fixed time.
pub(crate) async fn grows_and_shrinks(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("elastic").await?;
    let s = &scenario;
    let small = small_beside_a_neighbour(s, "PyTorchJob", &json!({})).await?;
    let first = s.workload_of("elastic").await?.context("workload")?;
    ends(s, "neighbour", &["0", "1"], "succeed").await?;
    let grown = runs_with(s, "elastic", 4).await?;
    ensure!(grown["metadata"]["uid"] == small["metadata"]["uid"], "another job");
    wait::until(LIMIT, "the older slice is finished, and let go", || async {
        let old = WORKLOAD.get(&s.client, &s.namespace, text(&first, "/metadata/name")).await?;
        let old = old.context("the older slice is gone")?;
        let end = condition_object(&old, "Finished").cloned().unwrap_or_default();
        let replaced = text(&end, "/reason") == "WorkloadSliceReplaced";
        let let_go = items(&old, "/metadata/finalizers").is_empty();
        Ok(Seen::when(replaced && let_go, || format!("{end} {}", old["metadata"]["finalizers"])))
    })
    .await?;
    let mut urgent = endless();
    urgent["schedulingConfig"] = json!({"priority": s.name("urgent")});
    s.apply(&training(s, "urgent", "PyTorchJob", &urgent)).await?;
    phase(s, "urgent", "Running").await?;
    runs_with(s, "elastic", 2).await?;
    was_not_evicted(s).await?;
    ends(s, "urgent", &["0", "1"], "succeed").await?;
    phase(s, "urgent", "Succeeded").await?;
    runs_with(s, "elastic", 4).await?;
    let job = JOB.get(&s.client, &s.namespace, "elastic-worker").await?.context("its Job")?;
    ensure!(job["spec"]["completions"] == json!(4) && job["spec"]["parallelism"] == json!(4), "{}", job["spec"]);
    ends(s, "elastic", &["0", "1"], "succeed").await?;
    is(s, "elastic", "ending", |job| job["status"]["replicaStatuses"]["worker"]["succeeded"].as_i64() >= Some(2))
        .await?;
    ends(s, "elastic", &["2", "3"], "succeed").await?;
    phase(s, "elastic", "Succeeded").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    scenario.conclude().await
}

/// Waits until the elastic TrainingJob runs with `workers` workers, and checks that each worker has this number and the step `step` of its checkpoint
/// in its environment.
async fn is_reported(s: &Scenario<'_>, workers: usize, step: &str) -> Result<Value> {
    let job = runs_with(s, "elastic", workers).await?;
    let all = pods_of(s, "elastic").await?;
    for pod in all.iter().filter(|pod| text(pod, "/status/phase") == "Running") {
        let variables = items(pod, "/spec/containers/0/env");
        for (name, value) in [("NUM_PROCESSES", workers.to_string()), ("BERTH_RESUME_STEP", step.to_owned())] {
            ensure!(variables.contains(&json!({"name": name, "value": value})), "{name} is not {value}: {variables:?}");
        }
    }
    Ok(job)
}

/// If the pods read their number of workers only at their start, all pods start again when the number changes: the job scales up after it has saved,
/// and scales down for a production job. The job holds its quota all the time, and nothing is evicted.
pub(crate) async fn restarts(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("restarts-elastic").await?;
    let s = &scenario;
    let small = small_beside_a_neighbour(s, "JAXJob", &json!({"checkpoint": {"interval": "10m"}})).await?;
    ends(s, "neighbour", &["0", "1"], "succeed").await?;
    phase(s, "neighbour", "Succeeded").await?;
    // A checkpoint from before Berth saw the idle quota does not count.
    wait::until(LIMIT, "it grows by a later checkpoint", || async {
        save(s, "elastic", 100).await?;
        tokio::time::sleep(PAUSE).await;
        let job = JOB.get(&s.client, &s.namespace, "elastic-worker").await?;
        let workers = job.map(|job| job["spec"]["completions"].clone());
        Ok(Seen::when(workers == Some(json!(4)), || format!("{workers:?}")))
    })
    .await?;
    let grown = is_reported(s, 4, "100").await?;
    ensure!(grown["metadata"]["uid"] == small["metadata"]["uid"], "another job");
    save(s, "elastic", 200).await?;
    let mut urgent = endless();
    urgent["schedulingConfig"] = json!({"priority": s.name("urgent")});
    s.apply(&training(s, "urgent", "PyTorchJob", &urgent)).await?;
    phase(s, "urgent", "Running").await?;
    let shrunk = is_reported(s, 2, "200").await?;
    ensure!(shrunk["status"]["restarts"].is_null(), "it has spent a try: {}", shrunk["status"]);
    was_not_evicted(s).await?;
    ends(s, "urgent", &["0", "1"], "succeed").await?;
    phase(s, "urgent", "Succeeded").await?;
    ends(s, "elastic", &["0", "1"], "succeed").await?;
    phase(s, "elastic", "Succeeded").await?;
    scenario.conclude().await
}
