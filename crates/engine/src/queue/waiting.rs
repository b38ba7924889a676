//! Pending workloads of a ClusterQueue, and ClusterQueues that share a cohort tree.

use crate::queue::pending::ClassQueue;
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{LocalQueue, Phase, Place, Workload};

impl World {
    /// Whether a workload is pending in a ClusterQueue or in another ClusterQueue of its cohort tree. Cost of `anyone_waits_beside`: the number of all
    /// LocalQueues, and the depth of the cohort tree for each LocalQueue with pending workloads.
    #[must_use]
    pub fn anyone_waits_beside(&self, cluster_queue: &str) -> bool {
        let root = |queue: QueueId| self.tree.root(self.store.queues[queue].node);
        let Some(own) = self.store.queue_ids.get(cluster_queue).map(|id| root(*id)) else { return false };
        let waits = |local: &LocalQueue| !local.pending.is_empty() && local.queue.is_some_and(|id| root(id) == own);
        self.store.local_queues.iter().any(|(_, local)| waits(local))
    }

    /// Whether two ClusterQueues are in one cohort tree, or are the same ClusterQueue. Cost of `are_in_one_tree`: the depth of the cohort trees of both
    /// ClusterQueues.
    #[must_use]
    pub fn are_in_one_tree(&self, one: &str, other: &str) -> bool {
        let root = |name: &str| Some(self.tree.root(self.store.queues[*self.store.queue_ids.get(name)?].node));
        one == other || root(one).is_some_and(|found| root(other) == Some(found))
    }

    /// Number of pending workloads of a queue, parked or not, that go before the workload `id`. The cost of `waiting_before` is the number of pending workloads
    /// of the queue.
    pub(crate) fn waiting_before(&self, queue: QueueId, id: WorkloadId) -> usize {
        let Some(own) = self.store.workload(id).map(Workload::key) else { return 0 };
        let pending = &self.store.queues[queue].pending;
        let members = pending.classes.values().flat_map(ClassQueue::members).map(|(key, _)| *key < own);
        let aside = pending.solo.iter().chain(&pending.mismatched);
        let aside = aside.filter_map(|other| self.store.workload(*other)).map(|other| other.key() < own);
        members.chain(aside).filter(|is_before| *is_before).count()
    }

    /// Uids of the pending workloads of a ClusterQueue: the active workloads in order, and the workloads that are parked, blocked in their queue or in
    /// back-off. Cost of `pending`: the number of pending workloads of the ClusterQueue.
    #[must_use]
    pub fn pending(&self, cluster_queue: &str) -> (Vec<String>, Vec<String>) {
        let Some(queue) = self.store.queue_ids.get(cluster_queue).map(|id| &self.store.queues[*id]) else {
            return (Vec::new(), Vec::new());
        };
        let uid = |id: &WorkloadId| self.store.workload(*id).map(|workload| workload.uid.to_string());
        let mut active = Vec::new();
        let mut parked: Vec<String> =
            queue.pending.solo.iter().chain(&queue.pending.mismatched).filter_map(uid).collect();
        let root = self.tree.root(queue.node);
        let is_awake = queue.pending.epoch != self.tree.nodes[root].epoch;
        for class in queue.pending.classes.values() {
            if class.parked.is_none() || is_awake {
                active.extend(class.members().cloned());
            } else {
                parked.extend(class.members().filter_map(|(_, id)| uid(id)));
            }
        }
        let waits = |id: &&WorkloadId| {
            let workload = self.store.workload(**id);
            workload
                .is_some_and(|w| w.is_listed() && matches!(w.phase, Phase::Pending(Place::Until(_) | Place::Blocked)))
        };
        let local_queues = queue.local_queues.iter().map(|id| &self.store.local_queues[*id]);
        parked.extend(local_queues.flat_map(|local| local.pending.iter().filter(waits)).filter_map(uid));
        active.sort();
        parked.sort();
        (active.iter().filter_map(|(_, id)| uid(id)).collect(), parked)
    }
}
