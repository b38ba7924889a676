//! The admission state of a workload: it waits for quota or holds quota.

use super::{Amount, FlavorResource, Millis, Reservation};

/// Way in which the figures count a pending workload that is blocked from outside and never tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The workload counts as inadmissible in its queue (Requeued=False, its job is gone, ...).
    InQueue,
    /// The workload is in no queue (gated, on hold, ...): no figure of a queue counts it as pending.
    OutOfQueue,
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
