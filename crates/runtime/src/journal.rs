//! Log lines about capacity tiers: a line for each workload that is admitted to one or leaves it, within a rate. Lines beyond the rate are
//! only counted: metrics and events have the rest.

use crate::rate::Bucket;
use berth_control::measure::{TierMove, TierStep};
use tokio::time::Instant;

/// Lines at once.
const BURST: f64 = 200.0;
/// Lines a second in the long run.
const RATE: f64 = 20.0;

/// The lines, and how many were left out since the last one.
pub(crate) struct Journal {
    bucket: Bucket,
    left_out: u64,
}

impl Journal {
    pub(crate) fn new(now: Instant) -> Self {
        Self { bucket: Bucket::new(Some(RATE), BURST, now), left_out: 0 }
    }

    /// Writes the line, where there is room for it.
    pub(crate) fn tell(&mut self, moved: &TierMove, now: Instant) {
        let Some(left_out) = self.room(now) else { return };
        if left_out > 0 {
            tracing::info!(left_out, "lines about capacity tiers were left out");
        }
        let TierMove { namespace, workload, cluster_queue, tier, flavors, what } = moved;
        match what {
            TierStep::Admitted { waited } => tracing::info!(
                namespace,
                workload,
                cluster_queue,
                tier,
                flavors,
                waited_seconds = waited,
                "admitted to a capacity tier"
            ),
            TierStep::Left { reason, stayed } => tracing::info!(
                namespace,
                workload,
                cluster_queue,
                tier,
                flavors,
                reason,
                stayed_seconds = stayed,
                "left a capacity tier"
            ),
        }
    }

    /// Room for a line, with the number of lines that had none before it; `None` without room.
    fn room(&mut self, now: Instant) -> Option<u64> {
        if self.bucket.take(now).is_err() {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn journal_lines_beyond_the_rate_are_counted_and_not_written() {
        let start = Instant::now();
        let mut journal = Journal::new(start);
        let told = (0..1_000).filter(|_| journal.room(start).is_some()).count();
        assert_eq!(told, 200);
        let later = start + Duration::from_millis(60);
        assert_eq!((journal.room(later), journal.room(later)), (Some(800), None));
        assert_eq!(journal.room(later + Duration::from_secs(1)), Some(1), "and from there on anew");
    }
}
