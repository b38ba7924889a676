//! When queue statuses are written: at once after a quiet second, else at most every five seconds while they keep changing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::write::ObjectKey;

const QUIET_MS: i64 = 1_000;
const LONGEST_MS: i64 = 5_000;

/// Due times of statuses.
#[derive(Debug, Default)]
pub(crate) struct QueueSchedule {
    due: BTreeMap<ObjectKey, Due>,
    by_time: BTreeSet<(Timestamp, ObjectKey)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    first: Timestamp,
    at: Timestamp,
}

fn after(time: Timestamp, ms: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_millis(ms)).unwrap_or(time)
}

impl QueueSchedule {
    /// The object's figures changed.
    pub(crate) fn mark(&mut self, key: ObjectKey, now: Timestamp) {
        let first = match self.due.remove(&key) {
            Some(due) => {
                self.by_time.remove(&(due.at, key.clone()));
                due.first
            }
            None => now,
        };
        let at = after(now, QUIET_MS).min(after(first, LONGEST_MS));
        self.by_time.insert((at, key.clone()));
        self.due.insert(key, Due { first, at });
    }

    /// The next object whose time has come; `unpaced` does not wait for it.
    pub(crate) fn next(&mut self, now: Timestamp, unpaced: bool) -> Option<ObjectKey> {
        let (at, _) = self.by_time.first()?;
        if *at > now && !unpaced {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}
