//! The promises that every end-to-end test must keep, judged over all changes in the order of their revisions.
//!
//! The crate shares no code with what it judges, and reads objects as they are stored. It has no clock: the time of a change is a part of the change,
//! and only differences of times count. Start reading at [`Judge`].
//!
//! [`Rule`] lists the rules, and `docs/invariants.md` the invariants. Q3 (statuses agree with Workloads) is [`Judge::unbalanced`], since statuses may be
//! behind. C1 (no double admission) is Q1 and L1 with several replicas. C6 (writes end) is the observer's, who knows when nothing changes any more.
//! Rules about pods and quota are in `held` and `elastic`, about Jobs in `jobs`, about JobSets in `job_sets`.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod admission;
mod asks;
mod balance;
mod change;
mod elastic;
mod held;
mod job_sets;
mod jobs;
pub mod kinds;
mod pods;
pub mod quota_tree;
mod read;
mod requests;
mod rule;
mod spec;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

pub use change::Change;
use held::Held;
use job_sets::JobSet;
use jobs::Job;
use kinds::text;
use pods::Pod;
use quota_tree::{Forest, Usage};
pub use rule::{Rule, Violation};
use workload::Workload;

/// Time after which an edit of a quota is in force on a real control plane.
const IN_FORCE: Duration = Duration::from_secs(5);

/// Keeps the state that the changes add up to and judges each step.
#[derive(Debug)]
pub struct Judge {
    /// An edit of a quota is in force at the latest this long after it was seen.
    in_force: Duration,
    forest: Forest,
    old_forests: Vec<(Duration, Forest)>,
    workloads: BTreeMap<String, Workload>,
    jobs: BTreeMap<String, Job>,
    job_sets: BTreeMap<String, JobSet>,
    /// Keys of TrainingJobs, by uid.
    training_jobs: BTreeMap<String, String>,
    pods: BTreeMap<String, Pod>,
    held: Held,
    cluster_queues: BTreeMap<String, Value>,
    local_queues: BTreeMap<String, Value>,
    cohorts: BTreeMap<String, Value>,
    edited: Vec<String>,
    /// Times without a leader; the last one may have no end yet.
    unled: Vec<(Duration, Option<Duration>)>,
    violations: Vec<Violation>,
    revision: u64,
    blind: bool,
}

impl Default for Judge {
    fn default() -> Self {
        Self::with_edits_in_force_after(IN_FORCE)
    }
}

impl Judge {
    /// A judge of histories in which an edit of a quota is in force at the latest that long after it was seen.
    #[must_use]
    pub fn with_edits_in_force_after(in_force: Duration) -> Self {
        Self {
            in_force,
            forest: Forest::default(),
            old_forests: Vec::new(),
            workloads: BTreeMap::new(),
            jobs: BTreeMap::new(),
            job_sets: BTreeMap::new(),
            training_jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            held: Held::default(),
            cluster_queues: BTreeMap::new(),
            local_queues: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            edited: Vec::new(),
            unled: Vec::new(),
            violations: Vec::new(),
            revision: 0,
            blind: false,
        }
    }

    /// Takes one change; changes must come in the order of their revisions.
    pub fn take(&mut self, change: &Change) {
        self.revision = change.revision;
        self.blind = change.blind;
        if change.blind {
            self.restart_clocks(change.at);
        } else {
            self.check_clocks(change.at);
        }
        self.record(change);
        self.blind = false;
    }

    fn record(&mut self, change: &Change) {
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
            kinds::JOBSET => self.take_job_set(change),
            kinds::TRAINING_JOB => {
                let uid = text(&change.object, "/metadata/uid").to_owned();
                if change.deleted {
                    self.training_jobs.remove(&uid);
                } else {
                    self.training_jobs.insert(uid, kinds::key(&change.object));
                }
            }
            kinds::POD => self.take_pod(change),
            _ => {}
        }
    }

    /// The user changed the template of this job (by uid): L7 asks for the new one from now on.
    pub fn user_edited(&mut self, uid: &str) {
        self.edited.push(uid.to_owned());
    }

    /// No manager leads from now on: actions that Berth must take within a time are not due meanwhile.
    pub fn nobody_leads(&mut self, at: Duration) {
        if self.unled.last().is_none_or(|(_, end)| end.is_some()) {
            self.unled.push((at, None));
        }
    }

    /// Notes that a manager leads again.
    pub fn somebody_leads(&mut self, at: Duration) {
        if let Some((_, end)) = self.unled.last_mut().filter(|(_, end)| end.is_none()) {
            *end = Some(at);
        }
    }

    /// The part of a time in which a manager led.
    fn led_between(&self, from: Duration, to: Duration) -> Duration {
        let overlap = |(begin, end): &(Duration, Option<Duration>)| {
            let (first, last) = ((*begin).max(from), end.unwrap_or(to).min(to));
            last.saturating_sub(first)
        };
        to.saturating_sub(from).saturating_sub(self.unled.iter().map(overlap).sum())
    }

    fn fail(&mut self, rule: Rule, what: String) {
        if self.blind {
            return;
        }
        let violation = Violation { rule, revision: self.revision, what };
        // A broken state is reported once, not at each later revision.
        if !self.violations.iter().any(|v| v.rule == rule && v.what == violation.what) {
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
            (false, false) => {
                forest.set_cohort(&change.object);
                self.cohorts.insert(name, change.object.clone());
            }
            (false, true) => {
                forest.remove_cohort(&name);
                self.cohorts.remove(&name);
            }
        }
        if forest != self.forest {
            let old = std::mem::replace(&mut self.forest, forest);
            self.old_forests.push((change.at, old));
        }
    }

    fn take_workload(&mut self, change: &Change) {
        let uid = text(&change.object, "/metadata/uid").to_owned();
        let before = self.workloads.get(&uid).cloned().unwrap_or_default();
        let mut after = if change.deleted { None } else { Some(read::workload(&change.object, &before)) };
        if let Some(after) = after.as_mut().filter(|after| after.deleting) {
            after.deleting_since = before.deleting_since.or(Some(change.at));
        }
        if let Some(after) = &after {
            self.check_growth(&before, after, change.at);
            self.check_admission(&change.object, &before, after);
            self.check_identity(after);
        }
        self.check_shrink(&before, after.as_ref());
        let was_charged = before.reserved && !before.finished;
        let is_charged = after.as_ref().is_some_and(|w| w.reserved && !w.finished);
        if was_charged && !is_charged {
            let evicted = after.as_ref().is_some_and(|w| !w.finished && !w.deleting);
            if self.replacement(&before.key).is_none() {
                self.check_release(&before, evicted);
            }
        }
        match after {
            None => drop(self.workloads.remove(&uid)),
            Some(after) => drop(self.workloads.insert(uid.clone(), after)),
        }
        self.check_single(&before.owner);
        let owner =
            self.workloads.get(text(&change.object, "/metadata/uid")).map(|w| w.owner.clone()).unwrap_or_default();
        if owner != before.owner {
            self.check_single(&owner);
        }
        self.weigh_workload(&uid, &before, change.at);
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

    /// Q1: an increase must fit into the rest of the quotas in force. Q2: less than nothing is left where a queue or cohort is over its quota.
    fn check_growth(&mut self, before: &Workload, after: &Workload, at: Duration) {
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
            let recent =
                self.old_forests.iter().filter(|(until, _)| at.saturating_sub(*until) < self.in_force).map(|(_, f)| f);
            let most = recent
                .chain([&self.forest])
                .map(|f| f.available(&usage, &after.cluster_queue, cell))
                .max()
                .unwrap_or(0);
            if growth > most {
                let (key, queue) = (&after.key, &after.cluster_queue);
                let what = format!("workload {key} takes {growth}m of {cell:?} in {queue}, where {most}m are left");
                self.fail(if most < 0 { Rule::Overfed } else { Rule::Fit }, what);
            }
        }
    }

    /// L4 and L7: at the release of a charge the pods have ended, and an evicted job is as its user wrote it.
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
            self.fail(Rule::Release, format!("quota of workload {key} was freed by {how} while pods live: {live}"));
        }
        if evicted {
            self.check_template(&before.owner);
        }
    }

    /// L8: a workload is for the job that controls it, and not for another one of the same name.
    fn check_identity(&mut self, after: &Workload) {
        let (key, label, owner) = (&after.key, &after.job_uid, &after.owner);
        // A group is no object and has no uid.
        let known = !label.is_empty() && !owner.is_empty() && !owner.starts_with("group ");
        if known && label != owner {
            self.fail(
                Rule::Single,
                format!("workload {key} is labelled for job uid {label} and controlled by uid {owner}"),
            );
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
            // A growing job has its new slice beside the one that it replaces.
            .filter(|w| {
                !self.workloads.values().any(|older| older.key == w.replaces && older.owner == owner && !older.finished)
            })
            .map(|w| w.key.clone())
            .collect();
        if live.len() > 1 {
            self.fail(Rule::Single, format!("job uid {owner} has {} live workloads: {}", live.len(), live.join(", ")));
        }
    }

    /// Broken promises that were found at the changes since the last question. Time-outs are judged when a later change or
    /// [`Judge::verdict`] tells the time.
    pub fn found(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// Judges the state at rest and returns all violations so far; `now` is no later than that state.
    pub fn verdict(&mut self, now: Duration) -> Vec<Violation> {
        self.check_clocks(now);
        self.check_resting(now);
        self.found()
    }
}

#[cfg(test)]
mod tests;
