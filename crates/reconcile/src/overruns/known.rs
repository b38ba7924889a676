//! Known usage beyond quota, and the jobs, pods and groups whose usage must be found again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_cache::jobs::asks_alike;
use berth_cache::{Name, View, WorkloadView};
use berth_engine::World;
use berth_engine::model::BeyondSpec;
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::notes::WorkloadRecords;
use crate::write::{Kind, ObjectKey, key};

/// All known usage beyond quota.
#[derive(Debug, Default)]
pub struct Overruns {
    /// Jobs, pods and groups that have changed since their usage was found.
    pub(super) unsure: BTreeSet<ObjectKey>,
    /// Jobs, pods and groups that run more pods than their Workloads hold quota for.
    pub(super) known: BTreeMap<ObjectKey, Overrun>,
    /// Charges of jobs that are gone, by the uid of their Workload, which is kept until the job's pods have ended.
    pub(super) outlived: BTreeMap<String, BeyondSpec>,
}

/// Usage beyond quota of one job, pod or group, with its history.
#[derive(Debug)]
pub(super) struct Overrun {
    /// The charge for usage beyond quota in the engine; `None` if no ClusterQueue is known that can be charged.
    pub(super) charge: Option<BeyondSpec>,
    /// Number of pods that run, and number of pods for which quota is held.
    pods: [i64; 2],
    /// Time since when more than twice as many pods run as quota is held for.
    doubled: Option<Timestamp>,
    /// True if the charged ClusterQueue has no room for the charge, according to the engine's last answer.
    pub(super) crowded: bool,
}

/// Usage beyond quota of one job, pod or group, as the view shows it.
#[derive(Debug)]
pub struct ExcessUsage {
    /// The charge for usage beyond quota in the engine; `None` if no ClusterQueue is known that can be charged.
    pub charge: Option<BeyondSpec>,
    /// Number of pods that run, and number of pods for which quota is held.
    pub pods: [i64; 2],
}

/// Effects of a new result about the usage of a job, pod or group.
#[derive(Debug, Default)]
pub struct OverrunChange {
    /// Charges of usage beyond quota to pass to the engine.
    pub charges: Vec<BeyondSpec>,
    /// True if the job has begun, or ceased, to run more than twice the pods for which quota is held.
    pub is_decided_again: bool,
    /// True if the job's pods have begun, or ceased, to run without any quota: the job's Workloads may be tried only if no pod runs without quota.
    pub waits_otherwise: bool,
}

impl Overruns {
    /// Time since when a job runs more than twice the pods for which it holds quota, with both numbers.
    pub(crate) fn doubled(&self, object: &ObjectKey) -> Option<(Timestamp, [i64; 2])> {
        let overrun = self.known.get(object)?;
        Some((overrun.doubled?, overrun.pods))
    }

    /// Marks the job of the Workload by whose quota an odd pod runs for a new count of usage beyond quota, because the odd pod was observed or is about to be
    /// forgotten.
    pub(crate) fn note_odd_pod(&mut self, view: &View, name: &Name) {
        let workload = view.odd_pods().get(name).and_then(|odd| view.workload_of_odd(&name.0, odd));
        self.note_holder(view, workload);
    }

    /// Marks the job of a Workload for a new count of usage beyond quota, or the Workload itself if its job is gone.
    fn note_holder(&mut self, view: &View, workload: Option<&WorkloadView>) {
        let holder = |workload: &WorkloadView| workload.owner_key().unwrap_or_else(|| workload.object_key());
        self.note_owner(view, workload.map(holder));
    }

    /// Marks all known usage beyond quota for a new count after a queue was created or changed, because another ClusterQueue may be charged now.
    pub fn charge_again(&mut self) {
        self.unsure.extend(self.known.keys().cloned());
    }

    /// True if the ClusterQueue that is charged for a job, pod or group has room for all usage that is charged to it; `None` if nothing runs beyond quota.
    pub(crate) fn has_room(&self, object: &ObjectKey) -> Option<bool> {
        self.known.get(object).map(|overrun| overrun.charge.is_some() && !overrun.crowded)
    }

    /// Marks a job, a pod or a group for a new count of its usage beyond quota.
    pub fn note(&mut self, object: ObjectKey) {
        self.unsure.insert(object);
    }

    /// Marks a job, and the job that it is a part of, for a new count of usage beyond quota.
    pub(crate) fn note_owner(&mut self, view: &View, object: Option<ObjectKey>) {
        let Some(object) = object else { return };
        let owner_uid = view.jobs().get(&object).and_then(|job| owner_key_of(&object, job));
        self.unsure.extend(owner_uid.into_iter().chain([object]));
    }

    /// Handles a newer state of a job: if the job's number of pods or its way to request quota has changed, marks the job, and the job that it is a part of,
    /// for a new count of usage beyond quota.
    pub fn note_job(&mut self, view: &View, object: &ObjectKey, job: &JobState) {
        let old = view.jobs().get(object).filter(|old| old.uid == job.uid);
        let asks_otherwise = job.pods > 0 && old.is_none_or(|old| !asks_alike(old, job));
        if old.map_or(0, |old| old.pods) != job.pods || asks_otherwise {
            let owner_uids = [old.and_then(|old| owner_key_of(object, old)), owner_key_of(object, job)];
            self.unsure.extend(owner_uids.into_iter().flatten());
            self.unsure.insert(object.clone());
        }
    }

    /// Handles a job that is gone: marks the job, and the job that it was a part of, for a new count of usage beyond quota.
    pub fn note_gone_job(&mut self, object: &ObjectKey, job: &JobState) {
        self.unsure.extend(owner_key_of(object, job));
        self.unsure.insert(object.clone());
    }

    /// Handles a Workload that is gone: marks the Workload's job for a new count of usage beyond quota.
    pub fn note_gone_workload(&mut self, view: &View, old: &WorkloadView) {
        self.note_holder(view, Some(old));
    }

    /// Handles a newer state of a Workload whose state before was `old`: marks the Workload's job for a new count of usage beyond quota if the Workload may
    /// hold other quota now.
    pub fn note_held(&mut self, view: &View, name: &Name, old: Option<&WorkloadView>) {
        let Some(new) = view.workloads().get(name) else { return };
        let same = old.is_some_and(|old| {
            old.stage() == new.stage()
                && old.status.reclaimable_pods == new.status.reclaimable_pods
                && old.queue == new.queue
                && old.owner == new.owner
                && Arc::ptr_eq(&old.shape, &new.shape)
        });
        if !same {
            self.note_holder(view, Some(new));
        }
        if old.is_some_and(|old| old.owner.is_none()) {
            // The Workload has an owner again, so no usage is charged to the Workload itself.
            self.unsure.insert(new.object_key());
        }
    }

    /// Marks a job for a new count of usage beyond quota after pods that no Job counts were created or have gone; `owner_uid` is the uid of the job of which
    /// the pods' Job was a part.
    pub(crate) fn note_left_pods(&mut self, view: &View, owner_uid: &str) {
        let object = view.workloads().owned_by(owner_uid).find_map(WorkloadView::owner_key);
        self.note_owner(view, object);
    }

    /// Marks all running jobs and pods for a new count of usage beyond quota, when this process begins to lead.
    pub fn note_all(&mut self, view: &View) {
        for (object, job) in view.jobs().iter().filter(|(_, job)| job.pods > 0) {
            self.note_gone_job(object, job);
        }
        self.unsure.extend(view.pod_keys(None));
        for odd_pod in view.odd_pods().keys(None) {
            self.note_odd_pod(view, &(odd_pod.namespace, odd_pod.name));
        }
    }

    /// Removes and returns the marked jobs, pods and groups, and then the marked Workloads whose jobs are gone.
    pub fn take_unsure(&mut self) -> impl Iterator<Item = ObjectKey> + use<> {
        let unsure = std::mem::take(&mut self.unsure).into_iter();
        let (workloads, others): (Vec<_>, Vec<_>) = unsure.partition(|object| object.kind == Kind::Workload);
        others.into_iter().chain(workloads)
    }

    /// Stores the usage that was found for a job, pod or group, `None` if nothing runs beyond quota. `outlives` is true if the pods of the charged job outlive
    /// the job: another job may have the name of that job by now.
    pub fn take(
        &mut self,
        object: &ObjectKey,
        found: Option<ExcessUsage>,
        outlives: bool,
        now: Timestamp,
    ) -> OverrunChange {
        let mut old = self.known.remove(object);
        if let Some(charge) = old.as_ref().and_then(|old| old.charge.clone()).filter(|_| outlives) {
            self.outlived.insert(charge.carrier.clone(), charge);
            old = None;
        }
        let mut change = OverrunChange::default();
        let before = old.as_ref().and_then(|old| old.charge.clone());
        let charge = found.as_ref().and_then(|found| found.charge.clone());
        if before != charge {
            let gone = before.filter(|old| charge.as_ref().is_none_or(|new| new.carrier != old.carrier));
            // The charge of a Workload or job does not end if another job, pod or group is charged under the same Workload or job by now.
            let gone = gone.filter(|old| !self.has_carrier(&old.carrier));
            change.charges.extend(gone.as_ref().map(none));
            change.charges.extend(charge.clone());
        }
        let since = old.as_ref().and_then(|old| old.doubled);
        let waited = old.as_ref().is_some_and(Overrun::is_without_quota);
        let Some(found) = found else {
            change.waits_otherwise = waited;
            return change;
        };
        let [runs, held] = found.pods;
        let is_doubled = held > 0 && runs > held.saturating_mul(2);
        let doubled = is_doubled.then(|| since.unwrap_or(now));
        change.is_decided_again = doubled != since;
        let crowded = old.as_ref().is_some_and(|old| old.crowded);
        let overrun = Overrun { charge, pods: found.pods, doubled, crowded };
        change.waits_otherwise = waited != overrun.is_without_quota();
        self.known.insert(object.clone(), overrun);
        change
    }

    /// Whether usage beyond quota is charged to the Workload or job with the given uid.
    fn has_carrier(&self, uid: &str) -> bool {
        let mut charged = self.known.values().filter_map(|overrun| overrun.charge.as_ref());
        charged.any(|charge| charge.carrier == uid) || self.outlived.contains_key(uid)
    }

    /// Asks the engine again whether the ClusterQueues that are charged for usage beyond quota have room, and returns the jobs, pods and groups whose answer
    /// has changed. The cost of asking for room is proportional to all usage beyond quota, and nearly always no job has such usage.
    pub fn look_for_room(&mut self, world: &World) -> Vec<ObjectKey> {
        let mut changed = Vec::new();
        for (object, overrun) in &mut self.known {
            let Some(charge) = &overrun.charge else { continue };
            let crowded = charge.usage.iter().any(|(cell, _)| world.is_overdrawn(&charge.cluster_queue, cell));
            if crowded != overrun.crowded {
                overrun.crowded = crowded;
                changed.push(object.clone());
            }
        }
        changed
    }

    /// Ends the charges of jobs that are gone, if no pod of the job is left, or if the pods that are left have been found and count for the Workload, which
    /// holds quota. Nobody queries the pods of a finished Workload that no job owns. Jobs that are gone nearly always have no charge.
    pub fn end_outlived(&mut self, view: &View, workloads: &WorkloadRecords) -> Vec<BeyondSpec> {
        let is_seen = |workload: &WorkloadView| {
            let is_counted = || workload.holds_quota() && workloads.of(&workload.uid).pods().left().is_some();
            workload.owner.is_none() && (workload.is_finished() || is_counted())
        };
        let has_ended =
            |uid: &String| view.workloads().by_uid(uid).is_none_or(is_seen) || workloads.of(uid).pods().are_gone();
        let ended: Vec<BeyondSpec> =
            self.outlived.extract_if(.., |uid, _| has_ended(uid)).map(|(_, charge)| charge).collect();
        for charge in &ended {
            // When the charge of a job that is gone ends, other pods may still run beyond the quota of its Workload.
            self.note_holder(view, view.workloads().by_uid(&charge.carrier));
        }
        ended.iter().map(none).collect()
    }
}

impl Overrun {
    /// Whether all running pods of the job, pod or group run without quota.
    pub(super) fn is_without_quota(&self) -> bool {
        self.pods[0] > 0 && self.pods[1] == 0
    }
}

/// A charge of zero, which ends the usage beyond quota of a Workload or job in the engine.
fn none(charge: &BeyondSpec) -> BeyondSpec {
    BeyondSpec { usage: Vec::new(), ..charge.clone() }
}

/// The job of which a Job may be a part.
fn owner_key_of(object: &ObjectKey, job: &JobState) -> Option<ObjectKey> {
    let owner = job.owner.as_ref().filter(|_| object.kind == Kind::JOB)?;
    let kind = Kind::of_owner(&owner.kind).filter(|kind| kind.is_made_of_jobs())?;
    Some(key(kind, &(object.namespace.clone(), owner.name.to_string())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use berth_engine::model::{Amount, FlavorResource};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn object() -> ObjectKey {
        key(Kind::JOB, &("team".to_owned(), "a".to_owned()))
    }

    fn charge(pods: i64) -> BeyondSpec {
        let cell = FlavorResource { flavor: "f".into(), resource: "pods".into() };
        BeyondSpec { carrier: "u".into(), cluster_queue: "cq".into(), usage: vec![(cell, Amount::new(pods))] }
    }

    fn usage(runs: i64, held: i64) -> Option<ExcessUsage> {
        Some(ExcessUsage { charge: Some(charge(runs - held)), pods: [runs, held] })
    }

    #[test]
    fn charge_is_sent_on_change_and_ends_with_its_pods() {
        let mut overruns = Overruns::default();
        let mut charges = |found| overruns.take(&object(), found, false, at(0)).charges;
        assert_eq!(charges(usage(3, 2)), [charge(1)]);
        assert!(charges(usage(3, 2)).is_empty());
        assert_eq!(charges(usage(4, 2)), [charge(2)]);
        assert_eq!(charges(None), [none(&charge(2))]);
        assert!(charges(None).is_empty());
    }

    #[test]
    fn job_is_reconciled_when_over_twice_its_pods_run() {
        let mut overruns = Overruns::default();
        let mut again = |found, second| overruns.take(&object(), found, false, at(second)).is_decided_again;
        assert_eq!([again(usage(4, 2), 0), again(usage(5, 2), 1), again(usage(6, 2), 2)], [false, true, false]);
        assert_eq!(overruns.doubled(&object()), Some((at(1), [6, 2])), "since the first look");
    }

    #[test]
    fn workloads_wait_while_pods_run_without_any_quota() {
        let mut overruns = Overruns::default();
        let mut otherwise = |found| overruns.take(&object(), found, false, at(0)).waits_otherwise;
        assert_eq!([otherwise(usage(1, 0)), otherwise(usage(2, 0))], [true, false]);
        assert_eq!([otherwise(usage(2, 1)), otherwise(None)], [true, false]);
        assert_eq!([otherwise(usage(1, 0)), otherwise(None)], [true, true]);
    }

    #[test]
    fn charge_that_outlives_its_job_is_ended_once() {
        let mut overruns = Overruns::default();
        overruns.take(&object(), usage(1, 0), false, at(0));
        assert!(overruns.take(&object(), None, true, at(1)).charges.is_empty());
        let mut ended = || overruns.end_outlived(&View::default(), &WorkloadRecords::default());
        assert_eq!((ended(), ended()), (vec![none(&charge(1))], Vec::new()));
    }
}
