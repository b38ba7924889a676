//! Observed state of a Workload in v1beta1.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::rules::{LABEL, SUBDOMAIN, rules, tolerations};
use crate::workload_status::{PodSetRequest, ReclaimablePod, RequeueState, WorkloadSchedulingStatsEviction};

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
    /// Conditions of the workload, `QuotaReserved`, `Admitted` and `Finished` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Reserved quota with the assigned flavors; the field is set and cleared as a unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// Number of requeues, and the time from which the workload may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Number of pods of each pod set that will not run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// States of the workload's admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Requests of each pod set, as the quota counted them while the workload was pending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resource_requests: Vec<PodSetRequest>,
    /// Number of seconds for which the workload was admitted before its last eviction; the API keeps the misspelt name of the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_exexcution_time_seconds: Option<i32>,
    /// Numbers of evictions by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Names of the worker clusters that were proposed for the workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub nominated_cluster_names: Vec<String>,
    /// Name of the worker cluster that runs the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Failed nodes of the workload's placement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
}

/// Reserved quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Admission {
    /// Name of the ClusterQueue whose quota is used.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cluster_queue: String,
    /// Assignment of each pod set.
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// Assignment of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("default" = "main"))]
    pub name: String,
    /// Name of the flavor of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("additionalProperties" = json!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN})))]
    pub flavors: BTreeMap<String, String>,
    /// Amount of each resource for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// Number of admitted pods; after a partial admission, less than the pod set's `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Placement of the pods in a Topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// State of a placement that is decided after the admission checks: either `Pending` or `Ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<String>,
}

/// Placement of one pod set: its domains, and the number of pods in each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologyAssignment {
    /// Node labels of the levels, widest first.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub levels: Vec<String>,
    /// Domains of the placement.
    pub domains: Vec<TopologyDomainAssignment>,
}

/// One domain and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologyDomainAssignment {
    /// Values of the node labels of the levels, one entry for each level.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
    /// Number of pods in this domain.
    #[schemars(range(min = 1))]
    pub count: i32,
}

/// State of one admission check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckState {
    /// Name of the AdmissionCheck.
    #[schemars(length(max = 316))]
    pub name: String,
    /// State of the check: one of `Pending`, `Ready`, `Retry` and `Rejected`.
    #[schemars(extend("enum" = ["Pending", "Ready", "Retry", "Rejected"]))]
    pub state: String,
    /// Time at which `state` last changed.
    pub last_transition_time: Time,
    /// Explanation of the state.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Number of seconds for which the workload waits after an eviction by this check.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// Number of retries of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// Changes of the pods that the check requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_set_updates: Vec<PodSetUpdate>,
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

/// Changes of the pods of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PodSetUpdate {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// Labels that the pods get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that the pods get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Node selector entries that the pods get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations that the pods get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-validations" = tolerations()))]
    pub tolerations: Vec<Toleration>,
}

/// Numbers of evictions by reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SchedulingStats {
    /// Numbers of evictions, one entry for each reason and cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason", "underlyingCause"]))]
    pub evictions: Vec<WorkloadSchedulingStatsEviction>,
}

/// A node that failed under the workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct UnhealthyNode {
    /// Name of the node.
    pub name: String,
}
