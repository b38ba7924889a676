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
    /// Conditions, `QuotaReserved`, `Admitted` and `Finished` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
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
    /// Seconds spent admitted before the last eviction; the name is misspelt for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_exexcution_time_seconds: Option<i32>,
    /// Counts of evictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that were proposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub nominated_cluster_names: Vec<String>,
    /// Worker cluster that runs the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Nodes of the placement that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
}

/// Reserved quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Admission {
    /// ClusterQueue whose quota is used.
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
    pub delayed_topology_request: Option<String>,
}

/// Domains and pod counts of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologyAssignment {
    /// Node labels of the levels, widest first.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub levels: Vec<String>,
    /// The domains.
    pub domains: Vec<TopologyDomainAssignment>,
}

/// One domain and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologyDomainAssignment {
    /// Values of the levels, one entry per level.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
    /// Pods in this domain.
    #[schemars(range(min = 1))]
    pub count: i32,
}

/// Answer of one admission check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckState {
    /// Name of the AdmissionCheck.
    #[schemars(length(max = 316))]
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
    #[schemars(length(max = 8), extend("x-kubernetes-validations" = tolerations()))]
    pub tolerations: Vec<Toleration>,
}

/// Counts of evictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SchedulingStats {
    /// One entry per reason and cause.
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
