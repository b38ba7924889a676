//! Nodes that are being taken away, and the capacity that Workloads lose with these nodes.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::node::Node;
use berth_cache::Name;
use jiff::Timestamp;

use super::loss::Loss;
use super::tier_assignment::TierAssignment;
use crate::notes::WorkloadRecords;

/// State of the nodes that are being taken away.
#[derive(Debug, Default)]
pub struct Reclaims {
    nodes: BTreeMap<String, Leaving>,
}

/// A node that is being taken away.
#[derive(Debug)]
struct Leaving {
    uid: String,
    taint: String,
    /// True if the pods of the node are known.
    asked: bool,
}

impl Reclaims {
    /// Names of the nodes that are being taken away.
    pub fn nodes(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// Whether the pods of a node still have to be read.
    pub(super) fn is_unasked(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|leaving| !leaving.asked)
    }

    /// Records a node that was observed, or its deletion.
    pub fn put(&mut self, name: &str, node: Option<&Node>, taints: &BTreeSet<String>) -> Option<NodeNews> {
        let Some((node, taint)) = node.and_then(|node| Some((node, node.reclaimed_by(taints)?))) else {
            return self.nodes.remove(name).map(|_| NodeNews::Stays);
        };
        if self.nodes.get(name).is_some_and(|known| known.uid == node.uid()) {
            return None;
        }
        let leaving = Leaving { uid: node.uid().to_owned(), taint: taint.to_owned(), asked: false };
        self.nodes.insert(name.to_owned(), leaving);
        Some(NodeNews::Leaves)
    }

    /// Records the answer about the pods of a node: the Workloads that have pods on the node lose their capacity there. The result of `note_pods` has the names
    /// of the Workloads that lose capacity.
    pub fn note_pods(
        &mut self,
        workloads: &mut WorkloadRecords,
        node: &str,
        lost: Vec<(Name, String, TierAssignment)>,
        now: Timestamp,
    ) -> Vec<Name> {
        let Some(leaving) = self.nodes.get_mut(node) else { return Vec::new() };
        leaving.asked = true;
        let taint = &leaving.taint;
        let mut names = Vec::new();
        for (name, uid, assignment) in lost {
            let loss = Loss::new(assignment, (node, taint), now);
            workloads.change(&uid, |notes| notes.capacity_mut().note_loss(loss));
            names.push(name);
        }
        names
    }
}

/// The effect of an observation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeNews {
    /// The node is being taken away.
    Leaves,
    /// The node is gone, or is not being taken away any more.
    Stays,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use berth_engine::model::{Shape, Tier};
    use serde_json::json;

    use super::*;

    fn node(uid: &str, taint: &str) -> Node {
        let spec = json!({"taints": [{"key": taint, "effect": "NoSchedule"}]});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": uid}, "spec": spec});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn node_is_reported_once_when_termination_is_announced_or_withdrawn() {
        let taints = BTreeSet::from(["ends".to_owned()]);
        let mut reclaims = Reclaims::default();
        let mut put = |node: Option<&Node>| reclaims.put("n", node, &taints);
        assert_eq!(put(Some(&node("1", "other"))), None);
        assert_eq!([put(Some(&node("1", "ends"))), put(Some(&node("1", "ends")))], [Some(NodeNews::Leaves), None]);
        assert_eq!(put(Some(&node("2", "ends"))), Some(NodeNews::Leaves), "another machine of that name");
        assert_eq!([put(Some(&node("2", "other"))), put(None)], [Some(NodeNews::Stays), None]);
    }

    #[test]
    fn workload_loses_capacity_only_with_known_node() {
        let taints = BTreeSet::from(["ends".to_owned()]);
        let assignment = TierAssignment {
            pod_set: "main".into(),
            flavor: "spot".into(),
            tier: Tier::Spot,
            shape: Shape::default(),
            pods: 1,
        };
        let lost = || vec![(("team".to_owned(), "a".to_owned()), "u".to_owned(), assignment.clone())];
        let (mut reclaims, mut all) = (Reclaims::default(), WorkloadRecords::default());
        let loss = |all: &WorkloadRecords| all.of("u").capacity().loss().map(|loss| loss.concerns(&assignment));
        assert!(reclaims.note_pods(&mut all, "n", lost(), Timestamp::UNIX_EPOCH).is_empty() && loss(&all).is_none());
        reclaims.put("n", Some(&node("1", "ends")), &taints);
        assert!(reclaims.is_unasked("n"));
        assert_eq!(reclaims.note_pods(&mut all, "n", lost(), Timestamp::UNIX_EPOCH).len(), 1);
        assert!(!reclaims.is_unasked("n") && loss(&all).unwrap());
        all.change("u", |notes| notes.capacity_mut().forget_loss());
        assert!(loss(&all).is_none());
    }
}
