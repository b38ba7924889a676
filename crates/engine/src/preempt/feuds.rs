//! Eviction history: pairs of victim and preemptor since the last outside change. A preemption that would close a circle is not allowed, so
//! evictions come to an end: the pairs form a finite graph without circles.

mod fronts;

use std::collections::{BTreeMap, BTreeSet};

use crate::world::World;
use crate::world::ids::{NodeId, WorkloadId};

/// Preemptors by victim.
type Evicted = BTreeMap<WorkloadId, BTreeSet<WorkloadId>>;

/// Pairs of victim and preemptor, per tree.
#[derive(Debug, Default)]
pub(crate) struct Feuds(BTreeMap<NodeId, Evicted>);

impl Feuds {
    pub(crate) fn note(&mut self, root: NodeId, preemptor: WorkloadId, victim: WorkloadId) {
        self.0.entry(root).or_default().entry(victim).or_default().insert(preemptor);
    }

    /// Victims of a workload.
    pub(crate) fn victims_of(&self, asking: WorkloadId) -> BTreeSet<WorkloadId> {
        let pairs = self.0.values().flatten();
        pairs.filter(|(_, preemptors)| preemptors.contains(&asking)).map(|(victim, _)| *victim).collect()
    }

    /// Workloads that a workload was evicted for, through any number of steps. `more` names further ones for each step, from all victims of the
    /// tree.
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

impl World {
    /// Pairs of victim and preemptor since the last outside change, by uid. For tests: no decision reads them.
    #[doc(hidden)]
    #[must_use]
    pub fn evicted_for(&self) -> Vec<(String, String)> {
        let uid = |id: &WorkloadId| self.store.workload(*id).map_or(String::new(), |workload| workload.uid.to_string());
        let victims = self.store.feuds.0.values().flatten();
        let pairs =
            victims.flat_map(|(victim, preemptors)| preemptors.iter().map(move |preemptor| (victim, preemptor)));
        pairs.map(|(victim, preemptor)| (uid(victim), uid(preemptor))).collect()
    }

    /// Workloads that a workload must not preempt, its own older slice included.
    pub(crate) fn barred(&self, asking: WorkloadId) -> BTreeSet<WorkloadId> {
        let root = if self.store.feuds.0.is_empty() { None } else { self.tree_of(asking) };
        let mut barred = root.map_or_else(BTreeSet::new, |root| self.against(root, asking));
        let class = self.store.workload(asking).map(|workload| workload.class);
        let older = class.and_then(|class| self.store.classes[class].replaces.as_deref());
        barred.extend(older.and_then(|older| self.store.by_uid.get(&older.uid)));
        barred
    }

    /// Whether a workload was evicted for another, directly or through others.
    pub(crate) fn gave_way_to(&self, victim: WorkloadId, preemptor: WorkloadId) -> bool {
        let root = if self.store.feuds.0.is_empty() { None } else { self.tree_of(victim) };
        root.is_some_and(|root| self.store.feuds.behind(root, victim, |_, _| Vec::new()).contains(&preemptor))
    }

    fn tree_of(&self, workload: WorkloadId) -> Option<NodeId> {
        let workload = self.store.workload(workload)?;
        let queue = match workload.held() {
            Some(held) => held.queue,
            None => self.store.local_queues[workload.local_queue].queue?,
        };
        Some(self.tree.root(self.store.queues[queue].node))
    }

    /// Forgets the history of a workload's tree after the workload came, went or changed.
    pub(crate) fn end_feuds_of(&mut self, workload: WorkloadId) {
        if !self.store.feuds.0.is_empty()
            && let Some(root) = self.tree_of(workload)
        {
            self.store.feuds.0.remove(&root);
        }
    }

    /// Forgets all history after queues or cohorts changed.
    pub(crate) fn end_feuds(&mut self) {
        self.store.feuds.0.clear();
    }
}
