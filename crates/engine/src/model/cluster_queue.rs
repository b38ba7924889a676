//! ClusterQueues with their settings.

use std::collections::BTreeSet;

use crate::model::{Preemption, PreemptionGuard, ResourceGroup, Selector, Tier, WEIGHT_ONE};

/// `queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A head that does not fit blocks its queue.
    StrictFifo,
    /// A head that does not fit is parked.
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
    /// No new reservations, admitted workloads are evicted (by `control`).
    HoldAndDrain,
}

/// The next step of the scan after a flavor that needs borrowing or preemption.
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
    /// `whenCanBorrow`, default `MayStopSearch`.
    pub when_can_borrow: Fungibility,
    /// `whenCanPreempt`, default `TryNextFlavor`.
    pub when_can_preempt: Fungibility,
    /// `preference` is `PreemptionOverBorrowing` (else `BorrowingOverPreemption`).
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

/// A ClusterQueue. Its default has no name, no quota and no namespaces, and the API's defaults for all else.
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
    /// `spec.namespaceSelector`; `None` matches nothing.
    pub namespace_selector: Option<Selector>,
    /// `spec.preemption`.
    pub preemption: Preemption,
    /// `spec.flavorFungibility`.
    pub fungibility: FlavorFungibility,
    /// `fairSharing.weight` in nano units.
    pub weight: i64,
    /// `admissionScope.admissionMode` is `UsageBasedAdmissionFairSharing`.
    pub usage_based: bool,
    /// Tiers for workloads that name none, best first; empty: flavors in the queue's order.
    pub tiers: Vec<Tier>,
    /// Most of the nominal quota of a tier in its cohort tree that its workloads may hold, in per cent: reserved, on-demand, spot.
    pub max_shares: [Option<u32>; 3],
    /// Bounds of preemption, for workloads of the queue as preemptors and as victims.
    pub guard: PreemptionGuard,
    /// Limit of the workloads that hold its quota at once.
    pub max_jobs: Option<JobLimit>,
    /// Set when the queue may admit nothing for a reason outside the engine (a field that Berth does not act on yet,
    /// deletion): the text of the Active condition.
    pub inactive: Option<String>,
    /// Further problems that keep the queue from admitting, found outside the engine.
    pub problems: Vec<Problem>,
    /// Admission checks by name with the flavors they apply to (empty: all). A workload is Admitted only when those of the
    /// flavors that it was given are ready; the engine only reports which apply.
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

/// Limit of the workloads that hold quota of a queue at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLimit {
    /// Largest number of workloads.
    pub most: u32,
    /// The setting that has the limit, for messages to pending workloads.
    pub source: String,
}

/// A reason of the Active condition with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason.
    pub reason: &'static str,
    /// A part of the message.
    pub text: String,
}
