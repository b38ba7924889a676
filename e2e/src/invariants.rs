//! The promises that every end-to-end test must keep, judged over all changes in the order of their revisions.
//!
//! Q1 within quota at every revision, Q3 books balance, L1 no start without reservation, L2 admitted means reserved, L3
//! suspended means still, L4 release after stop, L7 the user's template comes back, L8 one live workload per job, Q6 the pods of a
//! TrainingJob or a JobSet are covered by its quota; C1 (no double admission) is Q1 and L1 holding with several replicas. C6 (quiet at
//! rest) needs time and is the observer's. Of a JobSet L1, L4 and Q6 are judged (`job_sets`).

mod elastic;
mod job_sets;
mod pods;
mod read;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::jobset::JOBSET;
use crate::kinds::{self, condition, items, text};
use crate::quota_tree::{Forest, Usage, thousandths};
use job_sets::JobSet;
use pods::Pod;
use read::{QUEUE, label, shape, user_owns_suspend, workload};

/// An edit of a quota is in force at the latest this long after it was seen.
const IN_FORCE: Duration = Duration::from_secs(5);

/// A managed job that runs without a reservation is suspended within this time.
const SUSPENDED_WITHIN: Duration = Duration::from_secs(10);

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Revision of the store; orders changes of all kinds.
    pub revision: u64,
    /// Kind of the object.
    pub kind: kinds::Kind,
    /// The new state, or the last one when it was deleted.
    pub object: Value,
    /// Whether the object is gone.
    pub deleted: bool,
    /// When it was seen.
    pub at: Instant,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the promise, for example `Q1`.
    pub invariant: &'static str,
    /// Revision at which it was broken.
    pub revision: u64,
    /// What was seen.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} broken at revision {}: {}", self.invariant, self.revision, self.what)
    }
}

#[derive(Clone, Debug, Default)]
struct Workload {
    key: String,
    owner: String,
    /// Key of the slice that it takes the place of.
    replaces: String,
    /// Pods for which it holds quota.
    pods: usize,
    queue: String,
    cluster_queue: String,
    charge: Usage,
    reserved: bool,
    admitted: bool,
    finished: bool,
    deleting: bool,
}

#[derive(Clone, Debug)]
struct Job {
    key: String,
    managed: bool,
    prebuilt: String,
    suspended: bool,
    since: Instant,
    ended: bool,
    shape: Value,
    first: Value,
    /// Since when it runs without an admitted workload.
    loose: Option<Instant>,
}

/// Keeps the state that the changes add up to and judges each step.
#[derive(Debug, Default)]
pub struct Judge {
    forest: Forest,
    old_forests: Vec<(Instant, Forest)>,
    workloads: BTreeMap<String, Workload>,
    jobs: BTreeMap<String, Job>,
    job_sets: BTreeMap<String, JobSet>,
    pods: BTreeMap<String, Pod>,
    cluster_queues: BTreeMap<String, Value>,
    local_queues: BTreeMap<String, Value>,
    edited: Vec<String>,
    violations: Vec<Violation>,
    revision: u64,
}

impl Judge {
    /// Takes one change; changes must come in the order of their revisions.
    pub fn take(&mut self, change: &Change) {
        self.revision = change.revision;
        match change.kind {
            kinds::CLUSTER_QUEUE | kinds::COHORT => self.take_quota(change),
            kinds::LOCAL_QUEUE => {
                let key = kinds::key(&change.object);
                if change.deleted {
                    self.local_queues.remove(&key);
                } else {
                    self.local_queues.insert(key, change.object.clone());
                }
            }
            kinds::WORKLOAD => self.take_workload(change),
            kinds::JOB => self.take_job(change),
            JOBSET => self.take_job_set(change),
            kinds::POD => self.take_pod(change),
            _ => {}
        }
    }

    /// The user changed the template of this job (by uid): L7 asks for the new one from now on.
    pub fn user_edited(&mut self, uid: &str) {
        self.edited.push(uid.to_owned());
    }

    fn fail(&mut self, invariant: &'static str, what: String) {
        let violation = Violation { invariant, revision: self.revision, what };
        // A broken state is reported once, not at each later revision.
        if !self.violations.iter().any(|v| v.invariant == invariant && v.what == violation.what) {
            self.violations.push(violation);
        }
    }

    fn take_quota(&mut self, change: &Change) {
        let mut forest = self.forest.clone();
        let name = text(&change.object, "/metadata/name").to_owned();
        match (change.kind == kinds::CLUSTER_QUEUE, change.deleted) {
            (true, false) => {
                forest.set_queue(&change.object);
                self.cluster_queues.insert(name, change.object.clone());
            }
            (true, true) => {
                forest.remove_queue(&name);
                self.cluster_queues.remove(&name);
            }
            (false, false) => forest.set_cohort(&change.object),
            (false, true) => forest.remove_cohort(&name),
        }
        if forest != self.forest {
            let old = std::mem::replace(&mut self.forest, forest);
            self.old_forests.push((change.at, old));
        }
    }

    fn take_workload(&mut self, change: &Change) {
        let uid = text(&change.object, "/metadata/uid").to_owned();
        let before = self.workloads.get(&uid).cloned().unwrap_or_default();
        let after = if change.deleted { None } else { Some(workload(&change.object)) };
        if let Some(after) = &after {
            self.check_growth(&before, after, change.at);
            if after.admitted && !after.reserved && !after.finished {
                self.fail("L2", format!("workload {} is Admitted without QuotaReserved", after.key));
            }
        }
        self.check_shrink(&before, after.as_ref());
        let was_charged = before.reserved && !before.finished;
        let is_charged = after.as_ref().is_some_and(|w| w.reserved && !w.finished);
        if was_charged && !is_charged {
            let evicted = after.as_ref().is_some_and(|w| !w.finished && !w.deleting);
            if self.heir(&before.key).is_none() {
                self.check_release(&before, evicted);
            }
        }
        match after {
            None => drop(self.workloads.remove(&uid)),
            Some(after) => drop(self.workloads.insert(uid, after)),
        }
        self.check_single(&before.owner);
        let owner =
            self.workloads.get(text(&change.object, "/metadata/uid")).map(|w| w.owner.clone()).unwrap_or_default();
        if owner != before.owner {
            self.check_single(&owner);
        }
        let jobs: Vec<String> = [before.owner, owner].into_iter().filter(|o| !o.is_empty()).collect();
        for job in jobs {
            self.track_loose(&job, change.at);
        }
    }

    fn usage(&self) -> BTreeMap<String, Usage> {
        let mut total: BTreeMap<String, Usage> = BTreeMap::new();
        for w in self.workloads.values().filter(|w| w.reserved && !w.finished) {
            let queue = total.entry(w.cluster_queue.clone()).or_default();
            for (cell, amount) in &w.charge {
                *queue.entry(cell.clone()).or_default() += amount - self.handed_over(w, cell);
            }
        }
        total
    }

    /// Q1: an increase must fit into what the quotas in force leave.
    fn check_growth(&mut self, before: &Workload, after: &Workload, at: Instant) {
        if !after.reserved || after.finished {
            return;
        }
        let same_queue = before.reserved && !before.finished && before.cluster_queue == after.cluster_queue;
        let usage = self.usage();
        for (cell, amount) in &after.charge {
            let held = if same_queue { before.charge.get(cell).copied().unwrap_or(0) } else { 0 };
            let growth = amount - held - self.handed_over(after, cell);
            if growth <= 0 {
                continue;
            }
            let recent = self
                .old_forests
                .iter()
                .filter(|(until, _)| at.saturating_duration_since(*until) < IN_FORCE)
                .map(|(_, f)| f);
            let most = recent
                .chain([&self.forest])
                .map(|f| f.available(&usage, &after.cluster_queue, cell))
                .max()
                .unwrap_or(0);
            if growth > most {
                let (key, queue) = (&after.key, &after.cluster_queue);
                let what = format!("workload {key} takes {growth}m of {cell:?} in {queue}, where {most}m are left");
                self.fail("Q1", what);
            }
        }
    }

    /// L4 and L7: at the release of a charge the pods have ended, and an evicted job looks as its user wrote it.
    fn check_release(&mut self, before: &Workload, evicted: bool) {
        if before.owner.is_empty() {
            return;
        }
        let live: Vec<String> =
            self.pods.values().filter(|p| p.owner == before.owner && p.live).map(|p| p.key.clone()).collect();
        if !live.is_empty() {
            let there = self.jobs.contains_key(&before.owner) || self.job_sets.contains_key(&before.owner);
            let how = match (evicted, there) {
                (true, _) => "eviction",
                (false, true) => "end",
                (false, false) => "deletion of its job",
            };
            let (key, live) = (&before.key, live.join(", "));
            self.fail("L4", format!("quota of workload {key} was freed by {how} while pods live: {live}"));
        }
        if evicted {
            self.check_template(&before.owner.clone());
        }
    }

    fn check_template(&mut self, uid: &str) {
        let Some(job) = self.jobs.get(uid) else { return };
        if job.shape != job.first && !self.edited.iter().any(|e| e == uid) {
            let what = format!("job {} waits, but its template is {} and was {}", job.key, job.shape, job.first);
            self.fail("L7", what);
        }
    }

    fn check_single(&mut self, owner: &str) {
        if owner.is_empty() {
            return;
        }
        let live: Vec<String> = self
            .workloads
            .values()
            .filter(|w| w.owner == owner && !w.finished && !w.deleting)
            // A growing job has its new slice beside the one that this takes the place of.
            .filter(|w| {
                !self.workloads.values().any(|older| older.key == w.replaces && older.owner == owner && !older.finished)
            })
            .map(|w| w.key.clone())
            .collect();
        if live.len() > 1 {
            self.fail("L8", format!("job uid {owner} has {} live workloads: {}", live.len(), live.join(", ")));
        }
    }

    fn is_admitted(&self, uid: &str, job: &Job) -> bool {
        self.workloads.values().any(|w| {
            w.admitted
                && w.reserved
                && !w.deleting
                && (w.owner == uid || (!job.prebuilt.is_empty() && w.key == job.prebuilt))
        })
    }

    fn take_job(&mut self, change: &Change) {
        let object = &change.object;
        let uid = text(object, "/metadata/uid").to_owned();
        if change.deleted {
            self.jobs.remove(&uid);
            return;
        }
        let before = self.jobs.get(&uid).cloned();
        let suspended = object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
        let shape = shape(object);
        let edited = self.edited.contains(&uid);
        let prebuilt = label(object, "kueue.x-k8s.io/prebuilt-workload-name");
        let job = Job {
            key: kinds::key(object),
            managed: !label(object, QUEUE).is_empty(),
            prebuilt: if prebuilt.is_empty() {
                prebuilt
            } else {
                format!("{}/{prebuilt}", text(object, "/metadata/namespace"))
            },
            suspended,
            since: before.as_ref().filter(|b| b.suspended == suspended).map_or(change.at, |b| b.since),
            ended: condition(object, "Complete") == "True" || condition(object, "Failed") == "True",
            first: before.as_ref().filter(|_| !edited).map_or_else(|| shape.clone(), |b| b.first.clone()),
            shape,
            loose: before.as_ref().and_then(|b| b.loose),
        };
        let started = before.as_ref().is_some_and(|b| b.suspended) && !suspended;
        if started && job.managed && !user_owns_suspend(object) && !self.is_admitted(&uid, &job) {
            self.fail("L1", format!("job {} was unsuspended while no workload of it is admitted", job.key));
        }
        self.jobs.insert(uid.clone(), job);
        self.track_loose(&uid, change.at);
    }

    /// L3, first half: how long a managed job has been running without an admitted workload.
    fn track_loose(&mut self, uid: &str, at: Instant) {
        let Some(job) = self.jobs.get(uid).cloned() else { return };
        let loose = job.managed && !job.suspended && !job.ended && !self.is_admitted(uid, &job);
        match (job.loose, loose) {
            (None, true) => self.set_loose(uid, Some(at)),
            (Some(since), false) => {
                if at.saturating_duration_since(since) > SUSPENDED_WITHIN {
                    self.fail("L3", format!("job {} ran without a reservation for {:?}", job.key, at - since));
                }
                self.set_loose(uid, None);
            }
            _ => {}
        }
    }

    fn set_loose(&mut self, uid: &str, since: Option<Instant>) {
        if let Some(job) = self.jobs.get_mut(uid) {
            job.loose = since;
        }
    }

    /// Judges the state at rest and hands over everything found so far.
    pub fn verdict(&mut self, now: Instant) -> Vec<Violation> {
        for (uid, job) in self.jobs.clone() {
            if job.loose.is_some_and(|since| now.saturating_duration_since(since) > SUSPENDED_WITHIN) {
                self.fail("L3", format!("job {} runs without a reservation", job.key));
            }
            if !job.managed || !job.suspended {
                continue;
            }
            if now.saturating_duration_since(job.since) > SUSPENDED_WITHIN {
                let live: Vec<String> = self
                    .pods
                    .values()
                    .filter(|p| p.owner == uid && p.live && !p.deleting)
                    .map(|p| p.key.clone())
                    .collect();
                if !live.is_empty() {
                    self.fail("L3", format!("job {} is suspended and has pods: {}", job.key, live.join(", ")));
                }
            }
            if !self.workloads.values().any(|w| w.owner == uid && w.reserved) {
                self.check_template(&uid);
            }
        }
        std::mem::take(&mut self.violations)
    }

    /// Q3: queues whose statuses differ from the sum of the workloads, by key; empty when the books balance.
    pub fn unbalanced(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (name, queue) in &self.cluster_queues {
            let mine = |w: &&Workload| w.cluster_queue == *name;
            let texts = self.compare(queue, &format!("ClusterQueue {name}"), &mine);
            found.extend(texts.into_iter().map(|text| (name.clone(), text)));
        }
        for (key, queue) in &self.local_queues {
            let namespace = text(queue, "/metadata/namespace");
            let mine =
                |w: &&Workload| w.key.starts_with(&format!("{namespace}/")) && w.queue == text(queue, "/metadata/name");
            let texts = self.compare(queue, &format!("LocalQueue {key}"), &mine);
            found.extend(texts.into_iter().map(|text| (key.clone(), text)));
        }
        found
    }

    fn compare(&self, queue: &Value, what: &str, mine: &dyn Fn(&&Workload) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        let reserving: Vec<&Workload> =
            self.workloads.values().filter(|w| w.reserved && !w.finished).filter(mine).collect();
        let admitted: Vec<&Workload> = reserving.iter().copied().filter(|w| w.admitted).collect();
        let sides = [
            ("flavorsReservation", "reservingWorkloads", &reserving),
            ("flavorsUsage", "admittedWorkloads", &admitted),
        ];
        for (list, count, workloads) in sides {
            let mut expected = Usage::new();
            for (cell, amount) in workloads.iter().flat_map(|w| &w.charge) {
                *expected.entry(cell.clone()).or_default() += amount;
            }
            let mut told = Usage::new();
            for flavor in items(queue, &format!("/status/{list}")) {
                for resource in items(flavor, "/resources") {
                    let total = resource.get("total").and_then(thousandths).unwrap_or(0);
                    told.insert((text(flavor, "/name").to_owned(), text(resource, "/name").to_owned()), total);
                }
            }
            told.retain(|_, v| *v != 0);
            if told != expected {
                found.push(format!("{what}: {list} is {told:?}, the workloads add up to {expected:?}"));
            }
            let number = queue.pointer(&format!("/status/{count}")).and_then(Value::as_u64).unwrap_or(0);
            if usize::try_from(number).ok() != Some(workloads.len()) {
                found.push(format!("{what}: {count} is {number}, counted {}", workloads.len()));
            }
        }
        let waiting = queue.pointer("/status/pendingWorkloads").and_then(Value::as_u64).unwrap_or(0);
        if waiting > 0 && !self.workloads.values().any(|w| !w.finished && !w.reserved) {
            found.push(format!("{what}: pendingWorkloads is {waiting}, but nothing waits anywhere"));
        }
        found
    }
}

#[cfg(test)]
#[path = "invariants_tests.rs"]
mod tests;
