//! Workloads, and the slices that they replace.

use crate::model::{Millis, PodSetAssignment, PodSetSpec, Preempts, Tier, WorkloadState};

/// The old slice that a replacement slice replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// UID of the workload.
    pub uid: String,
    /// Quota that it was given.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// A workload that is active and not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadSpec {
    /// UID, the identity.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.queueName`: LocalQueue in the same namespace.
    pub local_queue: String,
    /// Effective priority.
    pub priority: i64,
    /// Queue-order timestamp.
    pub queued_at: Millis,
    /// True if its capacity was lost: it goes before workloads of equal priority in its queue, whatever their age. It gets no more victims for
    /// that.
    pub at_front: bool,
    /// Pod sets.
    pub pod_sets: Vec<PodSetSpec>,
    /// Annotation `workload-allowed-resource-flavors`: the only flavors it may get; `None` is any.
    pub allowed_flavors: Option<Vec<String>>,
    /// Tiers that it accepts, best first; `None` leaves them to its queue.
    pub tiers: Option<Vec<Tier>>,
    /// Preemption scope, applied after the queue's policy.
    pub preempts: Preempts,
    /// Points of priority that an hour of waiting adds to the order of workloads. The points never allow a preemption.
    pub points_per_hour: u32,
    /// Start of its waiting time; after a preemption, the time of the preemption. Otherwise it would be admitted again before its preemptors,
    /// and be evicted again.
    pub waits_since: Millis,
    /// The old slice that it replaces: as long as the old slice holds quota, only the part beyond that is requested.
    pub replaces: Option<Replaced>,
    /// Reason why its requests are out of bounds: it is refused when it comes to the head of its queue.
    pub refused: Option<String>,
    /// True if an admission check asks for a retry or rejects it: it is refused when it comes to the head of its queue.
    pub checks_failed: bool,
    /// True if one of its preemption gates is closed: it preempts no workload until all are open.
    pub preemption_gated: bool,
    /// The workload's pods run without quota, and are charged beyond quota under its UID. The workload is tried as if this charge were free, and the
    /// charges of the workloads of its queue that are tried in this way.
    pub runs: bool,
    /// State.
    pub state: WorkloadState,
    /// Number that changes with the inputs of decisions (spec generation, gates, reclaimable pods): a parked workload is then looked at again.
    pub revision: u64,
}
