//! Desired state of a Workload in v1beta1, and the rules over the whole object.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beyond_kueue::{pod_sets, slices};
use crate::rules::{LABEL, SUBDOMAIN, rules};

/// Rules over the whole Workload, for the root of its schema: (rule, message).
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
    /// Groups of equal pods.
    #[schemars(length(min = 1, max = 18), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = pod_sets()
    ))]
    pub pod_sets: Vec<PodSet>,
    /// LocalQueue in the same namespace.
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
    /// Priority; higher goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// True if the workload may be admitted; false evicts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub active: Option<bool>,
    /// Seconds the workload may stay admitted before it is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
}

/// A group of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "!has(self.minCount) || self.count >= self.minCount",
    "minCount should be positive and less or equal to count",
)])))]
pub struct PodSet {
    /// Name, unique in the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("default" = "main"))]
    pub name: Option<String>,
    /// The pods.
    pub template: PodTemplateSpec,
    /// How many pods.
    #[schemars(range(min = 0), extend("default" = 1))]
    pub count: i32,
    /// Fewest pods with which the workload can run; allows partial admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// Wishes about the place of the pods in a Topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

/// Wishes about the place of pods in a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = slices()))]
pub struct PodSetTopologyRequest {
    /// All pods in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// All pods in one domain of this level if possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Any place, but capacity is checked on nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Label of the pods that holds their index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Label of the pods that holds the index of their sub-group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// How many sub-groups (replicated jobs) the pod set has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets with the same group name are placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Level in which each slice must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods per slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
}
