//! What the books say of single workloads, for a comparison with books that were made anew from fresh lists.

use crate::model::Amount;
use crate::quota::balance::amount;
use crate::world::World;

/// How a workload stands in the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booked {
    /// It waits.
    Waiting,
    /// It holds quota.
    Holding {
        /// The ClusterQueue whose quota it is.
        cluster_queue: String,
        /// Flavor, resource and amount, sorted by the first two.
        usage: Vec<(String, String, Amount)>,
    },
}

impl World {
    /// How a workload stands in the books, `None` when it is in none. Costs what it holds.
    #[must_use]
    pub fn booked(&self, uid: &str) -> Option<Booked> {
        let workload = self.store.workload(self.store.by_uid.get(uid).copied()?)?;
        let Some(held) = workload.held() else { return Some(Booked::Waiting) };
        let row = |(cell, value): &(crate::world::ids::CellId, crate::quota::balance::Units)| {
            let (flavor, resource) = *self.store.cells.key(*cell);
            (self.store.flavor(flavor).to_owned(), self.store.resource(resource).to_owned(), amount(*value))
        };
        let mut usage: Vec<_> = held.usage.iter().map(row).collect();
        usage.sort();
        Some(Booked::Holding { cluster_queue: self.store.queues[held.queue].name.to_string(), usage })
    }

    /// UIDs of the workloads that wait in a LocalQueue, sorted; none where it is not known.
    #[must_use]
    pub fn waiting(&self, namespace: &str, local_queue: &str) -> Vec<&str> {
        let known = self.store.local_queue_names.get(&(namespace.to_owned(), local_queue.to_owned()));
        let ids = known.map(|id| &self.store.local_queues[id].pending).into_iter().flatten();
        let mut uids: Vec<&str> = ids.filter_map(|id| Some(&*self.store.workload(*id)?.uid)).collect();
        uids.sort_unstable();
        uids
    }
}
