//! Evicted workloads that block their queue. A victim goes back to its position in its queue. In a strict queue an evicted workload blocks the workloads behind
//! it, and quota that was freed for one of the workloads behind it is free for any workload meanwhile. The preemptor of a victim therefore holds back the
//! workloads behind the victim, as if the preemptor had evicted them.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::key::Key;
use crate::world::World;
use crate::world::ids::{NodeId, QueueId, WorkloadId};

impl World {
    /// Workloads that a workload must not preempt because of the eviction history of its cohort tree: workloads for which it was evicted or by which it is held
    /// back, directly or through other workloads, and workloads that would return to a strict queue before one of these. The cost of `against` is the number of
    /// pairs of victim and preemptor that lead to the workload, and with strict queues the number of all victims of the tree and of the holders of quota of
    /// strict queues.
    pub(super) fn against(&self, root: NodeId, asking: WorkloadId) -> BTreeSet<WorkloadId> {
        let mut found = self.store.eviction_history.behind(root, asking, |one, evicted| {
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

    /// Position that a workload has when it holds no quota, if its queue is strict: its ClusterQueue, the lane of its LocalQueue, and its key in the order of
    /// the queue. The head of a strict queue, or of each LocalQueue's lane in a strict queue, blocks the workloads behind it.
    fn place_if_it_blocks(&self, id: WorkloadId) -> Option<(QueueId, u32, Key)> {
        let workload = self.store.workload(id)?;
        let queue = self.store.local_queues[workload.local_queue].queue?;
        let blocks = self.store.queues[queue].is_strict();
        blocks.then(|| (queue, self.lane(queue, workload.local_queue), workload.key()))
    }
}
