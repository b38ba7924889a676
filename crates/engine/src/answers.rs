//! Answers of the engine: refusals, plans, figures. Part of [`crate::model`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Amount, Millis, PodSetAssignment};

/// Reason why a delta was refused; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A workload of that UID is not known.
    #[error("workload {0} is not known")]
    UnknownWorkload(String),
}

/// Reason code of a pending workload; the names are Kueue's QuotaReserved=False reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PendingReason {
    /// No flavor matches.
    NoMatchingFlavor,
    /// Quota is in use.
    WaitingForQuota,
    /// More than the queue can ever give.
    ExceedsMaxQuota,
    /// Queue, namespace or object is not as it must be.
    Misconfigured,
    /// Queue is stopped or inactive.
    Suspended,
    /// Preemption under way.
    WaitingForPreemptedWorkloads,
    /// A limit of the queue's policy is reached (Berth's own reason).
    AdmissionLimit,
    /// Quota is free, but its flavor is out of stock (Berth's own reason).
    OutOfStock,
    /// Topology does not fit.
    TopologyPlacementFailed,
    /// Admissions wait until the pods of those admitted before are ready (`waitForPodsReady.blockAdmission`, by `control`).
    WaitingForPodsReady,
    /// The workload would have to preempt, and one of its preemption gates is closed.
    AdmissionGated,
    /// Not looked at yet.
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

    /// The reason as Kueue writes it.
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

/// A planned admission: the world reserves its quota until the workload's own delta or a `Forget` arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Workload UID.
    pub uid: Arc<str>,
    /// ClusterQueue.
    pub cluster_queue: Arc<str>,
    /// Assignment per pod set; equal workloads that are given the same share it.
    pub pod_sets: Arc<[PodSetAssignment]>,
    /// Names of admission checks that apply; empty means admitted at once.
    pub admission_checks: Vec<String>,
    /// Text of the considered flavors, in Kueue's format; `None` where every attempt was a fit without borrowing.
    pub flavors_considered: Option<String>,
}

/// A planned preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Victim UID.
    pub uid: String,
    /// Preemptor UID.
    pub preemptor: String,
    /// `InClusterQueue`, `InCohortReclamation`, `InCohortFairSharing`, `InCohortReclaimWhileBorrowing`.
    pub reason: &'static str,
    /// Path of cohorts and queue of the preemptor, `/root/../cq`.
    pub preemptor_path: String,
    /// Path of cohorts and queue of the victim, `/root/../cq`.
    pub preemptee_path: String,
    /// Number of surplus pods that it gives up in place of leaving.
    pub gives_up: Option<i64>,
}

/// Verdict on a workload that was looked at and not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Workload UID.
    pub uid: Arc<str>,
    /// Reason code.
    pub reason: PendingReason,
    /// Message in Kueue's wording.
    pub message: Arc<str>,
    /// The workload was the head of its queue or the first of its class of equals: write its reason first.
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
    /// Verdicts on the others that were looked at.
    pub verdicts: Vec<Verdict>,
    /// Heads were left because `Limits::max_admissions` was reached: call again.
    pub more: bool,
    /// Earliest `not_before` among waiting workloads, or when the usage of LocalQueues is to be settled next.
    pub wake_at: Option<Millis>,
    /// Number of heads that lost against other heads together with their victims, by ClusterQueue.
    pub skipped_preemptions: BTreeMap<String, u32>,
    /// Number of searches for victims that were repeated because other heads had taken the victims, by ClusterQueue and result
    /// (`new_targets`, `deferred_fit`, `skipped`).
    pub recomputed_targets: BTreeMap<(String, &'static str), u32>,
    /// Scheduling cycles that were run.
    pub cycles: u64,
    /// Number of heads that the cycles looked at.
    pub heads: u64,
}

/// Bounds of one call of `plan`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Stop after that many admissions.
    pub max_admissions: usize,
}

/// Usage of one quota cell of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUsage {
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Reserved amount.
    pub total: Amount,
    /// Part of it above nominal.
    pub borrowed: Amount,
}

/// Reason and message of a ClusterQueue's Active condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// `Ready`, `Stopped`, `FlavorNotFound`, ...
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// Active.
    pub active: bool,
}

/// Figures of one ClusterQueue or LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Pending workloads that will be tried.
    pub pending_active: u32,
    /// Pending workloads that are parked, or blocked in their queue.
    pub pending_inadmissible: u32,
    /// Workloads holding quota.
    pub reserving: u32,
    /// Usage per cell, in the queue's order of flavors, and by name of the resource.
    pub reservation: Vec<CellUsage>,
}
