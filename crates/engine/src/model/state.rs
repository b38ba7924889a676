//! The admission state of a workload: it waits for quota or holds quota.

use crate::model::{Amount, FlavorResource, Millis, PodSetAssignment};

/// Way in which the figures count a pending workload that is blocked from outside and never tried.
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
    /// ClusterQueue that gave the quota.
    pub cluster_queue: String,
    /// Assignment per pod set. Usage counts as given here (control subtracts reclaimable pods).
    pub pod_sets: Vec<PodSetAssignment>,
    /// Time at which the quota was reserved.
    pub at: Millis,
    /// Time of its last checkpoint, if known: among victims of equal priority those with the least lost work go first.
    pub saved: Option<Millis>,
    /// True if its admission checks are ready, too.
    pub admitted: bool,
    /// Evicted and on its way out: still holds its quota.
    pub evicted: bool,
    /// True while the workload cannot be stopped: it is no victim, whatever the policies of queues say.
    pub kept: bool,
    /// Surplus pods: preemption takes these before it evicts the workload.
    pub surplus: Option<Surplus>,
}

/// Pods that a workload may do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Name of their pod set.
    pub pod_set: String,
    /// Number of surplus pods.
    pub pods: i64,
    /// Number of pods that go at once; the last step may be smaller.
    pub step: i64,
}

/// Admission state of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadState {
    /// Waits for quota.
    Pending {
        /// Start of the earliest attempt (requeue back-off); `None` is now.
        not_before: Option<Millis>,
        /// Blocked from outside: known, never tried.
        blocked: Option<Blocked>,
    },
    /// Holds quota.
    Reserved(Reservation),
}

/// Usage of a job's pods beyond what its workloads hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeyondSpec {
    /// UID of the workload that is responsible for the usage, or of a job without a workload. A new spec replaces the old one of this UID. The
    /// usage stays, whether the workload is known or not, until a spec without usage replaces it.
    pub carrier: String,
    /// The ClusterQueue that is charged.
    pub cluster_queue: String,
    /// Amount by flavor and resource; empty when all of it is gone.
    pub usage: Vec<(FlavorResource, Amount)>,
}
