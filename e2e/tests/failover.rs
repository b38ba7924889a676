//! Failover of two replicas: the leader is killed, is stopped, or is paused for longer than its lease and then goes on. No job is lost, and no job is
//! admitted twice; the observer judges every revision of the story.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, WORKLOAD, condition, items, text};
use berth_e2e::manager::{self, Manager, ManagerOptions};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::json;

/// The lease is short, so that the test need not wait long until it expires, but longer than the pauses of a busy machine.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: true
  leaseDuration: 8s
  renewDeadline: 6s
  retryPeriod: 500ms
";
const LEASE: Duration = Duration::from_secs(8);

/// Number of jobs that are created during each change of the leader.
const JOBS: usize = 25;

fn options(name: &str) -> ManagerOptions {
    ManagerOptions { name: name.to_owned(), config: Some(CONFIG.to_owned()), ..ManagerOptions::default() }
}

/// Whether the manager's log says that it has taken the lease under the identity `identity`.
fn is_called(manager: &Manager, identity: &str) -> bool {
    let log = std::fs::read_to_string(manager.log()).unwrap_or_default();
    log.lines().any(|line| line.contains("lease taken") && line.contains(identity))
}

/// Two replicas of Berth: the one that leads, and the other one.
async fn roles<'a>(stage: &Stage, pair: &'a mut [Manager; 2]) -> Result<(&'a mut Manager, &'a mut Manager)> {
    let holder = wait::until(wait::STEP, "one of the two leads", || async {
        let holder = manager::leader(&stage.client).await?;
        let known = !holder.is_empty() && pair.iter().any(|m| is_called(m, &holder));
        Ok(if known { Seen::Yes(holder) } else { Seen::NotYet(format!("holder {holder:?}")) })
    })
    .await?;
    let [a, b] = pair;
    Ok(if is_called(a, &holder) { (a, b) } else { (b, a) })
}

/// Waits until another replica than `old` holds the lease; returns the identity of the new holder and the time until the change.
async fn taken_over(stage: &Stage, old: &str) -> Result<(String, Duration)> {
    let begun = Instant::now();
    let holder = wait::until(wait::STEP, "another replica leads", || async {
        let holder = manager::leader(&stage.client).await?;
        Ok(if holder.is_empty() || holder == old { Seen::NotYet(holder) } else { Seen::Yes(holder) })
    })
    .await?;
    Ok((holder, begun.elapsed()))
}

/// Creates the scenario's queue, with quota for four jobs at a time.
async fn begin(stage: &Stage, name: &str) -> Result<()> {
    let s = stage.scenario(name).await?;
    s.simple_queue("4", &json!({})).await
}

/// Creates `JOBS` jobs, one every 60 ms, with numbers from `first` on.
async fn submit(s: &Scenario<'_>, first: usize) -> Result<()> {
    for number in first..first + JOBS {
        s.create(s.job(&format!("job-{number:03}")).run_ms(300)).await?;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    Ok(())
}

async fn all_finished(s: &Scenario<'_>, count: usize) -> Result<()> {
    wait::until(Duration::from_secs(180), &format!("{count} jobs have finished"), || async {
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let workloads = WORKLOAD.list(&s.client, &s.namespace).await?;
        let complete = jobs.iter().filter(|j| condition(j, "Complete") == "True").count();
        let finished = workloads.iter().filter(|w| condition(w, "Finished") == "True").count();
        Ok(Seen::when(complete == count && finished == count, || {
            format!("{complete} jobs complete, {finished} of {} workloads finished", workloads.len())
        }))
    })
    .await?;
    // Each job has one pod, so no job was started a second time.
    let pods = berth_e2e::kinds::POD.list(&s.client, &s.namespace).await?;
    ensure!(pods.len() == count, "{} pods for {count} jobs of one pod", pods.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_change_while_jobs_run() -> Result<()> {
    let stage = Stage::start("failover", &[Pool::cpu("cpu", 2, Tier::OnDemand)], options("berth-a")).await?;
    let outcome = changes(&stage).await;
    let outcome = match outcome {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow::anyhow!(stage.failure("failover", &e).await)),
    };
    stage.stop().await;
    outcome
}

async fn changes(stage: &Stage) -> Result<()> {
    begin(stage, "failover").await?;
    let s = &Scenario { stage, client: stage.client.clone(), namespace: "failover".to_owned() };
    // The replica that the control plane started with (`stage.manager`) is killed, because only the two replicas `berth-b` and `berth-c` can be restarted. A
    // replica is ready before it leads, so the test waits until `stage.manager` leads before it starts the two others.
    let old = manager::wait_for_leader(&stage.client).await?;
    let first = Manager::start(&stage.plane, options("berth-b")).await?;
    let second = Manager::start(&stage.plane, options("berth-c")).await?;
    stage.manager.signal("KILL")?;
    taken_over(stage, &old).await?;
    let mut pair = [first, second];

    // The leader is killed.
    let (submitted, took) = tokio::join!(submit(s, 0), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let old = manager::leader(&stage.client).await?;
        let (leader, _) = roles(stage, &mut pair).await?;
        leader.kill();
        let (_, took) = taken_over(stage, &old).await?;
        leader.restart().await?;
        anyhow::Ok(took)
    });
    submitted?;
    let took = took.context("after the kill")?;
    println!("killed: another led after {:.1} s", took.as_secs_f64());
    ensure!(took < LEASE + LEASE / 2, "a killed leader was replaced after {took:?}");
    all_finished(s, JOBS).await.context("after the kill")?;

    // The leader is paused for longer than its lease, in the middle of its writes, and then goes on.
    let (submitted, took) = tokio::join!(submit(s, JOBS), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let old = manager::leader(&stage.client).await?;
        let (leader, _) = roles(stage, &mut pair).await?;
        leader.pause()?;
        let (new, took) = taken_over(stage, &old).await?;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        leader.resume()?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let holder = manager::leader(&stage.client).await?;
            ensure!(holder == new, "the lease went from {new} to {holder} when the old leader went on");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        ensure!(leader.ended().is_none(), "the old leader must step back, not end:\n{}", leader.log_tail(5));
        anyhow::Ok(took)
    });
    submitted?;
    let took = took.context("after the standstill")?;
    println!("stopped: another led after {:.1} s", took.as_secs_f64());
    all_finished(s, 2 * JOBS).await.context("after the standstill")?;

    // The leader is stopped, as in a rolling update: the next leader need not wait until the lease expires.
    let (submitted, took) = tokio::join!(submit(s, 2 * JOBS), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let old = manager::leader(&stage.client).await?;
        let (leader, _) = roles(stage, &mut pair).await?;
        let asked = Instant::now();
        leader.terminate(Duration::from_secs(60));
        taken_over(stage, &old).await?;
        let took = asked.elapsed();
        leader.restart().await?;
        anyhow::Ok(took)
    });
    submitted?;
    let took = took.context("after the termination")?;
    println!("terminated: another led after {:.1} s", took.as_secs_f64());
    ensure!(took < LEASE, "a leader that was told to go was replaced after {took:?}");
    all_finished(s, 3 * JOBS).await.context("after the termination")?;

    // The view that the last leader has in memory must agree with fresh lists of all objects.
    let (leader, _) = roles(stage, &mut pair).await?;
    leader.recomputes().await?;
    let queue = CLUSTER_QUEUE.get(&s.client, "", &s.name("cq")).await?.context("the queue")?;
    ensure!(!items(&queue, "/status/flavorsReservation").is_empty(), "{}", text(&queue, "/metadata/name"));
    let scenario = Scenario { stage, client: stage.client.clone(), namespace: "failover".to_owned() };
    scenario.conclude().await
}
