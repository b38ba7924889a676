//! Trials of let-in pods, which run without a review because Berth did not answer when they were created. A let-in pod is marked as managed, is charged to its
//! ClusterQueue at once, and gets a short trial. A pod that gets no quota within its trial is stopped (`docs/departures/0064-pods-let-in-without-a-review.md`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use berth_cache::moments::after;
use berth_cache::names::Name;
use berth_jobs::pods::PodState;
use jiff::Timestamp;

/// Duration of a trial in milliseconds, from the first observation of the pod by a leader. The writes before an admission (the mark, the Workload, the
/// reservation) take one round trip each, and a plan takes some milliseconds. Usage beyond quota of a let-in pod may last ten seconds: five seconds of trial,
/// and five seconds for the end of the pod.
const TRIAL_MS: i64 = 5_000;
/// Duration in milliseconds of a trial while the ClusterQueue of the let-in pod has room for everything that it is charged with. The longer trial in a
/// ClusterQueue with room does no harm, because no pod runs beyond quota, and after an outage many writes may wait for a busy API server.
const TRIAL_WITH_ROOM_MS: i64 = 60_000;
/// Time in milliseconds for which the beginning of a trial is remembered after the pod was last observed, so that a pod that disappears by a change of its
/// labels gets no second trial.
const KEPT_MS: i64 = 120_000;

/// The beginnings of trials, by the uid of the pod. The beginnings of trials are kept only in memory, so a new leader begins each trial anew.
#[derive(Debug, Default)]
pub struct Trials(BTreeMap<Box<str>, Timestamp>);

impl Trials {
    /// Forgets all trials.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the trial of a pod is over; `has_room` selects the longer duration, for a ClusterQueue with room.
    pub(super) fn is_over(&self, pod: &PodState, now: Timestamp, has_room: bool) -> bool {
        let time = if has_room { TRIAL_WITH_ROOM_MS } else { TRIAL_MS };
        self.0.get(&pod.uid).is_some_and(|began| after(*began, time) <= now)
    }

    /// Whether no trial is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins the trials of newly observed pods, and forgets the trials of pods that are gone. The result of `begin` has the times at which the new trials end.
    pub fn begin(&mut self, tried: Vec<(Name, Box<str>)>, now: Timestamp) -> Vec<(Name, Timestamp)> {
        let there: BTreeSet<&str> = tried.iter().map(|(_, uid)| &**uid).collect();
        self.0.retain(|uid, began| there.contains(&**uid) || after(*began, KEPT_MS) > now);
        let mut ends = Vec::new();
        for (name, uid) in tried {
            if let Entry::Vacant(trial) = self.0.entry(uid) {
                trial.insert(now);
                ends.extend([TRIAL_MS, TRIAL_WITH_ROOM_MS].map(|time| (name.clone(), after(now, time))));
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn pod(name: &str) -> (Name, Box<str>) {
        (("team".to_owned(), name.to_owned()), name.into())
    }

    #[test]
    fn pod_trial_begins_once_with_two_deadlines() {
        let mut trials = Trials::default();
        let ends: Vec<Timestamp> = trials.begin(vec![pod("a")], at(0)).into_iter().map(|(_, end)| end).collect();
        assert_eq!(ends, [at(5), at(60)]);
        let ends = trials.begin(vec![pod("a"), pod("b")], at(3));
        assert!(ends.len() == 2 && ends.iter().all(|(name, _)| name.1 == "b"), "{ends:?}");
    }

    #[test]
    fn trial_of_unseen_pod_is_remembered_for_two_minutes() {
        let mut trials = Trials::default();
        trials.begin(vec![pod("a")], at(0));
        assert!(trials.begin(Vec::new(), at(119)).is_empty() && !trials.is_empty());
        trials.begin(Vec::new(), at(120));
        assert!(trials.is_empty());
    }
}
