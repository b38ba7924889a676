//! The end of a simulation run: faults stop, and the cluster comes to rest; then all jobs are deleted, and no Workload may hold quota.

use std::collections::{BTreeMap, BTreeSet};

use berth_control::write::{Kind, ObjectKey};
use berth_invariants::kinds::condition;
use berth_invariants::quota_tree::{Cell, Forest, Usage, thousandths, usage_in_status};
use serde_json::{Value, json};

use super::{Drawn, Simulation};
use crate::api_server::{USER, is_deleting};
use crate::tenant::Propagation;

/// Time without a write of Berth after which the cluster is at rest, in milliseconds.
const QUIET_MS: u64 = 150_000;
/// Time within which the cluster must come to rest after the last event, in milliseconds.
const REST_MS: u64 = 1_800_000;
/// Berth's finalizers on Workloads and pods.
const FINALIZERS: [&str; 2] = ["kueue.x-k8s.io/resource-in-use", "kueue.x-k8s.io/managed"];

impl Simulation {
    /// Runs the simulation without faults and external events until the cluster is at rest, and judges that state.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        self.drawn = Drawn::healed();
        for replica in &mut self.replicas {
            replica.paused_until = replica.paused_until.min(self.now_ms + 20_000);
            replica.cut_until = replica.cut_until.min(self.now_ms + 20_000);
        }
        self.settle("after the last event")?;
        self.judge_rest()
    }

    /// Deletes all jobs as their users do, removes the users' finalizers, and judges the end of the run.
    pub(super) fn tear_down(&mut self) -> Result<(), String> {
        self.trace.note(self.now_ms, format_args!("everything is deleted"));
        self.api.write_as(USER);
        let is_users = |kind: Kind| matches!(kind, Kind::Job(_) | Kind::TrainingJob | Kind::Pod);
        let keys: Vec<ObjectKey> = self.api.objects().keys().filter(|key| is_users(key.kind)).cloned().collect();
        for key in keys {
            let list = self.api.get(&key).and_then(|object| object["metadata"]["finalizers"].as_array().cloned());
            let kept: Vec<Value> = list.into_iter().flatten().filter(|one| one != "example.com/hold").collect();
            self.api.edit(&key, &json!({"metadata": {"finalizers": kept}}));
            if self.api.get(&key).is_some_and(|object| !is_deleting(object)) {
                self.delete(&key, Propagation::Background);
            }
        }
        self.settle("after the deletion of all jobs")?;
        self.end_orphans();
        self.settle("after the end of pods that no job owns")?;
        self.judge_rest()?;
        let is_left = |kind: Kind| matches!(kind, Kind::Job(_) | Kind::TrainingJob | Kind::Pod | Kind::JobPod);
        let left = self.api.objects().iter().filter(|(key, _)| is_left(key.kind)).map(|(key, _)| key.to_string());
        let left: Vec<String> = left.collect();
        if !left.is_empty() {
            return Err(format!("R5 broken at the end: {} is still there", left.join(", ")));
        }
        for (key, object) in self.api.objects().iter().filter(|(key, _)| key.kind == Kind::Workload) {
            if condition(object, "QuotaReserved") == "True" && condition(object, "Finished") != "True" {
                return Err(format!("Q8 broken at the end: {key} holds quota of a job that is gone"));
            }
            let held = object["metadata"]["finalizers"].as_array().into_iter().flatten();
            if is_deleting(object) && held.filter_map(Value::as_str).any(|one| FINALIZERS.contains(&one)) {
                return Err(format!("R5 broken at the end: Berth's finalizer keeps {key}"));
            }
        }
        Ok(())
    }

    /// Ends the pods that were left behind by the deletion of their owner.
    fn end_orphans(&mut self) {
        self.api.write_as(USER);
        let pods = self.api.objects().iter().filter(|(key, _)| matches!(key.kind, Kind::JobPod));
        for key in pods.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.api.delete(&key);
        }
    }

    /// Runs the simulation until Berth has written nothing for a while.
    fn settle(&mut self, when: &str) -> Result<(), String> {
        let begun = self.now_ms;
        self.last_write_ms = begun;
        while self.now_ms < self.last_write_ms + QUIET_MS || self.now_ms < self.judging.troubled_until() {
            self.turn()?;
            if self.now_ms > begun + REST_MS {
                return Err(format!("C6 broken: Berth still writes {} s {when}", REST_MS / 1_000));
            }
        }
        Ok(())
    }

    /// Checks the state at rest: by the judge, against a fresh control, and by the quota that is free.
    fn judge_rest(&mut self) -> Result<(), String> {
        self.judging.verdict(self.since_begin())?;
        let fresh = self.fresh().recompute();
        let Some(leader) = self.replicas.iter_mut().find(|replica| replica.leads()) else {
            return Err("nobody leads at rest".to_owned());
        };
        let Some(control) = &mut leader.control else { return Err("nobody leads at rest".to_owned()) };
        let faults = berth_engine::check(control.world());
        if let Some(fault) = faults.first() {
            return Err(format!("Q3 broken in memory: {fault}"));
        }
        let kept = control.recompute();
        if kept != fresh {
            return Err(format!("R2 broken at rest: {}", difference(&kept, &fresh)));
        }
        self.starving()
    }

    /// Fails if a Workload waits although quota for it is free, in a queue with the strategy BestEffortFIFO. The usage is that in the statuses of the queues,
    /// which the judge compares with the Workloads (Q3): it includes pods that run again, or beyond quota.
    fn starving(&self) -> Result<(), String> {
        let (mut forest, mut usage) = (Forest::default(), BTreeMap::<String, Usage>::new());
        let mut waiting = Vec::new();
        for (key, object) in self.api.objects() {
            match key.kind {
                Kind::ClusterQueue => {
                    forest.set_queue(object);
                    usage.insert(key.name.clone(), usage_in_status(object, "flavorsReservation", "total"));
                }
                Kind::Workload if waits(object) => waiting.push((key, object)),
                _ => {}
            }
        }
        let queues: BTreeSet<String> =
            waiting.iter().filter_map(|(key, workload)| Some(self.queue_of(key, workload)?.0)).collect();
        for (key, workload) in waiting.into_iter().filter(|(_, workload)| self.is_plain(workload)) {
            let Some((name, queue)) = self.queue_of(key, workload) else { continue };
            let is_open = matches!(queue["spec"]["stopPolicy"].as_str(), None | Some("None"));
            if !is_open || queue["spec"]["queueingStrategy"] == "StrictFIFO" {
                continue;
            }
            let wanted = least(workload);
            let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array();
            for flavor in flavors.into_iter().flatten().filter_map(|flavor| flavor["name"].as_str()) {
                let cell: Cell = (flavor.to_owned(), "cpu".to_owned());
                let left = forest.available(&usage, &name, &cell);
                // As in Kueue, quota that another queue of the cohort lends may be kept for a Workload of that queue that has to preempt others.
                let used = usage.get(&name).and_then(|used| used.get(&cell)).copied().unwrap_or_default();
                let borrows = forest.borrowed(&name, &cell, used + wanted) > 0;
                let is_kept = borrows && queues.iter().any(|other| *other != name);
                if wanted > 0 && left >= wanted && !is_kept {
                    return Err(format!(
                        "V1 broken at rest: {key} waits for {wanted}m of cpu, and {left}m of {flavor} are left in {name}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether a Workload belongs to a Job that a user created and no tenant has written to.
    fn is_plain(&self, workload: &Value) -> bool {
        let owner = &workload["metadata"]["ownerReferences"][0];
        let made = owner["name"].as_str().is_some_and(|name| name.starts_with("uj"));
        let touched = self.touched.iter().any(|key| owner["name"] == json!(key.name));
        made && owner["kind"] == "Job" && !touched
    }

    /// The ClusterQueue of a Workload, with its name.
    fn queue_of(&self, key: &ObjectKey, workload: &Value) -> Option<(String, &Value)> {
        let local = workload["spec"]["queueName"].as_str()?;
        let local = self.api.get(&ObjectKey { kind: Kind::LocalQueue, name: local.to_owned(), ..key.clone() })?;
        let name = local["spec"]["clusterQueue"].as_str()?;
        let queue = ObjectKey { kind: Kind::ClusterQueue, namespace: String::new(), name: name.to_owned() };
        Some((name.to_owned(), self.api.get(&queue)?))
    }
}

/// Whether a Workload waits for quota.
fn waits(workload: &Value) -> bool {
    let is = |kind: &str| condition(workload, kind) == "True";
    !is("Finished") && !is("QuotaReserved") && !is_deleting(workload) && workload["spec"]["active"] != json!(false)
}

/// Thousandths of a cpu for the least number of pods with which a Workload may start.
fn least(workload: &Value) -> i128 {
    let sets = workload["spec"]["podSets"].as_array();
    let of_set = |set: &Value| {
        let count = set["minCount"].as_i64().or_else(|| set["count"].as_i64()).unwrap_or(1);
        let containers = set["template"]["spec"]["containers"].as_array();
        let amounts = containers.into_iter().flatten().map(|one| thousandths(&one["resources"]["requests"]["cpu"]));
        i128::from(count) * amounts.map(Option::unwrap_or_default).sum::<i128>()
    };
    sets.into_iter().flatten().map(of_set).sum()
}

/// The first difference between two digests of state, as text.
fn difference(kept: &Value, fresh: &Value) -> String {
    match (kept, fresh) {
        (Value::Object(kept), Value::Object(fresh)) => {
            let differs = |name: &&String| kept.get(*name) != fresh.get(*name);
            let name = kept.keys().chain(fresh.keys()).find(differs);
            name.map_or_else(String::new, |name| {
                let null = Value::Null;
                let (kept, fresh) = (kept.get(name).unwrap_or(&null), fresh.get(name).unwrap_or(&null));
                format!("{name}: {}", difference(kept, fresh))
            })
        }
        _ => format!("in memory {kept}, of fresh lists {fresh}"),
    }
}
