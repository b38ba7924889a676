//! The position of a pending workload in the order of its queue.

use std::cmp::Reverse;

use crate::model::Millis;
use crate::queue::tie::Tie;

/// Order of the workloads in a queue: higher priority including points for waiting first, then lost capacity (`at_front`), then older, then the tie-break.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) order_value: Reverse<i64>,
    pub(crate) at_front: Reverse<bool>,
    pub(crate) queued_at: Millis,
    pub(crate) tie: Tie,
}
