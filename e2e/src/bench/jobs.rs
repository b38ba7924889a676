//! The benchmark with real Jobs, end to end: it runs Jobs through an operator, and the same Jobs unsuspended without an operator, on the same control plane.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::audit::{self, ByAgent};
use super::feed::Feed;
use super::meter::Requests;
use super::plane::{self, Bed, IN_FLIGHT};
use super::report::{Part, Report};
use super::subject::{Kind, Subject};
use super::{Settings, least, workloads};
use crate::control_plane::create_namespace;
use crate::manifest::{self, Job};
use crate::nodes::{self, Pool, Tier};
use crate::wait::{self, Seen};

/// Queues.
const QUEUES: usize = 5;
/// Number of Jobs per queue at scale 1.
const PER_QUEUE: f64 = 200.0;
/// Cpus of each queue: half of a queue's Jobs wait for quota at first.
const QUOTA: &str = "100";
/// Number of nodes of 32 cores: enough for every pod at once, so that only the queues make Jobs wait.
const NODES: u32 = 40;
/// Number of Jobs that run before the benchmark measures anything.
const WARM_UP: usize = 50;
/// Pause after each part of the benchmark, in which the controllers become quiet.
const QUIET: Duration = Duration::from_secs(3);
/// Time without a change of any Job after which a run of the benchmark fails.
const STALL: Duration = Duration::from_secs(60);

/// Runs the Jobs with Berth; also with an older Berth before it and with Kueue's manager after it, if the settings name these programs.
///
/// # Errors
/// Fails when a control plane or an operator fails, or the Jobs do not finish.
pub async fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::begin();
    for kind in settings.kinds(Kind::Kueue) {
        report.parts.push(one(settings, &kind).await?);
    }
    Ok(report)
}

async fn one(settings: &Settings, kind: &Kind) -> Result<Part> {
    let bed = Bed::start("jobs", kind, true).await?;
    let outcome = measured(&bed, settings, kind).await;
    if outcome.is_err() {
        bed.plane.keep_files();
    }
    bed.stop().await;
    outcome
}

async fn measured(bed: &Bed, settings: &Settings, kind: &Kind) -> Result<Part> {
    let (client, who) = (&bed.client, kind.called());
    let total = QUEUES * ((PER_QUEUE * settings.scale).round() as usize).max(1);
    nodes::create(client, &[Pool::cpu("cpu", NODES, Tier::OnDemand)]).await?;
    for namespace in ["warm-up", "plain-before", "queued", "least", "plain-after"] {
        create_namespace(client, namespace, &[]).await?;
    }
    plain(bed, "warm-up", WARM_UP.min(total)).await.context("warming up")?;
    let mut queues = vec![manifest::flavor("default", &[])];
    for queue in 0..QUEUES {
        let name = format!("queue-{queue}");
        let group = manifest::group(&[("default", &[manifest::quota("cpu", QUOTA)])]);
        queues.push(manifest::cluster_queue(&name, &[group], &json!({})));
        queues.push(manifest::local_queue("queued", &name, &name));
    }
    plane::apply_all(client, queues).await?;
    // The machine's speed drifts, so the same Jobs without the operator run both before and after the Jobs with the operator.
    let before = rested(bed, "plain-before", total).await?;
    let observer = kind.observer(bed, settings.observed).await?;
    let subject = kind.start(bed).await?;
    tokio::time::sleep(QUIET).await;

    eprintln!("bench: {total} jobs through {QUEUES} queues");
    let from = bed.audit.mark();
    let (_, dropped_before) = subject.own_count().await?;
    let wall = queued(bed, total).await.with_context(|| format!("log of {}:\n{}", kind.name(), subject.tail()))?;
    let ended = bed.audit.mark();
    settle(&subject, kind, bed, total).await?;
    // Berth's events give way to its writes, so the benchmark waits for the remaining events and counts them, too.
    let mut handled = -1.0;
    while let more = subject.events_handled().await?
        && more > handled
    {
        handled = more;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let with = bed.audit.between(from, bed.audit.mark())?;
    let within = bed.audit.between(from, ended)?;
    let (own, dropped) = subject.own_count().await?;
    let usage = subject.usage()?;
    subject.judged(observer).await.with_context(|| format!("log of {}:\n{}", kind.name(), subject.tail()))?;
    let idle = workloads::idle(bed, subject, settings).await?;

    let least = match kind {
        Kind::Berth => Some(by_the_least(bed, total).await.context("by the least writes")?),
        _ => None,
    };
    let from = bed.audit.mark();
    let after = rested(bed, "plain-after", total).await?;
    let without = bed.audit.between(from, bed.audit.mark())?;

    let mut part = Part::new(kind.name());
    part.add("jobs", total as f64, "");
    part.add("wall", wall.as_secs_f64(), "s");
    part.add(&format!("wall of the same jobs unsuspended without {who}, before"), before.as_secs_f64(), "s");
    part.add(&format!("wall of the same jobs unsuspended without {who}, after"), after.as_secs_f64(), "s");
    let plain = (before + after).as_secs_f64() / 2.0;
    part.goal(&format!("wall / mean wall without {who}"), wall.as_secs_f64() / plain, "", 1.5);
    if let Some((least, _)) = &least {
        part.add("wall by the least writes of a queue", least.as_secs_f64(), "s");
        part.add("wall by the least writes / mean wall without Berth", least.as_secs_f64() / plain, "");
    }
    let its_own = without_leases(&with.get(kind.agent()).cloned().unwrap_or_default());
    let (objects, events) = audit::split_events(&its_own);
    part.goal(&format!("object writes per job by {who}"), per(objects, total), "", 6.5);
    part.goal(&format!("events per job by {who}"), per(events, total), "", 5.0);
    if !own.is_empty() {
        part.add("events dropped per job", (dropped - dropped_before) / total as f64, "");
    }
    let ((objects, events), (plain_objects, plain_events)) = (everybody(&with), everybody(&without));
    part.add("object writes per job by everybody", per(objects, total), "");
    part.add("events per job by everybody", per(events, total), "");
    part.add(&format!("object writes per job by everybody, without {who}"), per(plain_objects, total), "");
    part.add(&format!("events per job by everybody, without {who}"), per(plain_events, total), "");
    let own_within = without_leases(&within.get(kind.agent()).cloned().unwrap_or_default());
    let (objects, events) = audit::split_events(&own_within);
    part.add(&format!("object writes per job by {who}, within the wall"), per(objects, total), "");
    part.add(&format!("events per job by {who}, within the wall"), per(events, total), "");
    let (objects, events) = everybody(&within);
    part.add("object writes per job by everybody, within the wall", per(objects, total), "");
    part.add("events per job by everybody, within the wall", per(events, total), "");
    if let Some((_, writes)) = &least {
        let (objects, events) = everybody(writes);
        part.add("object writes per job by everybody, the least", per(objects, total), "");
        part.add("events per job by everybody, the least", per(events, total), "");
        part.requests.insert("writes by program, the least".to_owned(), by_program(writes));
    }
    let scale = settings.scale.max(0.1);
    part.goal("cpu of the operator", usage.cpu_seconds, "s", 3.0 * scale);
    part.goal("peak memory of the operator", usage.peak_mb, "MB", 50.0);
    part.add("pages of its program in memory", usage.files_mb, "MB");
    workloads::add_idle(&mut part, idle, total);
    part.requests.insert(format!("writes by {who}, audit log"), its_own);
    part.requests.insert("writes by program within the wall".to_owned(), by_program(&within));
    if !own.is_empty() {
        part.requests.insert(format!("requests by {who}, its own count since its start"), own);
    }
    part.requests.insert(format!("writes by program, with {who}"), by_program(&with));
    part.requests.insert(format!("writes by program, without {who}"), by_program(&without));
    part.notes.push(format!(
        "one pod of 1 cpu and 200 ms each, {QUEUES} queues of {QUOTA} cpus, {IN_FLIGHT} creations in flight; wall is from the \
         first creation to the last job Complete; without {who}: no process of it runs; the least: e2e/src/bench/least.rs"
    ));
    Ok(part)
}

/// Runs the Jobs without an operator, by the fewest writes that a queueing operator needs (the module [`least`]); returns the wall time and the writes.
async fn by_the_least(bed: &Bed, total: usize) -> Result<(Duration, ByAgent)> {
    eprintln!("bench: {total} jobs by the least writes of a queue");
    let from = bed.audit.mark();
    let wall = least::run(bed, "least", total).await?;
    let writes = bed.audit.between(from, bed.audit.mark())?;
    tokio::time::sleep(QUIET).await;
    Ok((wall, writes))
}

fn per(count: u64, total: usize) -> f64 {
    count as f64 / total as f64
}

/// Successful writes by all programs about the objects of the run, and about events; writes of leases do not count, because a lease is a heartbeat.
fn everybody(all: &ByAgent) -> (u64, u64) {
    let (mut objects, mut events) = (0, 0);
    for requests in all.values() {
        let (o, e) = audit::split_events(&without_leases(requests));
        (objects, events) = (objects + o, events + e);
    }
    (objects, events)
}

fn without_leases(requests: &Requests) -> Requests {
    let kept = audit::writes(requests).into_iter().filter(|(what, _)| !what.ends_with(" leases"));
    kept.collect()
}

fn by_program(all: &ByAgent) -> Requests {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (agent, requests) in all {
        for (what, count) in without_leases(requests) {
            *sums.entry(format!("{agent}: {what}")).or_default() += count;
        }
    }
    sums
}

/// Name of the n-th Job.
pub(super) fn name(n: usize) -> String {
    format!("job-{n}")
}

/// Name of the LocalQueue of the n-th Job, and of its ClusterQueue.
pub(super) fn queue(n: usize) -> String {
    format!("queue-{}", n % QUEUES)
}

/// Runs Jobs without an operator, then waits until the controllers are quiet; returns the time until all Jobs are complete.
async fn rested(bed: &Bed, namespace: &str, total: usize) -> Result<Duration> {
    eprintln!("bench: {total} jobs without an operator");
    let wall = plain(bed, namespace, total).await?;
    tokio::time::sleep(QUIET).await;
    Ok(wall)
}

/// Runs Jobs without an operator; returns the time until all Jobs are complete.
async fn plain(bed: &Bed, namespace: &str, total: usize) -> Result<Duration> {
    let job = |n: usize| Job::new(namespace, &name(n), "").spec(&json!({"suspend": false}));
    created(bed, namespace, total, job).await
}

/// Runs the Jobs through the queues; returns the wall time until all Jobs are complete.
async fn queued(bed: &Bed, total: usize) -> Result<Duration> {
    created(bed, "queued", total, |n| Job::new("queued", &name(n), &queue(n))).await
}

async fn created(bed: &Bed, namespace: &str, total: usize, job: impl Fn(usize) -> Job) -> Result<Duration> {
    let create = |n: usize| {
        let (client, path, job) = (bed.client.clone(), path(namespace), job(n).manifest());
        async move { plane::create(&client, &path, &job).await }
    };
    complete(bed, Running { namespace, total, create, complete: |_| async { Ok(()) } }).await
}

/// Path of the collection of Jobs in a namespace.
pub(super) fn path(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

/// Jobs to be run.
pub(super) struct Running<'a, C, E> {
    /// Namespace of the Jobs.
    pub namespace: &'a str,
    /// How many.
    pub total: usize,
    /// Creates the n-th Job.
    pub create: C,
    /// Function that is called for the n-th Job when the Job is complete.
    pub complete: E,
}

/// Creates Jobs and waits until all Jobs are complete; returns the time from the first creation until then.
pub(super) async fn complete<C, E, F, G>(bed: &Bed, running: Running<'_, C, E>) -> Result<Duration>
where
    C: Fn(usize) -> F,
    E: Fn(usize) -> G,
    F: Future<Output = Result<()>> + Send + 'static,
    G: Future<Output = Result<()>> + Send + 'static,
{
    let Running { namespace, total, create, complete } = running;
    let mut feed = Feed::start(&bed.client, &path(namespace)).await?;
    let begun = Instant::now();
    let jobs: Vec<F> = (0..total).map(create).collect();
    let create = tokio::spawn(plane::each(jobs, |job| job));
    let mut ends = tokio::task::JoinSet::new();
    let mut done = HashSet::new();
    let mut reported = begun;
    while done.len() < total {
        if reported.elapsed() >= Duration::from_secs(10) {
            reported = Instant::now();
            eprintln!("bench: {} s: {} of {total} jobs complete", begun.elapsed().as_secs(), done.len());
        }
        match tokio::time::timeout(STALL, feed.next()).await {
            Err(_) => bail!("no change for {} s: {} of {total} jobs complete", STALL.as_secs(), done.len()),
            Ok(Err(e)) => return Err(e),
            Ok(Ok(job)) if job.is("Failed") => bail!("job {namespace}/{} failed", job.metadata.name),
            Ok(Ok(job)) if job.is("Complete") => {
                let n = job.metadata.name.strip_prefix("job-").and_then(|n| n.parse().ok()).context("another's job")?;
                if done.insert(n) {
                    ends.spawn(complete(n));
                }
            }
            Ok(Ok(_)) => {}
        }
    }
    let wall = begun.elapsed();
    create.await??;
    while let Some(end) = ends.join_next().await {
        end??;
    }
    Ok(wall)
}

/// Waits until every Workload is Finished and the operator has sent no request for six seconds, for 90 seconds at most.
async fn settle(subject: &Subject, kind: &Kind, bed: &Bed, total: usize) -> Result<()> {
    wait::until(Duration::from_secs(60), "every workload is Finished and let go", || async {
        let workloads = crate::kinds::WORKLOAD.list(&bed.client, "queued").await?;
        let finished = workloads.iter().filter(|w| crate::kinds::condition(w, "Finished") == "True").count();
        let held = workloads.iter().filter(|w| !crate::kinds::items(w, "/metadata/finalizers").is_empty()).count();
        let text = || format!("{finished} of {total} finished, {held} with a finalizer");
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(Seen::when(finished >= total && held == 0, text))
    })
    .await?;
    let (begun, from) = (Instant::now(), bed.audit.mark());
    let (mut quiet, mut last) = (begun, 0);
    while quiet.elapsed() < Duration::from_secs(6) && begun.elapsed() < Duration::from_secs(90) {
        // Each reading of Berth's own count of requests makes Berth write out all of its metrics, and the CPU time for that counts as Berth's.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let asked = match kind {
            Kind::Berth | Kind::Before(_) => subject.own_count().await?.0,
            Kind::Minimal(_) | Kind::Kueue(_) => {
                bed.audit.between(from, bed.audit.mark())?.remove(kind.agent()).unwrap_or_default()
            }
        };
        let now: u64 = asked.iter().filter(|(what, _)| !what.ends_with(" leases")).map(|(_, count)| count).sum();
        if now != last {
            (quiet, last) = (Instant::now(), now);
        }
    }
    Ok(())
}
