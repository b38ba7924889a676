//! Inputs of the engine (`*Spec`, [`Delta`]) and its answers ([`Plan`]).
//!
//! Plain data with owned strings: the border of the crate. Inside, names are interned (see `world`).

mod preemption;
mod state;

use std::collections::{BTreeMap, BTreeSet};

pub use berth_quantity::{Amount, Nano};

pub use crate::answers::*;
pub use crate::assign::matching::TolerationOp;
pub use crate::assign::stock::{Shape, StockOut};
pub use crate::assign::tiers::Tier;
pub use crate::model::preemption::{Preemption, PreemptionGuard, PreemptionPolicy, Preempts};
pub use crate::model::state::{BeyondSpec, Blocked, WorkloadState};

/// A point in time, in milliseconds since the Unix epoch. The engine never reads a clock; `now` is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub i64);

/// A quota cell is addressed by flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResource {
    /// Name of the ResourceFlavor.
    pub flavor: String,
    /// Name of the resource, for example `cpu`.
    pub resource: String,
}

/// Effect of a taint; `PreferNoSchedule` never decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// `NoSchedule`.
    NoSchedule,
    /// `PreferNoSchedule`.
    PreferNoSchedule,
    /// `NoExecute`.
    NoExecute,
}

/// A node taint declared by a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value, empty when absent.
    pub value: String,
    /// Taint effect.
    pub effect: TaintEffect,
}

/// A toleration of a pod or flavor. `key` empty with `Exists` tolerates everything.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash)]
pub struct Toleration {
    /// Taint key; empty matches every key.
    pub key: String,
    /// Operator.
    pub op: TolerationOp,
    /// Value that the operator compares with.
    pub value: String,
    /// Effect; `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

/// Operators of label selectors and node selector terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectorOp {
    /// Value is one of.
    In,
    /// Value is none of (or key absent).
    NotIn,
    /// Key present.
    Exists,
    /// Key absent.
    DoesNotExist,
    /// Integer value greater than (node affinity only).
    Gt,
    /// Integer value less than (node affinity only).
    Lt,
    /// Not an operator: each value is a fault in Kubernetes' words and begins with its field.
    Illegal,
}

/// One requirement on labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub op: SelectorOp,
    /// Values, as the operator needs them.
    pub values: Vec<String>,
}

/// A label selector: every requirement must hold; `matchLabels` arrive as `In` with one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);

/// A ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorSpec {
    /// Object name.
    pub name: String,
    /// `spec.nodeLabels`.
    pub node_labels: BTreeMap<String, String>,
    /// `spec.nodeTaints`.
    pub taints: Vec<Taint>,
    /// `spec.tolerations`, added to the pods' own.
    pub tolerations: Vec<Toleration>,
    /// `spec.topologyName`: such a flavor takes no workload until topology is implemented.
    pub topology: Option<String>,
    /// Annotation `berth.dev/forbidden-node-labels`: node labels on which its pods must not land, with the values (none:
    /// every value). Pods that select such a label themselves do not belong in the flavor.
    pub forbidden: Vec<(String, Vec<String>)>,
    /// Label `berth.dev/capacity-tier`: the tier of its capacity.
    pub tier: Option<Tier>,
    /// Text of the reason why the flavor takes no workloads (an annotation that cannot be read).
    pub unusable: Option<String>,
}

/// Quota of one resource in one flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `nominalQuota`.
    pub nominal: Amount,
    /// `borrowingLimit`; `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `lendingLimit`; `None` lends everything.
    pub lending_limit: Option<Amount>,
}

/// One flavor of a resource group, quotas in the order of `ResourceGroup::covered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// Flavor name.
    pub flavor: String,
    /// One quota per covered resource.
    pub quotas: Vec<Quota>,
}

/// A resource group of a ClusterQueue or Cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// `coveredResources`.
    pub covered: Vec<String>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// A Cohort object. A cohort that is only referenced exists too, with no quota and weight 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortSpec {
    /// Object name.
    pub name: String,
    /// `spec.parentName`.
    pub parent: Option<String>,
    /// The cohort's own quota.
    pub groups: Vec<ResourceGroup>,
    /// `fairSharing.weight` in nano units (1 = 1_000_000_000).
    pub weight: i64,
}

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

/// Weight 1 of fair sharing: weights are in billionths.
pub const WEIGHT_ONE: i64 = 1_000_000_000;

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

/// A LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueueSpec {
    /// Namespace.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// `spec.clusterQueue`.
    pub cluster_queue: String,
    /// `spec.stopPolicy`.
    pub stop: StopPolicy,
    /// `fairSharing.weight` in nano units.
    pub weight: i64,
}

/// One pod set of a workload, reduced to the fields that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSetSpec {
    /// Name.
    pub name: String,
    /// Pods (already net of reclaimable pods where the workload holds quota).
    pub count: i64,
    /// `minCount` for partial admission.
    pub min_count: Option<i64>,
    /// Requests of one pod, in the engine's units.
    pub requests: BTreeMap<String, Amount>,
    /// The template's nodeSelector.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are alternatives, requirements of a term all hold. Empty: no affinity.
    pub affinity: Vec<Vec<Requirement>>,
    /// The template's tolerations.
    pub tolerations: Vec<Toleration>,
    /// Digest of further constraints on the pods' nodes; 0 when there are none. Only stock-outs look at it.
    pub constraints: u64,
    /// True if Berth cannot add node affinity to its job, so flavors that forbid node labels do not match.
    pub no_affinity: bool,
    /// Asks for topology (an annotation or `topologyRequest` is present).
    pub topology_request: bool,
    /// Pod sets of the same group get the same flavor of each resource (`topologyRequest.podSetGroupName`).
    pub group: Option<String>,
}

/// Quota that a pod set was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Pod set name.
    pub name: String,
    /// Admitted pods.
    pub count: i64,
    /// Flavor per resource.
    pub flavors: BTreeMap<String, String>,
    /// Total usage per resource (all pods).
    pub usage: BTreeMap<String, Amount>,
}

/// Quota that a workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// ClusterQueue that gave the quota.
    pub cluster_queue: String,
    /// Assignment per pod set. Usage counts as given here (control subtracts reclaimable pods).
    pub pod_sets: Vec<PodSetAssignment>,
    /// When quota was reserved.
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

/// The old slice that a replacement slice replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Its UID.
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
    /// Its pods run without quota, and are charged beyond quota under its UID: it is tried as if that charge, and that of
    /// others of its queue that are tried so, were free.
    pub runs: bool,
    /// State.
    pub state: WorkloadState,
    /// Number that changes with the inputs of decisions (spec generation, gates, reclaimable pods): a parked workload is then looked at again.
    pub revision: u64,
}

/// One change of the outside world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Create or replace a flavor.
    Flavor(FlavorSpec),
    /// Flavor gone.
    RemoveFlavor(String),
    /// Create or replace a cohort object.
    Cohort(CohortSpec),
    /// Cohort object gone.
    RemoveCohort(String),
    /// Create or replace a ClusterQueue.
    ClusterQueue(ClusterQueueSpec),
    /// ClusterQueue gone.
    RemoveClusterQueue(String),
    /// Create or replace a LocalQueue.
    LocalQueue(LocalQueueSpec),
    /// Recent usage of a LocalQueue (namespace, name) from its status: applied once, before the first plan.
    Ledger(String, String, LedgerFigures),
    /// LocalQueue gone (namespace, name).
    RemoveLocalQueue(String, String),
    /// Namespace labels.
    Namespace(String, BTreeMap<String, String>),
    /// Namespace gone.
    RemoveNamespace(String),
    /// Create or replace a workload.
    Workload(WorkloadSpec),
    /// Workload gone, finished or inactive (by UID): its quota is free.
    RemoveWorkload(String),
    /// Usage beyond quota has come, changed or gone.
    Beyond(BeyondSpec),
    /// A flavor is out of stock for some pods until a time.
    StockOut(StockOut),
    /// A flavor is in stock again for pods of a shape.
    InStock(String, Shape),
    /// The write of a planned admission failed: the workload is pending again (by UID).
    Forget(String),
}

/// Recent usage of a LocalQueue under admission fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFigures {
    /// `consumedResources`, in billionths: decayed usage becomes smaller than any unit.
    pub consumed: BTreeMap<String, Nano>,
    /// `lastUpdate`.
    pub at: Millis,
}
