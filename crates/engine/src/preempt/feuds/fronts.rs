//! Who was evicted comes back to its place in its queue. Where the first of a queue lets nobody pass, it stands before those behind it,
//! and what was freed for one of them is free for anybody meanwhile. So whoever evicts it holds them back, as if it evicted them.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::standing::Key;
use crate::world::World;
use crate::world::ids::{NodeId, QueueId, WorkloadId};

impl World {
    /// Whom a workload must not preempt for the sake of what happened in its tree: those for whom it was evicted or is held back,
    /// directly or through others, and those who would come back before one of them. Costs the pairs that lead to it, and, where the first of
    /// a queue blocks, all victims of the tree and the holders of such queues.
    pub(super) fn against(&self, root: NodeId, asking: WorkloadId) -> BTreeSet<WorkloadId> {
        let mut found = self.store.feuds.behind(root, asking, |one, evicted| {
            let Some((queue, lane, key)) = self.place_if_it_blocks(one) else { return Vec::new() };
            let is_before = |victim: &WorkloadId| {
                let place = self.place_if_it_blocks(*victim);
                place.is_some_and(|theirs| (theirs.0, theirs.1) == (queue, lane) && theirs.2 < key)
            };
            evicted.keys().copied().filter(is_before).collect()
        });
        let mut last: BTreeMap<(QueueId, u32), Key> = BTreeMap::new();
        for (queue, lane, key) in found.iter().filter_map(|one| self.place_if_it_blocks(*one)) {
            if last.get(&(queue, lane)).is_none_or(|last| *last < key) {
                last.insert((queue, lane), key);
            }
        }
        let queues: BTreeSet<QueueId> = last.keys().map(|(queue, _)| *queue).collect();
        let holders = queues.into_iter().flat_map(|queue| self.store.queues[queue].held.iter());
        let holds_back = |holder: &WorkloadId| {
            let place = self.place_if_it_blocks(*holder);
            place.is_some_and(|(queue, lane, key)| last.get(&(queue, lane)).is_some_and(|last| key < *last))
        };
        let more: Vec<WorkloadId> = holders.filter(holds_back).collect();
        found.extend(more);
        found
    }

    /// Where a workload stands once it holds nothing, if it blocks others there: queue, lane and place in it. The first of such a queue, or
    /// of each of its lanes, lets nobody pass.
    fn place_if_it_blocks(&self, id: WorkloadId) -> Option<(QueueId, u32, Key)> {
        let workload = self.store.workload(id)?;
        let queue = self.store.local_queues[workload.local_queue].queue?;
        let blocks = self.store.queues[queue].is_strict();
        blocks.then(|| (queue, self.lane(queue, workload.local_queue), workload.key()))
    }
}
