//! Who stands before whom among those who wait, and what waiting is worth.

use std::cmp::Reverse;

use crate::model::Millis;
use crate::queue::tie::Tie;
use crate::world::store::Workload;

const HOUR_MS: i64 = 3_600_000;

/// Order in a queue: higher standing, capacity taken away before, older, then the last word between equals.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) standing: Reverse<i64>,
    pub(crate) at_front: Reverse<bool>,
    pub(crate) queued_at: Millis,
    pub(crate) tie: Tie,
}

impl Workload {
    pub(crate) fn key(&self) -> Key {
        Key {
            standing: Reverse(self.standing()),
            at_front: Reverse(self.at_front),
            queued_at: self.queued_at,
            tie: self.tie.clone(),
        }
    }

    /// Its priority; where waiting counts, the one that it would have to begin with at the epoch, in points of a millisecond of
    /// waiting. All who wait gain as much in the same time, so that who is before whom does not change while they wait.
    fn standing(&self) -> i64 {
        let priority = self.priority;
        match i64::from(self.points_per_hour) {
            0 => priority,
            points => priority.saturating_mul(HOUR_MS).saturating_sub(self.waits_since.0.saturating_mul(points)),
        }
    }

    /// Its priority with what it has gained by waiting.
    pub(crate) fn priority_at(&self, now: Millis) -> i64 {
        let waited = now.0.saturating_sub(self.waits_since.0).max(0);
        self.priority.saturating_add(waited.saturating_mul(i64::from(self.points_per_hour)) / HOUR_MS)
    }
}
