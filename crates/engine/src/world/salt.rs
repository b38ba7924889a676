//! The salt of the tie-break between equal workloads. The salt is known once the namespace `kube-system` has been listed; the workloads that are known by then
//! are ordered anew.

use crate::world::World;
use crate::world::ids::WorkloadId;

impl World {
    /// Orders workloads of equal priority and time by lots that are drawn with the salt `text`. The cost of `set_tie_salt` is the number of all workloads if
    /// the salt is another one than before; otherwise there is no cost.
    pub(crate) fn set_tie_salt(&mut self, text: &str) {
        let ties = self.ties.salted(text);
        if ties == self.ties {
            return;
        }
        self.ties = ties;
        let ids: Vec<WorkloadId> = self.store.workloads.ids().collect();
        for id in ids {
            self.draw_again(id);
        }
    }

    /// Puts a workload where its new lot belongs, in its queue or among the holders of quota.
    fn draw_again(&mut self, id: WorkloadId) {
        let Some(workload) = self.store.workload(id) else { return };
        let (namespace, _) = self.store.local_queue_names.key(workload.local_queue);
        let tie = workload.tie.drawn_again(namespace, workload.queued_at, self.ties);
        let held = workload.held().map(|held| (held.queue, held.evicted, workload.rank(id, held)));
        let queue_position = self.queue_position(id);
        match &held {
            Some((queue, evicted, rank)) => self.store.queues[*queue].held.remove(rank, *evicted),
            None => self.unplace(id),
        }
        let Some(workload) = self.store.workload_mut(id) else { return };
        workload.tie = tie;
        let rank = workload.held().map(|held| workload.rank(id, held));
        match held.zip(rank) {
            Some(((queue, evicted, _), rank)) => self.store.queues[queue].held.insert(rank, evicted),
            None => {
                self.place(id);
                self.restore_queue_position(id, queue_position);
            }
        }
    }
}
