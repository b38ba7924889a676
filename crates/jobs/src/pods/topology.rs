//! The place in a topology that Kueue has chosen for a pod. Kueue starts such a pod in two steps: it takes the gate of the admission
//! away, and then the gate of the topology, with the labels of the place. Berth chooses no places yet; it ends what was begun.

use super::state::PodState;
use berth_api::{TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelValues, labels};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most domains that are looked at: more than a Workload fits.
const MOST_DOMAINS: usize = 100_000;

/// Node labels of the place of a pod: `placed` are the node selectors of the pods of its pod set that have theirs, and `before` is how
/// many that wait for theirs come before it. Pods fill the domains in their order, none with more than it was given. `None` when no place
/// is left, or the assignment cannot be read.
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
            let whole = values.len() == assignment.levels.len();
            return whole.then(|| assignment.levels.iter().cloned().zip(values).collect());
        }
        before = before.saturating_sub(free);
    }
    None
}

/// Values of the levels of one domain, and its pods.
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
    /// Gives a pod that [waits for its place](PodState::placing) these node labels, and takes the gate of the topology away;
    /// `None` when it asks for other nodes itself, or does not wait.
    #[must_use]
    pub fn place_patch(&self, place: &BTreeMap<String, String>) -> Option<Value> {
        if !self.placing {
            return None;
        }
        let spec = self.whole()?.spec?;
        let asked = spec.node_selector.unwrap_or_default();
        // A node selector of a pod can be added to, and in no other way be changed.
        if place.iter().any(|(key, value)| asked.get(key).is_some_and(|asked| asked != value)) {
            return None;
        }
        let mut gates = spec.scheduling_gates.unwrap_or_default();
        gates.retain(|gate| gate.name != labels::TOPOLOGY_GATE);
        let mut fields = Map::new();
        fields.insert("schedulingGates".to_owned(), if gates.is_empty() { Value::Null } else { json!(gates) });
        if !place.is_empty() {
            fields.insert("nodeSelector".to_owned(), json!(place));
        }
        Some(json!({
            "metadata": {"uid": self.uid, "resourceVersion": self.version.to_string()},
            "spec": fields,
        }))
    }
}
