//! Log lines about capacity tiers: a line for each workload that is admitted to a tier or leaves it, with a rate limit. Log lines about tiers beyond the rate
//! limit are only counted, because metrics and events have the same facts.

use crate::rate::Bucket;
use berth_control::measure::{TierMove, TierStep};
use tokio::time::Instant;

/// Number of log lines about capacity tiers that may be written at once.
const BURST: f64 = 200.0;
/// Number of log lines about capacity tiers per second under lasting load.
const RATE: f64 = 20.0;

/// The writer of log lines about capacity tiers, with the number of lines that were left out since the last line.
pub(crate) struct Journal {
    bucket: Bucket,
    left_out: u64,
}

impl Journal {
    pub(crate) fn new(now: Instant) -> Self {
        Self { bucket: Bucket::new(Some(RATE), BURST, now), left_out: 0 }
    }

    /// Writes a log line about a change of a workload's capacity tier, if the rate limit allows the line.
    pub(crate) fn log(&mut self, moved: &TierMove, now: Instant) {
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

    /// Takes a token of the rate limit for a log line, and returns the number of lines that were left out since the last line; `None` without a token.
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
        let found = (0..1_000).filter(|_| journal.room(start).is_some()).count();
        assert_eq!(found, 200);
        let later = start + Duration::from_millis(60);
        assert_eq!((journal.room(later), journal.room(later)), (Some(800), None));
        assert_eq!(journal.room(later + Duration::from_secs(1)), Some(1), "and from there on anew");
    }
}
