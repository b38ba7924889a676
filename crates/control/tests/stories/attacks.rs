//! A law about tenants: whatever a tenant writes, and however often, ten seconds after the last write the tenant's jobs use no more cpus than the tenant's
//! Workloads hold quota for, and the lender of that quota can take the quota back. Two seconds after a write, pods that run beyond the held quota are charged
//! to a queue.
//!
//! The tenant may write every field, label, annotation, owner reference and finalizer of jobs that the API server lets the tenant write (Kubernetes' role
//! `edit` and the chart's user role). The tenant may create jobs that name other objects as their controllers, forge the marks that Berth gives a job at its
//! start, and remove or replace the labels of Jobs' pods. The tenant may delete jobs in the background, in the foreground, or without the objects that the jobs
//! own. Webhooks are off, also the webhooks of JobSets. The tenant of this law makes no pods without a job, which need the webhooks, and none of the attacks
//! that `SECURITY.md` lists as open.

mod writes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_api::labels;
use berth_control::write::{Kind, ObjectKey, Purpose};
use serde_json::{Value, json};

use crate::noted::note;
use crate::stories::cluster::{Cluster, PART, flavor, is, job, local_queue, settings};
use crate::stories::random::{Dice, seeds};

/// Seconds after the tenant's last write within which the tenant's usage must be within its quota again.
const BOUND: i64 = 10;
/// Seconds after a write within which pods that run beyond quota because of the write must be charged.
const CHARGED: i64 = 2;
/// Seconds after which the lender must have its quota back: the bound that `SECURITY.md` promises.
const BACK: i64 = 10;
/// Cpus of the lender's ClusterQueue; `OWN` is the number of cpus of the tenant's ClusterQueue.
const LENT: i64 = 2;
const OWN: i64 = 2;

struct World {
    cluster: Cluster,
    dice: Dice,
    /// True if every job needs a queue, even a job that names none.
    all_managed: bool,
    number: usize,
    /// Cpus of each pod that a Job with a Workload has left behind, by the pod's uid.
    orphaned: BTreeMap<String, i64>,
    /// Writes of the tenant, for the message of a failure.
    done: Vec<String>,
}

fn begin(seed: u64) -> World {
    let mut dice = Dice::new(seed);
    let mut settings = settings();
    settings.wait_for_pods_ready = None;
    let all_managed = dice.below(2) == 0;
    settings.manage_jobs_without_queue_name = all_managed;
    let mut cluster = Cluster::with(settings);
    cluster.job_sets_run = true;
    cluster.jobs_are_resized = true;
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({"tier": "reserved"})));
    cluster.pool([("tenant", "lq", OWN), ("lender", "lender", LENT)]);
    for queue in ["tenant", "lender"] {
        let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
        cluster.edit(Kind::ClusterQueue, "", queue, &preempts);
    }
    cluster.put(Kind::LocalQueue, local_queue("other", "tenant"));
    if dice.below(2) == 0 {
        cluster.put(Kind::LocalQueue, local_queue("default", "tenant"));
    }
    cluster.set_class("high", 100);
    World { cluster, dice, all_managed, number: 0, orphaned: BTreeMap::new(), done: Vec::new() }
}

fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

/// Cpus of a quantity; the stories write full numbers only.
fn cpus(quantity: &Value) -> i64 {
    quantity.as_str().map_or(0, |text| text.parse().unwrap())
}

/// Whether a Workload holds quota.
fn holds(workload: &Value) -> bool {
    is(workload, "QuotaReserved") && !is(workload, "Finished")
}

/// Cpus that a pod with the given spec requests.
fn of_pod(spec: &Value) -> i64 {
    cpus(&spec["containers"][0]["resources"]["requests"]["cpu"])
}

fn active(job: &Value) -> i64 {
    job["status"]["active"].as_i64().unwrap_or(0)
}

/// Cpus that the active pods of a Job request.
fn running(job: &Value) -> i64 {
    active(job) * of_pod(&job["spec"]["template"]["spec"])
}

/// Whether a Job is a part of a JobSet: `rest` is the part of the Job's name after the name of the JobSet.
fn is_part_of(set: &Value, rest: &str) -> bool {
    set["spec"]["replicatedJobs"].as_array().into_iter().flatten().any(|jobs| {
        let index =
            jobs["name"].as_str().and_then(|name| rest.strip_prefix(name)?.strip_prefix('-')?.parse::<i64>().ok());
        index.is_some_and(|index| index < jobs["replicas"].as_i64().unwrap_or(1))
    })
}

impl World {
    fn all(&self, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.cluster.objects().iter().filter(move |(key, _)| key.kind == kind)
    }

    /// Names of the tenant's objects of a kind.
    fn names(&self, kind: Kind) -> Vec<String> {
        self.all(kind).map(|(key, _)| key.name.clone()).filter(|name| !name.starts_with("lender")).collect()
    }

    fn pick(&mut self, kind: Kind) -> Option<String> {
        let names = self.names(kind);
        (!names.is_empty()).then(|| names[self.dice.below(names.len())].clone())
    }

    fn any_kind(&mut self) -> Kind {
        [Kind::JOB, Kind::JOB, Kind::JOB, Kind::JOB_SET, Kind::TrainingJob][self.dice.below(5)]
    }

    /// An owner reference that names a random object of the tenant as the controlling owner.
    fn controller(&mut self) -> Option<Value> {
        let kind = self.any_kind();
        let name = self.pick(kind)?;
        Some(self.cluster.controlled_by(kind, &name))
    }

    /// One or all pods of a running Job succeed, or the Job fails.
    fn ends(&mut self) -> String {
        let free = self.cluster.left_behind.iter().position(|(_, pod)| pod.job.is_none());
        if let Some(free) = free.filter(|_| self.dice.below(2) == 0) {
            let (_, pod) = self.cluster.left_behind.remove(free);
            return format!("pod {} ends", pod.name);
        }
        let Some(name) = self.pick(Kind::JOB) else { return "nothing".to_owned() };
        let job = self.cluster.job(&name).clone();
        if active(&job) == 0 || job["spec"]["suspend"] == json!(true) {
            return "nothing".to_owned();
        }
        match self.dice.below(3) {
            0 => self.cluster.complete(&name),
            1 => self.cluster.fail(&name),
            _ => {
                let succeeded = job["status"]["succeeded"].as_i64().unwrap_or(0) + 1;
                self.cluster.edit(Kind::JOB, "team", &name, &json!({"status": {"succeeded": succeeded}}));
            }
        }
        format!("pods of {name} end")
    }

    fn event(&mut self) {
        self.number += 1;
        let done = match self.dice.below(14) {
            0..=2 => self.creates(),
            3..=7 => self.writes(),
            8 => self.deletes(),
            9 => self.ends(),
            11 => self.relabels(),
            12 => self.remarks(),
            10 => {
                let name = format!("lender{}", self.number);
                self.cluster.put(Kind::JOB, job(&name, "lender", "1", true));
                name
            }
            _ => {
                self.cluster.restart();
                self.cluster.set_class("high", 100);
                "Berth starts again".to_owned()
            }
        };
        if done != "nothing" {
            self.done.push(format!("{} {done}", self.cluster.now()));
        }
    }

    /// The job under whose quota a Job runs: the owner if the Job is a part of the owner, otherwise the Job itself.
    fn runs_by<'a>(&'a self, (key, job): (&'a ObjectKey, &'a Value)) -> &'a Value {
        let owner = &job["metadata"]["ownerReferences"][0];
        let makers = self.all(Kind::JOB_SET).chain(self.all(Kind::TrainingJob));
        let mut named = makers.filter(|(_, maker)| maker["metadata"]["uid"] == owner["uid"]);
        let Some((maker, object)) = named.next() else { return job };
        let rest = key.name.strip_prefix(&maker.name).and_then(|rest| rest.strip_prefix('-'));
        let is_part = match maker.kind {
            Kind::TrainingJob => rest == Some("worker"),
            _ => rest.is_some_and(|rest| is_part_of(object, rest)) || self.starts_by_label(object, job),
        };
        if is_part { object } else { job }
    }

    /// Whether a JobSet that names no queue and needs none starts a Job by the label of its replicated job: the queue that such a Job names has no effect.
    fn starts_by_label(&self, set: &Value, job: &Value) -> bool {
        let metadata = &set["metadata"];
        let has_queue = ["labels", "annotations"].iter().any(|field| metadata[field][labels::QUEUE_NAME].is_string());
        let is_over = is(set, "Completed") || is(set, "Failed") || metadata["deletionTimestamp"].is_string();
        let part = &job["metadata"]["labels"][PART];
        let names_part =
            || set["spec"]["replicatedJobs"].as_array().into_iter().flatten().any(|jobs| jobs["name"] == *part);
        !self.all_managed && !has_queue && !is_over && names_part()
    }

    /// Cpus that are charged to the ClusterQueues: the cpus that Workloads hold, and the cpus that run beyond held quota.
    fn charged(&mut self) -> [i64; 2] {
        let world = self.cluster.control.world();
        let figures = ["tenant", "lender"].into_iter().filter_map(|queue| world.figures(queue));
        let all: i64 = figures.flat_map(|figures| figures.reservation).map(|cell| cell.total.get()).sum();
        let beyond = ["tenant", "lender"].into_iter().flat_map(|queue| world.beyond(queue));
        let beyond: i64 = beyond.map(|(_, amount)| amount.get()).sum();
        [(all - beyond) / 1000, beyond / 1000]
    }

    /// Whether a Workload of an object holds quota.
    fn has_quota(&self, object: &Value) -> bool {
        let mut holders = self.all(Kind::Workload).filter(|(_, workload)| holds(workload));
        holders.any(|(_, one)| one["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"])
    }

    /// Cpus of pods that no Job counts: pods that were taken from their Job, and pods that a deleted Job has left behind.
    fn uncounted(&self) -> i64 {
        let taken = self.all(Kind::JobPod).filter(|(_, pod)| pod["metadata"]["ownerReferences"].is_null());
        let left = self.cluster.left_behind.iter().filter_map(|(_, pod)| self.orphaned.get(&pod.uid));
        taken.map(|(_, pod)| of_pod(&pod["spec"])).sum::<i64>() + left.sum::<i64>()
    }

    /// Describes a breach of the law: more cpus run than Workloads hold, or, with `any_time`, more cpus run than are charged.
    fn fault(&mut self, any_time: bool) -> Option<String> {
        let [held, beyond] = self.charged();
        let charged = if any_time { held + beyond } else { held };
        let asks = |object: &Value| {
            let labelled = object["metadata"]["labels"][labels::QUEUE_NAME].is_string();
            self.all_managed || labelled || object["spec"]["schedulingConfig"].is_object() || self.has_quota(object)
        };
        let counted = self.all(Kind::JOB).filter(|one| asks(self.runs_by(*one)));
        let runs: Vec<(&str, i64)> =
            counted.map(|(key, job)| (&*key.name, running(job))).filter(|(_, cpus)| *cpus > 0).collect();
        let uncounted = self.uncounted();
        let run = runs.iter().map(|(_, cpus)| cpus).sum::<i64>() + uncounted;
        (run > charged)
            .then(|| format!("{run} cpus run, and {charged} are charged: {runs:?} and {uncounted} beside them"))
    }

    fn describe(&self, seed: u64) -> String {
        let last = self.done.iter().rev().take(25).rev().map(String::as_str).collect::<Vec<_>>().join("\n  ");
        let writes = self
            .cluster
            .writes
            .iter()
            .filter(|(purpose, _)| !matches!(purpose, Purpose::ProbePods | Purpose::QueueStatus));
        let writes: Vec<String> = writes.map(|(purpose, key)| format!("{purpose:?} {}", key.name)).collect();
        let writes = writes[writes.len().saturating_sub(20)..].join(", ");
        format!("seed {seed}, everything managed: {}:\n  {last}\nwrites: {writes}", self.all_managed)
    }
}

fn one_world(seed: u64) {
    let mut world = begin(seed);
    for _ in 0..12 + world.dice.below(20) {
        world.event();
        if world.dice.below(3) > 0 {
            let short = world.dice.seconds(0, 4);
            world.cluster.pass(short);
            if let Some(fault) = world.fault(true).filter(|_| short >= CHARGED) {
                panic!("{fault}; {}", world.describe(seed));
            }
            continue;
        }
        world.cluster.pass(BOUND);
        if let Some(fault) = world.fault(false) {
            panic!("{fault}; {}", world.describe(seed));
        }
    }
    let of_lender = world.all(Kind::JOB).map(|(key, _)| key).filter(|key| key.name.starts_with("lender"));
    for key in of_lender.cloned().collect::<Vec<_>>() {
        world.cluster.delete(&key);
    }
    world.cluster.put(Kind::JOB, job("lender", "lender", &LENT.to_string(), true));
    world.cluster.pass(BACK);
    assert!(world.cluster.is("lender", "Admitted"), "what was lent does not come back; {}", world.describe(seed));
    if let Some(fault) = world.fault(false) {
        panic!("{fault}; {}", world.describe(seed));
    }
    assert!(berth_engine::check(world.cluster.control.world()).is_empty(), "seed {seed}");
}

/// The number of random worlds that the law about tenants tries at least, unless `BERTH_STORIES` sets the number; a run with `BERTH_CASES` of at least 5,000
/// tries further worlds for `SECONDS` seconds.
const WORLDS: u64 = 50;
const SECONDS: u64 = 90;

#[test]
fn tenant_edits_neither_exceed_quota_nor_keep_borrowed_quota() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("BERTH_SEED") {
        return one_world(seed);
    }
    let begun = Instant::now();
    let wide = number("BERTH_CASES").is_some_and(|cases| cases >= 5_000) && number("BERTH_STORIES").is_none();
    let planned = seeds(WORLDS);
    let mut seed = planned.start;
    while seed < planned.end || (wide && begun.elapsed() < Duration::from_secs(SECONDS)) {
        one_world(seed);
        seed += 1;
    }
    note("control", seed - planned.start);
    println!("{} worlds with a tenant's writes", seed - planned.start);
}
