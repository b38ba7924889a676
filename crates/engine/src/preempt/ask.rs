//! Queries for victims, and the victims that answer them.

use std::collections::BTreeSet;

use crate::model::{Millis, Preempts};
use crate::options::Options;
use crate::queue::afs::AdmissionFairSharing;
use crate::quota::balance::Units;
use crate::world::ids::{CellId, QueueId, WorkloadId};
use crate::world::store::{Store, Workload};

/// One victim and the reason of its Preempted condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) reason: &'static str,
    /// Number of surplus pods that it gives up in place of leaving.
    pub(crate) gives_up: Option<i64>,
}

/// Victims, and all workloads that were taken before the unneeded ones were put back, if shares can be judged on these only.
pub(crate) type Victims = (Vec<Target>, Option<Vec<Target>>);

/// A query for victims: the preemptor and its request.
pub(crate) struct Ask<'a> {
    pub(crate) queue: QueueId,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    /// Cells that lack quota, sorted.
    pub(crate) needs: &'a [CellId],
    /// Everything the workload would use.
    pub(crate) usage: &'a [(CellId, Units)],
    /// Workloads that are not to be preempted.
    pub(crate) gone: &'a BTreeSet<WorkloadId>,
    /// Set when the usage of LocalQueues orders candidates.
    pub(crate) afs: Option<&'a AdmissionFairSharing>,
    /// Preemption scope of the workload, applied after the queue's policy.
    pub(crate) preempts: Preempts,
    /// The preemptor, set only if a policy bounds preemption.
    pub(crate) asking: Option<WorkloadId>,
}

impl<'a> Ask<'a> {
    pub(crate) fn of(
        store: &Store,
        workload: &Workload,
        queue: QueueId,
        gone: &'a BTreeSet<WorkloadId>,
        options: &'a Options,
    ) -> Self {
        let afs = options.admission_fair_sharing.as_ref();
        let preempts = store.classes[workload.class].preempts;
        Self {
            queue,
            priority: workload.priority,
            queued_at: workload.queued_at,
            needs: &[],
            usage: &[],
            gone,
            afs,
            preempts,
            asking: if store.guarded > 0 { store.by_uid.get(&workload.uid).copied() } else { None },
        }
    }
}
