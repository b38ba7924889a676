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
    /// `spec.tolerations`, added to the pods' own.
    pub tolerations: Vec<Toleration>,
    /// `spec.topologyName`: such a flavor takes no workload until topology is implemented.
    pub topology: Option<String>,
    /// Annotation `berth.dev/forbidden-node-labels`: node labels on which its pods must not land, with the values (none:
    /// every value). Pods that select such a label themselves do not belong in the flavor.
    pub forbidden: Vec<(String, Vec<String>)>,
    /// Label `berth.dev/capacity-tier`: the tier of its capacity.
    pub tier: Option<Tier>,
    /// Text of the reason why the flavor takes no workloads (an annotation that cannot be read).
    pub unusable: Option<String>,
}
