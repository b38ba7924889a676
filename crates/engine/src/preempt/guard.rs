//! Bounds of preemption that a queue's policy sets: protected workloads, and the largest number of victims and amount of quota that may be evicted for one
//! workload.

use crate::model::{Millis, PreemptionGuard};
use crate::preempt::ask::{Ask, Target};
use crate::quota::balance::{Units, in_usage};
use crate::world::World;
use crate::world::ids::WorkloadId;
use crate::world::store::{Held, Store};

impl PreemptionGuard {
    /// Whether a `PreemptionGuard`, which has the bounds of preemption of a queue, sets no bound.
    pub(crate) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// The bounds of preemption that the policy of a queue sets; `None` if there are none.
fn guard(store: &Store, queue: crate::world::ids::QueueId) -> Option<&PreemptionGuard> {
    store.queues[queue].spec.as_ref().map(|spec| &spec.guard).filter(|guard| !guard.is_idle())
}

/// End of the time in which a holder of quota may not be preempted. The protected time has no end while the holder of quota cannot be stopped; otherwise it
/// ends with the queue's protection of workloads that began a short while ago. The result is `None` if the holder of quota is not protected.
pub(crate) fn protected_until(store: &Store, held: &Held) -> Option<Millis> {
    if held.kept && !held.evicted {
        return Some(Millis(i64::MAX));
    }
    let protected = guard(store, held.queue)?.protected_ms;
    let until = Millis(held.at.0.saturating_add(protected));
    (protected > 0 && until > store.now && !held.evicted).then_some(until)
}

/// Whether a victim's priority is too near to the priority of the preemptor.
pub(crate) fn is_too_near(store: &Store, ask: &Ask<'_>, priority: i64) -> bool {
    let least = guard(store, ask.queue).map_or(0, |guard| guard.min_priority_difference);
    least > 0 && ask.priority.saturating_sub(priority) < i64::from(least)
}

/// Drops all victims if there are too many of them, or if they hold too much more than the request.
pub(crate) fn bounded(store: &Store, ask: &Ask<'_>, targets: Vec<Target>) -> Vec<Target> {
    if is_bounded(store, ask, &targets) { targets } else { Vec::new() }
}

/// Whether victims are few enough, and hold little enough in comparison with the request. Earlier victims of the same preemptor, which did not help it, count
/// against the bounds as well.
pub(crate) fn is_bounded(store: &Store, ask: &Ask<'_>, targets: &[Target]) -> bool {
    let Some(guard) = guard(store, ask.queue) else { return true };
    let known = ask.asking.map(|asking| store.eviction_history.victims_of(asking)).unwrap_or_default();
    let is_new = |victim: &&WorkloadId| !targets.iter().any(|target| target.workload == **victim);
    let earlier: Vec<WorkloadId> = known.iter().filter(is_new).copied().collect();
    let all = targets.len().saturating_add(earlier.len());
    let too_many = guard.max_victims.is_some_and(|most| all > usize::try_from(most).unwrap_or(usize::MAX));
    let too_much = guard.max_evicted_percent.is_some_and(|percent| {
        ask.needs.iter().any(|cell| {
            let given = |target: &Target| {
                let held = store.workload(target.workload)?.held()?;
                Some(in_usage(&held.given_back(target), *cell))
            };
            let left = |victim: &WorkloadId| Some(in_usage(store.workload(*victim)?.held()?.full_usage(), *cell));
            let evicted: Units = targets.iter().filter_map(given).chain(earlier.iter().filter_map(left)).sum();
            evicted.saturating_mul(100) > in_usage(ask.usage, *cell).saturating_mul(Units::from(percent))
        })
    });
    // If all victims are already known from earlier evictions, there is nothing to bound.
    let only_known = targets.iter().all(|target| known.contains(&target.workload));
    only_known || !(too_many || too_much)
}

impl World {
    /// Records the time, and wakes workloads that may preempt again because the protection of a victim has ended.
    pub(crate) fn release_protected(&mut self, now: Millis) {
        let before = std::mem::replace(&mut self.store.now, now);
        for queue in self.protecting() {
            let ended = self.ends_of_protection(queue).any(|end| end > before && end <= now);
            if ended {
                let node = self.store.queues[queue].node;
                self.wake(node);
            }
        }
    }

    /// End of the protection that ends next.
    pub(crate) fn next_unprotected(&self) -> Option<Millis> {
        let ends = self.protecting().into_iter().flat_map(|queue| self.ends_of_protection(queue));
        ends.filter(|end| *end > self.store.now).min()
    }

    fn protecting(&self) -> Vec<crate::world::ids::QueueId> {
        let protects =
            |id: &crate::world::ids::QueueId| guard(&self.store, *id).is_some_and(|guard| guard.protected_ms > 0);
        if self.store.guarded == 0 { Vec::new() } else { self.store.queues.ids().filter(protects).collect() }
    }

    fn ends_of_protection(&self, queue: crate::world::ids::QueueId) -> impl Iterator<Item = Millis> {
        let protected = guard(&self.store, queue).map_or(0, |guard| guard.protected_ms);
        let staying = self.store.queues[queue].held.staying.iter();
        let held = staying.filter_map(|rank| self.store.workload(rank.workload)?.held());
        held.map(move |held| Millis(held.at.0.saturating_add(protected)))
    }
}
