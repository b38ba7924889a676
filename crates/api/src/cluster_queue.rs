//! ClusterQueue: quota, order and preemption policy of one tenant.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::beyond_kueue::{groups_of_queue, selector};
use crate::quota::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::rules::{SUBDOMAIN, rules, rules_with_value};

root_object! {
    /// A pool of quota with its own queue of workloads.
    ClusterQueue, "clusterqueues", ClusterResourceScope, spec: ClusterQueueSpec, status: ClusterQueueStatus
}

/// Desired state of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[
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
    /// Groups of resources and flavors with their quotas. All resources of a group come from the same flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = groups_of_queue()))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Name of the cohort whose unused quota this queue may borrow; a Cohort object of that name is optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cohort_name: Option<String>,
    /// Order in which the queue's workloads are admitted: either `StrictFIFO` or `BestEffortFIFO`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "BestEffortFIFO", "enum" = ["StrictFIFO", "BestEffortFIFO"]))]
    pub queueing_strategy: Option<String>,
    /// Selector of the namespaces whose workloads may use this queue. An absent selector matches no namespace, an empty selector all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = selector()))]
    pub namespace_selector: Option<LabelSelector>,
    /// Rules for trying the next flavor instead of borrowing or preempting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({})))]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Workloads that a pending workload of this queue may preempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({})))]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Admission checks that workloads must pass before they are admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Stop policy of the queue: `None`, `Hold` (no new workload is admitted) or `HoldAndDrain` (admitted workloads are evicted, too).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "None", "enum" = ["None", "Hold", "HoldAndDrain"]))]
    pub stop_policy: Option<String>,
    /// Weight of this queue in its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Order of this queue's workloads by the usage of their LocalQueues.
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
    /// Next step if the workload fits a flavor only by borrowing: either `MayStopSearch` or `TryNextFlavor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "MayStopSearch", "enum" = ["MayStopSearch", "TryNextFlavor"]))]
    pub when_can_borrow: Option<String>,
    /// Next step if the workload fits a flavor only by preempting: either `MayStopSearch` or `TryNextFlavor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "TryNextFlavor", "enum" = ["MayStopSearch", "TryNextFlavor"]))]
    pub when_can_preempt: Option<String>,
    /// Choice between a flavor that needs borrowing and one that needs preemption, after all flavors were tried: either `BorrowingOverPreemption` or
    /// `PreemptionOverBorrowing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["BorrowingOverPreemption", "PreemptionOverBorrowing"]))]
    pub preference: Option<String>,
}

/// Workloads that a pending workload may preempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
)])))]
pub struct ClusterQueuePreemption {
    /// Preemption of workloads of other queues that use quota borrowed from this queue: one of `Never`, `LowerPriority` and `Any`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Never", "LowerPriority", "Any"]))]
    pub reclaim_within_cohort: Option<String>,
    /// Preemption while this queue borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({})))]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Preemption of workloads of this queue: one of `Never`, `LowerPriority` and `LowerOrNewerEqualPriority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]))]
    pub within_cluster_queue: Option<String>,
}

/// Preemption in the cohort while borrowing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BorrowWithinCohort {
    /// Policy of preemption in the cohort while the queue borrows, which is `Never` or `LowerPriority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Never", "LowerPriority"]))]
    pub policy: Option<String>,
    /// Highest priority of workloads that may be preempted while the queue borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Admission checks of a queue, each for all or for some flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionChecksStrategy {
    /// Admission checks, each with its flavors.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One admission check and the flavors to which it applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Names of the flavors for which the check runs; an empty list means all flavors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 253), regex(pattern = SUBDOMAIN)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub on_flavors: Vec<String>,
}

/// Order of a ClusterQueue's workloads by the usage of their LocalQueues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionScope {
    /// Mode of the order: either `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
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
    /// Mode of the migration: either `TryPreferredFlavors` or `RetainFirstAdmission`.
    #[schemars(length(max = 253), extend("enum" = ["TryPreferredFlavors", "RetainFirstAdmission"]))]
    pub mode: String,
    /// Limits of the migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Limits of a move between flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ConcurrentAdmissionConstraints {
    /// Name of the last flavor, in the order of the ClusterQueue, that is still tried.
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
    /// Number of workloads that wait for quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<i32>,
    /// Number of workloads that hold quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserving_workloads: Option<i32>,
    /// Number of workloads that are admitted and not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_workloads: Option<i32>,
    /// Share of this queue in its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// Reserved quota by resource, summed over all flavors, for the columns of `kubectl get`. The field `berthUsed` does not exist in Kueue, so only Berth
    /// writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub berth_used: Option<String>,
}

/// Usage of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FlavorUsage {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    /// Usage by resource.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// Amount in use, borrowed quota included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
    /// Part of `total` above `nominalQuota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<Quantity>,
}
