//! Victims for a workload and a ClusterQueue outside of a plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Amount, Eviction, FlavorResource};
use crate::preempt;
use crate::preempt::ask::{Ask, Target};
use crate::preempt::trials::leave;
use crate::quota::balance::{Usage, accumulate, units};
use crate::quota::tree::Trial;
use crate::world::World;
use crate::world::ids::{CellId, QueueId, WorkloadId};
use crate::world::store::Store;

impl Store {
    /// Usage by cell from amounts by the names of flavor and resource.
    pub(crate) fn usage_named(&mut self, amounts: &BTreeMap<FlavorResource, Amount>) -> Usage {
        let mut usage = Usage::new();
        for (cell, value) in amounts {
            let cell = self.intern_cell(&cell.flavor, &cell.resource);
            accumulate(&mut usage, cell, units(*value));
        }
        usage
    }
}

impl World {
    /// The ids of a workload and of a ClusterQueue that a query for victims names; `None` if one of them is unknown.
    pub(crate) fn asking(&self, uid: &str, cluster_queue: &str) -> Option<(WorkloadId, QueueId)> {
        Some((self.store.by_uid.get(uid).copied()?, self.store.queue_ids.get(cluster_queue).copied()?))
    }

    /// Victims for a workload that would use `usage`, if the cells in `needs` lack quota, as evictions with the paths of both queues. The query for victims
    /// does not change the world. Cost of `evictions_for`: a search for victims.
    pub fn evictions_for(
        &mut self,
        uid: &str,
        cluster_queue: &str,
        needs: &[FlavorResource],
        usage: &BTreeMap<FlavorResource, Amount>,
    ) -> Option<Vec<Eviction>> {
        let targets = self.targets_for(uid, cluster_queue, needs, usage)?;
        let (_, queue) = self.asking(uid, cluster_queue)?;
        let path = self.tree.path(self.store.queues[queue].node);
        Some(targets.iter().filter_map(|target| self.eviction(uid, &path, target)).collect())
    }

    /// Victims for a workload that would use `usage`, if the cells in `needs` lack quota.
    pub(crate) fn targets_for(
        &mut self,
        uid: &str,
        cluster_queue: &str,
        needs: &[FlavorResource],
        usage: &BTreeMap<FlavorResource, Amount>,
    ) -> Option<Vec<Target>> {
        let (id, queue) = self.asking(uid, cluster_queue)?;
        let mut needs: Vec<CellId> =
            needs.iter().map(|cell| self.store.intern_cell(&cell.flavor, &cell.resource)).collect();
        needs.sort_unstable();
        let mut wanted = self.store.usage_named(usage);
        wanted.retain(|(_, value)| *value != 0);
        // The preemptor does not hold its own request, and is not its own victim.
        let gone = BTreeSet::from([id]);
        let mut trial = Trial::new(&mut self.tree);
        leave(&self.store, &mut trial, id, true);
        let workload = self.store.workload(id)?;
        let ask = Ask { needs: &needs, usage: &wanted, ..Ask::of(&self.store, workload, queue, &gone, &self.options) };
        let targets = preempt::targets(&self.store, trial.tree_mut(), &self.options, &ask);
        drop(trial);
        debug_assert!(targets.is_ok(), "{targets:?}");
        Some(targets.unwrap_or_default())
    }
}
