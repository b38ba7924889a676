//! Cost of control for Kueue's first performance shape, without a server: 5 cohorts of 6 queues, workloads that arrive, are admitted, run and finish. The
//! benchmark prints the time per workload that each entry point of control takes, and the memory per workload in bytes.
//!
//! `cargo bench -p berth-control [-- WORKLOADS]`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a benchmark")]

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use berth_api as api;
use berth_control::Control;
use berth_control::event::{Change, Observation};
use berth_control::settings::Settings;
use berth_control::write::{Action, Kind, Term, Write, WriteOutcome};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulated time between two steps of control, in milliseconds.
const TICK_MS: i64 = 10;
/// Workloads that are created per tick: 250 a second, which is more than are admitted.
const ARRIVALS: f64 = 2.5;

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[derive(Default)]
struct Spent {
    observe: Duration,
    outcome: Duration,
    step: Duration,
    observed: usize,
    outcomes: usize,
    steps: usize,
    writes: BTreeMap<String, usize>,
}

struct Bench {
    control: Control,
    now: Timestamp,
    version: u64,
    workloads: BTreeMap<String, Box<api::Workload>>,
    queues: BTreeMap<String, Box<api::ClusterQueue>>,
    local: BTreeMap<String, Box<api::LocalQueue>>,
    spent: Spent,
    /// Admitted workloads by the time at which they will finish.
    running: BTreeMap<(Timestamp, String), ()>,
}

impl Bench {
    fn observe(&mut self, observation: Observation) {
        let began = Instant::now();
        self.control.observe(observation, self.now);
        self.spent.observe += began.elapsed();
        self.spent.observed += 1;
    }

    fn bump(&mut self) -> Option<String> {
        self.version += 1;
        Some(self.version.to_string())
    }

    fn create(&mut self, index: usize) {
        let (class, cpu, priority) = match index % 10 {
            0 => ("large", "20", 200),
            1 | 2 => ("medium", "5", 100),
            _ => ("small", "1", 50),
        };
        let name = format!("{class}-{index}");
        let version = self.bump();
        let workload: Box<api::Workload> = object(json!({
            "metadata": {"name": name, "namespace": "team", "uid": format!("9f6c1e0a-1b2c-4d3e-8f70-{index:012}"),
                "generation": 1, "resourceVersion": version, "creationTimestamp": self.now.to_string(),
                "labels": {"class": class}},
            "spec": {"active": true, "queueName": format!("local-{}", index % 30), "priority": priority,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": class},
                "podSets": [{"name": "main", "count": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [
                    {"name": "main", "image": "registry.example/image:1", "resources": {"requests": {"cpu": cpu}}}]}}}]},
        }));
        self.workloads.insert(name, workload.clone());
        self.observe(Observation::Workload(Change::Apply(workload)));
    }

    fn finish(&mut self, name: &str) {
        let version = self.bump();
        let mut workload = self.workloads.remove(name).unwrap();
        workload.metadata.resource_version = version;
        workload.status.get_or_insert_default().conditions.push(Condition {
            type_: "Finished".into(),
            status: "True".into(),
            reason: "Succeeded".into(),
            message: "finished by the benchmark".into(),
            last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now),
            observed_generation: None,
        });
        self.observe(Observation::Workload(Change::Apply(workload)));
    }

    fn step(&mut self) -> usize {
        let began = Instant::now();
        let step = self.control.step(self.now);
        drop(self.control.drain_measures());
        self.spent.step += began.elapsed();
        self.spent.steps += 1;
        let count = step.tasks.len();
        let mut echoes = VecDeque::new();
        for task in step.tasks {
            *self.spent.writes.entry(format!("{:?}", task.purpose)).or_default() += 1;
            let version = self.bump();
            let body = match &task.action {
                Action::Write(Write::Apply { body, .. } | Write::Merge { body, .. }) => body.value().unwrap(),
                other => panic!("{other:?}"),
            };
            match task.key.kind {
                Kind::Workload => {
                    let workload = self.workloads.get_mut(&task.key.name).unwrap();
                    workload.metadata.resource_version.clone_from(&version);
                    workload.status = Some(object(body["status"].clone()));
                    if workload.status.as_ref().unwrap().admission.is_some() {
                        let run = if task.key.name.starts_with("small") { 200 } else { 600 };
                        let end = self.now.checked_add(SignedDuration::from_millis(run)).unwrap();
                        self.running.insert((end, task.key.name.clone()), ());
                    }
                    echoes.push_back(Observation::Workload(Change::Apply(workload.clone())));
                }
                Kind::ClusterQueue => {
                    let queue = self.queues.get_mut(&task.key.name).unwrap();
                    queue.metadata.resource_version.clone_from(&version);
                    if body["status"].is_object() {
                        queue.status = Some(object(body["status"].clone()));
                    } else {
                        queue.metadata.finalizers = Some(object(body["metadata"]["finalizers"].clone()));
                    }
                    echoes.push_back(Observation::ClusterQueue(Change::Apply(queue.clone())));
                }
                Kind::LocalQueue => {
                    let queue = self.local.get_mut(&task.key.name).unwrap();
                    queue.metadata.resource_version.clone_from(&version);
                    queue.status = Some(object(body["status"].clone()));
                    echoes.push_back(Observation::LocalQueue(Change::Apply(queue.clone())));
                }
                _ => {}
            }
            let began = Instant::now();
            self.control.outcome(task.id, WriteOutcome::Applied { resource_version: version.unwrap() }, self.now);
            self.spent.outcome += began.elapsed();
            self.spent.outcomes += 1;
        }
        for echo in echoes {
            self.observe(echo);
        }
        count
    }
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

fn main() {
    let total: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(15_000);
    let mut bench = Bench {
        control: Control::new(Settings::default()),
        now: "2026-11-21T12:00:00Z".parse().unwrap(),
        version: 100,
        workloads: BTreeMap::new(),
        queues: BTreeMap::new(),
        local: BTreeMap::new(),
        spent: Spent::default(),
        running: BTreeMap::new(),
    };
    bench.control.lead(Some(Term(1)));
    bench.observe(Observation::Namespace(Change::Apply(object(json!({"metadata": {"name": "team"}})))));
    bench.observe(Observation::ResourceFlavor(Change::Apply(object(json!({
        "metadata": {"name": "rf", "uid": "rf", "generation": 1, "finalizers": ["kueue.x-k8s.io/resource-in-use"]}, "spec": {}
    })))));
    for index in 0..30 {
        let queue: Box<api::ClusterQueue> = object(json!({
            "metadata": {"name": format!("queue-{index}"), "uid": format!("q{index}"), "generation": 1, "resourceVersion": "1",
                "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
            "spec": {"cohortName": format!("cohort-{}", index / 6), "namespaceSelector": {}, "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [
                    {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}]}]}]},
        }));
        let local: Box<api::LocalQueue> = object(json!({
            "metadata": {"name": format!("local-{index}"), "namespace": "team", "uid": format!("l{index}"), "generation": 1,
                "resourceVersion": "1"},
            "spec": {"clusterQueue": format!("queue-{index}")},
        }));
        bench.queues.insert(format!("queue-{index}"), queue.clone());
        bench.local.insert(format!("local-{index}"), local.clone());
        bench.observe(Observation::ClusterQueue(Change::Apply(queue)));
        bench.observe(Observation::LocalQueue(Change::Apply(local)));
    }
    bench.step();
    let before = resident();
    let mut peak = before;
    let (mut made, mut done, mut credit) = (0, 0, 0.0);
    while done < total {
        bench.now = bench.now.checked_add(SignedDuration::from_millis(TICK_MS)).unwrap();
        credit += ARRIVALS;
        while credit >= 1.0 && made < total {
            credit -= 1.0;
            bench.create(made);
            made += 1;
        }
        while let Some((end, name)) = bench.running.keys().next().cloned().filter(|(end, _)| *end <= bench.now) {
            bench.running.remove(&(end, name.clone()));
            bench.finish(&name);
            done += 1;
        }
        bench.step();
        peak = peak.max(resident());
    }
    let spent = &bench.spent;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / total as f64;
    println!("{total} workloads, {} steps, writes {:?}", spent.steps, spent.writes);
    println!("observe {:8.2} us per workload, {} calls", each(spent.observe), spent.observed);
    println!("outcome {:8.2} us per workload, {} calls", each(spent.outcome), spent.outcomes);
    println!("step    {:8.2} us per workload, {} calls", each(spent.step), spent.steps);
    println!("all     {:8.2} us per workload", each(spent.observe + spent.outcome + spent.step));
    println!("memory  {} bytes per workload at the peak, objects of the benchmark included", (peak - before) / total);
}
