//! ClusterQueue and Cohort in v1beta1.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::beyond_kueue::{BELOW_A_PARENT, groups_of_queue, resource_group, selector};
use crate::cluster_queue::{ClusterQueuePreemption, FlavorUsage};
use crate::local_queue::AdmissionFairSharingStatus;
use crate::quota::{FairSharing, FlavorQuotas};
use crate::rules::{SUBDOMAIN, rules, rules_with_value};

/// Desired state of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[
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
    /// Groups of resources and flavors with their quotas. All resources of a group come from the same flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = groups_of_queue()))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Name of the cohort whose unused quota this queue may borrow; a Cohort object of that name is optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cohort: Option<String>,
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
    /// Names of AdmissionChecks that run for all flavors; this list takes precedence over `admissionChecksStrategy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 316)))]
    pub admission_checks: Vec<String>,
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
    /// Next step if the workload fits a flavor only by borrowing: either `MayStopSearch` or `TryNextFlavor`; `Borrow` is the old name of `MayStopSearch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "MayStopSearch", "enum" = ["MayStopSearch", "TryNextFlavor", "Borrow"]))]
    pub when_can_borrow: Option<String>,
    /// Next step if the workload fits a flavor only by preempting: either `MayStopSearch` or `TryNextFlavor`; `Preempt` is the old name of `MayStopSearch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "TryNextFlavor", "enum" = ["MayStopSearch", "TryNextFlavor", "Preempt"]))]
    pub when_can_preempt: Option<String>,
    /// Choice between a flavor that needs borrowing and one that needs preemption, after all flavors were tried: either `BorrowingOverPreemption` or
    /// `PreemptionOverBorrowing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["BorrowingOverPreemption", "PreemptionOverBorrowing"]))]
    pub preference: Option<String>,
}

/// Admission checks of a queue, each for all or for some flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionChecksStrategy {
    /// Admission checks, each with its flavors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One admission check and the flavors to which it applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(max = 316))]
    pub name: String,
    /// Names of the flavors for which the check runs; an empty list means all flavors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 253), regex(pattern = SUBDOMAIN)))]
    pub on_flavors: Vec<String>,
}

/// Order of a ClusterQueue's workloads by the usage of their LocalQueues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionScope {
    /// Mode of the order: either `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
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
    /// Number of workloads that wait for quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<i32>,
    /// Number of workloads that hold quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserving_workloads: Option<i32>,
    /// Number of workloads that are admitted and not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_workloads: Option<i32>,
    /// Field without effect; the field is kept so that old objects are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads_status: Option<ClusterQueuePendingWorkloadsStatus>,
    /// Share of this queue in its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// Reserved quota by resource, summed over all flavors, for the columns of `kubectl get`. The field `berthUsed` does not exist in Kueue, so only Berth
    /// writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub berth_used: Option<String>,
}

/// The first pending workloads of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterQueuePendingWorkloadsStatus {
    /// Pending workloads, in the order of the queue.
    #[serde(rename = "clusterQueuePendingWorkload", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_queue_pending_workloads: Vec<ClusterQueuePendingWorkload>,
    /// Time at which the list of pending workloads last changed.
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
    /// Name of the workload.
    pub name: String,
    /// Namespace of the workload.
    pub namespace: String,
}

/// Share of a queue or cohort as last computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FairSharingStatus {
    /// Highest usage above nominal quota over the resources, in thousandths of the cohort's lendable amount, divided by the weight.
    pub weighted_share: i64,
    /// Field without effect; the field is kept so that old objects are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Desired state of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&BELOW_A_PARENT)))]
pub struct CohortSpec {
    /// Name of the parent cohort; a cohort without a parent is the root of its tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub parent_name: Option<String>,
    /// Quota of the cohort itself, which all ClusterQueues below it may use.
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
