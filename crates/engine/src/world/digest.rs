//! The accounting of single workloads, for a comparison with a world that was rebuilt from fresh lists.

use crate::model::Amount;
use crate::quota::balance::amount;
use crate::world::World;

/// State of a workload in the accounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargedState {
    /// The workload waits.
    Waiting,
    /// The workload holds quota.
    Holding {
        /// The ClusterQueue whose quota the workload holds.
        cluster_queue: String,
        /// Flavor, resource and amount, sorted by flavor and resource.
        usage: Vec<(String, String, Amount)>,
    },
}

impl World {
    /// State of a workload in the accounting; `None` if the uid is not known. Cost of `charged_state`: the number of cells whose quota the workload holds.
    #[must_use]
    pub fn charged_state(&self, uid: &str) -> Option<ChargedState> {
        let workload = self.store.workload(self.store.by_uid.get(uid).copied()?)?;
        let Some(held) = workload.held() else { return Some(ChargedState::Waiting) };
        let row = |(cell, value): &(crate::world::ids::CellId, crate::quota::balance::Units)| {
            let (flavor, resource) = *self.store.cells.key(*cell);
            (self.store.flavor(flavor).to_owned(), self.store.resource(resource).to_owned(), amount(*value))
        };
        let mut usage: Vec<_> = held.usage.iter().map(row).collect();
        usage.sort();
        Some(ChargedState::Holding { cluster_queue: self.store.queues[held.queue].name.to_string(), usage })
    }

    /// UIDs of the workloads that wait in a LocalQueue, sorted; empty if the LocalQueue is unknown. Cost of `waiting`: the number of workloads that wait in the
    /// LocalQueue.
    #[must_use]
    pub fn waiting(&self, namespace: &str, local_queue: &str) -> Vec<&str> {
        let known = self.store.local_queue_names.get(&(namespace.to_owned(), local_queue.to_owned()));
        let ids = known.map(|id| &self.store.local_queues[id].pending).into_iter().flatten();
        let mut uids: Vec<&str> = ids.filter_map(|id| Some(&*self.store.workload(*id)?.uid)).collect();
        uids.sort_unstable();
        uids
    }
}
