//! The charge for usage beyond quota of one carrier.

use crate::quota::balance::Usage;
use crate::world::ids::QueueId;

/// Usage without a reservation, and the queue that it is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    pub(super) queue: QueueId,
    pub(super) usage: Usage,
    /// A planned admission of the carrier holds the same quota: the usage is not charged.
    pub(super) is_covered: bool,
}
