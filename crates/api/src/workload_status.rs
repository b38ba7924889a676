//! Observed state of a Workload.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::rules::{LABEL, SUBDOMAIN, rules, tolerations};
use crate::topology_assignment::TopologyAssignment;
use crate::workload::DEFAULT_POD_SET_NAME;

/// Observed state of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[
    (
        "has(self.clusterName) && has(oldSelf.clusterName) ? self.clusterName == oldSelf.clusterName : true",
        "clusterName is immutable once set",
    ),
    (
        "!(has(self.clusterName) && has(self.nominatedClusterNames) && self.nominatedClusterNames.size() > 0)",
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
])))]
pub struct WorkloadStatus {
    /// Conditions, `QuotaReserved`, `Admitted` and `Finished` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The quota that was reserved and the flavors chosen; set and cleared as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// Evictions so far and when the workload may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods of each pod set that will not run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// Answers of the admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Requests of each pod set, as they were counted while pending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds spent admitted before the last eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Counts of evictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that were proposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub nominated_cluster_names: Vec<String>,
    /// Worker cluster that runs the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Nodes of the placement that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// Positions of the preemption gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// Reserved quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Admission {
    /// ClusterQueue whose quota is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cluster_queue: Option<String>,
    /// Assignment of each pod set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// Assignment of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("default" = "main"))]
    pub name: Option<String>,
    /// Flavor per resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("additionalProperties" = json!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN})))]
    pub flavors: BTreeMap<String, String>,
    /// Amount per resource for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// Pods admitted; less than the pod set's count after partial admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Where the pods go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// State of a placement that is decided after the admission checks: `Pending` or `Ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 7), extend("enum" = ["Pending", "Ready"]))]
    pub delayed_topology_request: Option<String>,
}

/// Answer of one admission check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckState {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    #[schemars(extend("enum" = ["Pending", "Ready", "Retry", "Rejected"]))]
    pub state: String,
    /// When `state` last changed.
    pub last_transition_time: Time,
    /// Explanation for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Seconds to wait after an eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// How often the check was retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// Changes to the pods that the check demands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// Changes to the pods of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PodSetUpdate {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Node selector entries to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = tolerations()))]
    pub tolerations: Vec<Toleration>,
}

/// Evictions so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RequeueState {
    /// How often the workload was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// When it may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods of one pod set that will not run again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReclaimablePod {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// How many pods.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// Requests of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PodSetRequest {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// Amount per resource for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Quantity>,
}

/// Counts of evictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SchedulingStats {
    /// One entry per reason and cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason", "underlyingCause"])
    )]
    pub evictions: Vec<WorkloadSchedulingStatsEviction>,
}

/// How often a workload was evicted for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WorkloadSchedulingStatsEviction {
    /// Reason of the Evicted condition.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// Finer cause, possibly empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// How often.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A node that failed under the workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct UnhealthyNode {
    /// Name of the node.
    #[schemars(length(max = 63))]
    pub name: String,
}

/// Position of one preemption gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PreemptionGateState {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// `Closed` or `Open`.
    #[schemars(extend("enum" = ["Closed", "Open"]))]
    pub position: String,
    /// When `position` last changed.
    pub last_transition_time: Time,
}

impl Default for AdmissionCheckState {
    fn default() -> Self {
        Self {
            name: String::new(),
            state: String::new(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            message: String::new(),
            requeue_after_seconds: None,
            retry_count: None,
            pod_set_updates: Vec::new(),
        }
    }
}

impl Default for PreemptionGateState {
    fn default() -> Self {
        Self { name: String::new(), position: String::new(), last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH) }
    }
}

impl PodSetAssignment {
    /// The name, `main` when left out.
    pub fn effective_name(&self) -> &str {
        self.name.as_deref().unwrap_or(DEFAULT_POD_SET_NAME)
    }
}
