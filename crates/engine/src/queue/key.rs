//! The place of a pending workload in the order of its queue.

use std::cmp::Reverse;

use crate::model::Millis;
use crate::queue::tie::Tie;

/// Order in a queue: higher priority with points for waiting, lost capacity (`at_front`), older, then the tie break.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) standing: Reverse<i64>,
    pub(crate) at_front: Reverse<bool>,
    pub(crate) queued_at: Millis,
    pub(crate) tie: Tie,
}
