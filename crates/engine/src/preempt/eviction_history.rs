//! Eviction history: pairs of victim and preemptor since the last change from outside of the engine. A preemption that would close a circle of pairs of victim
//! and preemptor is not allowed, so evictions come to an end: the pairs form a finite graph without circles.

mod fronts;
mod not_preemptible;

use std::collections::{BTreeMap, BTreeSet};

use crate::world::ids::{NodeId, WorkloadId};

/// The preemptors of each victim.
type Evicted = BTreeMap<WorkloadId, BTreeSet<WorkloadId>>;

/// Pairs of victim and preemptor, by root of the cohort tree.
#[derive(Debug, Default)]
pub(crate) struct EvictionHistory(BTreeMap<NodeId, Evicted>);

impl EvictionHistory {
    pub(crate) fn note(&mut self, root: NodeId, preemptor: WorkloadId, victim: WorkloadId) {
        self.0.entry(root).or_default().entry(victim).or_default().insert(preemptor);
    }

    /// The victims that a workload has evicted.
    pub(crate) fn victims_of(&self, asking: WorkloadId) -> BTreeSet<WorkloadId> {
        let pairs = self.0.values().flatten();
        pairs.filter(|(_, preemptors)| preemptors.contains(&asking)).map(|(victim, _)| *victim).collect()
    }

    /// Workloads for which a workload was evicted, directly or through other workloads. For each workload on the way, the parameter `more` returns further
    /// workloads, from all victims of the cohort tree.
    fn behind(
        &self,
        root: NodeId,
        asking: WorkloadId,
        more: impl Fn(WorkloadId, &Evicted) -> Vec<WorkloadId>,
    ) -> BTreeSet<WorkloadId> {
        let mut found = BTreeSet::new();
        let Some(evicted) = self.0.get(&root) else { return found };
        let mut stack = vec![asking];
        while let Some(one) = stack.pop() {
            let preemptors = evicted.get(&one).into_iter().flatten().copied();
            for other in preemptors.chain(more(one, evicted)) {
                if other != asking && found.insert(other) {
                    stack.push(other);
                }
            }
        }
        found
    }
}
