//! The topology assignment that Kueue has chosen for a pod. Kueue starts a pod with a topology assignment in two steps: first Kueue removes the admission gate,
//! and then the topology gate, with node selectors for the assigned domain. Berth assigns no topology domains, but completes such a start.

use super::state::PodState;
use crate::object_patch::ObjectPatch;
use berth_api::{TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelValues, labels};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Largest number of examined domains, which is more than a Workload can have.
const MOST_DOMAINS: usize = 100_000;

/// Node labels of the domain for a pod. `placed` has the node selectors of the pod set's pods with a domain, and `before` is the number of pods without a
/// domain that precede this pod. Pods fill the topology domains in the order of the assignment, each up to its assigned number of pods. `None` if no topology
/// domain of the assignment has room for the pod, or if the assignment cannot be read.
#[must_use]
pub fn place<'a>(
    assignment: &TopologyAssignment,
    placed: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
    before: usize,
) -> Option<BTreeMap<String, String>> {
    let mut used = BTreeMap::<Vec<String>, i32>::new();
    for selectors in placed {
        let values: Option<Vec<String>> = assignment.levels.iter().map(|level| selectors.get(level).cloned()).collect();
        if let Some(values) = values {
            let count = used.entry(values).or_default();
            *count = count.saturating_add(1);
        }
    }
    let domains = assignment.slices.iter().flat_map(|slice| {
        let count = usize::try_from(slice.domain_count).unwrap_or_default();
        (0..count).map(move |index| domain(slice, index))
    });
    let mut before = before;
    for found in domains.take(MOST_DOMAINS) {
        let (values, pods) = found?;
        let taken = used.get(&values).copied().unwrap_or_default();
        let free = usize::try_from(pods.saturating_sub(taken)).unwrap_or_default();
        if before < free {
            let complete = values.len() == assignment.levels.len();
            return complete.then(|| assignment.levels.iter().cloned().zip(values).collect());
        }
        before = before.saturating_sub(free);
    }
    None
}

/// Values of the topology levels of one domain, and its number of pods.
fn domain(slice: &TopologyAssignmentSlice, index: usize) -> Option<(Vec<String>, i32)> {
    let value = |level: &TopologyAssignmentSliceLevelValues| {
        if let Some(value) = &level.universal {
            return Some(value.clone());
        }
        let each = level.individual.as_ref()?;
        let (prefix, suffix) = (each.prefix.as_deref().unwrap_or_default(), each.suffix.as_deref().unwrap_or_default());
        Some(format!("{prefix}{}{suffix}", each.roots.get(index)?))
    };
    let values: Option<Vec<String>> = slice.values_per_level.iter().map(value).collect();
    let pods = slice.pod_counts.universal.or_else(|| slice.pod_counts.individual.get(index).copied())?;
    Some((values?, pods))
}

impl PodState {
    /// Patch for a pod that [waits for its topology assignment](PodState::placing): the pod gets these node labels as node selectors and loses the topology
    /// gate; `None` if the pod selects other nodes itself, or does not wait for a topology assignment.
    #[must_use]
    pub fn place_patch(&self, place: &BTreeMap<String, String>) -> Option<ObjectPatch> {
        if !self.placing {
            return None;
        }
        let spec = self.decode()?.spec?;
        let asked = spec.node_selector.unwrap_or_default();
        // The API server accepts additions to a pod's node selector, and no other changes.
        if place.iter().any(|(key, value)| asked.get(key).is_some_and(|asked| asked != value)) {
            return None;
        }
        let mut gates = spec.scheduling_gates.unwrap_or_default();
        gates.retain(|gate| gate.name != labels::TOPOLOGY_GATE);
        let gates = if gates.is_empty() { Value::Null } else { json!(gates) };
        let patch = self.patch().spec("schedulingGates", gates);
        Some(if place.is_empty() { patch } else { patch.spec("nodeSelector", json!(place)) })
    }
}
