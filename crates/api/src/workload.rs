//! Workload: the request of a job for quota, and the quota that it was given.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beyond_kueue::{pod_sets, slices};
use crate::rules::{LABEL, SUBDOMAIN, rules};
use crate::workload_status::WorkloadStatus;

root_object! {
    /// A Workload is the request of a job for quota, and the state of its admission.
    Workload, "workloads", NamespaceResourceScope, spec: WorkloadSpec, status: WorkloadStatus
}

/// Name of a pod set that has no name in the spec.
pub const DEFAULT_POD_SET_NAME: &str = "main";

/// CEL rules for the root of a Workload's schema, as pairs of rule and message.
pub fn workload_rules() -> Vec<(String, &'static str)> {
    let has = |side: &str, condition: &str| {
        format!(
            "(has({side}.status) && has({side}.status.conditions) && {side}.status.conditions.exists(c, \
             c.type == '{condition}' && c.status == 'True'))"
        )
    };
    let was_reserved = has("oldSelf", "QuotaReserved");
    let is_reserved = has("self", "QuotaReserved");
    let had_class = "(has(oldSelf.spec) && has(oldSelf.spec.priorityClassRef))";
    let has_class = "(has(self.spec) && has(self.spec.priorityClassRef))";
    let both = format!("{was_reserved} && {had_class} && {has_class}");
    let same_class =
        |field: &str| format!("self.spec.priorityClassRef.{field} == oldSelf.spec.priorityClassRef.{field}");
    let queue = |side: &str| format!("(has({side}.spec) && has({side}.spec.queueName) ? {side}.spec.queueName : '')");
    let limit = |side: &str| {
        format!(
            "(has({side}.spec) && has({side}.spec.maximumExecutionTimeSeconds) ? \
             {side}.spec.maximumExecutionTimeSeconds : 0)"
        )
    };
    let sets = "(has(self.spec) && has(self.spec.podSets) ? self.spec.podSets.size() : 0)";
    let assigned =
        "(has(self.status.admission.podSetAssignments) ? self.status.admission.podSetAssignments.size() : 0)";
    vec![
        (
            format!("!({is_reserved} && has(self.status.admission)) || {sets} == {assigned}"),
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        (
            format!("!{was_reserved} || {had_class} == {has_class}"),
            "priorityClassRef is immutable while workload quota reserved",
        ),
        (
            format!("!({both}) || {}", same_class("group")),
            "priorityClassRef.group is immutable while workload quota reserved",
        ),
        (
            format!("!({both}) || {}", same_class("kind")),
            "priorityClassRef.kind is immutable while workload quota reserved",
        ),
        (
            format!(
                "!({both}) || self.spec.priorityClassRef.group != 'scheduling.k8s.io' || \
                 self.spec.priorityClassRef.kind != 'PriorityClass' || {}",
                same_class("name")
            ),
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        ),
        (
            format!("!({was_reserved} && {is_reserved}) || {} == {}", queue("oldSelf"), queue("self")),
            "queueName is immutable while workload quota reserved",
        ),
        (
            format!(
                "!({} && {}) || {} == {}",
                has("oldSelf", "Admitted"),
                has("self", "Admitted"),
                limit("oldSelf"),
                limit("self")
            ),
            "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        ),
    ]
}

/// Desired state of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "has(self.priorityClassRef) ? has(self.priority) : true",
    "priority should not be nil when priorityClassRef is set",
)])))]
pub struct WorkloadSpec {
    /// Pod sets: groups of pods that share a template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// Class that `priority` came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
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
    /// Gates that keep the workload from preempting others until they are opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub preemption_gates: Vec<PreemptionGate>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub count: Option<i32>,
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
    #[schemars(length(max = 63))]
    pub required: Option<String>,
    /// Topology level (node label) of which one domain holds all pods if possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub preferred: Option<String>,
    /// If true, the pods may be in any domains, and the capacity of nodes is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Key of the pod label that holds the index of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub pod_index_label: Option<String>,
    /// Key of the pod label that holds the index of the pod's sub-group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub sub_group_index_label: Option<String>,
    /// Number of sub-groups (replicated jobs) of the pod set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sub_group_count: Option<i32>,
    /// Name of a group of pod sets that are placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub pod_set_group_name: Option<String>,
    /// Topology level (node label) of which one domain must hold each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// Number of pods of each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
    /// Layers of nested slices, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    pub podset_slice_required_topology_constraints: Vec<PodSetSliceRequiredTopologyConstraint>,
}

/// One layer of nested slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PodSetSliceRequiredTopologyConstraint {
    /// Topology level (node label) of which one domain must hold each slice.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
    /// Number of pods of each slice.
    #[schemars(range(min = 1))]
    pub size: i32,
}

/// Reference to the class a priority came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[
    (
        "self.kind == 'PriorityClass' || self.group != 'scheduling.k8s.io'",
        "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
    ),
    (
        "self.kind == 'WorkloadPriorityClass' || self.group != 'kueue.x-k8s.io'",
        "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
    ),
])))]
pub struct PriorityClassRef {
    /// API group of the class: either `kueue.x-k8s.io` or `scheduling.k8s.io`.
    #[schemars(extend("enum" = ["kueue.x-k8s.io", "scheduling.k8s.io"]))]
    pub group: String,
    /// Kind of the class: either `WorkloadPriorityClass` or `PriorityClass`.
    #[schemars(extend("enum" = ["WorkloadPriorityClass", "PriorityClass"]))]
    pub kind: String,
    /// Name of the class.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
}

/// A gate on preemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PreemptionGate {
    /// Name of the gate, unique within the workload.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

impl PodSet {
    /// Name of the pod set; `main` if the spec has none.
    pub fn effective_name(&self) -> &str {
        self.name.as_deref().unwrap_or(DEFAULT_POD_SET_NAME)
    }

    /// Number of pods; 1 if the spec has none.
    pub fn effective_count(&self) -> i32 {
        self.count.unwrap_or(1)
    }
}

impl PodSetTopologyRequest {
    /// Whether the topology request asks for a placement. Kueue writes the labels for pod indexes and sub-groups into the topology request of every
    /// Workload, because its queue may have only flavors with a topology; these labels alone do not ask for a placement.
    pub fn asks(&self) -> bool {
        self.required.is_some()
            || self.preferred.is_some()
            || self.unconstrained.is_some()
            || self.pod_set_slice_required_topology.is_some()
            || self.pod_set_slice_size.is_some()
            || !self.podset_slice_required_topology_constraints.is_empty()
    }
}

impl WorkloadSpec {
    /// Whether the workload may be admitted: false only if `active` is false.
    pub fn is_active(&self) -> bool {
        self.active.unwrap_or(true)
    }
}
