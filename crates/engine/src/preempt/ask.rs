//! Queries for victims of a preemption, and the victims that a search returns.

use std::collections::BTreeSet;

use crate::model::{Millis, Preempts};
use crate::options::Options;
use crate::queue::afs::AdmissionFairSharing;
use crate::quota::balance::Units;
use crate::world::ids::{CellId, QueueId, WorkloadId};
use crate::world::store::{Store, Workload};

/// A victim and the reason of its condition Preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) reason: &'static str,
    /// Number of surplus pods that the victim gives up instead of being evicted; `None` means that it is evicted.
    pub(crate) gives_up: Option<i64>,
}

/// The victims of a search. The second part of `Victims` has all workloads that the search took before it dropped the unneeded ones, if shares can be judged
/// only on all of them.
pub(crate) type Victims = (Vec<Target>, Option<Vec<Target>>);

/// A query for victims: the preemptor and its request.
pub(crate) struct Ask<'a> {
    pub(crate) queue: QueueId,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    /// Flavors and resources (cells) of which the preemptor lacks quota, sorted.
    pub(crate) needs: &'a [CellId],
    /// Full usage that the preemptor would have if it were admitted.
    pub(crate) usage: &'a [(CellId, Units)],
    /// Workloads that are not candidates for this preemptor, whatever the policies say.
    pub(crate) gone: &'a BTreeSet<WorkloadId>,
    /// Set if the usage of LocalQueues orders candidates (admission fair sharing).
    pub(crate) afs: Option<&'a AdmissionFairSharing>,
    /// Preemption scope of the workload, applied after the queue's policy.
    pub(crate) preempts: Preempts,
    /// The id of the preemptor; set only if a policy bounds preemption.
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
