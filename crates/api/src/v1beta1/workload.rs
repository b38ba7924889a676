//! Desired state of a Workload in v1beta1, and the CEL rules for the whole object.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beyond_kueue::{pod_sets, slices};
use crate::rules::{LABEL, SUBDOMAIN, rules};

/// CEL rules for the root of a Workload's schema in v1beta1, as pairs of rule and message.
pub fn workload_rules() -> Vec<(String, &'static str)> {
    let reserved = "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
                    c.type == 'QuotaReserved' && c.status == 'True'))";
    let sources = "has(oldSelf.spec) && has(oldSelf.spec.priorityClassSource) && has(self.spec) && \
                   has(self.spec.priorityClassSource)";
    let names = "has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName)";
    let of_the_class = [
        (
            format!("!({reserved} && {sources}) || self.spec.priorityClassSource == oldSelf.spec.priorityClassSource"),
            "priorityClassSource is immutable while workload quota reserved",
        ),
        (
            format!(
                "!({reserved} && {sources} && {names}) || \
                 self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass' || \
                 self.spec.priorityClassName == oldSelf.spec.priorityClassName"
            ),
            "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to kueue.x-k8s.io/workloadpriorityclass",
        ),
    ];
    let mut rules = crate::workload_rules();
    rules.retain(|(_, message)| !message.starts_with("priorityClassRef"));
    let behind_the_first = rules.len().min(1);
    rules.splice(behind_the_first..behind_the_first, of_the_class);
    rules
}

/// Desired state of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "has(self.priorityClassName) ? has(self.priority) : true",
    "priority should not be nil when priorityClassName is set",
)])))]
pub struct WorkloadSpec {
    /// Pod sets: groups of pods that share a template.
    #[schemars(length(min = 1, max = 18), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = pod_sets()
    ))]
    pub pod_sets: Vec<PodSet>,
    /// Name of the LocalQueue, in the namespace of the Workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub queue_name: Option<String>,
    /// Name of the class that `priority` came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub priority_class_name: Option<String>,
    /// Kind of the class that `priority` came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "default" = "",
        "enum" = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]
    ))]
    pub priority_class_source: Option<String>,
    /// Priority of the workload; a workload of higher priority goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// If true, the workload may be admitted; false evicts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub active: Option<bool>,
    /// Number of seconds for which the workload may stay admitted before it is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
}

/// A pod set: pods that share a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "!has(self.minCount) || self.count >= self.minCount",
    "minCount should be positive and less or equal to count",
)])))]
pub struct PodSet {
    /// Name of the pod set, unique within the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("default" = "main"))]
    pub name: Option<String>,
    /// Pod template of the pod set.
    pub template: PodTemplateSpec,
    /// Number of pods of the pod set.
    #[schemars(range(min = 0), extend("default" = 1))]
    pub count: i32,
    /// Smallest number of pods with which the workload can run; the field allows partial admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// Request for a placement of the pods in a Topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

/// Request for a placement of pods in a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = slices()))]
pub struct PodSetTopologyRequest {
    /// Topology level (node label) of which one domain must hold all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// Topology level (node label) of which one domain holds all pods if possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// If true, the pods may be in any domains, and the capacity of nodes is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Key of the pod label that holds the index of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Key of the pod label that holds the index of the pod's sub-group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// Number of sub-groups (replicated jobs) of the pod set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Name of a group of pod sets that are placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Topology level (node label) of which one domain must hold each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Number of pods of each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
}
