//! Counts of Berth's writes for JobSets and Jobs, as the API server counts them: without events, with the statuses of their queues.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::bench::audit::{self, Audit};
use berth_e2e::bench::meter::Requests;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, LOCAL_QUEUE, condition, condition_object, items, text};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Largest allowed number of Berth's writes to a JobSet, its Jobs and its Workload, from the JobSet's creation until its finished Workload is released. The
/// JobSet arrives running and no webhook suspends it, so that Berth has to.
const MOST_WRITES: u64 = 10;

/// Number of JobSets of eight Jobs each that are created at once, and the most writes for each JobSet, in tenths. The JobSets are created suspended,
/// as the webhook stores them, and all of their Jobs end together.
const CROWD: u64 = 12;
const TENTHS: u64 = 75;

/// Number of Jobs that are created at once, and the most writes for each Job, in tenths.
const JOBS: u64 = 40;
const JOB_TENTHS: u64 = 65;

/// The first number of `ALONE` is the most writes to a Job that is alone in its queue and to its Workload: the Workload is created, gets quota and is admitted
/// at once, is started, ready, finished, and released. The second number of `ALONE` is the most writes to the status of the Job's LocalQueue: when the Job
/// waits, runs, and has ended.
const ALONE: (u64, u64) = (6, 3);
/// The two numbers of `ALONE` for a JobSet of eight Jobs that is alone in its queue, for which Berth may write the JobSet's Workload once more, with the Jobs
/// that have succeeded. Berth writes the JobSet's Workload once more than that if a slow machine takes longer from the end of the first Job to the end of the
/// JobSet than Berth waits for more ends.
const SET_ALONE: (u64, u64) = (7, 5);
const WAITS_FOR_ENDS: SignedDuration = SignedDuration::from_secs(5);

/// Number of status writes to the Workload of the Job or JobSet: it is admitted, its pods are ready, and it has finished.
const SEPARATE_ENDS: u64 = 3;

/// Number of Jobs of a JobSet that end one after another, further apart than Berth waits for more ends before it writes that pods have ended.
const ENDS: u64 = 4;
const APART_MS: u64 = 8_000;

/// A replicated job of `replicas` Jobs, each with one pod that runs for `run_ms`.
fn jobs(name: &str, replicas: u64, run_ms: u64) -> Value {
    let pods = json!({"metadata": {"annotations": {"e2e.berth.dev/run-ms": run_ms.to_string()}},
        "spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": "100m"}}}]}});
    json!({"name": name, "replicas": replicas,
        "template": {"spec": {"parallelism": 1, "completions": 1, "template": pods}}})
}

/// A JobSet of the replicated jobs `jobs`, suspended as the webhook stores it.
fn suspended(s: &Scenario<'_>, name: &str, jobs: &[Value]) -> Value {
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"suspend": true, "replicatedJobs": jobs}})
}

/// Counts Berth's writes for JobSets of eight Jobs that are created at once, including the statuses of their queues.
pub(crate) async fn little_in_a_crowd(stage: &Stage, audit: &Audit) -> Result<()> {
    let s = stage.scenario("crowd").await?;
    s.simple_queue("100", &json!({})).await?;
    let from = audit.mark();
    let names: Vec<String> = (0..CROWD).map(|index| format!("set-{index}")).collect();
    for name in &names {
        s.apply(&suspended(&s, name, &[jobs("job", 8, 4_000)])).await?;
    }
    all_end(&s, &names).await?;
    costs(&s, audit, from, ("JobSets of 8 Jobs", CROWD, TENTHS))?;
    for name in &names {
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    s.conclude().await
}

/// Compares the cost of a JobSet's Jobs that end one after another with the cost of Jobs that end together. Each end but the last, which is the end
/// of the JobSet, may cost a write of the Workload and a status of each of its queues, which show the remaining usage. Jobs that end together may be
/// over before all of their pods were seen ready, so that Berth writes no status about ready pods; Jobs that end apart are ready before the first of
/// them ends.
pub(crate) async fn an_end_apart_from_the_others(stage: &Stage, audit: &Audit) -> Result<()> {
    let s = stage.scenario("one-by-one").await?;
    s.simple_queue("100", &json!({})).await?;
    let together = written_for(&s, audit, "together", 0).await?;
    let apart = written_for(&s, audit, "apart", APART_MS).await?;
    println!("{ENDS} ends together: {together:?}; one by one: {apart:?}");
    ensure!(
        apart.status_writes > together.status_writes,
        "no end was told by itself: {apart:?}, {together:?} for ends together"
    );
    ensure!(
        apart.status_writes < SEPARATE_ENDS + ENDS,
        "more than one write for an end: {apart:?}, {SEPARATE_ENDS} for ends together"
    );
    let (own, _) = ALONE;
    ensure!(apart.objects < own + ENDS, "more than one write for an end: {apart:?}, {own} for ends together");
    // The number of queue status writes for Jobs that end together depends on the number of changes within a second, so the bound for Jobs that end apart
    // starts from the number for a single Job (`ALONE`).
    ensure!(apart.queues < ALONE.1 + ENDS, "more than one status for an end: {apart:?}");
    for name in ["together", "apart"] {
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    s.conclude().await
}

/// The API server's count of Berth's writes in the scenario's namespace since the mark `from`, by verb and resource.
fn by_berth(s: &Scenario<'_>, audit: &Audit, from: u64) -> Result<Requests> {
    let requests = audit.within(&s.namespace, from, audit.mark())?;
    Ok(audit::writes(requests.get("berth").context("the audit log knows Berth")?))
}

/// Number of Berth's writes by the kind of the written object, without events.
#[derive(Debug)]
struct Written {
    /// Number of writes to statuses of Workloads.
    status_writes: u64,
    /// Number of all writes but those to statuses of queues: writes to jobs and Workloads, including the statuses of Workloads.
    objects: u64,
    /// Number of writes to the status of the scenario's only LocalQueue. The count of the ClusterQueue's status, which Berth writes as often, is not in the
    /// figures, because a ClusterQueue belongs to no namespace.
    queues: u64,
}

impl Written {
    fn of(writes: &Requests) -> Self {
        let to =
            |status: &str| -> u64 { writes.iter().filter(|(what, _)| what.ends_with(status)).map(|(_, n)| n).sum() };
        let queues = to(" localqueues/status");
        Self { status_writes: to(" workloads/status"), objects: audit::split_events(writes).0 - queues, queues }
    }
}

/// Runs a JobSet whose Jobs end `apart_ms` apart, and counts Berth's writes for it.
async fn written_for(s: &Scenario<'_>, audit: &Audit, name: &str, apart_ms: u64) -> Result<Written> {
    let from = audit.mark();
    let parts: Vec<Value> = (0..ENDS).map(|index| jobs(&format!("job-{index}"), 1, 3_000 + apart_ms * index)).collect();
    s.apply(&suspended(s, name, &parts)).await?;
    wait::until(Duration::from_secs(240), &format!("JobSet {name} is complete"), || async {
        let found = JOBSET.get(&s.client, &s.namespace, name).await?.unwrap_or_default();
        Ok(Seen::when(condition(&found, "Completed") == "True", || found["status"].to_string()))
    })
    .await?;
    all_end(s, &[name.to_owned()]).await?;
    nobody_left(s).await?;
    let writes = by_berth(s, audit, from)?;
    println!("{name}: {writes:?}");
    Ok(Written::of(&writes))
}

/// Waits until the JobSets `names` are complete and Berth has written all statuses about them.
async fn all_end(s: &Scenario<'_>, names: &[String]) -> Result<()> {
    for name in names {
        s.object_is(JOBSET, name, "Completed", |j| condition(j, "Completed") == "True").await?;
        s.workload(name, "let go", |w| {
            condition(w, "Finished") == "True" && items(w, "/metadata/finalizers").is_empty()
        })
        .await?;
    }
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    Ok(())
}

/// Counts Berth's writes for Jobs of one pod that are created at once and all fit into the quota: each Job gets quota, is started, ready, finished
/// and released.
pub(crate) async fn little_in_a_crowd_of_jobs(stage: &Stage, audit: &Audit) -> Result<()> {
    let s = stage.scenario("job-crowd").await?;
    s.simple_queue("100", &json!({})).await?;
    let from = audit.mark();
    let names: Vec<String> = (0..JOBS).map(|index| format!("job-{index}")).collect();
    for name in &names {
        s.create(s.job(name).cpu("100m").run_ms(2_000)).await?;
    }
    for name in &names {
        s.finished(name).await?;
        s.workload(name, "let go", |w| items(w, "/metadata/finalizers").is_empty()).await?;
    }
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    costs(&s, audit, from, ("Jobs", JOBS, JOB_TENTHS))?;
    s.conclude().await
}

/// Counts Berth's writes for one Job and for one JobSet that are alone in their queue, so that no other job shares the statuses of the queue.
pub(crate) async fn by_themselves(stage: &Stage, audit: &Audit) -> Result<()> {
    let s = stage.scenario("alone").await?;
    s.simple_queue("100", &json!({})).await?;
    for (kind, name) in [(CLUSTER_QUEUE, s.name("cq")), (LOCAL_QUEUE, "queue".to_owned())] {
        s.object_is(kind, &name, "Active", |queue| condition(queue, "Active") == "True").await?;
    }
    let from = audit.mark();
    s.create(s.job("one").cpu("100m").run_ms(4_000)).await?;
    s.finished("one").await?;
    s.workload("one", "let go", |w| items(w, "/metadata/finalizers").is_empty()).await?;
    nobody_left(&s).await?;
    alone(&s, audit, from, ("Job", ALONE))?;
    let from = audit.mark();
    s.apply(&suspended(&s, "set", &[jobs("job", 8, 4_000)])).await?;
    all_end(&s, &["set".to_owned()]).await?;
    nobody_left(&s).await?;
    let lasted = ends_last(&s, "set", 8).await?;
    println!("the ends of one JobSet of 8 Jobs last {lasted:?}");
    let (own, statuses) = SET_ALONE;
    let apart = u64::from(lasted > WAITS_FOR_ENDS);
    alone(&s, audit, from, ("JobSet of 8 Jobs", (own + apart, statuses)))?;
    JOBSET.delete(&s.client, &s.namespace, "set").await?;
    s.conclude().await
}

/// Time from the end of the first of a JobSet's `count` Jobs to the end of the JobSet, by the whole seconds in their statuses.
async fn ends_last(s: &Scenario<'_>, name: &str, count: usize) -> Result<SignedDuration> {
    let mut jobs = JOB.list(&s.client, &s.namespace).await?;
    jobs.retain(|job| text(job, "/metadata/labels/jobset.sigs.k8s.io~1jobset-name") == name);
    ensure!(jobs.len() == count, "{} Jobs of JobSet {name}, {count} are wanted", jobs.len());
    let ends = jobs.iter().map(|job| text(job, "/status/completionTime").parse::<Timestamp>());
    let ends = ends.collect::<Result<Vec<_>, _>>().context("when its Jobs ended")?;
    let set = JOBSET.get(&s.client, &s.namespace, name).await?.context("the JobSet")?;
    let end = condition_object(&set, "Completed").context("its end")?;
    let end = text(end, "/lastTransitionTime").parse::<Timestamp>().context("when it ended")?;
    let first = ends.into_iter().min().context("its first end")?;
    Ok(end.duration_since(first))
}

/// Waits until the statuses of both queues count no Workload.
async fn nobody_left(s: &Scenario<'_>) -> Result<()> {
    for (kind, name) in [(CLUSTER_QUEUE, s.name("cq")), (LOCAL_QUEUE, "queue".to_owned())] {
        let empty = |queue: &Value| {
            let count = |field: &str| queue["status"][field].as_i64().unwrap_or(0);
            ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"].iter().all(|field| count(field) == 0)
        };
        s.object_is(kind, &name, "empty", empty).await?;
    }
    Ok(())
}

/// Checks the API server's count of Berth's writes for the namespace's only job since the mark `from`: the writes to the job's own objects, and to the status
/// of its LocalQueue. Berth's writes to the status of the ClusterQueue, which belongs to no namespace, are not counted.
fn alone(s: &Scenario<'_>, audit: &Audit, from: u64, (what, (own, statuses)): (&str, (u64, u64))) -> Result<()> {
    let writes = by_berth(s, audit, from)?;
    ensure!(writes.get("create workloads") == Some(&1), "one Workload for one {what}: {writes:?}");
    let Written { objects, queues, .. } = Written::of(&writes);
    println!(
        "one {what}: {objects} object writes by Berth and {queues} of the status of each of its queues: {writes:?}"
    );
    ensure!(objects <= own, "{objects} object writes for one {what}, at most {own}: {writes:?}");
    ensure!(
        (1..=statuses).contains(&queues),
        "{queues} writes of the LocalQueue's status for one {what}, at most {statuses}"
    );
    Ok(())
}

/// Checks the API server's count of Berth's writes in the namespace for `count` jobs, without events, against the most writes for each job in tenths
/// of a write.
fn costs(s: &Scenario<'_>, audit: &Audit, from: u64, (what, count, most): (&str, u64, u64)) -> Result<()> {
    let writes = by_berth(s, audit, from)?;
    ensure!(writes.get("create workloads") == Some(&count), "one Workload for each of {count} {what}: {writes:?}");
    let Written { objects, queues, .. } = Written::of(&writes);
    let statuses = 2 * queues;
    let tenths = (objects + statuses) * 10 / count;
    println!("{count} {what}: {}.{} object writes each by Berth: {writes:?}", tenths / 10, tenths % 10);
    ensure!(
        (objects + statuses) * 10 <= most * count,
        "{objects} + {statuses} object writes for {count} {what}: {writes:?}"
    );
    Ok(())
}

/// Checks the API server's count of Berth's writes for the namespace's only JobSet. Events do not count, and neither does the LocalQueue's status,
/// which Berth writes for all jobs of the queue at once.
pub(crate) fn few_writes(s: &Scenario<'_>, audit: &Audit, from: u64) -> Result<()> {
    let writes = by_berth(s, audit, from)?;
    let objects = Written::of(&writes).objects;
    println!("one JobSet: {objects} object writes by Berth: {writes:?}");
    ensure!(writes.get("create workloads") == Some(&1), "one Workload for a JobSet: {writes:?}");
    ensure!(objects <= MOST_WRITES, "{objects} object writes for one JobSet, at most {MOST_WRITES}: {writes:?}");
    Ok(())
}
