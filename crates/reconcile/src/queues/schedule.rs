//! The times of queue status writes: a status is written after one second without changes, and at most every five seconds while the status keeps changing.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use berth_cache::View;
use berth_cache::moments::after;
use berth_engine::Changed;
use hashbrown::HashTable;
use jiff::Timestamp;
use rustc_hash::FxBuildHasher;

use crate::write::{Kind, ObjectKey};

const QUIET_MS: i64 = 1_000;
const LONGEST_MS: i64 = 5_000;

/// The times at which statuses are due.
#[derive(Debug, Default)]
pub struct QueueSchedule {
    /// The due times by key. The table of due times has no order, and no code iterates over the table.
    due: HashTable<(ObjectKey, Due)>,
    /// The times at which each object is looked at next. The time at which an object is looked at is not later than its due time; a further mark postpones the
    /// object's due time and leaves the time of the look unchanged.
    by_time: BTreeSet<(Timestamp, ObjectKey)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    first: Timestamp,
    at: Timestamp,
}

fn hash(kind: Kind, namespace: &str, name: &str) -> u64 {
    FxBuildHasher.hash_one((kind, namespace, name))
}

fn hash_of((key, _): &(ObjectKey, Due)) -> u64 {
    hash(key.kind, &key.namespace, &key.name)
}

impl QueueSchedule {
    /// Marks for a write the statuses of the objects whose figures changed in the engine, and of the QueuePolicies of the ClusterQueues among these objects.
    /// `shares` is true if statuses show fair shares, which depend on lending and usage in the complete cohort tree.
    pub fn mark_changed(&mut self, view: &View, changed: Changed, shares: bool, now: Timestamp) {
        for name in changed.cluster_queues {
            for policy in view.claims().get(&*name).iter().flat_map(|claim| &claim.of) {
                self.mark(Kind::QueuePolicy, "", policy, now);
            }
            self.mark(Kind::ClusterQueue, "", &name, now);
        }
        for (namespace, name) in changed.local_queues {
            self.mark(Kind::LocalQueue, &namespace, &name, now);
        }
        for name in changed.cohorts.iter().filter(|_| shares) {
            self.mark(Kind::Cohort, "", name, now);
        }
    }

    /// Marks for a write the status of an object whose figures changed; `namespace` is empty for kinds without namespaces.
    pub(crate) fn mark(&mut self, kind: Kind, namespace: &str, name: &str, now: Timestamp) {
        let hash = hash(kind, namespace, name);
        // Most marked objects are marked already, and the names of such an object are not copied again.
        let is_it = |(key, _): &(ObjectKey, Due)| key.kind == kind && key.name == name && key.namespace == namespace;
        if let Some((_, due)) = self.due.find_mut(hash, is_it) {
            due.at = after(now, QUIET_MS).min(after(due.first, LONGEST_MS));
            return;
        }
        let key = ObjectKey { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let at = after(now, QUIET_MS);
        self.by_time.insert((at, key.clone()));
        self.due.insert_unique(hash, (key, Due { first: now, at }), hash_of);
    }

    /// Marks for a write the status of the object with a key.
    pub fn mark_key(&mut self, key: &ObjectKey, now: Timestamp) {
        self.mark(key.kind, &key.namespace, &key.name, now);
    }

    /// The next object that is due; with `unpaced`, the next object whether it is due or not.
    pub fn next(&mut self, now: Timestamp, unpaced: bool) -> Option<ObjectKey> {
        loop {
            let (at, _) = self.by_time.first()?;
            if *at > now && !unpaced {
                return None;
            }
            let (_, key) = self.by_time.pop_first()?;
            let hash = hash(key.kind, &key.namespace, &key.name);
            match self.due.find_entry(hash, |(other, _)| *other == key) {
                Ok(entry) if entry.get().1.at > now && !unpaced => drop(self.by_time.insert((entry.get().1.at, key))),
                Ok(entry) => {
                    drop(entry.remove());
                    return Some(key);
                }
                Err(_) => return Some(key),
            }
        }
    }

    /// The earliest time at which [`Self::next`] looks at an object, which may then be due or postponed; `None` if no object is marked.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap()
    }

    /// The times at which the status of an object is due if the object is marked at the times `marks`.
    fn due(marks: &[i64]) -> Vec<i64> {
        let (mut schedule, mut due) = (QueueSchedule::default(), Vec::new());
        for ms in 0..20_000 {
            if marks.contains(&ms) {
                schedule.mark(Kind::ClusterQueue, "", "q", at(ms));
            }
            assert!(schedule.due.is_empty() || schedule.wake_at().is_some(), "a due object is looked at");
            if schedule.next(at(ms), false).is_some() {
                due.push(ms);
            }
        }
        due
    }

    #[test]
    fn queue_status_is_due_after_quiet_second_or_five_seconds() {
        assert_eq!(due(&[0]), [1_000]);
        assert_eq!(due(&[0, 900]), [1_900]);
        assert_eq!(due(&[0, 1_500]), [1_000, 2_500]);
        let always: Vec<i64> = (0..=10_000).step_by(100).collect();
        assert_eq!(due(&always), [5_000, 10_100]);
    }
}
