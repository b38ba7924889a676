//! ClusterQueue and Cohort in v1beta1.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::beyond_kueue::{BELOW_A_PARENT, groups_of_queue, resource_group, selector};
use crate::cluster_queue::{ClusterQueuePreemption, FlavorUsage};
use crate::local_queue::AdmissionFairSharingStatus;
use crate::quota::{FairSharing, FlavorQuotas};
use crate::rules::{SUBDOMAIN, rules, telling};

/// Desired state of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&[
    [
        "has(self.cohort) || !has(self.resourceGroups) || !self.resourceGroups.exists(g, g.flavors.exists(f, \
         f.resources.exists(r, has(r.borrowingLimit))))",
        "",
        "borrowingLimit must be nil when cohort is empty",
        "",
    ],
    [
        "has(self.cohort) || !has(self.resourceGroups) || !self.resourceGroups.exists(g, g.flavors.exists(f, \
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
    pub cohort: Option<String>,
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
    /// Names of AdmissionChecks that run for all flavors; wins over `admissionChecksStrategy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 316)))]
    pub admission_checks: Vec<String>,
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
}

/// A set of resources and the flavors that provide all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = resource_group()))]
pub struct ResourceGroup {
    /// Names of the resources that this group provides.
    #[schemars(length(min = 1, max = 64))]
    pub covered_resources: Vec<String>,
    /// Flavors in the order in which they are tried.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors: Vec<FlavorQuotas>,
}

/// Rules for moving on to the next flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "has(self.preference) ? [self.whenCanBorrow, self.whenCanPreempt].all(v, v == 'TryNextFlavor') : true",
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
)])))]
pub struct FlavorFungibility {
    /// Next step when the workload fits a flavor only by borrowing: `MayStopSearch` or `TryNextFlavor`; `Borrow` is the
    /// old word for `MayStopSearch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "MayStopSearch", "enum" = ["MayStopSearch", "TryNextFlavor", "Borrow"]))]
    pub when_can_borrow: Option<String>,
    /// Next step when the workload fits a flavor only by preempting: `MayStopSearch` or `TryNextFlavor`; `Preempt` is the
    /// old word for `MayStopSearch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "TryNextFlavor", "enum" = ["MayStopSearch", "TryNextFlavor", "Preempt"]))]
    pub when_can_preempt: Option<String>,
    /// Which of the two is better when all flavors were tried: `BorrowingOverPreemption` or `PreemptionOverBorrowing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["BorrowingOverPreemption", "PreemptionOverBorrowing"]))]
    pub preference: Option<String>,
}

/// Admission checks of a queue, each for all or for some flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One admission check and where it applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(max = 316))]
    pub name: String,
    /// Flavors for which the check runs; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 253), regex(pattern = SUBDOMAIN)))]
    pub on_flavors: Vec<String>,
}

/// How the use of LocalQueues orders a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionScope {
    /// `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
    pub admission_mode: String,
}

/// Observed state of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterQueueStatus {
    /// Conditions; `Active` says whether workloads can be admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
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
    /// Not used; kept so that old objects are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads_status: Option<ClusterQueuePendingWorkloadsStatus>,
    /// Share of this queue in its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// How much of its quota is given, by resource over all flavors: for the columns of `kubectl get`, written by Berth alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub berth_used: Option<String>,
}

/// The first pending workloads of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterQueuePendingWorkloadsStatus {
    /// The workloads, in order.
    #[serde(rename = "clusterQueuePendingWorkload", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_queue_pending_workloads: Vec<ClusterQueuePendingWorkload>,
    /// When the list last changed.
    pub last_change_time: Time,
}

impl Default for ClusterQueuePendingWorkloadsStatus {
    fn default() -> Self {
        Self { cluster_queue_pending_workloads: Vec::new(), last_change_time: Time(jiff::Timestamp::UNIX_EPOCH) }
    }
}

/// A pending workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterQueuePendingWorkload {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Share of a queue or cohort as last computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FairSharingStatus {
    /// Highest use above nominal quota over the resources, in thousandths of the cohort's lendable amount, divided by
    /// the weight.
    pub weighted_share: i64,
    /// Not used; kept so that old objects are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Desired state of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&BELOW_A_PARENT)))]
pub struct CohortSpec {
    /// Parent cohort; absent makes this one a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub parent_name: Option<String>,
    /// Quota of the cohort itself, usable by everything below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Weight of this cohort in its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// Observed state of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CohortStatus {
    /// Share of this cohort in its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
