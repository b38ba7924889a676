//! core/v1 Node, as far as Berth reads it: its taints. The rest of a node, which is a hundred times as large, is skipped.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "";
/// Version.
pub const VERSION: &str = "v1";
/// `apiVersion` of a Node.
pub const API_VERSION: &str = "v1";

/// Taints by which clouds and their agents announce that they are about to take a machine away: the taint of GKE, the taint of AWS's node termination handler
/// for spot interruptions, and the taint of AKS for a drain before a spot eviction. None of the taints in this list of the clouds' taints has a meaning besides
/// the announcement.
pub const RECLAIM_TAINTS: [&str; 3] = [
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
];

root_object! {
    @in (crate::node)
    /// A machine of the cluster.
    Node, "nodes", ClusterResourceScope, spec: NodeSpec
}

/// Spec of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Taints of the node, which keep pods away.
    pub taints: Vec<Taint>,
}

impl Node {
    /// Key of the taint by which the cloud announces that it will take the node away; `None` if the node has none of the taints in `announcing`.
    #[must_use]
    pub fn reclaimed_by(&self, announcing: &BTreeSet<String>) -> Option<&str> {
        let mut keys = self.spec.taints.iter().map(|taint| taint.key.as_str());
        keys.find(|key| announcing.contains(*key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_core::Resource;
    use serde_json::json;

    #[test]
    fn node_is_reclaimed_only_by_taints_that_announce_termination() {
        let node = |taints: serde_json::Value| -> Node {
            serde_json::from_value(
                json!({"metadata": {"name": "n", "uid": "u"}, "status": {"images": [{"names": ["i"]}]},
                "spec": {"podCIDR": "10.0.0.0/24", "taints": taints}}),
            )
            .unwrap()
        };
        let spot = json!({"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"});
        let ending = json!({"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"});
        let known = BTreeSet::from(RECLAIM_TAINTS.map(str::to_owned));
        assert_eq!(node(json!([spot])).reclaimed_by(&known), None);
        let announced = node(json!([spot, ending]));
        assert_eq!(announced.reclaimed_by(&known), Some("cloud.google.com/impending-node-termination"));
        let bare: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(bare.reclaimed_by(&known), None);
        assert_eq!(Node::url_path(&(), None), "/api/v1/nodes");
    }
}
