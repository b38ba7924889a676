//! Workloads that eviction history protects from preemption, and the end of this history.

use std::collections::BTreeSet;

use crate::world::World;
use crate::world::ids::{NodeId, WorkloadId};

impl World {
    /// Pairs of victim and preemptor since the last change from outside of the engine, by uid. Only tests read the pairs of victim and preemptor. Cost of
    /// `evicted_for`: the number of pairs of victim and preemptor.
    #[doc(hidden)]
    #[must_use]
    pub fn evicted_for(&self) -> Vec<(String, String)> {
        let uid = |id: &WorkloadId| self.store.workload(*id).map_or(String::new(), |workload| workload.uid.to_string());
        let victims = self.store.eviction_history.0.values().flatten();
        let pairs =
            victims.flat_map(|(victim, preemptors)| preemptors.iter().map(move |preemptor| (victim, preemptor)));
        pairs.map(|(victim, preemptor)| (uid(victim), uid(preemptor))).collect()
    }

    /// Workloads that a workload must not preempt, including the old slice that it replaces.
    pub(crate) fn not_preemptible(&self, asking: WorkloadId) -> BTreeSet<WorkloadId> {
        let root = if self.store.eviction_history.0.is_empty() { None } else { self.tree_of(asking) };
        let mut not_preemptible = root.map_or_else(BTreeSet::new, |root| self.against(root, asking));
        let class = self.store.workload(asking).map(|workload| workload.class);
        let older = class.and_then(|class| self.store.classes[class].replaces.as_deref());
        not_preemptible.extend(older.and_then(|older| self.store.by_uid.get(&older.uid)));
        not_preemptible
    }

    /// Whether a workload was evicted for another workload, directly or through other workloads.
    pub(crate) fn gave_way_to(&self, victim: WorkloadId, preemptor: WorkloadId) -> bool {
        let root = if self.store.eviction_history.0.is_empty() { None } else { self.tree_of(victim) };
        root.is_some_and(|root| {
            self.store.eviction_history.behind(root, victim, |_, _| Vec::new()).contains(&preemptor)
        })
    }

    fn tree_of(&self, workload: WorkloadId) -> Option<NodeId> {
        let workload = self.store.workload(workload)?;
        let queue = match workload.held() {
            Some(held) => held.queue,
            None => self.store.local_queues[workload.local_queue].queue?,
        };
        Some(self.tree.root(self.store.queues[queue].node))
    }

    /// Forgets the eviction history of a workload's cohort tree after the workload came, went or changed.
    pub(crate) fn clear_eviction_history_of(&mut self, workload: WorkloadId) {
        if !self.store.eviction_history.0.is_empty()
            && let Some(root) = self.tree_of(workload)
        {
            self.store.eviction_history.0.remove(&root);
        }
    }

    /// Forgets the whole eviction history after queues or cohorts changed.
    pub(crate) fn clear_eviction_history(&mut self) {
        self.store.eviction_history.0.clear();
    }
}
