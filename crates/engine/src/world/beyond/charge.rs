//! The charge for the usage beyond quota of one Workload, or of one job without a Workload (the *carrier*).

use crate::quota::balance::Usage;
use crate::world::ids::QueueId;

/// Usage without a reservation, and the queue that is charged for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    pub(super) queue: QueueId,
    pub(super) usage: Usage,
    /// True if a planned admission of the same workload holds the same quota, so that the usage beyond quota is not charged.
    pub(super) is_covered: bool,
}
