//! Deltas of workloads: workloads move between the pending workloads of a queue and the holders of quota.

use std::sync::Arc;

use crate::model::{PodSetAssignment, StopPolicy, WorkloadSpec, WorkloadState};
use crate::options::profile::Departure;
use crate::queue::tie::{Tie, TieRule, second};
use crate::quota::balance::{Usage, accumulate, units};
use crate::world::World;
use crate::world::ids::{ClassId, LocalQueueId, QueueId, WorkloadId};
use crate::world::spare::Spare;
use crate::world::store::{Held, Phase, Place, PodSet, Store, Workload};

/// Position in its queue of a pending workload that issued preemptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePosition {
    queue: QueueId,
    /// True if the workload waits for its victims.
    waits: bool,
    /// True if it goes first.
    first: bool,
}

impl Workload {
    /// Whether a spec changes nothing except, possibly, the workload's pods and its admission state.
    fn has_same_spec(&self, local_queue: LocalQueueId, spec: &WorkloadSpec) -> bool {
        self.revision == spec.revision
            && self.local_queue == local_queue
            && self.priority == spec.priority
            && self.queued_at == spec.queued_at
            && self.at_front == spec.at_front
            && self.points_per_hour == spec.points_per_hour
            && (self.points_per_hour == 0 || self.waits_since == spec.waits_since)
            && self.checks_failed == spec.checks_failed
            && self.preemption_gated == spec.preemption_gated
            && self.refused.as_deref() == spec.refused.as_deref()
    }

    /// Takes over a workload's spec from a delta, except the admission state.
    fn take_over(&mut self, local_queue: LocalQueueId, class: ClassId, spec: &mut WorkloadSpec, ties: TieRule) {
        if second(self.queued_at) != second(spec.queued_at) {
            self.tie = Tie::of(spec, &self.uid, ties);
        }
        self.local_queue = local_queue;
        self.priority = spec.priority;
        self.queued_at = spec.queued_at;
        self.at_front = spec.at_front;
        self.points_per_hour = spec.points_per_hour;
        self.waits_since = spec.waits_since;
        self.revision = spec.revision;
        self.class = class;
        self.refused = spec.refused.take().map(String::into_boxed_str);
        self.checks_failed = spec.checks_failed;
        self.preemption_gated = spec.preemption_gated;
    }
}

impl World {
    pub(crate) fn set_workload(&mut self, spec: WorkloadSpec) {
        let local_queue = self.store.local_queue_id(&spec.namespace, &spec.local_queue);
        match self.store.by_uid.get(spec.uid.as_str()).copied() {
            None => self.add_workload(local_queue, spec),
            Some(id) => self.change_workload(id, local_queue, spec),
        }
    }

    fn add_workload(&mut self, local_queue: LocalQueueId, spec: WorkloadSpec) {
        let class = self.store.class(&spec);
        let uid = Arc::from(spec.uid.as_str());
        let id = self.store.insert_workload(Workload {
            tie: Tie::of(&spec, &uid, self.ties),
            uid,
            local_queue,
            priority: spec.priority,
            queued_at: spec.queued_at,
            at_front: spec.at_front,
            points_per_hour: spec.points_per_hour,
            waits_since: spec.waits_since,
            revision: spec.revision,
            not_before: None,
            blocked: None,
            checks_failed: spec.checks_failed,
            preemption_gated: spec.preemption_gated,
            refused: spec.refused.map(String::into_boxed_str),
            class,
            phase: Phase::Pending(Place::Nowhere),
            progress: None,
            verdict: None,
        });
        self.attach(id, spec.state);
        self.clear_eviction_history_of(id);
    }

    fn change_workload(&mut self, id: WorkloadId, local_queue: LocalQueueId, mut spec: WorkloadSpec) {
        let Some(old) = self.store.workload(id) else { return };
        let same_shape = old.has_same_spec(local_queue, &spec);
        let (old_class, was_queue, old_gated) = (old.class, old.local_queue, old.preemption_gated);
        let ties = self.ties;
        let same_spec = self.options.profile.has(Departure::Claims) || old.revision == spec.revision;
        let class = self.store.class(&spec);
        if same_shape && class == old_class && self.is_echo(id, &spec.state) {
            self.store.release_class(class);
            return;
        }
        let was_held = self.store.workload(id).and_then(Workload::held).cloned();
        let other_priority = self.store.workload(id).is_some_and(|w| spec.priority != w.priority);
        // A scan that began with fewer possible victims has not considered the new candidates in the first flavors.
        let may_preempt_otherwise = other_priority || old_gated != spec.preemption_gated;
        let scans_anew = may_preempt_otherwise || !self.options.gates.preserve_scan_progress;
        let stays = self.stays(was_held.as_ref(), &spec.state) && !other_priority;
        // A workload with the same uid keeps the first position in its queue. A preemptor goes on waiting for its victims only if the spec for which they were
        // evicted has not changed.
        let waits = |queue_position: &QueuePosition| queue_position.waits && same_spec && class == old_class;
        let queue_position = self.queue_position(id).filter(|_| was_queue == local_queue);
        let queue_position =
            queue_position.map(|queue_position| QueuePosition { waits: waits(&queue_position), ..queue_position });
        let was_giving = was_held.as_ref().filter(|_| stays).map_or(0, |held| held.giving);
        let has_changed = class != old_class || was_queue != local_queue;
        self.detach_quietly(id, stays);
        self.store.list_slice(id, false);
        self.store.release_class(old_class);
        if let Some(workload) = self.store.workload_mut(id) {
            workload.take_over(local_queue, class, &mut spec, ties);
            if has_changed || workload.progress.as_deref().is_some_and(|progress| !progress.waits && scans_anew) {
                workload.progress = None;
            }
        }
        self.store.list_slice(id, true);
        self.note_admission(id, was_queue, was_held.as_ref(), &spec.state);
        self.attach(id, spec.state);
        if let Some(held) = was_held.filter(|held| held.evicted) {
            self.store.set_evicted(id, true);
            self.store.set_evicted_for(id, held.evicted_for.as_ref());
        }
        self.store.set_giving(id, was_giving);
        self.restore_queue_position(id, queue_position);
        if was_queue != local_queue {
            self.store.release_local_queue(was_queue);
        }
        if has_changed {
            self.clear_eviction_history_of(id);
        }
    }

    /// Position in its queue of a pending workload that issued preemptions; `None` for other workloads.
    pub(crate) fn queue_position(&self, id: WorkloadId) -> Option<QueuePosition> {
        let queue = self.store.local_queues[self.store.workload(id)?.local_queue].queue?;
        let pending = &self.store.queues[queue].pending;
        let queue_position =
            QueuePosition { queue, waits: pending.preemptor == Some(id), first: pending.sticky == Some(id) };
        (queue_position.waits || queue_position.first).then_some(queue_position)
    }

    /// Restores the queue position of a preemptor: a workload that was moved within the queue still waits for its victims, as in Kueue.
    pub(crate) fn restore_queue_position(&mut self, id: WorkloadId, queue_position: Option<QueuePosition>) {
        let Some(QueuePosition { queue, waits, first }) = queue_position else { return };
        let is_there = self.store.workload(id).is_some_and(|workload| {
            matches!(workload.phase, Phase::Pending(Place::Class))
                && self.store.local_queues[workload.local_queue].queue == Some(queue)
        });
        if is_there {
            let pending = &mut self.store.queues[queue].pending;
            pending.preemptor = pending.preemptor.or(waits.then_some(id));
            pending.sticky = pending.sticky.or(first.then_some(id));
        }
    }

    /// Whether the admission state of a delta is known already.
    fn is_echo(&self, id: WorkloadId, state: &WorkloadState) -> bool {
        let Some(workload) = self.store.workload(id) else { return false };
        match (&workload.phase, state) {
            (Phase::Pending(_), WorkloadState::Pending { not_before, blocked }) => {
                workload.not_before == *not_before && workload.blocked == *blocked
            }
            // The delta is older than the planned admission, which is still to be written.
            (Phase::Held(held), WorkloadState::Pending { .. }) => held.assumed,
            _ => false,
        }
    }

    /// Whether a workload keeps the same quota with the new admission state.
    fn stays(&self, held: Option<&Held>, state: &WorkloadState) -> bool {
        match (held, state) {
            (Some(held), WorkloadState::Reserved(reservation)) => {
                // When a holder of quota can be stopped again, workloads that could not preempt it are tried again.
                let is_let_go = held.kept && !reservation.kept;
                !is_let_go
                    && *self.store.queues[held.queue].name == *reservation.cluster_queue
                    && self.usage_known(&reservation.pod_sets).as_ref() == Some(held.full_usage())
            }
            _ => false,
        }
    }

    fn usage_known(&self, pod_sets: &[PodSetAssignment]) -> Option<Usage> {
        let mut usage = Usage::new();
        for pod_set in pod_sets {
            for (resource, flavor) in &pod_set.flavors {
                let flavor = self.store.flavor_names.get(flavor)?;
                let cell = self.store.find_cell(flavor, self.store.resources.get(resource)?)?;
                accumulate(&mut usage, cell, pod_set.usage.get(resource).copied().map_or(0, units).max(0));
            }
        }
        Some(usage)
    }

    /// Puts a workload into the place that its admission state requires.
    fn attach(&mut self, id: WorkloadId, state: WorkloadState) {
        match state {
            WorkloadState::Pending { not_before, blocked } => {
                if let Some(workload) = self.store.workload_mut(id) {
                    workload.not_before = not_before;
                    workload.blocked = blocked;
                }
                self.place(id);
            }
            WorkloadState::Reserved(reservation) => {
                let queue = self.queue_id(&reservation.cluster_queue);
                let mut usage = Usage::new();
                let mut spare = None;
                for pod_set in &reservation.pod_sets {
                    let mut own = Usage::new();
                    for (resource, flavor) in &pod_set.flavors {
                        let cell = self.store.intern_cell(flavor, resource);
                        let value = pod_set.usage.get(resource).copied().map_or(0, units).max(0);
                        accumulate(&mut own, cell, value);
                        accumulate(&mut usage, cell, value);
                    }
                    let surplus = reservation.surplus.as_ref().filter(|surplus| surplus.pod_set == pod_set.name);
                    spare = spare.or_else(|| Spare::of(surplus?, pod_set, &own));
                }
                let class = self.store.workload(id).map(|workload| workload.class);
                let counts = class.and_then(|class| self.store.counts_given(class, &reservation.pod_sets));
                let held = Held {
                    queue,
                    usage,
                    full_usage: None,
                    counts,
                    at: reservation.at,
                    saved: reservation.saved,
                    admitted: reservation.admitted,
                    evicted: reservation.evicted,
                    kept: reservation.kept,
                    evicted_for: None,
                    assumed: false,
                    spare: spare.map(Box::new),
                    giving: 0,
                };
                self.hold(id, held);
            }
        }
    }

    /// Charges quota for a workload that is in no queue.
    pub(crate) fn hold(&mut self, id: WorkloadId, held: Held) {
        let queue = held.queue;
        let node = self.store.queues[queue].node;
        self.tree.add(node, &held.usage);
        if let Some(workload) = self.store.workload(id) {
            let rank = workload.rank(id, &held);
            self.store.queues[queue].held.insert(rank, held.evicted);
        }
        self.unsettled |= self.has_lanes(queue);
        self.mark(queue);
        let Some(workload) = self.store.workload_mut(id) else { return };
        let local_queue = workload.local_queue;
        workload.progress = None;
        workload.verdict = None;
        self.notices.remove(&id);
        self.changed_local_queues.insert(local_queue);
        self.store.local_queues[local_queue].add(&held);
        if let Some(workload) = self.store.workload_mut(id) {
            workload.phase = Phase::Held(Box::new(held));
        }
        self.cover_charge(id);
        self.recharge_around(id);
    }

    pub(crate) fn detach(&mut self, id: WorkloadId) {
        self.detach_quietly(id, false);
    }

    /// Takes a workload out of its queue or releases its quota; `quiet` is true if the workload gets the same quota back at once.
    fn detach_quietly(&mut self, id: WorkloadId, quiet: bool) {
        let Some(workload) = self.store.workload_mut(id) else { return };
        let local_queue = workload.local_queue;
        let held = match std::mem::replace(&mut workload.phase, Phase::Pending(Place::Nowhere)) {
            Phase::Held(held) => held,
            pending @ Phase::Pending(_) => {
                workload.phase = pending;
                self.unplace(id);
                self.store.local_queues[local_queue].pending.remove(&id);
                return;
            }
        };
        let rank = workload.rank(id, &held);
        let node = self.store.queues[held.queue].node;
        self.tree.remove(node, &held.usage);
        self.store.queues[held.queue].held.remove(&rank, held.evicted);
        self.mark(held.queue);
        self.changed_local_queues.insert(local_queue);
        self.store.local_queues[local_queue].remove(&held);
        self.cover_charge(id);
        self.recharge_around(id);
        if !quiet {
            let generation = &mut self.tree.nodes[node].generation;
            *generation = generation.saturating_add(1);
            self.wake(node);
        }
    }

    /// Cancels a planned admission, or else a planned eviction, of a workload.
    pub(crate) fn forget(&mut self, id: WorkloadId) {
        let held = self.store.workload(id).and_then(|workload| workload.held());
        if held.is_some_and(|held| held.assumed) {
            self.drop_penalty(id);
            self.detach(id);
            self.place(id);
        } else {
            self.spare(id);
        }
    }

    /// Cancels a planned eviction of a workload, or its plan to give up pods.
    pub(crate) fn spare(&mut self, id: WorkloadId) {
        let Some(workload) = self.store.workload_mut(id) else { return };
        if let Phase::Held(held) = &mut workload.phase
            && (held.evicted || held.giving > 0)
        {
            let queue = held.queue;
            held.giving = 0;
            self.store.set_evicted(id, false);
            self.store.set_evicted_for(id, None);
            let node = self.store.queues[queue].node;
            self.wake(node);
        }
    }

    /// Puts a pending workload into the place where it waits.
    pub(crate) fn place(&mut self, id: WorkloadId) {
        let Some(workload) = self.store.workload(id) else { return };
        let (local_queue, class, key) = (workload.local_queue, workload.class, workload.key());
        let (not_before, blocked, listed) = (workload.not_before, workload.blocked, workload.is_listed());
        self.changed_local_queues.insert(local_queue);
        let local = &mut self.store.local_queues[local_queue];
        local.pending.insert(id);
        let runs = local.spec.as_ref().is_some_and(|spec| spec.stop == StopPolicy::None);
        let queue = local.queue.filter(|queue| runs && self.store.queues[*queue].spec.is_some());
        let place = match (queue, not_before) {
            (None, _) => {
                self.notices.insert(id);
                Place::Nowhere
            }
            _ if blocked.is_some() => Place::Blocked,
            (_, Some(time)) => {
                self.timers.insert((time, id));
                Place::Until(time)
            }
            (Some(queue), None) => {
                let lane = self.lane(queue, local_queue);
                let queue = &mut self.store.queues[queue];
                queue.pending.push(class, lane, key, id);
                if !queue.active || !queue.pending.is_active(class) {
                    self.notices.insert(id);
                }
                self.live.insert(self.tree.root(queue.node));
                Place::Class
            }
        };
        if let Some(queue) = queue {
            let pending = &mut self.store.queues[queue].pending;
            pending.total = pending.total.saturating_add(u32::from(listed));
            self.changed_queues.insert(queue);
        }
        if let Some(workload) = self.store.workload_mut(id) {
            workload.phase = Phase::Pending(place);
        }
    }

    /// Takes a pending workload out of its place.
    pub(crate) fn unplace(&mut self, id: WorkloadId) {
        let Some(workload) = self.store.workload(id) else { return };
        let Phase::Pending(place) = workload.phase else { return };
        let (local_queue, class, key) = (workload.local_queue, workload.class, workload.key());
        let listed = workload.is_listed();
        self.changed_local_queues.insert(local_queue);
        self.notices.remove(&id);
        if place != Place::Nowhere
            && let Some(queue) = self.store.local_queues[local_queue].queue
        {
            // Workloads that the head blocked, or from which it kept quota, may be tried now.
            if place == Place::Class && self.head(queue) == Some(id) {
                self.live.insert(self.tree.root(self.store.queues[queue].node));
            }
            let lane = self.lane(queue, local_queue);
            let pending = &mut self.store.queues[queue].pending;
            pending.total = pending.total.saturating_sub(u32::from(listed));
            pending.forget_preemptor(id);
            match place {
                Place::Class => pending.take(class, lane, key, id),
                Place::Solo => {
                    pending.solo.remove(&id);
                }
                Place::Mismatched => {
                    pending.mismatched.remove(&id);
                }
                Place::Until(time) => {
                    self.timers.remove(&(time, id));
                }
                Place::Nowhere | Place::Blocked | Place::InFlight => {}
            }
            self.changed_queues.insert(queue);
        }
        if let Some(workload) = self.store.workload_mut(id) {
            workload.phase = Phase::Pending(Place::Nowhere);
        }
    }
}

impl Store {
    /// Number of pods that each pod set of a workload was given; `None` if all pods of each pod set were given quota.
    pub(crate) fn counts_given(&self, class: ClassId, given: &[PodSetAssignment]) -> Option<Box<[i64]>> {
        let count = |set: &PodSet| {
            given.iter().find(|given| given.name == set.spec.name).map_or(set.spec.count, |given| given.count)
        };
        let pod_sets = &self.classes[class].pod_sets;
        pod_sets.iter().any(|set| count(set) != set.spec.count).then(|| pod_sets.iter().map(count).collect())
    }
}
