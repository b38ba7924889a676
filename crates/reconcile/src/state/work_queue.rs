//! Objects to decide about at once, at a set time or after another object, and Workloads that the engine is to get again.

use std::collections::{BTreeMap, BTreeSet};

use berth_cache::names::Name;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::write::{Kind, ObjectKey};

/// Pause in milliseconds between two sweeps over parked Workloads.
const SWEEP_MS: i64 = 30_000;

/// The objects that the next steps decide about.
#[derive(Debug, Default)]
pub struct WorkQueue {
    /// Objects to decide about with the next step.
    marked: BTreeSet<ObjectKey>,
    /// Objects to decide about from a time on. A timer without objects only makes a step of control due.
    timers: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    /// Waiting objects by the busy object that they are to write to or depend on.
    blocked: FxHashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Objects whose status may have to be written.
    statuses: BTreeSet<ObjectKey>,
    /// True if a CheckpointStore was observed, so that checkpoints are decided about.
    has_stores: bool,
    /// Workloads that the engine is to get in their present state, in the order of their changes.
    stale: Vec<Name>,
    next_sweep: Option<Timestamp>,
}

impl WorkQueue {
    /// Marks an object for a decision with the next step.
    pub fn add(&mut self, object: ObjectKey) {
        self.marked.insert(object);
    }

    /// Marks an object for a decision, because the object was observed to change. For a TrainingJob, its status and its checkpoints are marked, too.
    pub fn touch(&mut self, object: ObjectKey) {
        if object.kind == Kind::TrainingJob {
            self.statuses.insert(object.clone());
            if self.has_stores {
                self.add(ObjectKey { kind: Kind::Checkpoints, ..object.clone() });
            }
        }
        self.add(object);
    }

    /// Notes whether any CheckpointStore exists.
    pub(crate) fn note_stores(&mut self, any: bool) {
        self.has_stores = any;
    }

    /// Marks an object whose status may have to be written.
    pub fn touch_status(&mut self, object: ObjectKey) {
        self.statuses.insert(object);
    }

    /// Removes and returns the objects whose status may have to be written.
    pub fn take_statuses(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.statuses)
    }

    /// Has the engine get a Workload in its present state.
    pub fn mirror(&mut self, workload: Name) {
        self.stale.push(workload);
    }

    /// Removes and returns the Workloads that the engine is to get again, in the order of their changes.
    pub fn take_stale(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.stale)
    }

    /// Has `waiting` marked again once `object` has changed or is no longer busy.
    pub fn block(&mut self, object: ObjectKey, waiting: ObjectKey) {
        self.blocked.entry(object).or_default().insert(waiting);
    }

    /// Marks for a decision the objects that wait for `object`.
    pub(crate) fn unblock(&mut self, object: &ObjectKey) {
        let waiting = self.blocked.remove(object).unwrap_or_default();
        self.extend(waiting);
    }

    /// Forgets waiting objects that no longer exist.
    pub fn forget_gone(&mut self, is_there: impl Fn(&ObjectKey) -> bool) {
        self.blocked.retain(|_, waiting| {
            waiting.retain(&is_there);
            !waiting.is_empty()
        });
    }

    /// Marks objects for a decision with the next step.
    pub fn extend(&mut self, objects: impl IntoIterator<Item = ObjectKey>) {
        self.marked.extend(objects);
    }

    /// Removes the mark of an object.
    pub fn remove(&mut self, object: &ObjectKey) {
        self.marked.remove(object);
    }

    /// Removes and returns the first marked object.
    pub fn pop(&mut self) -> Option<ObjectKey> {
        self.marked.pop_first()
    }

    /// Forgets the marks that a new leader sets again: the marked objects, and the statuses of TrainingJobs. The timers of the work queue stay.
    pub fn clear(&mut self) {
        self.marked.clear();
        self.statuses.retain(|object| object.kind != Kind::TrainingJob);
    }

    /// Marks an object for a decision at a later time.
    pub fn add_at(&mut self, object: ObjectKey, at: Timestamp) {
        self.timers.entry(at).or_default().insert(object);
    }

    /// Makes a step due at a later time.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.timers.entry(at).or_default();
    }

    /// The time at which the next timer or sweep is due.
    pub fn next_time(&self) -> Option<Timestamp> {
        self.timers.keys().next().copied().into_iter().chain(self.next_sweep).min()
    }

    /// Removes and returns the objects of the first timer that is due.
    pub fn take_due(&mut self, now: Timestamp) -> Option<BTreeSet<ObjectKey>> {
        let entry = self.timers.first_entry().filter(|entry| *entry.key() <= now)?;
        Some(entry.remove())
    }

    /// Begins a sweep over parked Workloads, and the pause before the next sweep; `None` if no sweep is due, otherwise whether an earlier sweep was made.
    pub fn begin_sweep(&mut self, now: Timestamp) -> Option<bool> {
        if self.next_sweep.is_some_and(|at| at > now) {
            return None;
        }
        let next = now.checked_add(SignedDuration::from_millis(SWEEP_MS)).ok();
        Some(std::mem::replace(&mut self.next_sweep, next).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectKey {
        ObjectKey { kind: Kind::Workload, namespace: "team".into(), name: name.into() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap_or_default()
    }

    #[test]
    fn object_is_taken_when_its_timer_is_due() {
        let mut work = WorkQueue::default();
        work.add_at(object("b"), at(20));
        work.add_at(object("a"), at(10));
        work.wake_at(at(30));
        assert_eq!((work.next_time(), work.take_due(at(9))), (Some(at(10)), None));
        assert_eq!(work.take_due(at(20)), Some(BTreeSet::from([object("a")])));
        assert_eq!(work.take_due(at(20)), Some(BTreeSet::from([object("b")])));
        assert_eq!((work.take_due(at(20)), work.next_time()), (None, Some(at(30))));
    }

    #[test]
    fn sweep_is_due_at_once_and_then_after_each_pause() {
        let mut work = WorkQueue::default();
        assert_eq!(work.begin_sweep(at(0)), Some(false));
        assert_eq!((work.begin_sweep(at(29)), work.next_time()), (None, Some(at(30))));
        assert_eq!(work.begin_sweep(at(30)), Some(true));
    }

    #[test]
    fn touched_training_job_marks_its_status_and_its_checkpoints() {
        let job = ObjectKey { kind: Kind::TrainingJob, ..object("a") };
        let checkpoints = ObjectKey { kind: Kind::Checkpoints, ..object("a") };
        let mut work = WorkQueue::default();
        let mut touched = |any_store| {
            work.note_stores(any_store);
            work.touch(job.clone());
            let marked: BTreeSet<ObjectKey> = std::iter::from_fn(|| work.pop()).collect();
            (marked, work.take_statuses())
        };
        assert_eq!(touched(false), (BTreeSet::from([job.clone()]), BTreeSet::from([job.clone()])));
        assert_eq!(touched(true), (BTreeSet::from([job.clone(), checkpoints]), BTreeSet::from([job.clone()])));
    }

    /// A process that does not lead keeps the marks that a new leader could not find again.
    #[test]
    fn cleared_queue_keeps_queue_statuses_and_waiting_objects() {
        let queue = ObjectKey { kind: Kind::ClusterQueue, ..object("q") };
        let mut work = WorkQueue::default();
        work.touch(ObjectKey { kind: Kind::TrainingJob, ..object("a") });
        work.touch_status(queue.clone());
        work.block(object("busy"), object("waits"));
        work.clear();
        assert_eq!((work.pop(), work.take_statuses()), (None, BTreeSet::from([queue])));
        work.unblock(&object("busy"));
        assert_eq!((work.pop(), work.pop()), (Some(object("waits")), None));
    }

    #[test]
    fn changed_workloads_reach_engine_in_order_of_change() {
        let name = |name: &str| ("team".to_owned(), name.to_owned());
        let mut work = WorkQueue::default();
        for workload in ["b", "a", "b"] {
            work.mirror(name(workload));
        }
        assert_eq!(work.take_stale(), ["b", "a", "b"].map(name));
        assert!(work.take_stale().is_empty());
    }
}
