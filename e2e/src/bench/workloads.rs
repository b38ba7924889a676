//! Workloads without jobs: the benchmark creates each Workload at its time and finishes it after its running time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::feed::{Feed, Slim};
use super::floor::{self, Rates};
use super::meter::Usage;
use super::plane::{self, Bed, IN_FLIGHT};
use super::report::{Part, Report};
use super::shape::{Arrival, NAMESPACE, NOMINAL, Shape};
use super::subject::{Kind, Subject};
use super::{Settings, audit};

/// Time without a change of any Workload after which a run of the benchmark fails.
const STALL: Duration = Duration::from_secs(90);
/// Number of Workloads in one measurement of the API server's floor.
const FLOOR: usize = 1500;
/// Number of creations of Workloads that the benchmark sends at once, because Workloads of several classes and queues are due at the same time.
const CREATORS: usize = 32;

/// Runs the shape with Berth; also with an older Berth before it and with Kueue after it, if the settings name these programs.
///
/// # Errors
/// Fails when a control plane or an operator fails, or a run makes no progress.
pub async fn run(shape: &Shape, settings: &Settings) -> Result<Report> {
    let mut report = Report::begin();
    for kind in settings.kinds(Kind::Minimal) {
        report.parts.push(one(shape, settings, &kind).await?);
    }
    Ok(report)
}

async fn one(shape: &Shape, settings: &Settings, kind: &Kind) -> Result<Part> {
    let bed = Bed::start(&shape.name, kind, false).await?;
    let outcome = measured(&bed, shape, settings, kind).await;
    if outcome.is_err() {
        bed.plane.keep_files();
    }
    bed.stop().await;
    outcome
}

async fn measured(bed: &Bed, shape: &Shape, settings: &Settings, kind: &Kind) -> Result<Part> {
    let total = shape.total();
    let sample = shape.classes.first().context("a shape has classes")?;
    let count = FLOOR.min(total.div_ceil(2));
    eprintln!("bench: measuring the floor");
    let before = floor::measure(&bed.client, "floor-before", count, sample).await?;
    plane::namespace(&bed.client, NAMESPACE).await?;
    plane::apply_all(&bed.client, shape.queues(settings.preemption)).await?;
    eprintln!("bench: {} with {total} workloads, {} queues", kind.name(), shape.cohorts * shape.queues);
    // The observer starts after the floor was measured, because the floor's Workloads are admitted without quota.
    let observer = kind.observer(bed, settings.observed).await?;
    let subject = kind.start(bed).await?;
    // The benchmark does not measure the queue statuses and finalizers that the operator writes at its start.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let from = bed.audit.mark();
    let (own_before, dropped_before) = subject.own_count().await?;
    let begun_usage = subject.usage()?;
    let run = Drive::new(bed.client.clone(), shape).run(settings.preemption).await;
    let run = run.with_context(|| format!("log of {}:\n{}", kind.name(), subject.tail()))?;
    // The benchmark also counts the last queue statuses of the run, which the operator writes within six seconds.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let to = bed.audit.mark();
    let (own_after, dropped_after) = subject.own_count().await?;
    let usage = subject.usage()?;
    // The observer judges the run after all measurements, and before the floor is measured again.
    subject.judged(observer).await.with_context(|| format!("log of {}:\n{}", kind.name(), subject.tail()))?;
    let idle = idle(bed, subject, settings).await?;
    let after = floor::measure(&bed.client, "floor-after", count, sample).await?;
    let rates = floor::between(before, after);

    let mut part = Part::new(kind.name());
    figures(&mut part, shape, &run, rates, total);
    part.goal("cpu of the operator", usage.cpu_seconds, "s", limits(shape, settings.scale).0);
    part.add("cpu of the operator before the run", begun_usage.cpu_seconds, "s");
    part.goal("peak memory of the operator", usage.peak_mb, "MB", limits(shape, settings.scale).1);
    part.add("pages of its program in memory", usage.files_mb, "MB");
    let requests = bed.audit.between(from, to)?.remove(kind.agent()).unwrap_or_default();
    let (objects, events) = audit::split_events(&requests);
    part.goal("requests per workload without events", per(objects, total), "", 1.3);
    part.add("events per workload", per(events, total), "");
    let own: u64 = own_after.values().sum::<u64>() - own_before.values().sum::<u64>();
    if own > 0 {
        part.add("requests per workload, the operator's own count", own as f64 / total as f64, "");
        part.add("events dropped per workload", (dropped_after - dropped_before) / total as f64, "");
    }
    part.requests.insert("requests by the audit log".to_owned(), requests);
    add_idle(&mut part, idle, total);
    part.notes.push(format!(
        "floor = N / creates + 2N / status writes with {IN_FLIGHT} requests in flight, one watch open: {:.0}/s and {:.0}/s \
         before the run, {:.0}/s and {:.0}/s after it; the middle is used",
        before.creates, before.statuses, after.creates, after.statuses
    ));
    if !settings.preemption {
        part.notes.push("without preemption, which Kueue's own shape has; PREEMPTION=1 switches it on".to_owned());
    }
    if matches!(kind, Kind::Minimal(_)) {
        part.notes.push(
            "minimalkueue has limits of its own for its requests, which no flag changes (in 0.17: 50 a second, 100 at once): they \
             bound its wall and its times to admission"
                .to_owned(),
        );
    }
    part.notes.push("only etcd and the API server run beside the operator and the benchmark".to_owned());
    Ok(part)
}

fn per(count: u64, total: usize) -> f64 {
    count as f64 / total as f64
}

/// Goals for CPU seconds and memory in MB. The goal for CPU time grows with the scale; the goal for memory does not.
fn limits(shape: &Shape, scale: f64) -> (f64, f64) {
    let (cpu, memory) = if shape.name == "large" { (30.0, 150.0) } else { (10.0, 80.0) };
    (cpu * scale.max(0.1), memory)
}

fn figures(part: &mut Part, shape: &Shape, run: &Drive<'_>, rates: Rates, total: usize) {
    let wall = run.wall.as_secs_f64();
    part.add("workloads", total as f64, "");
    part.add("wall", wall, "s");
    part.add("floor", rates.floor(total), "s");
    part.goal("wall / floor", wall / rates.floor(total), "", 1.5);
    let last = shape.arrivals().last().map(|a| a.due.as_secs_f64()).unwrap_or(0.0);
    part.add("last creation due at", last, "s");
    part.add("last creation done at", run.created_at.as_secs_f64(), "s");
    for (index, class) in shape.classes.iter().enumerate() {
        let (sum, count) = run.waits.get(index).copied().unwrap_or_default();
        part.add(&format!("mean time to admission, {}", class.name), sum.as_secs_f64() / f64::from(count.max(1)), "s");
    }
    let capacity = f64::from(NOMINAL) * (shape.cohorts * shape.queues) as f64 * wall;
    part.add("quota in use, mean", 100.0 * run.used / capacity, "%");
    if run.evictions > 0 {
        part.add("evictions", f64::from(run.evictions), "");
    }
}

/// Restarts the operator on the remaining objects and watches it while nothing happens; returns its usage at the begin and at the end, and the
/// seconds between.
pub(super) async fn idle(bed: &Bed, subject: Subject, settings: &Settings) -> Result<Option<(Usage, Usage, f64)>> {
    if settings.idle_seconds == 0 {
        subject.stop();
        return Ok(None);
    }
    eprintln!("bench: idle");
    let before = subject.pid()?;
    let subject = subject.restart(bed).await?;
    ensure!(subject.pid()? != before, "it is the process that was measured, not one that was restarted");
    tokio::time::sleep(Duration::from_secs(8)).await;
    let (first, begun) = (subject.usage()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(settings.idle_seconds)).await;
    let (second, seconds) = (subject.usage()?, begun.elapsed().as_secs_f64());
    subject.stop();
    Ok(Some((first, second, seconds)))
}

/// Adds the figures of the function [`idle`] to the report.
pub(super) fn add_idle(part: &mut Part, idle: Option<(Usage, Usage, f64)>, objects: usize) {
    let Some((first, second, seconds)) = idle else { return };
    part.add("finished when restarted", objects as f64, "");
    part.add("idle after a restart: resident memory", second.resident_mb, "MB");
    part.add("idle after a restart: peak memory", second.peak_mb, "MB");
    part.add("idle after a restart: cpu of start and lists", first.cpu_seconds, "s");
    part.add("idle: cpu", 1000.0 * (second.cpu_seconds - first.cpu_seconds) / seconds, "ms/s");
}

struct Item {
    class: usize,
    created: Option<Instant>,
    admitted: Option<Instant>,
    counted: bool,
    finished: bool,
    releasing: bool,
    running: Option<JoinHandle<()>>,
}

enum Done {
    Created(usize, Instant),
    Finished(usize, Instant),
    Released(usize),
    Failed(anyhow::Error),
}

/// One run of a benchmark without jobs: its Workloads with their states, and the figures that are measured during the run.
struct Drive<'a> {
    client: Client,
    shape: &'a Shape,
    path: Arc<str>,
    items: Vec<Item>,
    index: HashMap<String, usize>,
    slots: Arc<Semaphore>,
    finished: usize,
    wall: Duration,
    created_at: Duration,
    /// Sum of the times to admission and number of admissions, by class.
    waits: Vec<(Duration, u32)>,
    /// Used quota in cpu-seconds: the cpus of each Workload times the seconds from its admission to its end, summed over all Workloads.
    used: f64,
    evictions: u32,
}

impl<'a> Drive<'a> {
    fn new(client: Client, shape: &'a Shape) -> Drive<'a> {
        Drive {
            client,
            shape,
            path: plane::workloads(NAMESPACE).into(),
            items: Vec::new(),
            index: HashMap::new(),
            slots: Arc::new(Semaphore::new(CREATORS)),
            finished: 0,
            wall: Duration::ZERO,
            created_at: Duration::ZERO,
            waits: vec![Default::default(); shape.classes.len()],
            used: 0.0,
            evictions: 0,
        }
    }

    async fn run(mut self, preemption: bool) -> Result<Drive<'a>> {
        let arrivals = self.shape.arrivals();
        let mut plan = Vec::with_capacity(arrivals.len());
        for arrival in &arrivals {
            let object = self.shape.workload(NAMESPACE, arrival).context("every arrival has a class")?;
            let name = crate::kinds::text(&object, "/metadata/name").to_owned();
            self.index.insert(name, plan.len());
            self.items.push(Item {
                class: arrival.class,
                created: None,
                admitted: None,
                counted: false,
                finished: false,
                releasing: false,
                running: None,
            });
            plan.push((*arrival, object));
        }
        let mut feed = Feed::start(&self.client, &self.path).await?;
        let (send, mut done) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let creator = tokio::spawn(create_all(self.client.clone(), Arc::clone(&self.path), plan, begun, send.clone()));
        let total = self.items.len();
        let mut reported = begun;
        let (mut created, mut admitted) = (0_usize, 0_usize);
        while self.finished < total {
            if reported.elapsed() >= Duration::from_secs(10) {
                reported = Instant::now();
                let seconds = begun.elapsed().as_secs();
                eprintln!("bench: {seconds} s: {created} created, {admitted} admitted, {} finished", self.finished);
            }
            let next = async {
                tokio::select! {
                    change = feed.next() => change.map(Ok),
                    Some(event) = done.recv() => Ok(Err(event)),
                }
            };
            match tokio::time::timeout(STALL, next).await {
                Err(_) => bail!(
                    "no change for {} s: {created} created, {admitted} admitted, {} finished of {total}",
                    STALL.as_secs(),
                    self.finished
                ),
                Ok(Err(e)) => return Err(e),
                Ok(Ok(Ok(object))) => admitted += self.changed(object, preemption, &send),
                Ok(Ok(Err(Done::Created(index, at)))) => {
                    created += 1;
                    self.created_at = at - begun;
                    if let Some(item) = self.items.get_mut(index) {
                        item.created = Some(at);
                    }
                }
                Ok(Ok(Err(Done::Finished(index, at)))) => self.ended(index, at),
                Ok(Ok(Err(Done::Released(index)))) => {
                    if let Some(item) = self.items.get_mut(index) {
                        item.releasing = false;
                    }
                }
                Ok(Ok(Err(Done::Failed(e)))) => return Err(e),
            }
        }
        self.wall = begun.elapsed();
        creator.abort();
        Ok(self)
    }

    /// Processes a changed Workload; returns 1 if the change is the Workload's first admission, else 0.
    fn changed(&mut self, object: Slim, preemption: bool, send: &mpsc::UnboundedSender<Done>) -> usize {
        let Some(&index) = self.index.get(&object.metadata.name) else { return 0 };
        let shape = self.shape;
        let Some(item) = self.items.get_mut(index) else { return 0 };
        let Some(class) = shape.classes.get(item.class) else { return 0 };
        if item.finished {
            return 0;
        }
        if object.is("Finished") {
            // A Workload also counts as ended if the request to finish it was cancelled by an eviction after the request had reached the API server.
            self.ended(index, Instant::now());
            return 0;
        }
        if preemption && object.is("Evicted") && object.is("QuotaReserved") {
            if let Some(task) = item.running.take() {
                task.abort();
                self.evictions += 1;
            }
            if let Some(since) = item.admitted.take() {
                self.used += since.elapsed().as_secs_f64() * f64::from(class.cpu);
            }
            if !item.releasing {
                item.releasing = true;
                let path = format!("{}/{}/status", self.path, object.metadata.name);
                tokio::spawn(release(self.client.clone(), path, object, index, send.clone()));
            }
            return 0;
        }
        if item.admitted.is_some() || !object.is("Admitted") || !object.is("QuotaReserved") {
            return 0;
        }
        let now = Instant::now();
        item.admitted = Some(now);
        let path = format!("{}/{}/status", self.path, object.metadata.name);
        let run = Going { path, name: object.metadata.name, lasts: class.runs, index };
        let task = finish(self.client.clone(), run, Arc::clone(&self.slots), send.clone());
        item.running = Some(tokio::spawn(task));
        if item.counted {
            return 0;
        }
        item.counted = true;
        // The watch may show a Workload's admission before the answer to its creation has arrived: the time to admission of such a Workload counts as zero.
        let wait = item.created.map_or(Duration::ZERO, |created| now.saturating_duration_since(created));
        if let Some((sum, count)) = self.waits.get_mut(item.class) {
            *sum += wait;
            *count += 1;
        }
        1
    }

    fn ended(&mut self, index: usize, at: Instant) {
        let Some(item) = self.items.get_mut(index) else { return };
        if item.finished {
            return;
        }
        item.finished = true;
        self.finished += 1;
        if let (Some(since), Some(class)) = (item.admitted, self.shape.classes.get(item.class)) {
            self.used += at.saturating_duration_since(since).as_secs_f64() * f64::from(class.cpu);
        }
    }
}

/// Creates all Workloads, each at its time or later.
async fn create_all(
    client: Client,
    path: Arc<str>,
    plan: Vec<(Arrival, Value)>,
    begun: Instant,
    done: mpsc::UnboundedSender<Done>,
) {
    let slots = Arc::new(Semaphore::new(CREATORS));
    for (index, (arrival, object)) in plan.into_iter().enumerate() {
        tokio::time::sleep_until((begun + arrival.due).into()).await;
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (client, path, done) = (client.clone(), Arc::clone(&path), done.clone());
        tokio::spawn(async move {
            let outcome = plane::create(&client, &path, &object).await;
            drop(slot);
            // A failed send is ignored: the run that receives the results of the creations is gone if it has failed.
            let _ = done.send(match outcome {
                Ok(()) => Done::Created(index, Instant::now()),
                Err(e) => Done::Failed(e),
            });
        });
    }
}

/// A workload that runs.
struct Going {
    /// Path of its status.
    path: String,
    name: String,
    lasts: Duration,
    index: usize,
}

async fn finish(client: Client, run: Going, slots: Arc<Semaphore>, done: mpsc::UnboundedSender<Done>) {
    tokio::time::sleep(run.lasts).await;
    let Ok(_slot) = slots.acquire_owned().await else { return };
    let outcome = plane::apply(&client, &run.path, "bench", &floor::finished(NAMESPACE, &run.name)).await;
    let _ = done.send(match outcome {
        Ok(()) => Done::Finished(run.index, Instant::now()),
        Err(e) => Done::Failed(e),
    });
}

/// Simulates the job controller for an evicted Workload: the Workload's job has stopped, so the quota is given back.
async fn release(client: Client, path: String, object: Slim, index: usize, done: mpsc::UnboundedSender<Done>) {
    let mut object = object;
    while object.is("Evicted") && object.is("QuotaReserved") && !object.is("Finished") {
        match try_release(&client, &path, object).await {
            Ok(()) => break,
            Err(e) if format!("{e:#}").contains("409") || format!("{e:#}").contains("modified") => {}
            Err(e) => {
                let _ = done.send(Done::Failed(e.context("releasing")));
                return;
            }
        }
        // After a conflict the function reads the newer state of the Workload from the API server: the run's watch may have shown and skipped that state
        // already.
        object = match look(&client, path.trim_end_matches("/status")).await {
            Ok(object) => object,
            Err(e) => {
                let _ = done.send(Done::Failed(e));
                return;
            }
        };
    }
    let _ = done.send(Done::Released(index));
}

async fn look(client: &Client, path: &str) -> Result<Slim> {
    Ok(client.request(http::Request::get(path).body(Vec::new())?).await?)
}

async fn try_release(client: &Client, path: &str, object: Slim) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut conditions = object.status.conditions;
    for condition in &mut conditions {
        if condition.kind == "QuotaReserved" || condition.kind == "Admitted" {
            condition.status = "False".to_owned();
            condition.reason = "Pending".to_owned();
            condition.message = "Evicted by the test".to_owned();
            condition.last_transition_time = Some(now.clone());
        }
    }
    let body = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "status": {"admission": null, "conditions": conditions},
    });
    plane::send(client, "PATCH", path, "application/merge-patch+json", &body).await
}
