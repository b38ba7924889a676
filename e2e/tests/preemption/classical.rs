//! Classical preemption.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{JOB, condition, condition_object, text};
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::quickstart::flavor_of;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

use crate::preemption::{basics, job, queue, within};

/// Waits until a job was preempted, has stopped and waits again; checks the reason of the condition Preempted and its message, which names the cohort paths of
/// preemptor and preemptee.
async fn preempted(s: &Scenario<'_>, name: &str, reason: &str, paths: [&str; 2]) -> Result<()> {
    let workload = s.workload(name, "Preempted", |w| condition(w, "Preempted") == "True").await?;
    let found = condition_object(&workload, "Preempted").cloned().unwrap_or_default();
    ensure!(text(&found, "/reason") == reason, "{name}: {found}");
    let message = text(&found, "/message");
    let tail = format!("preemptor path: {}; preemptee path: {}", paths[0], paths[1]);
    ensure!(message.starts_with("Preempted to accommodate a workload") && message.ends_with(&tail), "{message}");
    s.workload(name, "quota released", |w| condition(w, "QuotaReserved") == "False").await?;
    s.job_is(name, "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    let workload = s.workload(name, "Requeued", |w| condition(w, "Requeued") == "True").await?;
    let evicted = condition_object(&workload, "Evicted").cloned().unwrap_or_default();
    ensure!(text(&evicted, "/reason") == "Preempted", "{name}: {evicted}");
    Ok(())
}

fn still_admitted(workload: &Value) -> bool {
    condition(workload, "Admitted") == "True" && condition(workload, "Evicted") != "True"
}

pub(crate) async fn within_the_queue(stage: &Stage) -> Result<()> {
    let s = stage.scenario("lower-priority").await?;
    basics(&s).await?;
    queue(&s, "q", "4", &within(&s, "", &json!({"withinClusterQueue": "LowerPriority"}))).await?;
    s.create(job(&s, "low", "q", "2", "low")).await?;
    s.admitted("low").await?;
    s.create(job(&s, "mid", "q", "2", "mid")).await?;
    s.admitted("mid").await?;
    s.next_second().await;
    s.create(job(&s, "equal", "q", "2", "low")).await?;
    s.pending("equal").await?;
    s.create(job(&s, "high", "q", "2", "high")).await?;
    // Only the job of the lowest priority is preempted, and it is admitted again when there is quota.
    let path = format!("/{}", s.name("q"));
    preempted(&s, "low", "InClusterQueue", [&path, &path]).await?;
    s.admitted("high").await?;
    let mid = s.workload_of("mid").await?.unwrap_or_default();
    ensure!(still_admitted(&mid), "{}", mid["status"]);
    s.remove("high").await?;
    s.admitted("low").await?;
    s.stays_pending("equal").await?;
    s.conclude().await
}

/// A deleted job that a user's finalizer keeps runs on, because the job controller does not act on it any more. Berth preempts the deleted job, which still has
/// quota and pods, for another job nevertheless.
pub(crate) async fn kept_by_a_finalizer(stage: &Stage) -> Result<()> {
    let s = stage.scenario("kept-victim").await?;
    basics(&s).await?;
    queue(&s, "q", "2", &within(&s, "", &json!({"withinClusterQueue": "LowerPriority"}))).await?;
    let finalizers = |all: Value| json!({"metadata": {"finalizers": all}});
    s.create(job(&s, "kept", "q", "2", "low")).await?;
    s.job_is("kept", "running", |j| j["status"]["active"] == json!(1)).await?;
    JOB.patch(&s.client, &s.namespace, "kept", &finalizers(json!(["example.com/keeps"]))).await?;
    JOB.delete(&s.client, &s.namespace, "kept").await?;
    s.create(job(&s, "high", "q", "2", "high")).await?;
    s.admitted("high").await?;
    // A pod that has ended may still exist for a moment.
    let ended = |pod: &Value| ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"));
    ensure!(s.pods_of("kept").await?.iter().all(ended), "the other was admitted while pods were left");
    let left = s.get_job("kept").await?;
    ensure!(!text(&left, "/metadata/deletionTimestamp").is_empty(), "{}", left["metadata"]);
    // The Workload of the deleted job goes with its pods, and Berth creates no other Workload for a job that is being deleted.
    s.remove("high").await?;
    let workload = s.workload_of("kept").await?;
    ensure!(
        workload.is_none_or(|workload| condition(&workload, "QuotaReserved") != "True"),
        "it was given quota again"
    );
    JOB.patch(&s.client, &s.namespace, "kept", &finalizers(Value::Null)).await?;
    s.conclude().await
}

pub(crate) async fn reclaim(stage: &Stage) -> Result<()> {
    let s = stage.scenario("reclaim").await?;
    basics(&s).await?;
    let any = json!({"reclaimWithinCohort": "Any"});
    queue(&s, "owner", "4", &within(&s, "cohort", &any)).await?;
    queue(&s, "guest", "2", &within(&s, "cohort", &json!({}))).await?;
    for name in ["g1", "g2", "g3"] {
        s.create(job(&s, name, "guest", "2", "high")).await?;
        s.admitted(name).await?;
    }
    // The owner of the quota gets back as much as it lent, and no more, whatever the priorities.
    s.create(job(&s, "mine", "owner", "2", "low")).await?;
    let guests = ["g1", "g2", "g3"];
    let victim = wait::until(STEP, "one guest is preempted", || async {
        for name in guests {
            let workload = s.workload_of(name).await?.unwrap_or_default();
            if condition(&workload, "Preempted") == "True" {
                return Ok(Seen::Yes(name));
            }
        }
        Ok(Seen::NotYet("none".to_owned()))
    })
    .await?;
    preempted(
        &s,
        victim,
        "InCohortReclamation",
        [&format!("/{}/{}", s.name("cohort"), s.name("owner")), &format!("/{}/{}", s.name("cohort"), s.name("guest"))],
    )
    .await?;
    s.admitted("mine").await?;
    for name in guests.into_iter().filter(|name| *name != victim) {
        let workload = s.workload_of(name).await?.unwrap_or_default();
        ensure!(still_admitted(&workload), "{name}: {}", workload["status"]);
    }
    s.stays_pending(victim).await?;
    s.remove("mine").await?;
    s.admitted(victim).await?;
    s.conclude().await
}

pub(crate) async fn borrow_within_cohort(stage: &Stage) -> Result<()> {
    let s = stage.scenario("borrow-preempts").await?;
    basics(&s).await?;
    let borrow = json!({"reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 20}});
    queue(&s, "bold", "2", &within(&s, "cohort", &borrow)).await?;
    queue(&s, "calm", "2", &within(&s, "cohort", &json!({}))).await?;
    queue(&s, "lender", "2", &within(&s, "cohort", &json!({}))).await?;
    s.create(job(&s, "calm-low", "calm", "2", "low")).await?;
    s.admitted("calm-low").await?;
    s.create(job(&s, "calm-mid", "calm", "2", "mid")).await?;
    s.admitted("calm-mid").await?;
    // The job needs all quota of the queue bold and borrows two cpus. A queue that borrows may only preempt jobs of a priority of at most 20, and the
    // queue calm borrows for one of its two jobs.
    s.create(job(&s, "bold-high", "bold", "4", "high")).await?;
    let cohort = s.name("cohort");
    preempted(
        &s,
        "calm-low",
        "InCohortReclaimWhileBorrowing",
        [&format!("/{cohort}/{}", s.name("bold")), &format!("/{cohort}/{}", s.name("calm"))],
    )
    .await?;
    s.admitted("bold-high").await?;
    let mid = s.workload_of("calm-mid").await?.unwrap_or_default();
    ensure!(still_admitted(&mid), "{}", mid["status"]);
    s.conclude().await
}

pub(crate) async fn hierarchy(stage: &Stage) -> Result<()> {
    let s = stage.scenario("hierarchy").await?;
    basics(&s).await?;
    let [root, left, right] = ["root", "left", "right"].map(|name| s.name(name));
    s.apply(&manifest::cohort(&root, "", &[])).await?;
    s.apply(&manifest::cohort(&left, &root, &[])).await?;
    s.apply(&manifest::cohort(&right, &root, &[])).await?;
    let any = json!({"reclaimWithinCohort": "Any"});
    queue(&s, "near", "2", &within(&s, "left", &json!({}))).await?;
    queue(&s, "mine", "2", &within(&s, "left", &any)).await?;
    queue(&s, "far", "2", &within(&s, "right", &json!({}))).await?;
    // The queue near uses only its own quota; the queue far uses its own quota and borrows the quota of the queue mine across the root cohort.
    s.create(job(&s, "near-own", "near", "2", "low")).await?;
    s.admitted("near-own").await?;
    s.create(job(&s, "far-own", "far", "2", "low")).await?;
    s.admitted("far-own").await?;
    s.create(job(&s, "far-guest", "far", "2", "high")).await?;
    s.admitted("far-guest").await?;
    s.create(job(&s, "back", "mine", "2", "low")).await?;
    // The queue mine reclaims the quota that its cohort left lent to the cohort right: the victim is the job of lowest priority in the queue far.
    s.admitted("back").await?;
    let near = s.workload_of("near-own").await?.unwrap_or_default();
    ensure!(still_admitted(&near), "the neighbour has its own quota only: {}", near["status"]);
    preempted(
        &s,
        "far-own",
        "InCohortReclamation",
        [&format!("/{root}/{left}/{}", s.name("mine")), &format!("/{root}/{right}/{}", s.name("far"))],
    )
    .await?;
    s.conclude().await
}

pub(crate) async fn other_flavor_first(stage: &Stage) -> Result<()> {
    let s = stage.scenario("two-flavors").await?;
    basics(&s).await?;
    let (first, second, full) = (s.name("flavor"), s.name("second"), s.name("q"));
    s.apply(&manifest::flavor(&second, &[])).await?;
    let two = [quota("cpu", "2")];
    let spec = within(&s, "", &json!({"withinClusterQueue": "LowerPriority"}));
    s.apply(&manifest::cluster_queue(&full, &[group(&[(&first, &two), (&second, &two)])], &spec)).await?;
    s.apply(&manifest::local_queue(&s.namespace, "q", &full)).await?;
    s.create(job(&s, "low", "q", "2", "low")).await?;
    s.admitted("low").await?;
    // A job gets a flavor with free quota before any job is preempted.
    s.create(job(&s, "high", "q", "2", "high")).await?;
    let high = s.admitted("high").await?;
    ensure!(flavor_of(&high) == second, "{}", high["status"]["admission"]);
    s.create(job(&s, "high-2", "q", "2", "high")).await?;
    let path = format!("/{full}");
    preempted(&s, "low", "InClusterQueue", [&path, &path]).await?;
    let second_high = s.admitted("high-2").await?;
    ensure!(flavor_of(&second_high) == first, "{}", second_high["status"]["admission"]);
    s.conclude().await
}
