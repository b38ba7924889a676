//! What the engine is told (`*Spec`, [`Delta`]) and what it answers ([`Plan`]).
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
    /// None at all: the values say in Kubernetes' words what is wrong, each beginning with its field.
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
    /// Label `berth.dev/capacity-tier`: how its capacity is bought.
    pub tier: Option<Tier>,
    /// Why the flavor takes nobody (an annotation that cannot be read): the text of the reason.
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

/// What to do after a flavor that would do, but not well.
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

/// A ClusterQueue. Its default has no name, no quota and no namespaces, and for the rest what the API's defaults are.
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
    /// The tiers that its workloads accept which name none, best first; empty: flavors as they come.
    pub tiers: Vec<Tier>,
    /// Most of the nominal quota of a tier in its tree that its workloads may hold, in per cent, by tier in the usual order.
    pub max_shares: [Option<u32>; 3],
    /// Bounds of preemption, as who asks and as who may be taken from.
    pub guard: PreemptionGuard,
    /// Most workloads that may hold its quota at once.
    pub max_jobs: Option<JobLimit>,
    /// Set when the queue may admit nothing for a reason outside the engine (a field that Berth does not act on yet,
    /// deletion): the text of the Active condition.
    pub inactive: Option<String>,
    /// What else keeps the queue from admitting, found outside the engine.
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

/// How many workloads may hold quota of a queue at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLimit {
    /// So many.
    pub most: u32,
    /// Where that stands, as those who wait are told.
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

/// One pod set of a workload, reduced to what decides.
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
    /// Digest of what else narrows the pods' nodes; 0 when nothing does. Only stock-outs look at it.
    pub constraints: u64,
    /// Its job cannot be given node affinity, and so no flavor that forbids node labels.
    pub no_affinity: bool,
    /// Asks for topology (an annotation or `topologyRequest` is present).
    pub topology_request: bool,
    /// Pod sets of the same group get the same flavor of each resource (`topologyRequest.podSetGroupName`).
    pub group: Option<String>,
}

/// What a pod set was given.
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

/// What a workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// ClusterQueue that gave the quota.
    pub cluster_queue: String,
    /// Assignment per pod set. Usage counts as given here (control subtracts reclaimable pods).
    pub pod_sets: Vec<PodSetAssignment>,
    /// When quota was reserved.
    pub at: Millis,
    /// When it saved its work last, where that is known: among victims of equal priority those go first who lose the least.
    pub saved: Option<Millis>,
    /// Its admission checks are ready, too.
    pub admitted: bool,
    /// Evicted and on its way out: still holds its quota.
    pub evicted: bool,
    /// Nobody could stop it at present: it is preempted for nobody, whatever the policies of queues say.
    pub kept: bool,
    /// The pods that it may do without: asked for quota, it gives these up before it is evicted.
    pub surplus: Option<Surplus>,
}

/// Pods that a workload may do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Name of their pod set.
    pub pod_set: String,
    /// How many there are.
    pub pods: i64,
    /// How many go at once; the last ones may be fewer.
    pub step: i64,
}

/// A workload that another one takes the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Its UID.
    pub uid: String,
    /// What it was given.
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
    /// Its capacity was taken from it: it goes before its equals in its queue, however old those are, and preempts nobody for that.
    pub at_front: bool,
    /// Pod sets.
    pub pod_sets: Vec<PodSetSpec>,
    /// Annotation `workload-allowed-resource-flavors`: the only flavors it may get; `None` is any.
    pub allowed_flavors: Option<Vec<String>>,
    /// The tiers that it accepts, best first; `None` leaves that to its queue.
    pub tiers: Option<Vec<Tier>>,
    /// Whom it may preempt.
    pub preempts: Preempts,
    /// Points of priority that an hour of waiting is worth where workloads are ordered; nobody is preempted for them.
    pub points_per_hour: u32,
    /// Since when it waits: of one that was evicted for others, since then. Otherwise it would be admitted again before those for
    /// whom it had to go, and be evicted again.
    pub waits_since: Millis,
    /// The slice that it is to replace (kueue.md 6.19): as long as that holds quota, only what it has more is asked for.
    pub replaces: Option<Replaced>,
    /// Why its requests are out of bounds: it is refused when it comes to the head of its queue.
    pub refused: Option<String>,
    /// An admission check wants it tried later or not at all: it is refused when it comes to the head of its queue.
    pub checks_failed: bool,
    /// A preemption gate of it is closed: it preempts nobody until all are open.
    pub preemption_gated: bool,
    /// State.
    pub state: WorkloadState,
    /// Changes when something that decides changed (spec generation, gates, reclaimable pods): a parked workload is then
    /// looked at again.
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
    /// What a LocalQueue (namespace, name) used lately, as its status has it: told once, before anything is planned.
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

/// What a LocalQueue used lately under admission fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFigures {
    /// `consumedResources`, in billionths: usage fades below every unit.
    pub consumed: BTreeMap<String, Nano>,
    /// `lastUpdate`.
    pub at: Millis,
}
