//! The obstacle that keeps a workload from being tried or admitted, whatever quota is free.

use crate::assign::mode::Mode;
use crate::assign::request::requests;
use crate::explain::account::Unblock;
use crate::model::{Millis, PendingReason};
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{Phase, Place};

impl World {
    /// The change that a workload needs before it is tried, or before it is admitted although quota would allow `mode`; `None` if there is no obstacle.
    pub(super) fn obstacle(&self, id: WorkloadId, mode: Option<Mode>, now: Millis) -> Option<Unblock> {
        let workload = self.store.workload(id)?;
        let place = match &workload.phase {
            Phase::Pending(place) => *place,
            Phase::Held(held) => return held.evicted.then_some(Unblock::PodsStop),
        };
        let lasting = self.lasting_verdict(id).map(|(reason, _)| reason);
        if matches!(lasting, Some(PendingReason::Suspended | PendingReason::Misconfigured)) {
            return Some(Unblock::QueueResumes);
        }
        match place {
            Place::Blocked => return Some(Unblock::HoldEnds),
            Place::Until(time) if time > now => return Some(Unblock::BackOffEnds(time)),
            _ => {}
        }
        let queue = self.store.local_queues[workload.local_queue].queue?;
        if let Some((_, (reason, _))) = self.refusal(queue, id) {
            return Some(match reason {
                PendingReason::AdmissionLimit => Unblock::LimitAllows,
                PendingReason::PendingEvaluation => Unblock::CheckReady,
                _ if !self.is_selected(queue, workload) => Unblock::NamespaceMatches,
                _ => Unblock::ChangeRequirements,
            });
        }
        if self.asks_for_what_is_not_covered(queue, id) {
            return Some(Unblock::ChangeRequirements);
        }
        self.in_its_way(queue, id, mode)
    }

    /// Whether the workload requests a resource that no resource group of the queue covers.
    fn asks_for_what_is_not_covered(&self, queue: QueueId, id: WorkloadId) -> bool {
        let Some(workload) = self.store.workload(id).filter(|_| !self.options.ignore_undeclared) else { return false };
        let queue = &self.store.queues[queue];
        self.store.classes[workload.class].pod_sets.iter().any(|pod_set| {
            let asked = requests(&self.store, queue, pod_set, pod_set.spec.count);
            asked.iter().any(|(resource, value)| *value > 0 && queue.group_of(*resource).is_none())
        })
    }

    /// The event of another workload for which a pending workload waits. The function `in_its_way` returns `None` while cycles of the cohort tree are due.
    fn in_its_way(&self, queue: QueueId, id: WorkloadId, mode: Option<Mode>) -> Option<Unblock> {
        let workload = self.store.workload(id)?;
        let (node, pending) = (self.store.queues[queue].node, &self.store.queues[queue].pending);
        let root = self.tree.root(node);
        let is_due =
            self.live.iter().any(|live| self.tree.root(*live) == root) || pending.epoch != self.tree.nodes[root].epoch;
        // A workload of a parked class of equals was judged by free quota alone, so no other workload is an obstacle for it.
        if is_due || !matches!(workload.phase, Phase::Pending(Place::Class)) || !pending.is_active(workload.class) {
            return None;
        }
        let head = self.head(queue)?;
        if head != id {
            return self.store.workload(head).map(|head| Unblock::HeadGoes(head.uid.to_string()));
        }
        // A preemptor that keeps a claim takes only the quota for which it issued preemptions, and no other quota that is free by now.
        let kept = if workload.has_claim() { Unblock::EvictedLeave } else { Unblock::RoomIsKept };
        (mode == Some(Mode::Fit)).then_some(kept)
    }
}
