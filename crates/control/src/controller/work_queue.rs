//! Objects to decide about, at once or at a set time, and whether the engine is asked for a plan.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::write::ObjectKey;

/// Pause between two sweeps over parked workloads.
const SWEEP_MS: i64 = 30_000;

/// Work for the next steps.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    /// Objects to decide about with the next step.
    marked: BTreeSet<ObjectKey>,
    /// Objects to decide about from a time on. A time without objects ends the pause between two steps.
    timers: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    /// The engine is asked for a plan with the next step.
    plan: bool,
    next_sweep: Option<Timestamp>,
}

impl Default for WorkQueue {
    /// A queue without objects, whose first step asks for a plan.
    fn default() -> Self {
        Self { marked: BTreeSet::new(), timers: BTreeMap::new(), plan: true, next_sweep: None }
    }
}

impl WorkQueue {
    pub(crate) fn add(&mut self, object: ObjectKey) {
        self.marked.insert(object);
    }

    pub(crate) fn extend(&mut self, objects: impl IntoIterator<Item = ObjectKey>) {
        self.marked.extend(objects);
    }

    pub(crate) fn remove(&mut self, object: &ObjectKey) {
        self.marked.remove(object);
    }

    /// The first of the marked objects, which is marked no longer.
    pub(crate) fn pop(&mut self) -> Option<ObjectKey> {
        self.marked.pop_first()
    }

    /// Forgets the marked objects. Timers and the plan stay.
    pub(crate) fn clear(&mut self) {
        self.marked.clear();
    }

    /// Marks an object at a time to come.
    pub(crate) fn add_at(&mut self, object: ObjectKey, at: Timestamp) {
        self.timers.entry(at).or_default().insert(object);
    }

    /// Asks for a step at a time to come.
    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.timers.entry(at).or_default();
    }

    /// When the next timer or sweep is due.
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        self.timers.keys().next().copied().into_iter().chain(self.next_sweep).min()
    }

    /// The objects of the first timer that is due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<BTreeSet<ObjectKey>> {
        let entry = self.timers.first_entry().filter(|entry| *entry.key() <= now)?;
        Some(entry.remove())
    }

    pub(crate) fn plan_again(&mut self) {
        self.plan = true;
    }

    pub(crate) fn wants_plan(&self) -> bool {
        self.plan
    }

    /// A plan was made, after which another one is wanted or not.
    pub(crate) fn planned(&mut self, again: bool) {
        self.plan = again;
    }

    /// `None` while no sweep is due, else whether it is a sweep after the first one; the next one is due after the pause.
    pub(crate) fn begin_sweep(&mut self, now: Timestamp) -> Option<bool> {
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
    use crate::write::Kind;

    fn object(name: &str) -> ObjectKey {
        ObjectKey { kind: Kind::Workload, namespace: "team".into(), name: name.into() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap_or_default()
    }

    #[test]
    fn object_of_a_timer_is_taken_when_the_timer_is_due() {
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
}
