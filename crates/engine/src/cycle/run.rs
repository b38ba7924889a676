//! State of one cycle.

use std::collections::BTreeMap;

use crate::preempt::ask::Target;
use crate::quota::balance::Usage;
use crate::world::ids::{QueueId, WorkloadId};

/// State of one cycle.
pub(crate) struct Run {
    /// Victims that heads of this cycle have chosen so far, each with its target: eviction or surplus pods.
    pub(crate) victims: BTreeMap<WorkloadId, Target>,
    /// Workloads that were admitted in this cycle: none of them is a victim before the next cycle.
    pub(crate) admitted: Vec<WorkloadId>,
    /// Usage that is reserved only for the rest of the cycle.
    pub(crate) assumed: Vec<(QueueId, Usage)>,
    /// Number of admissions at which the cycle stops.
    pub(crate) room: usize,
}
