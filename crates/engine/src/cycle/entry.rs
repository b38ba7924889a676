//! A head of a queue and its state in a cycle.

use crate::assign::assignment::Assignment;
use crate::cycle::nominate::Nomination;
use crate::cycle::outcome::Requeue;
use crate::explain::why::Finding;
use crate::preempt::ask::Target;
use crate::world::ids::{QueueId, WorkloadId};

pub(crate) struct Entry {
    pub(crate) queue: QueueId,
    pub(crate) workload: WorkloadId,
    pub(crate) assignment: Assignment,
    pub(crate) targets: Vec<Target>,
    pub(crate) requeue: Requeue,
    /// True if the head's next scan over flavors begins at the first flavor.
    pub(crate) scans_anew: bool,
    pub(crate) verdict: Option<Finding>,
}

impl Entry {
    pub(crate) fn new(queue: QueueId, workload: WorkloadId, (assignment, targets): Nomination) -> Self {
        Self { queue, workload, assignment, targets, requeue: Requeue::Retry, scans_anew: false, verdict: None }
    }
}
