//! What JobSets and Jobs cost in writes by Berth, as the API server counts them: events apart, the statuses of their queues included.

use anyhow::{Context, Result, ensure};
use berth_e2e::bench::audit::{self, Audit};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{CLUSTER_QUEUE, condition, items};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

/// Writes of Berth to a JobSet, its Jobs and its Workload, from its creation until its finished Workload is let go: of one that comes
/// running where no webhook suspends it, so that Berth has to.
const MOST_WRITES: u64 = 10;

/// JobSets of eight Jobs each that come at once, and how many writes each of them may cost, in tenths: they come suspended, as the webhook
/// has it, and their Jobs end together.
const CROWD: u64 = 12;
const TENTHS: u64 = 75;

/// The same of Jobs.
const JOBS: u64 = 40;
const JOB_TENTHS: u64 = 65;

/// Eight Jobs of one pod, suspended as the webhook has it.
fn crowded(s: &Scenario<'_>, name: &str) -> Value {
    let pods = json!({"metadata": {"annotations": {"e2e.berth.dev/run-ms": "4000"}}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": "100m"}}}]}});
    let jobs = json!([{"name": "job", "replicas": 8, "template": {"spec": {"parallelism": 1, "completions": 1, "template": pods}}}]);
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"suspend": true, "replicatedJobs": jobs}})
}

/// What Berth writes for JobSets of eight Jobs, the statuses of their queues included.
pub(crate) async fn little_in_a_crowd(stage: &Stage, audit: &Audit) -> Result<()> {
    let s = stage.scenario("crowd").await?;
    s.simple_queue("100", &json!({})).await?;
    let from = audit.mark();
    let names: Vec<String> = (0..CROWD).map(|index| format!("set-{index}")).collect();
    for name in &names {
        s.apply(&crowded(&s, name)).await?;
    }
    all_end(&s, &names).await?;
    costs(&s, audit, from, ("JobSets of 8 Jobs", CROWD, TENTHS))?;
    for name in &names {
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    s.conclude().await
}

/// Waits until these JobSets are complete and all that Berth writes about it is written.
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

/// Jobs of one pod that come at once and all fit: each is reserved, started, ready, finished and let go.
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

/// The API server's count of what Berth wrote in this namespace for so many of something, events apart, and what each may cost in
/// tenths of a write.
fn costs(s: &Scenario<'_>, audit: &Audit, from: u64, (what, count, most): (&str, u64, u64)) -> Result<()> {
    let requests = audit.within(&s.namespace, from, audit.mark())?;
    let writes = audit::writes(requests.get("berth").context("the audit log knows Berth")?);
    ensure!(writes.get("create workloads") == Some(&count), "one Workload for each of {count} {what}: {writes:?}");
    let (objects, _) = audit::split_events(&writes);
    // The ClusterQueue belongs to no namespace: its status is written as often as that of its only LocalQueue.
    let statuses: u64 = writes.iter().filter(|(what, _)| what.ends_with(" localqueues/status")).map(|(_, n)| n).sum();
    let tenths = (objects + statuses) * 10 / count;
    println!("{count} {what}: {}.{} object writes each by Berth: {writes:?}", tenths / 10, tenths % 10);
    ensure!(
        (objects + statuses) * 10 <= most * count,
        "{objects} + {statuses} object writes for {count} {what}: {writes:?}"
    );
    Ok(())
}

/// The API server's count of what Berth wrote for the only JobSet of this namespace. Events are not counted, nor the LocalQueue's
/// status, which is written for all that is in the queue at once.
pub(crate) fn few_writes(s: &Scenario<'_>, audit: &Audit, from: u64) -> Result<()> {
    let requests = audit.within(&s.namespace, from, audit.mark())?;
    let mut writes = audit::writes(requests.get("berth").context("the audit log knows Berth")?);
    writes.retain(|what, _| !what.ends_with(" localqueues/status"));
    let (objects, _) = audit::split_events(&writes);
    println!("one JobSet: {objects} object writes by Berth: {writes:?}");
    ensure!(writes.get("create workloads") == Some(&1), "one Workload for a JobSet: {writes:?}");
    ensure!(objects <= MOST_WRITES, "{objects} object writes for one JobSet, at most {MOST_WRITES}: {writes:?}");
    Ok(())
}
