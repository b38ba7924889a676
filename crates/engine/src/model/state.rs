//! Whether a workload waits for quota or holds some.

use super::{Amount, FlavorResource, Millis, Reservation};

/// How a pending workload is counted that is blocked from outside and never tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// It is in its queue, and inadmissible there (Requeued=False, its job is gone, ...).
    InQueue,
    /// It is in no queue (gated, on hold, ...): no figure of a queue counts it as pending.
    OutOfQueue,
}

/// A workload's place in life, as far as quota is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadState {
    /// Waits for quota.
    Pending {
        /// Not before this time (requeue back-off); `None` is now.
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
    /// UID of the workload that is to answer for it, or of a job that has none: what is told of it replaces what was told before. Known or not, it
    /// stays until it is replaced by nothing.
    pub carrier: String,
    /// The ClusterQueue that is charged.
    pub cluster_queue: String,
    /// How much of what; nothing where all of it is gone.
    pub usage: Vec<(FlavorResource, Amount)>,
}
