//! Workloads, and the old workload slices that they replace.

use crate::model::{Millis, PodSetAssignment, PodSetSpec, Preempts, Tier, WorkloadState};

/// The old workload slice that a replacement slice replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// UID of the workload.
    pub uid: String,
    /// Quota that the old slice was given.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// A workload that is active and not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on one another")]
pub struct WorkloadSpec {
    /// UID, the identity.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.queueName`: the name of a LocalQueue in the same namespace.
    pub local_queue: String,
    /// Effective priority.
    pub priority: i64,
    /// Queue-order timestamp.
    pub queued_at: Millis,
    /// True if the workload lost its capacity: it goes before workloads of equal priority in its queue, whatever their age. A workload that goes first because
    /// it lost its capacity may preempt no more victims than otherwise.
    pub at_front: bool,
    /// Pod sets.
    pub pod_sets: Vec<PodSetSpec>,
    /// Annotation `workload-allowed-resource-flavors`: the only flavors that the workload may get; `None` means any flavor.
    pub allowed_flavors: Option<Vec<String>>,
    /// Tiers that the workload accepts, the best tier first; `None` means that the tiers of its queue apply.
    pub tiers: Option<Vec<Tier>>,
    /// Preemption scope of the workload, applied after the queue's policy.
    pub preempts: Preempts,
    /// Points of priority that an hour of waiting adds in the order of workloads. The points for waiting never allow a preemption.
    pub points_per_hour: u32,
    /// Start of the workload's waiting time; after a preemption, the time of the preemption. If the waiting time continued after a preemption, a preempted
    /// workload could be admitted again before its preemptors, and be evicted again.
    pub waits_since: Millis,
    /// The old slice that the workload replaces: as long as the old slice holds quota, the workload requests only the part beyond that quota.
    pub replaces: Option<Replaced>,
    /// Reason why the requests of the workload are out of bounds: the workload is refused when it comes to the head of its queue.
    pub refused: Option<String>,
    /// True if an admission check has the state Retry or Rejected: the workload is refused when it comes to the head of its queue.
    pub checks_failed: bool,
    /// True if a preemption gate of the workload is closed: the workload preempts no other workload until all its gates are open.
    pub preemption_gated: bool,
    /// True if the workload's pods already run without quota, charged as usage beyond quota under the workload's UID. The engine tries a workload with `runs`
    /// as if the charges of all workloads with `runs` of its queue, also its own charge, were free.
    pub runs: bool,
    /// State.
    pub state: WorkloadState,
    /// Number that changes with the inputs of decisions about the workload (spec generation, gates, reclaimable pods): a change lets the engine try a parked
    /// workload again.
    pub revision: u64,
}
