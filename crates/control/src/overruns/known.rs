//! Usage beyond quota that is known, and the jobs, pods and groups whose usage is not known any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_engine::World;
use berth_engine::model::BeyondSpec;
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::jobs::asks_alike;
use crate::cache::{Name, View, WorkloadView};
use crate::notes::WorkloadRecords;
use crate::write::{Kind, ObjectKey, key};

/// All usage beyond quota that is known.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    /// Jobs, pods and groups that were seen to change since they were looked at.
    pub(super) unsure: BTreeSet<ObjectKey>,
    /// Jobs, pods and groups that run more than their Workloads hold.
    pub(super) known: BTreeMap<ObjectKey, Overrun>,
    /// Charges of jobs that are gone, by the uid of their Workload, which is kept until their pods have ended.
    pub(super) outlived: BTreeMap<String, BeyondSpec>,
}

/// Usage beyond quota of one job, pod or group.
#[derive(Debug)]
pub(super) struct Overrun {
    /// The charge in the engine; `None` if no queue is known for it.
    pub(super) charge: Option<BeyondSpec>,
    /// Number of pods that run, and number of pods for which quota is held.
    pods: [i64; 2],
    /// Time since when more than twice as many run.
    doubled: Option<Timestamp>,
    /// The queue that is charged has no room for all of it, as the engine said last.
    pub(super) crowded: bool,
}

/// Usage beyond quota of one job, pod or group, as the view shows it.
#[derive(Debug)]
pub(crate) struct ExcessUsage {
    /// The charge in the engine; `None` if no queue is known for it.
    pub(crate) charge: Option<BeyondSpec>,
    /// Number of pods that run, and number of pods for which quota is held.
    pub(crate) pods: [i64; 2],
}

/// Effects of a look at a job, pod or group.
#[derive(Debug, Default)]
pub(crate) struct OverrunChange {
    /// Charges that the engine is to get.
    pub(crate) charges: Vec<BeyondSpec>,
    /// More than twice as many pods run as quota is held for, and did not before, or the other way round.
    pub(crate) is_decided_again: bool,
    /// Its pods have begun, or ceased, to run without any quota: its Workloads are tried, or not, by that.
    pub(crate) waits_otherwise: bool,
}

impl Overruns {
    /// Time since when a job runs more than twice the pods for which it holds quota, with both numbers.
    pub(crate) fn doubled(&self, object: &ObjectKey) -> Option<(Timestamp, [i64; 2])> {
        let overrun = self.known.get(object)?;
        Some((overrun.doubled?, overrun.pods))
    }

    /// A pod that no Job answers for is seen anew, or is about to be forgotten: the job beside which it runs is looked at.
    pub(crate) fn note_stray(&mut self, view: &View, name: &Name) {
        let workload = view.odd_pods.get(name).and_then(|odd| view.workload_of_odd(&name.0, odd));
        self.note_holder(view, workload);
    }

    /// Has the job of a Workload looked at, or the Workload itself if its job is gone.
    fn note_holder(&mut self, view: &View, workload: Option<&WorkloadView>) {
        let holder = |workload: &WorkloadView| workload.whole().unwrap_or_else(|| workload.object_key());
        self.note_whole(view, workload.map(holder));
    }

    /// A queue has come or changed: usage beyond quota may be charged to another one now.
    pub(crate) fn charge_again(&mut self) {
        self.unsure.extend(self.known.keys().cloned());
    }

    /// True where the queue of a job, pod or group has room for all that it is charged with; `None` if nothing runs beyond quota.
    pub(crate) fn has_room(&self, object: &ObjectKey) -> Option<bool> {
        self.known.get(object).map(|overrun| overrun.charge.is_some() && !overrun.crowded)
    }

    /// Has a job, a pod or a group looked at.
    pub(crate) fn note(&mut self, object: ObjectKey) {
        self.unsure.insert(object);
    }

    /// Has a job looked at, and the job that it is a part of.
    pub(crate) fn note_whole(&mut self, view: &View, object: Option<ObjectKey>) {
        let Some(object) = object else { return };
        let whole = view.jobs.get(&object).and_then(|job| whole_of(&object, job));
        self.unsure.extend(whole.into_iter().chain([object]));
    }

    /// After a new version of a job: if its number of pods or its way to request quota has changed, marks it, and the job that it is a part of, for
    /// a new count.
    pub(crate) fn note_job(&mut self, view: &View, object: &ObjectKey, job: &JobState) {
        let old = view.jobs.get(object).filter(|old| old.uid == job.uid);
        let asks_otherwise = job.pods > 0 && old.is_none_or(|old| !asks_alike(old, job));
        if old.map_or(0, |old| old.pods) != job.pods || asks_otherwise {
            let wholes = [old.and_then(|old| whole_of(object, old)), whole_of(object, job)];
            self.unsure.extend(wholes.into_iter().flatten());
            self.unsure.insert(object.clone());
        }
    }

    /// After a job is gone: marks it, and the job that it was a part of, for a new count of usage beyond quota.
    pub(crate) fn note_gone_job(&mut self, object: &ObjectKey, job: &JobState) {
        self.unsure.extend(whole_of(object, job));
        self.unsure.insert(object.clone());
    }

    /// A Workload is gone.
    pub(crate) fn note_gone_workload(&mut self, view: &View, old: &WorkloadView) {
        self.note_holder(view, Some(old));
    }

    /// A Workload was seen after `old`: it may hold other quota now.
    pub(crate) fn note_held(&mut self, view: &View, name: &Name, old: Option<&WorkloadView>) {
        let Some(new) = view.workloads.get(name) else { return };
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
            // The Workload has its job back.
            self.unsure.insert(new.object_key());
        }
    }

    /// Pods that no Job counts any more have come or gone: the job with this uid is looked at, of which their Job was a part.
    pub(crate) fn note_left_pods(&mut self, view: &View, whole: &str) {
        let object = view.workloads.owned_by(whole).find_map(WorkloadView::whole);
        self.note_whole(view, object);
    }

    /// A process that comes to lead looks at everything that runs.
    pub(crate) fn note_all(&mut self, view: &View) {
        for (object, job) in view.jobs.iter().filter(|(_, job)| job.pods > 0) {
            self.note_gone_job(object, job);
        }
        self.unsure.extend(view.pod_keys(None));
        for stray in view.odd_pods.keys(None) {
            self.note_stray(view, &(stray.namespace, stray.name));
        }
    }

    /// The jobs, pods and groups to look at, and then the Workloads whose jobs are gone; they are marked no longer.
    pub(crate) fn take_unsure(&mut self) -> impl Iterator<Item = ObjectKey> + use<> {
        let unsure = std::mem::take(&mut self.unsure).into_iter();
        let (workloads, others): (Vec<_>, Vec<_>) = unsure.partition(|object| object.kind == Kind::Workload);
        others.into_iter().chain(workloads)
    }

    /// Takes the usage that was found for a job, pod or group, `None` if it runs nothing beyond quota. `outlives` is true where the pods of the job
    /// that was charged outlive it: another job may have its name by now.
    pub(crate) fn take(
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
            // A job that takes its Workload back is charged for it instead.
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

    /// Whether usage is charged to that Workload or job.
    fn has_carrier(&self, uid: &str) -> bool {
        let mut charged = self.known.values().filter_map(|overrun| overrun.charge.as_ref());
        charged.any(|charge| charge.carrier == uid) || self.outlived.contains_key(uid)
    }

    /// Asks the engine anew whether the queues that are charged have room, and names the jobs, pods and groups for which that has changed. Costs all
    /// usage beyond quota: nearly always nothing.
    pub(crate) fn look_for_room(&mut self, world: &World) -> Vec<ObjectKey> {
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

    /// Ends the charges of jobs that are gone, where no pod of them is left, or where these were looked for since and are counted. Nearly always there
    /// is none.
    pub(crate) fn end_outlived(&mut self, view: &View, workloads: &WorkloadRecords) -> Vec<BeyondSpec> {
        let is_seen =
            |workload: &WorkloadView| workload.owner.is_none() && workloads.of(&workload.uid).pods().left().is_some();
        let has_ended =
            |uid: &String| view.workloads.by_uid(uid).is_none_or(is_seen) || workloads.of(uid).pods().are_gone();
        let ended: Vec<BeyondSpec> =
            self.outlived.extract_if(.., |uid, _| has_ended(uid)).map(|(_, charge)| charge).collect();
        for charge in &ended {
            // Other pods may run beside its quota still.
            self.note_holder(view, view.workloads.by_uid(&charge.carrier));
        }
        ended.iter().map(none).collect()
    }
}

impl Overrun {
    pub(super) fn is_without_quota(&self) -> bool {
        self.pods[0] > 0 && self.pods[1] == 0
    }
}

/// The charge of a carrier for which nothing runs any more.
fn none(charge: &BeyondSpec) -> BeyondSpec {
    BeyondSpec { usage: Vec::new(), ..charge.clone() }
}

/// The job of which a Job may be a part.
fn whole_of(object: &ObjectKey, job: &JobState) -> Option<ObjectKey> {
    let owner = job.owner.as_ref().filter(|_| object.kind == Kind::JOB)?;
    let kind = Kind::of_whole(&owner.kind).filter(|kind| kind.is_made_of_jobs())?;
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
    fn charge_is_passed_on_when_it_changes_and_ended_with_its_pods() {
        let mut overruns = Overruns::default();
        let mut charges = |found| overruns.take(&object(), found, false, at(0)).charges;
        assert_eq!(charges(usage(3, 2)), [charge(1)]);
        assert!(charges(usage(3, 2)).is_empty());
        assert_eq!(charges(usage(4, 2)), [charge(2)]);
        assert_eq!(charges(None), [none(&charge(2))]);
        assert!(charges(None).is_empty());
    }

    #[test]
    fn job_is_decided_again_when_more_than_twice_as_many_pods_run() {
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
