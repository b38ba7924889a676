//! ResourceFlavor: the nodes that a kind of capacity stands for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{SUBDOMAIN, rules, taints, tolerations};

root_object! {
    /// A kind of capacity, described by node labels and taints.
    ResourceFlavor, "resourceflavors", ClusterResourceScope, spec: ResourceFlavorSpec
}

/// Desired state of a ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[
    (
        "has(self.topologyName) ? has(self.nodeLabels) && self.nodeLabels.size() > 0 : true",
        "at least one nodeLabel is required when topology is set",
    ),
    (
        "has(oldSelf.topologyName) ? has(self.topologyName) && oldSelf.topologyName == self.topologyName : true",
        "topologyName is immutable when topologyName is set",
    ),
])))]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes; injected as node selector into admitted pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "x-kubernetes-map-type" = "atomic"))]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes, which pods or the flavor's tolerations must tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = taints()))]
    pub node_taints: Vec<Taint>,
    /// Tolerations added to admitted pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = tolerations()))]
    pub tolerations: Vec<Toleration>,
    /// Topology of the nodes; turns on topology-aware placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub topology_name: Option<String>,
}
