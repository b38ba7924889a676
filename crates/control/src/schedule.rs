//! When queue statuses are written: at once after a quiet second, else at most every five seconds while they keep changing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::core::after;
use crate::write::ObjectKey;

const QUIET_MS: i64 = 1_000;
const LONGEST_MS: i64 = 5_000;

/// Due times of statuses.
#[derive(Debug, Default)]
pub(crate) struct QueueSchedule {
    due: BTreeMap<ObjectKey, Due>,
    /// When to look at an object: not later than its due time, which marks move on without moving this.
    by_time: BTreeSet<(Timestamp, ObjectKey)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    first: Timestamp,
    at: Timestamp,
}

impl QueueSchedule {
    /// The object's figures changed.
    pub(crate) fn mark(&mut self, key: ObjectKey, now: Timestamp) {
        if let Some(due) = self.due.get_mut(&key) {
            due.at = after(now, QUIET_MS).min(after(due.first, LONGEST_MS));
            return;
        }
        let at = after(now, QUIET_MS);
        self.by_time.insert((at, key.clone()));
        self.due.insert(key, Due { first: now, at });
    }

    /// The next object whose time has come; `unpaced` does not wait for it.
    pub(crate) fn next(&mut self, now: Timestamp, unpaced: bool) -> Option<ObjectKey> {
        loop {
            let (at, _) = self.by_time.first()?;
            if *at > now && !unpaced {
                return None;
            }
            let (_, key) = self.by_time.pop_first()?;
            match self.due.get(&key) {
                Some(due) if due.at > now && !unpaced => drop(self.by_time.insert((due.at, key))),
                _ => {
                    self.due.remove(&key);
                    return Some(key);
                }
            }
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::write::Kind;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap()
    }

    /// When an object that is marked at these times is due.
    fn due(marks: &[i64]) -> Vec<i64> {
        let key = ObjectKey { kind: Kind::ClusterQueue, namespace: String::new(), name: "q".into() };
        let (mut schedule, mut due) = (QueueSchedule::default(), Vec::new());
        for ms in 0..20_000 {
            if marks.contains(&ms) {
                schedule.mark(key.clone(), at(ms));
            }
            assert!(schedule.due.is_empty() || schedule.wake_at().is_some(), "a due object is looked at");
            if schedule.next(at(ms), false).is_some() {
                due.push(ms);
            }
        }
        due
    }

    #[test]
    fn after_a_quiet_second_or_every_five() {
        assert_eq!(due(&[0]), [1_000]);
        assert_eq!(due(&[0, 900]), [1_900]);
        assert_eq!(due(&[0, 1_500]), [1_000, 2_500]);
        let always: Vec<i64> = (0..=10_000).step_by(100).collect();
        assert_eq!(due(&always), [5_000, 10_100]);
    }
}
