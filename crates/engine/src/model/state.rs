//! The admission state of a workload: it waits for quota or holds quota.

use crate::model::{Amount, FlavorResource, Millis, PodSetAssignment};

/// The way in which the figures of a queue count a pending workload that is blocked from outside of the engine and never tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The workload counts as inadmissible in its queue (Requeued=False, its job is gone, ...).
    InQueue,
    /// The workload is in no queue (gated, on hold, ...): no figure of a queue counts it as pending.
    OutOfQueue,
}

/// Quota that a workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// ClusterQueue whose quota the workload holds.
    pub cluster_queue: String,
    /// Assignment of each pod set. The usage of a reservation counts as its assignments say, because the caller of the engine has already subtracted
    /// reclaimable pods.
    pub pod_sets: Vec<PodSetAssignment>,
    /// Time at which the quota was reserved.
    pub at: Millis,
    /// Time of the workload's last checkpoint, if known: among victims of equal priority, the workloads that lose the least work are preempted first.
    pub saved: Option<Millis>,
    /// True if the admission checks of the workload are ready, too.
    pub admitted: bool,
    /// True if the workload was evicted and still holds its quota, because its pods have not ended yet.
    pub evicted: bool,
    /// True while the workload cannot be stopped: preemption does not choose it as a victim, whatever the policies of queues say.
    pub kept: bool,
    /// Surplus pods of the workload: preemption takes surplus pods before it evicts the workload.
    pub surplus: Option<Surplus>,
}

/// Surplus pods: pods that a workload can give up without being evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Name of the pod set that has the surplus pods.
    pub pod_set: String,
    /// Number of surplus pods.
    pub pods: i64,
    /// Number of surplus pods that the workload gives up in one step; the last step may be smaller.
    pub step: i64,
}

/// Admission state of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadState {
    /// Waits for quota.
    Pending {
        /// Earliest time at which the engine tries the workload (requeue back-off); `None` means at once.
        not_before: Option<Millis>,
        /// Set if the workload is blocked from outside of the engine: the world knows the workload, but never tries it.
        blocked: Option<Blocked>,
    },
    /// Holds quota.
    Reserved(Reservation),
}

/// Usage of a job's pods beyond the quota that the job's workloads hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeyondSpec {
    /// UID of the workload that is responsible for the usage, or of a job without a workload. A new `BeyondSpec` replaces the old one of the same UID. The
    /// usage beyond quota stays charged, whether the workload is known or not, until a `BeyondSpec` without usage replaces it.
    pub carrier: String,
    /// The ClusterQueue to which the usage beyond quota is charged.
    pub cluster_queue: String,
    /// Amount by flavor and resource; empty when no usage beyond quota is left.
    pub usage: Vec<(FlavorResource, Amount)>,
}
