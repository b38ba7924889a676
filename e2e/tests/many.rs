//! A test with 500 jobs over 5 queues that borrow from each other: all jobs finish, and the usage is zero afterwards.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, LOCAL_QUEUE, WORKLOAD, condition, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{Job, cluster_queue, flavor, group, local_queue, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::quota_tree::thousandths;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

const QUEUES: usize = 5;
const JOBS: usize = 500;
const LIMIT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_jobs_over_five_queues_all_finish() -> Result<()> {
    let stage = Stage::start("many", &[Pool::cpu("cpu", 6, Tier::OnDemand)], ManagerOptions::default()).await?;
    let outcome = match all_finish(&stage).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow::anyhow!(stage.failure("", &e).await)),
    };
    stage.stop().await;
    outcome
}

async fn all_finish(stage: &Stage) -> Result<()> {
    let s = stage.scenario("many").await?;
    s.apply(&flavor(&s.name("flavor"), &[])).await?;
    for number in 0..QUEUES {
        let (queue, flavor) = (s.name(&format!("q{number}")), s.name("flavor"));
        let cpu = quota("cpu", "20").borrowing("10").lending("15");
        let more = json!({"cohortName": s.name("cohort")});
        s.apply(&cluster_queue(&queue, &[group(&[(&flavor, &[cpu])])], &more)).await?;
        s.apply(&local_queue(&s.namespace, &format!("q{number}"), &queue)).await?;
    }
    let begun = Instant::now();
    let create = |number: usize| {
        // The jobs have different sizes and running times, which are the same in each run. Every fifth job arrives running, and runs for longer than
        // a job may run without quota (invariant L3): without the webhook, a job of 300 ms may be over before the API server applies Berth's
        // suspension in such a rush, and would need no Workload.
        let running = arrives_running(number);
        let (cpu, pods, run) =
            (1 + number % 3, 1 + number % 2, 100 + 37 * (number % 7) + if running { 11_000 } else { 0 });
        let job = Job::new(&s.namespace, &format!("job-{number:03}"), &format!("q{}", number % QUEUES));
        let job = job.cpu(&cpu.to_string()).pods(u32::try_from(pods).unwrap_or(1));
        let job = job.run_ms(u32::try_from(run).unwrap_or(100));
        let job = if running { job.spec(&json!({"suspend": false})) } else { job };
        s.create(job)
    };
    futures::stream::iter((0..JOBS).map(create)).buffer_unordered(16).try_collect::<Vec<_>>().await?;
    println!("{JOBS} jobs created after {:.1} s", begun.elapsed().as_secs_f64());
    wait::until(LIMIT, "all jobs have finished", || async {
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let workloads = WORKLOAD.list(&s.client, &s.namespace).await?;
        let complete = jobs.iter().filter(|j| condition(j, "Complete") == "True").count();
        let finished = workloads.iter().filter(|w| condition(w, "Finished") == "True").count();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let owners: BTreeSet<&str> = workloads.iter().map(|w| text(w, "/metadata/ownerReferences/0/uid")).collect();
        let without = jobs.iter().filter(|j| !owners.contains(text(j, "/metadata/uid")));
        let without: Vec<&str> = without.map(|j| text(j, "/metadata/name")).collect();
        // A job that arrived running may be over before Berth suspends it, if no manager leads for a while. The observer's invariant L3 reports a job that ran
        // unsuspended for too long while a manager led.
        let number = |name: &str| name.rsplit('-').next().and_then(|number| number.parse().ok());
        let excused = without.iter().all(|name| number(name).is_some_and(arrives_running));
        Ok(Seen::when(complete == JOBS && finished == workloads.len() && excused, || {
            format!(
                "{complete} complete, {finished} of {} workloads finished, none of {:?}",
                workloads.len(),
                &without[..without.len().min(5)]
            )
        }))
    })
    .await?;
    println!("{JOBS} jobs finished after {:.1} s", begun.elapsed().as_secs_f64());
    at_zero(&s).await?;
    stage.observer.conclude(Duration::from_secs(2)).await?;
    stage.manager.recomputes().await?;
    // If only the periodic sweep found that a parked Workload can be admitted, the engine has missed a wake-up.
    let found = stage.manager.metric("berth_sweep_found_total", &[]).await?;
    ensure!(found.unwrap_or(0.0) == 0.0, "the sweep found {found:?} parked workloads");
    s.conclude().await
}

/// Whether the job `number` is created unsuspended, as every fifth job is.
const fn arrives_running(number: usize) -> bool {
    number % 5 == 4
}

/// Checks that every count and amount in every queue's status is zero.
async fn at_zero(s: &Scenario<'_>) -> Result<()> {
    let used = |queue: &Value| -> Vec<String> {
        let mut used = Vec::new();
        for count in ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"] {
            if queue["status"][count] != json!(0) {
                used.push(format!("{count} is {}", queue["status"][count]));
            }
        }
        for list in ["flavorsReservation", "flavorsUsage"] {
            let resources = items(queue, &format!("/status/{list}")).iter().flat_map(|f| items(f, "/resources"));
            for resource in resources {
                for field in ["total", "borrowed"] {
                    if resource.get(field).is_some_and(|v| thousandths(v) != Some(0)) {
                        used.push(format!("{list} has {resource}"));
                    }
                }
            }
        }
        used
    };
    for number in 0..QUEUES {
        let name = s.name(&format!("q{number}"));
        wait::until(wait::STEP, &format!("the books of {name} are at zero"), || async {
            let queue = CLUSTER_QUEUE.get(&s.client, "", &name).await?.unwrap_or_default();
            let local = LOCAL_QUEUE.get(&s.client, &s.namespace, &format!("q{number}")).await?.unwrap_or_default();
            let (mut found, more) = (used(&queue), used(&local));
            found.extend(more);
            Ok(Seen::when(found.is_empty(), || found.join("; ")))
        })
        .await?;
    }
    Ok(())
}
