//! ClusterQueues with their settings.

use std::collections::BTreeSet;

use crate::model::{Preemption, PreemptionGuard, ResourceGroup, Selector, Tier, WEIGHT_ONE};

/// `queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A head (the first pending workload) that does not fit blocks its queue.
    StrictFifo,
    /// A head (the first pending workload) that does not fit is parked.
    #[default]
    BestEffortFifo,
}

/// `stopPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopPolicy {
    /// Runs.
    #[default]
    None,
    /// No new reservations.
    Hold,
    /// The queue gives no new reservations, and the crate `reconcile` evicts its admitted workloads.
    HoldAndDrain,
}

/// The next step of the scan of flavors, after a flavor in which the workload needs borrowing or preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fungibility {
    /// `MayStopSearch`.
    MayStopSearch,
    /// `TryNextFlavor`.
    TryNextFlavor,
}

/// `spec.flavorFungibility`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavorFungibility {
    /// `whenCanBorrow` of the ClusterQueue: the next step of the scan if a flavor fits only by borrowing; by default `MayStopSearch`.
    pub when_can_borrow: Fungibility,
    /// `whenCanPreempt` of the ClusterQueue: the next step of the scan if a flavor fits only by preempting; by default `TryNextFlavor`.
    pub when_can_preempt: Fungibility,
    /// True if `preference` is `PreemptionOverBorrowing`, false if it is `BorrowingOverPreemption`.
    pub preemption_over_borrowing: bool,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: Fungibility::MayStopSearch,
            when_can_preempt: Fungibility::TryNextFlavor,
            preemption_over_borrowing: false,
        }
    }
}

/// A ClusterQueue. The default of a `ClusterQueueSpec` has no name, no quota and no namespaces, and the API's defaults in all other fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueueSpec {
    /// Object name.
    pub name: String,
    /// `spec.cohortName`.
    pub cohort: Option<String>,
    /// `spec.resourceGroups`.
    pub groups: Vec<ResourceGroup>,
    /// `spec.queueingStrategy`.
    pub strategy: Strategy,
    /// `spec.stopPolicy`.
    pub stop: StopPolicy,
    /// Selector of the namespaces whose workloads may use the ClusterQueue (`spec.namespaceSelector`); `None` matches no namespace.
    pub namespace_selector: Option<Selector>,
    /// `spec.preemption`.
    pub preemption: Preemption,
    /// `spec.flavorFungibility`.
    pub fungibility: FlavorFungibility,
    /// Weight of the ClusterQueue in fair sharing (`fairSharing.weight`), in nano units.
    pub weight: i64,
    /// True if `admissionScope.admissionMode` is `UsageBasedAdmissionFairSharing`.
    pub usage_based: bool,
    /// Tiers for workloads that name no tiers, the best tier first; if the list is empty, flavors are tried in the queue's order.
    pub tiers: Vec<Tier>,
    /// Limits of the quota that workloads of the queue may hold in each of the tiers reserved, on-demand and spot, in per cent of the nominal quota of the tier
    /// in the whole cohort tree.
    pub max_shares: [Option<u32>; 3],
    /// Bounds of preemption, for workloads of the queue as preemptors and as victims.
    pub guard: PreemptionGuard,
    /// Limit of the number of workloads that hold quota of the queue at the same time.
    pub max_jobs: Option<JobLimit>,
    /// Text of the condition `Active` if the queue may admit nothing for a reason outside of the engine: a field that Berth does not support yet, or the
    /// deletion of the queue.
    pub inactive: Option<String>,
    /// Further problems, found outside of the engine, that keep the queue from admitting workloads.
    pub problems: Vec<Problem>,
    /// Admission checks by name, each with the flavors to which it applies (an empty set means all flavors). A workload is Admitted only when the checks of the
    /// flavors that it was given are ready; the engine only reports which checks apply.
    pub admission_checks: Vec<(String, BTreeSet<String>)>,
}

impl Default for ClusterQueueSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            cohort: None,
            groups: Vec::new(),
            strategy: Strategy::default(),
            stop: StopPolicy::default(),
            namespace_selector: None,
            preemption: Preemption::default(),
            fungibility: FlavorFungibility::default(),
            weight: WEIGHT_ONE,
            usage_based: false,
            tiers: Vec::new(),
            max_shares: [None; 3],
            guard: PreemptionGuard::default(),
            max_jobs: None,
            inactive: None,
            problems: Vec::new(),
            admission_checks: Vec::new(),
        }
    }
}

/// Limit of the number of workloads that hold quota of a queue at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLimit {
    /// Largest number of workloads that hold quota of the queue at the same time.
    pub most: u32,
    /// Name of the setting that contains the limit, for messages to pending workloads.
    pub source: String,
}

/// A reason of the condition `Active` of a ClusterQueue, with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason.
    pub reason: &'static str,
    /// A part of the message.
    pub text: String,
}
