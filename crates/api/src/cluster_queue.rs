//! ClusterQueue: quota, order and preemption policy of one tenant.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::beyond_kueue::{groups_of_queue, selector};
use crate::quota::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::rules::{SUBDOMAIN, rules, telling};

root_object! {
    /// A pool of quota with its own queue of workloads.
    ClusterQueue, "clusterqueues", ClusterResourceScope, spec: ClusterQueueSpec, status: ClusterQueueStatus
}

/// Desired state of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&[
    [
        "has(self.cohortName) || !has(self.resourceGroups) || !self.resourceGroups.exists(g, g.flavors.exists(f, \
         f.resources.exists(r, has(r.borrowingLimit))))",
        "",
        "borrowingLimit must be nil when cohort is empty",
        "",
    ],
    [
        "has(self.cohortName) || !has(self.resourceGroups) || !self.resourceGroups.exists(g, g.flavors.exists(f, \
         f.resources.exists(r, has(r.lendingLimit))))",
        "",
        "lendingLimit must be nil when cohort is empty",
        "",
    ],
])))]
pub struct ClusterQueueSpec {
    /// Quotas, grouped by the resources that must come from the same flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = groups_of_queue()))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Cohort whose unused quota this queue may borrow; a Cohort object of that name is optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cohort_name: Option<String>,
    /// Order of admission: `StrictFIFO` or `BestEffortFIFO`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "BestEffortFIFO", "enum" = ["StrictFIFO", "BestEffortFIFO"]))]
    pub queueing_strategy: Option<String>,
    /// Namespaces that may submit here; absent matches none, empty matches all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = selector()))]
    pub namespace_selector: Option<LabelSelector>,
    /// When to try the next flavor instead of borrowing or preempting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({})))]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Which workloads may be preempted for a pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({})))]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Admission checks that admitted workloads must pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// `None`, `Hold` (admit nothing new) or `HoldAndDrain` (also evict what runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "None", "enum" = ["None", "Hold", "HoldAndDrain"]))]
    pub stop_policy: Option<String>,
    /// Weight of this queue in its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Order of this queue by the usage of LocalQueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Policy for workloads that try several flavors at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// Rules for moving on to the next flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "has(self.preference) ? [self.whenCanBorrow, self.whenCanPreempt].all(v, v == 'TryNextFlavor') : true",
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
)])))]
pub struct FlavorFungibility {
    /// Next step when the workload fits a flavor only by borrowing: `MayStopSearch` or `TryNextFlavor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "MayStopSearch", "enum" = ["MayStopSearch", "TryNextFlavor"]))]
    pub when_can_borrow: Option<String>,
    /// Next step when the workload fits a flavor only by preempting: `MayStopSearch` or `TryNextFlavor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "TryNextFlavor", "enum" = ["MayStopSearch", "TryNextFlavor"]))]
    pub when_can_preempt: Option<String>,
    /// Which of the two is better when all flavors were tried: `BorrowingOverPreemption` or `PreemptionOverBorrowing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["BorrowingOverPreemption", "PreemptionOverBorrowing"]))]
    pub preference: Option<String>,
}

/// Which workloads may be preempted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
)])))]
pub struct ClusterQueuePreemption {
    /// Workloads of other queues that use quota borrowed from this one: `Never`, `LowerPriority` or `Any`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Never", "LowerPriority", "Any"]))]
    pub reclaim_within_cohort: Option<String>,
    /// Preemption while this queue borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({})))]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Workloads of this queue: `Never`, `LowerPriority` or `LowerOrNewerEqualPriority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]))]
    pub within_cluster_queue: Option<String>,
}

/// Preemption in the cohort while borrowing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BorrowWithinCohort {
    /// `Never` or `LowerPriority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Never", "LowerPriority"]))]
    pub policy: Option<String>,
    /// Only workloads up to this priority may be preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Admission checks of a queue, each for all or for some flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One admission check and where it applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Flavors for which the check runs; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 253), regex(pattern = SUBDOMAIN)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub on_flavors: Vec<String>,
}

/// How the use of LocalQueues orders a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionScope {
    /// `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
    #[schemars(extend("enum" = ["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]))]
    pub admission_mode: String,
}

/// Trying several flavors at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ConcurrentAdmissionPolicy {
    /// Migration when a better flavor becomes free.
    pub migration: ConcurrentAdmissionMigration,
}

/// Moving a running workload to a better flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ConcurrentAdmissionMigration {
    /// `TryPreferredFlavors` or `RetainFirstAdmission`.
    #[schemars(length(max = 253), extend("enum" = ["TryPreferredFlavors", "RetainFirstAdmission"]))]
    pub mode: String,
    /// Limits of the move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Limits of a move between flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ConcurrentAdmissionConstraints {
    /// The worst flavor that is still tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub last_acceptable_flavor_name: Option<String>,
}

/// Observed state of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterQueueStatus {
    /// Conditions; `Active` says whether workloads can be admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Quota reserved by workloads, admitted or not, per flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota used by admitted workloads, per flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Workloads waiting for quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<i32>,
    /// Workloads that hold quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserving_workloads: Option<i32>,
    /// Workloads admitted and not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_workloads: Option<i32>,
    /// Share of this queue in its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// How much of its quota is given, by resource over all flavors: for the columns of `kubectl get`, written by Berth alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub berth_used: Option<String>,
}

/// Use of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FlavorUsage {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    /// Use per resource.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ResourceUsage>,
}

/// Use of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// Amount in use, borrowed quota included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
    /// Part of `total` that is beyond nominalQuota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<Quantity>,
}
