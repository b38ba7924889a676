//! A test with waiting jobs of a mebibyte each, as many as one namespace may have. Berth starts, lists these large jobs and admits other jobs within the memory
//! that the chart gives it. The memory suffices because Berth keeps little of a waiting job in memory, and reads a list object by object.
//!
//! The test has 60 waiting jobs in `make test`, and 500 in `make night` (`BERTH_LARGE=500`).

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use berth_e2e::bench::meter::Usage;
use berth_e2e::kinds::{CLUSTER_QUEUE, WORKLOAD};
use berth_e2e::manager::{Manager, ManagerOptions};
use berth_e2e::memory_bound::MemoryBound;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

/// Leader election is off, so that a restarted manager need not wait for the lease of the killed one.
const CONFIG: &str =
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nleaderElection: {leaderElect: false}\n";
/// Number of bytes of text in each job: with its other fields the Workload stays below the API server's size limit.
const BYTES: usize = 1_000_000;
const LIMIT: Duration = Duration::from_secs(600);
/// Bytes of memory that the chart allows Berth.
const CHART: u64 = 512 << 20;

/// The number of large jobs in the test, and the megabytes of memory that Berth may use with them.
fn size() -> (usize, f64) {
    let many = std::env::var("BERTH_LARGE").ok().and_then(|text| text.parse().ok());
    // The texts of 60 jobs alone take 60 MB, and the chart gives Berth 512 MiB.
    many.map_or((60, 160.0), |many| (many, 400.0))
}

fn options(name: &str) -> ManagerOptions {
    ManagerOptions { name: name.to_owned(), config: Some(CONFIG.to_owned()), ..ManagerOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_waiting_jobs_fit_into_the_memory_of_the_chart() -> Result<()> {
    let stage = Stage::start("large", &[Pool::cpu("cpu", 2, Tier::OnDemand)], options("berth")).await?;
    let bound = bound(&stage.manager)?;
    if bound.is_none() {
        println!("no memory cgroup can be made here: the chart's limit is judged by the peak alone");
    }
    let outcome = match start_list_and_admit(&stage).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow!(stage.failure("", &e).await)),
    };
    stage.stop().await;
    drop(bound);
    outcome
}

/// Limits a manager's memory to the amount that the chart gives Berth.
fn bound(manager: &Manager) -> Result<Option<MemoryBound>> {
    MemoryBound::of(manager.pid()?, CHART)
}

/// A job that fits into no quota, with random text that no compression makes smaller.
fn job(s: &Scenario<'_>, number: usize) -> Value {
    let mut state = number as u64 + 1;
    let mut text = String::with_capacity(BYTES);
    while text.len() < BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!("{state:016x}"));
    }
    text.truncate(BYTES);
    let mut job = s.job(&format!("large-{number:03}")).cpu("99").manifest();
    job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([text]);
    job
}

/// Waits until the ClusterQueue's status counts `count` waiting jobs.
async fn waiting(s: &Scenario<'_>, count: usize) -> Result<()> {
    wait::until(LIMIT, &format!("{count} jobs wait"), || async {
        let queue = CLUSTER_QUEUE.get(&s.client, "", &s.name("cq")).await?.context("the queue")?;
        let pending = queue["status"]["pendingWorkloads"].clone();
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(Seen::when(pending == json!(count), || pending.to_string()))
    })
    .await
}

fn judge(manager: &Manager, when: &str, most: f64) -> Result<()> {
    let used = Usage::of(manager.pid()?)?;
    println!("{when}: peak {:.0} MB, now {:.0} MB", used.peak_mb, used.resident_mb);
    ensure!(used.peak_mb < most, "{when} it needed {:.0} MB, and may need {most:.0}", used.peak_mb);
    Ok(())
}

async fn start_list_and_admit(stage: &Stage) -> Result<()> {
    let (count, most) = size();
    let s = stage.scenario("large").await?;
    s.simple_queue("1", &json!({})).await?;
    let create = |number: usize| {
        let s = &s;
        async move { s.apply(&job(s, number)).await }
    };
    futures::stream::iter((0..count).map(create)).buffer_unordered(4).try_collect::<Vec<_>>().await?;
    waiting(&s, count).await?;
    judge(&stage.manager, "while they came", most)?;

    stage.manager.signal("KILL")?;
    // The memory limits are dropped after the manager, which has to end before them.
    let mut bounds = Vec::new();
    let again = Manager::start(&stage.plane, options("berth-again")).await?;
    bounds.extend(bound(&again)?);
    // Another job runs while the large jobs wait.
    s.create(s.job("small").run_ms(300)).await?;
    s.finished("small").await?;
    waiting(&s, count).await?;
    judge(&again, "after a start", most)?;

    let room = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": s.name("flavor"),
        "resources": [{"name": "cpu", "nominalQuota": "990"}]}]}]});
    s.edit_queue(&s.name("cq"), &room).await?;
    waiting(&s, count.saturating_sub(10)).await?;
    let admitted = WORKLOAD.list(&s.client, &s.namespace).await?;
    let admitted = admitted.iter().filter(|workload| berth_e2e::kinds::condition(workload, "Admitted") == "True");
    ensure!(admitted.count() >= 10, "ten have room");
    judge(&again, "after admissions", most)?;
    admitted_text(&s).await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "HoldAndDrain"})).await?;
    waiting(&s, count).await?;
    judge(&again, "after evictions", most)?;
    s.conclude().await
}

/// Checks that the pods of an admitted job have all of the text that its user wrote.
async fn admitted_text(s: &Scenario<'_>) -> Result<()> {
    let jobs = berth_e2e::kinds::JOB.list(&s.client, &s.namespace).await?;
    let is_unchanged = |job: &Value| {
        let text = job.pointer("/spec/template/spec/containers/0/args/0").and_then(Value::as_str);
        text.is_none_or(|text| text.len() == BYTES)
    };
    ensure!(jobs.iter().all(is_unchanged), "a start or a stop has changed what a user wrote");
    Ok(())
}
