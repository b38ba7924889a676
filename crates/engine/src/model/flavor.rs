//! ResourceFlavors.

use std::collections::BTreeMap;

use crate::model::{Taint, Tier, Toleration};

/// A ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorSpec {
    /// Object name.
    pub name: String,
    /// `spec.nodeLabels`.
    pub node_labels: BTreeMap<String, String>,
    /// `spec.nodeTaints`.
    pub taints: Vec<Taint>,
    /// `spec.tolerations`: tolerations of the flavor, which are added to the pods' own tolerations.
    pub tolerations: Vec<Toleration>,
    /// `spec.topologyName`: a flavor with a topology takes no workload until topology is implemented.
    pub topology: Option<String>,
    /// Annotation `berth.dev/forbidden-node-labels`: labels of nodes on which pods of the flavor must not run, each with the forbidden values (an empty list
    /// means every value). A flavor takes no pods that select one of its forbidden node labels themselves.
    pub forbidden: Vec<(String, Vec<String>)>,
    /// Label `berth.dev/capacity-tier`: the capacity tier of the flavor.
    pub tier: Option<Tier>,
    /// Text of the reason why the flavor takes no workloads, for example an annotation that cannot be read.
    pub unusable: Option<String>,
}
