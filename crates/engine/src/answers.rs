//! Answers of the engine: refusals, plans and figures. The module `answers` is part of [`crate::model`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Amount, Millis, PodSetAssignment};

/// Reason why the world refused a delta; a refused delta changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The world knows no workload with the UID in the delta.
    #[error("workload {0} is not known")]
    UnknownWorkload(String),
}

/// Reason code of a pending workload; the names are Kueue's reasons of the condition QuotaReserved=False.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PendingReason {
    /// No flavor matches.
    NoMatchingFlavor,
    /// Quota is in use.
    WaitingForQuota,
    /// The workload requests more than the queue can ever give.
    ExceedsMaxQuota,
    /// A queue, namespace or other object on which the workload depends is misconfigured.
    Misconfigured,
    /// The LocalQueue or ClusterQueue of the workload is stopped or inactive.
    Suspended,
    /// Preemption under way.
    WaitingForPreemptedWorkloads,
    /// A limit of the queue's policy is reached (a reason of Berth alone).
    AdmissionLimit,
    /// Quota is free, but its flavor is out of stock (a reason of Berth alone).
    OutOfStock,
    /// Topology does not fit.
    TopologyPlacementFailed,
    /// The crate `control` holds admissions back until the pods of earlier admissions are ready (`waitForPodsReady.blockAdmission`).
    WaitingForPodsReady,
    /// The workload would have to preempt, and one of its preemption gates is closed.
    AdmissionGated,
    /// The engine has not tried the workload yet.
    PendingEvaluation,
}

impl PendingReason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NoMatchingFlavor,
        Self::WaitingForQuota,
        Self::ExceedsMaxQuota,
        Self::Misconfigured,
        Self::Suspended,
        Self::WaitingForPreemptedWorkloads,
        Self::AdmissionLimit,
        Self::OutOfStock,
        Self::TopologyPlacementFailed,
        Self::WaitingForPodsReady,
        Self::AdmissionGated,
        Self::PendingEvaluation,
    ];

    /// Kueue's text of the reason of a pending workload. Cost: constant.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoMatchingFlavor => "NoMatchingFlavor",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::Misconfigured => "Misconfigured",
            Self::Suspended => "Suspended",
            Self::WaitingForPreemptedWorkloads => "WaitingForPreemptedWorkloads",
            Self::AdmissionLimit => "AdmissionLimit",
            Self::OutOfStock => "OutOfStock",
            Self::TopologyPlacementFailed => "TopologyPlacementFailed",
            Self::WaitingForPodsReady => "WaitingForPodsReady",
            Self::AdmissionGated => "AdmissionGated",
            Self::PendingEvaluation => "PendingEvaluation",
        }
    }
}

/// A planned admission: the world reserves its quota until a delta about the workload or a `Forget` arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Workload UID.
    pub uid: Arc<str>,
    /// ClusterQueue.
    pub cluster_queue: Arc<str>,
    /// Assignment of each pod set; admissions of equal workloads with the same assignment share one allocation.
    pub pod_sets: Arc<[PodSetAssignment]>,
    /// Names of the admission checks that apply; an empty list means that the workload is admitted at once.
    pub admission_checks: Vec<String>,
    /// Text about the flavors that were considered, in Kueue's format; `None` if every attempt was a fit without borrowing.
    pub flavors_considered: Option<String>,
}

/// A planned preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Victim UID.
    pub uid: String,
    /// Preemptor UID.
    pub preemptor: String,
    /// Kueue's reason of the preemption: one of `InClusterQueue`, `InCohortReclamation`, `InCohortFairSharing` and `InCohortReclaimWhileBorrowing`.
    pub reason: &'static str,
    /// Path of cohorts and queue of the preemptor, `/root/../cq`.
    pub preemptor_path: String,
    /// Path of cohorts and queue of the victim, `/root/../cq`.
    pub preemptee_path: String,
    /// Number of surplus pods that the victim gives up instead of being evicted; `None` means that it is evicted.
    pub gives_up: Option<i64>,
}

/// The reason why a workload was not admitted although a plan tried it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Workload UID.
    pub uid: Arc<str>,
    /// Reason code.
    pub reason: PendingReason,
    /// Reason in words, in Kueue's wording, for the workload's condition QuotaReserved=False.
    pub message: Arc<str>,
    /// True if the workload was the head of its queue or the first of its class of equals: its condition is written before the conditions of other pending
    /// workloads.
    pub leading: bool,
}

/// Decisions of one call of `plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    /// Admissions, in order.
    pub admissions: Vec<Admission>,
    /// Preemptions, in order.
    pub evictions: Vec<Eviction>,
    /// Verdicts on the workloads that were tried and not admitted.
    pub verdicts: Vec<Verdict>,
    /// True if heads are left because `Limits::max_admissions` was reached: call `plan` again.
    pub more: bool,
    /// Earliest time at which `plan` has to be called again even without a delta: a `not_before` of a waiting workload, the end of a stock-out or of the
    /// protection of a victim, or the next update of the usage of LocalQueues.
    pub wake_at: Option<Millis>,
    /// Number of heads that needed preemption and lost against other heads of their cycle, by ClusterQueue.
    pub skipped_preemptions: BTreeMap<String, u32>,
    /// Number of searches for victims that were repeated because other heads had taken the victims, by ClusterQueue and result
    /// (`new_targets`, `deferred_fit`, `skipped`).
    pub recomputed_targets: BTreeMap<(String, &'static str), u32>,
    /// Number of scheduling cycles that the call of `plan` ran.
    pub cycles: u64,
    /// Number of heads that the scheduling cycles of the call of `plan` tried.
    pub heads: u64,
}

/// Bounds of one call of `plan`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of admissions after which `plan` stops.
    pub max_admissions: usize,
}

/// Usage of one flavor and resource (a quota cell) of a ClusterQueue or LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUsage {
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Reserved amount.
    pub total: Amount,
    /// Part of the reserved amount that is above the nominal quota.
    pub borrowed: Amount,
}

/// Reason and message of the condition `Active` of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Reason of the condition `Active` of a ClusterQueue, such as `Ready`, `Stopped` or `FlavorNotFound`.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// Status of the condition `Active`.
    pub active: bool,
}

/// Figures of one ClusterQueue or LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Number of pending workloads of the queue that will be tried.
    pub pending_active: u32,
    /// Number of pending workloads that are parked, or blocked in their queue.
    pub pending_inadmissible: u32,
    /// Number of workloads that hold quota of the queue.
    pub reserving: u32,
    /// Usage of each cell, in the queue's order of flavors, and by name of the resource.
    pub reservation: Vec<CellUsage>,
}
