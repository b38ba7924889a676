//! The order of pending workloads in a queue, and the points for waiting.

use std::cmp::Reverse;

use crate::model::Millis;
use crate::queue::key::Key;
use crate::world::store::Workload;

const HOUR_MS: i64 = 3_600_000;

impl Workload {
    pub(crate) fn key(&self) -> Key {
        Key {
            order_value: Reverse(self.order_value()),
            at_front: Reverse(self.at_front),
            queued_at: self.queued_at,
            tie: self.tie.clone(),
        }
    }

    /// The number by which the queue is ordered: the priority; if points for waiting count, the priority that the workload would have had at the epoch, times
    /// the milliseconds of an hour. All pending workloads of a queue gain the same points in the same time, so their order does not change while they wait.
    fn order_value(&self) -> i64 {
        let priority = self.priority;
        match i64::from(self.points_per_hour) {
            0 => priority,
            points => priority.saturating_mul(HOUR_MS).saturating_sub(self.waits_since.0.saturating_mul(points)),
        }
    }

    /// The priority of the workload, with the points for waiting until `now`.
    pub(crate) fn priority_at(&self, now: Millis) -> i64 {
        let waited = now.0.saturating_sub(self.waits_since.0).max(0);
        self.priority.saturating_add(waited.saturating_mul(i64::from(self.points_per_hour)) / HOUR_MS)
    }
}
