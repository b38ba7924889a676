//! Growth of workloads that hold quota: whether idle quota is enough for more pods.

use crate::assign::assign_free;
use crate::assign::mode::Mode;
use crate::assign::request::Request;
use crate::model::{PendingReason, PodSetAssignment, Replaced};
use crate::world::World;
use crate::world::ids::NodeId;

impl World {
    /// Whether a workload with quota, given as `given`, could have `counts` pods in its pod sets with idle quota. Idle quota is free quota of the same flavors
    /// while no workload of the cohort tree waits for quota. Cost of `could_grow`: the number of classes of equals that wait in the cohort tree, and a scan
    /// over the flavors without a search for victims.
    pub fn could_grow(&mut self, uid: &str, counts: &[i64], given: &[PodSetAssignment]) -> bool {
        let Some(id) = self.store.by_uid.get(uid).copied() else { return false };
        let older = self.store.older(&Replaced { uid: uid.to_owned(), pod_sets: given.to_vec() });
        let Some(workload) = self.store.workload(id) else { return false };
        let Some(held) = workload.held().filter(|held| !held.evicted && held.giving == 0) else { return false };
        let queue = &self.store.queues[held.queue];
        let root = self.tree.root(queue.node);
        if !queue.active || self.store.is_handing_over(workload) || self.is_waited_for(root) {
            return false;
        }
        let request = Request::of(&self.store, &self.options, workload, held.queue);
        let request = Request { counts: Some(counts), replaced: Some(&older), ..request };
        assign_free(&self.store, &mut self.tree, &request).mode() == Mode::Fit
    }

    /// Whether a workload in a cohort tree waits for quota; pending replacement slices do not count.
    fn is_waited_for(&self, root: NodeId) -> bool {
        let waits = |reason: Option<PendingReason>| {
            matches!(reason, None | Some(PendingReason::WaitingForQuota | PendingReason::WaitingForPreemptedWorkloads))
        };
        let queues = self.tree.nodes[root].queues.iter().map(|queue| &self.store.queues[*queue]);
        let mut classes = queues.filter(|queue| queue.active).flat_map(|queue| &queue.pending.classes);
        classes.any(|(id, class)| class.len() > 0 && self.store.classes[*id].replaces.is_none() && waits(class.parked))
    }
}
