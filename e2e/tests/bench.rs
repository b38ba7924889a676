//! The benchmark, scaled down to seconds so that it cannot become outdated unnoticed. These tests judge the counts and the memory, but not the times;
//! and the observer judges the invariants, which `make bench` leaves out for the sake of its figures.

use anyhow::{Context, Result, ensure};
use berth_e2e::bench::report::{Part, Report};
use berth_e2e::bench::{self, Settings};
use berth_e2e::kueue::{Kueue, SKIPPED};
use berth_e2e::shipped;

/// Number of ClusterQueues and LocalQueues of the run, which limits the writes of queue statuses: at most one per queue in 5 s, and a few more at the beginning
/// and at the end.
const QUEUES: f64 = 60.0;

/// Only one benchmark runs at a time, because two control planes would influence each other's figures.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn run(settings: Settings) -> Result<Report> {
    let _turn = TURN.lock().await;
    let report = bench::run(&settings).await?;
    println!("{}", report.table());
    Ok(report)
}

fn part(report: Report, name: &str) -> Result<Part> {
    report
        .parts
        .into_iter()
        .find(|part| part.name == name)
        .with_context(|| format!("the report has no part for {name}"))
}

async fn berth(shape: &str, scale: f64) -> Result<Part> {
    part(run(Settings::of(shape, scale)).await?, "berth")
}

fn figure(part: &Part, name: &str) -> Result<f64> {
    part.figure(name).with_context(|| format!("no figure {name:?}"))
}

/// Checks the operator's peak memory: at most `beside` MB without the memory pages of its program file, which are three times as many in a build that is not
/// optimised; and in the release build at most `in_all` MB with these pages.
fn memory(part: &Part, beside: f64, in_all: f64) -> Result<()> {
    let peak = figure(part, "peak memory of the operator")?;
    let program = figure(part, "pages of its program in memory")?;
    ensure!(peak - program <= beside, "{peak} MB, of which the program has {program} MB");
    ensure!(peak <= in_all || !shipped::is_release(), "{peak} MB in the release build");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_cost_one_status_write_each() -> Result<()> {
    let part = berth("small", 0.04).await?;
    let count = figure(&part, "workloads")?;
    let requests = part.requests.get("requests by the audit log").context("requests are listed")?;
    let of = |what: &str| requests.get(what).copied().unwrap_or(0) as f64;
    let (statuses, wall) = (of("apply workloads/status"), figure(&part, "wall")?);
    ensure!(statuses >= count, "every admission is a write: {statuses} for {count}");
    // Berth limits its writes of reasons why Workloads wait to 60 at once and then ten a second, so a slower run has more of these writes.
    let reasons = 60.0 + 10.0 * wall;
    ensure!(statuses <= 1.05 * count + reasons, "{statuses} status writes for {count} workloads in {wall} s");
    let queues = of("patch clusterqueues/status") + of("patch localqueues/status");
    ensure!(queues <= QUEUES * (wall / 5.0 + 4.0), "{queues} statuses of {QUEUES} queues in {wall} s");
    let refused = requests.iter().filter(|(what, _)| what.ends_with("(refused)")).map(|(_, n)| *n as f64).sum::<f64>();
    ensure!(refused <= 0.05 * count, "{refused} refused requests for {count} workloads");
    let (audit, own) = (
        figure(&part, "requests per workload without events")? + figure(&part, "events per workload")?,
        figure(&part, "requests per workload, the operator's own count")?,
    );
    ensure!((audit - own).abs() <= 0.05 * audit, "the audit log counts {audit} requests per workload, Berth {own}");
    memory(&part, 25.0, 80.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_cost_few_writes_each() -> Result<()> {
    let part = berth("jobs", 0.1).await?;
    let count = figure(&part, "jobs")?;
    let requests = part.requests.get("writes by Berth, audit log").context("writes are listed")?;
    let of = |what: &str| requests.get(what).copied().unwrap_or(0) as f64;
    ensure!(of("create workloads") == count, "one Workload per Job: {requests:?}");
    ensure!(of("patch jobs") <= 1.02 * count, "one write to start each Job: {requests:?}");
    ensure!(
        of("apply workloads/status") <= 3.2 * count,
        "reserved, finished, and at most once told why not: {requests:?}"
    );
    let events = figure(&part, "events per job by Berth")?;
    ensure!(events <= 5.5, "{events} events per job");
    // `make bench` checks the goal of 50 MB with ten times as many jobs. In this test huge pages alone took 12 MB of Berth's memory.
    memory(&part, 20.0, 50.0)
}

/// Compares counts and memory, never times: for Workloads with Kueue's minimalkueue, whose requests are limited, and for Jobs with Kueue's manager. Both Berth
/// and Kueue are restarted, and the test also compares the peak memory that each needs after its restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn berth_needs_fewer_requests_and_less_memory_than_kueue() -> Result<()> {
    let Some(kueue) = tokio::task::spawn_blocking(Kueue::asked).await?? else {
        println!("{SKIPPED}");
        return Ok(());
    };
    let shapes = [
        ("small", 0.04, "minimalkueue", ["requests per workload without events"; 2]),
        ("jobs", 0.1, "kueue", ["object writes per job by Berth", "object writes per job by Kueue"]),
    ];
    for (shape, scale, other, requests) in shapes {
        let kueue = Some(kueue.clone());
        let report = run(Settings { kueue, idle_seconds: 3, observed: false, ..Settings::of(shape, scale) }).await?;
        let parts = [part(report.clone(), "berth")?, part(report, other)?];
        let both =
            |names: [&str; 2]| -> Result<[f64; 2]> { Ok([figure(&parts[0], names[0])?, figure(&parts[1], names[1])?]) };
        let [berth, kueue] = both(requests)?;
        ensure!(berth > 0.5 && berth < kueue, "{shape}: {berth} requests by Berth, {kueue} by {other}");
        // The comparison of memory leaves out the memory pages of Berth's program file, because a build of Berth that is not optimised has three times as many
        // of them.
        let program = both(["pages of its program in memory"; 2])?;
        for what in ["peak memory of the operator", "idle after a restart: peak memory"] {
            let peak = both([what; 2])?;
            let [berth, kueue] = [peak[0] - program[0], peak[1] - program[1]];
            ensure!(berth < kueue, "{shape}, {what} beside the program: {berth} MB for Berth, {kueue} for {other}");
        }
    }
    Ok(())
}
