//! Topology: the levels of a data centre, as node labels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{QUALIFIED_NAME, rules};

root_object! {
    /// A Topology has the levels of a data centre, from the widest to the narrowest domain.
    Topology, "topologies", ClusterResourceScope, spec: TopologySpec
}

/// Desired state of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologySpec {
    /// Levels of the topology, widest first.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules(&[
        (
            "oldSelf == self || [oldSelf, self].all(l, l[l.size() - 1].nodeLabel == 'kubernetes.io/hostname')",
            "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
        ),
        ("self.all(a, self.exists_one(b, a == b))", "must be unique"),
        (
            "!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname') || \
             self[self.size() - 1].nodeLabel == 'kubernetes.io/hostname'",
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ),
    ])))]
    pub levels: Vec<TopologyLevel>,
}

/// One level of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologyLevel {
    /// Node label whose values are the domains of this level.
    #[schemars(length(min = 1, max = 316), regex(pattern = QUALIFIED_NAME))]
    pub node_label: String,
}
