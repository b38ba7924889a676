//! The steps of a cycle that concern queues, one by one: take heads, put them back, wake parked workloads. Scheduling cycles run on the same functions as the
//! steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Steps;
use crate::assign::assignment::Assignment;
use crate::cycle::entry::Entry;
use crate::cycle::outcome::{Outcome, Requeue};
use crate::cycle::report::Report;
use crate::explain::why::Message;
use crate::model::{Millis, PendingReason};
use crate::world::ids::{Id as _, QueueId, ResourceId, WorkloadId};
use crate::world::store::{Phase, Place, Progress};

/// Time of a scan over flavors: the number of quota changes of the workload's queue until the scan, and the cycle of the scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanTime {
    /// Changes of quota.
    pub generation: u64,
    /// Cycle.
    pub cycle: u64,
}

/// Whether a scan that was made at `last` has to begin anew at `now`; with the gate `preserves`, a change of quota is ignored for one cycle. Cost: constant.
#[must_use]
pub fn scan_is_outdated(last: ScanTime, now: ScanTime, preserves: bool) -> bool {
    let progress = Progress { generation: last.generation, cycle: last.cycle, ..Progress::default() };
    progress.is_outdated(now.generation, now.cycle, preserves)
}

/// Whether a scan has flavors left to try; `tried` has the progress of the scan by pod set and resource. Cost of `scan_goes_on`: the number of pod sets times
/// the number of resources.
#[must_use]
pub fn scan_goes_on(tried: &[BTreeMap<String, i32>]) -> bool {
    let any = ResourceId::at(0);
    let tried = tried.iter().map(|tried| tried.values().map(|index| (any, *index)).collect()).collect();
    Progress { tried, ..Progress::default() }.has_pending_flavors()
}

impl Steps<'_> {
    fn queue_named(&self, cluster_queue: &str) -> Option<QueueId> {
        self.0.store.queue_ids.get(cluster_queue).copied()
    }

    /// Takes the head out of the queue of a ClusterQueue, as a cycle does. The head stays out of its queue until it is returned to the queue or changes. Cost
    /// of `pop_head`: the depth of the cohort tree; under admission fair sharing, also the number of the ClusterQueue's LocalQueues; after a change in the
    /// cohort tree, also the number of the ClusterQueue's classes of equals and of its workloads that are parked apart from their class; and the number of
    /// workloads whose back-off is over.
    pub fn pop_head(&mut self, cluster_queue: &str, now: Millis) -> Option<String> {
        self.0.release_timers(now);
        let queue = self.queue_named(cluster_queue)?;
        let root = self.0.tree.root(self.0.store.queues[queue].node);
        self.0.wake_queue(queue, root);
        self.0.store.queues[queue].pending.taken_at = Some(self.0.tree.nodes[root].epoch);
        let id = self.0.pop(queue)?;
        self.0.store.workload(id).map(|workload| workload.uid.to_string())
    }

    /// Takes the heads of all active ClusterQueues; returns names of ClusterQueues and uids of heads, sorted by name. Cost of `pop_all_heads`: as for
    /// [`Steps::pop_head`], for each active ClusterQueue.
    pub fn pop_all_heads(&mut self, now: Millis) -> Vec<(String, String)> {
        let active =
            self.0.store.queues.iter().filter(|(_, queue)| queue.active).map(|(_, queue)| queue.name.to_string());
        let mut names: Vec<String> = active.collect();
        names.sort();
        let heads = names.into_iter().filter_map(|name| self.pop_head(&name, now).map(|uid| (name, uid)));
        heads.collect()
    }

    /// Takes a given pending workload out of its place, as if it had been the head. Returns false if the workload is not pending in a queue. Cost of
    /// `pop_workload`: constant; under admission fair sharing, the number of the ClusterQueue's LocalQueues.
    pub fn pop_workload(&mut self, uid: &str) -> bool {
        let Some((id, queue, place)) = self.place_of(uid) else { return false };
        match place {
            Place::Class | Place::Solo | Place::Mismatched => {
                self.0.take_out(queue, id, Place::InFlight);
                let pending = &mut self.0.store.queues[queue].pending;
                pending.solo.remove(&id);
                pending.mismatched.remove(&id);
                true
            }
            Place::Nowhere | Place::Until(_) | Place::Blocked | Place::InFlight => place == Place::InFlight,
        }
    }

    fn place_of(&self, uid: &str) -> Option<(WorkloadId, QueueId, Place)> {
        let id = self.0.store.by_uid.get(uid).copied()?;
        let workload = self.0.store.workload(id)?;
        let queue = self.0.store.local_queues[workload.local_queue].queue?;
        match workload.phase {
            Phase::Pending(place) => Some((id, queue, place)),
            Phase::Held(_) => None,
        }
    }

    /// Puts a workload that was taken out of its queue back where a cycle with the outcome `outcome` would put it; `tried` is the progress of its scan over
    /// flavors. Returns false if the workload was not taken out of its queue. Cost of `put_back_as`: as for [`Steps::put_back_for`].
    pub fn put_back_as(&mut self, uid: &str, outcome: Outcome, tried: &[BTreeMap<String, i32>]) -> bool {
        self.put_back_for(uid, outcome, outcome.reason(), tried)
    }

    /// Puts a head that was taken out of its queue back, with the reason `reason`. Cost of `put_back_for`: the depth of the cohort tree, and the number of
    /// members of the workload's class of equals if the class is parked for a new reason; after a change in the cohort tree, also the number of the
    /// ClusterQueue's classes of equals and of its workloads that are parked apart from their class.
    pub fn put_back_for(
        &mut self,
        uid: &str,
        outcome: Outcome,
        reason: PendingReason,
        tried: &[BTreeMap<String, i32>],
    ) -> bool {
        let Some((id, queue, Place::InFlight)) = self.place_of(uid) else { return false };
        let root = self.0.tree.root(self.0.store.queues[queue].node);
        let epoch = self.0.tree.nodes[root].epoch;
        // If other workloads were woken while the workload was out of its queue, the workload is woken, too. In a plan no time passes between taking a head out
        // of its queue and returning the head to the queue.
        let woken = self.0.store.queues[queue].pending.taken_at.is_some_and(|at| at != epoch);
        self.0.wake_queue(queue, root);
        let mut one = |(resource, index): (&String, &i32)| (self.0.store.resources.intern(resource), *index);
        let tried = tried.iter().map(|tried| tried.iter().map(&mut one).collect()).collect();
        let generation = self.0.tree.nodes[self.0.store.queues[queue].node].generation;
        let progress = Progress { tried, generation, cycle: self.0.cycle, began: epoch, ..Progress::default() };
        let requeue = match outcome.requeue() {
            Requeue::NoRoom | Requeue::Park | Requeue::Mismatch if woken => Requeue::Retry,
            requeue => requeue,
        };
        let assignment = Assignment { progress: progress.clone(), ..Assignment::default() };
        let entry = Entry::new(queue, id, (assignment, Vec::new()));
        let mut entry = Entry { requeue, verdict: Some((reason, Message::Plainly(""))), ..entry };
        let mut report = Report::default();
        self.0.put_back(&mut entry, &mut report);
        self.0.verdicts_of_heads(&mut report);
        // A cycle forgets the progress of a scan that is over, because the next scan begins anew with or without it.
        let is_reported = !progress.tried.is_empty();
        if let Some(workload) =
            self.0.store.workload_mut(id).filter(|workload| is_reported && workload.progress.is_none())
        {
            workload.progress = Some(Box::new(progress));
        }
        true
    }

    /// Lets all parked workloads of a ClusterQueue's cohort tree be tried again, and workloads whose back-off is over. Returns the number of workloads that
    /// become active; 0 below a cycle of cohorts. The cohort tree is woken as by a delta, and its queues as at the start of a plan. In addition, unlike a delta
    /// or a plan, `retry_parked` handles workloads that were taken out of their queue and workloads whose namespace did not match. Cost of `retry_parked`: the
    /// number of classes of equals of the ClusterQueues of the cohort tree, of their workloads that are parked apart from their class or whose namespace did
    /// not match, and of all workloads whose back-off is over.
    pub fn retry_parked(&mut self, cluster_queue: &str, now: Millis) -> usize {
        let Some(queue) = self.queue_named(cluster_queue) else { return 0 };
        let node = self.0.store.queues[queue].node;
        if self.0.tree.is_below_cycle(node) {
            return 0;
        }
        let root = self.0.tree.root(node);
        let queues = Arc::clone(&self.0.tree.nodes[root].queues);
        let active = |world: &Self| -> usize {
            let active = |queue: &QueueId| world.0.store.queues[*queue].pending.active() as usize;
            queues.iter().map(active).sum()
        };
        let before = active(self);
        self.0.release_timers(now);
        let epoch = self.0.tree.nodes[root].epoch;
        self.0.wake(node);
        for queue in queues.iter().copied() {
            // A workload that is returned to its queue after the wake-up counts as taken out before the wake-up, if no head was taken so far.
            self.0.store.queues[queue].pending.taken_at.get_or_insert(epoch);
            // A cycle parks no workload whose namespace matches, and a change of labels or selector lets workloads whose namespace matches now be tried at
            // once.
            self.0.retry_mismatched(queue, |world, workload| world.is_selected(queue, workload));
            self.0.wake_queue(queue, root);
        }
        active(self).saturating_sub(before)
    }

    /// True if two workloads are equal for scheduling; `None` if one of them is unknown. Cost: constant.
    #[must_use]
    pub fn same_class(&self, a: &str, b: &str) -> Option<bool> {
        let class = |uid: &str| {
            let id = self.0.store.by_uid.get(uid).copied()?;
            self.0.store.workload(id).map(|workload| workload.class)
        };
        Some(class(a)? == class(b)?)
    }

    /// The workload of a ClusterQueue that goes first while its victims leave. Cost: constant.
    #[must_use]
    pub fn sticky(&self, cluster_queue: &str) -> Option<String> {
        let sticky = self.0.store.queues[self.queue_named(cluster_queue)?].pending.sticky?;
        self.0.store.workload(sticky).map(|workload| workload.uid.to_string())
    }

    /// Reason for which a pending workload is parked with its class of equals; `None` if it is not parked with its class. Cost: constant.
    #[must_use]
    pub fn parked_with_equals(&self, uid: &str) -> Option<PendingReason> {
        let (id, queue, place) = self.place_of(uid)?;
        let class = self.0.store.workload(id)?.class;
        self.0.store.queues[queue].pending.classes.get(&class)?.parked.filter(|_| place == Place::Class)
    }

    /// Whether the progress of a workload's last scan over flavors is kept. Cost: constant.
    #[must_use]
    pub fn has_progress(&self, uid: &str) -> bool {
        let workload = self.0.store.by_uid.get(uid).and_then(|id| self.0.store.workload(*id));
        workload.is_some_and(|workload| workload.progress.is_some())
    }
}
