//! Surplus pods: a workload gives these up before it is evicted.

use std::borrow::Cow;

use crate::model::{PodSetAssignment, Surplus};
use crate::preempt::classical::fits;
use crate::preempt::{Ask, Target};
use crate::quota::balance::{Units, Usage};
use crate::quota::tree::Trial;
use crate::world::beyond;
use crate::world::ids::CellId;
use crate::world::store::{Held, Store};

/// Surplus pods of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pods: i64,
    /// At least 1.
    step: i64,
    /// Usage of one pod.
    each: Usage,
}

impl Spare {
    /// Surplus pods of a pod set that was given `given`, whose amounts by cell are `usage`.
    pub(crate) fn of(surplus: &Surplus, given: &PodSetAssignment, usage: &[(CellId, Units)]) -> Option<Self> {
        let (pods, count) = (surplus.pods.min(given.count), Units::from(given.count));
        let each = || usage.iter().map(|(cell, value)| (*cell, value.checked_div(count).unwrap_or(0))).collect();
        (pods > 0 && count > 0).then(|| Self { pods, step: surplus.step.max(1), each: each() })
    }

    /// Whether the workload has this number of surplus pods.
    pub(crate) const fn has(&self, pods: i64) -> bool {
        pods > 0 && pods <= self.pods
    }

    /// Steps after which all of them are gone.
    fn steps(&self) -> i64 {
        let full = self.pods.checked_div(self.step).unwrap_or(0);
        full.saturating_add(i64::from(full.saturating_mul(self.step) < self.pods))
    }

    fn after(&self, steps: i64) -> i64 {
        self.step.saturating_mul(steps).min(self.pods)
    }
}

impl Held {
    /// Usage of this number of pods.
    fn part(&self, pods: i64) -> Usage {
        let each = self.spare.iter().flat_map(|spare| &spare.each);
        each.map(|(cell, value)| (*cell, value.saturating_mul(Units::from(pods)))).collect()
    }

    /// Usage that a target gives back.
    pub(crate) fn given_back(&self, target: &Target) -> Cow<'_, Usage> {
        target.gives_up.map_or(Cow::Borrowed(&self.usage), |pods| Cow::Owned(self.part(pods)))
    }
}

/// Removes the usage that a target gives back from the trial, or puts it back.
pub(crate) fn leave(store: &Store, trial: &mut Trial<'_>, target: &Target, out: bool) {
    let Some(held) = store.workload(target.workload).and_then(|workload| workload.held()) else { return };
    let (node, usage) = (store.queues[held.queue].node, held.given_back(target));
    if target.gives_up.is_none() {
        beyond::leave(store, trial, target.workload, out);
    }
    if out {
        trial.remove(node, &usage);
    } else {
        trial.add(node, &usage);
    }
}

/// Replaces evictions, last first, by surplus pods where that is enough, with no more pods than needed. All targets are out of the trial.
pub(crate) fn keep_whole(store: &Store, trial: &mut Trial<'_>, ask: &Ask<'_>, targets: &mut [Target], borrow: bool) {
    for target in targets.iter_mut().rev() {
        let held = store.workload(target.workload).and_then(|workload| workload.held()).filter(|held| !held.evicted);
        let Some(spare) = held.and_then(|held| held.spare.as_deref()) else { continue };
        leave(store, trial, target, false);
        let whole = *target;
        let mut enough = |steps: i64| {
            let part = Target { gives_up: Some(spare.after(steps)), ..whole };
            leave(store, trial, &part, true);
            let enough = fits(store, trial.tree(), ask, borrow);
            leave(store, trial, &part, false);
            enough.then_some(part)
        };
        // The fewest steps that are enough lie in `low..=high`.
        let (mut low, mut high) = (1_i64, spare.steps());
        let mut found = None;
        while low <= high {
            let middle = low.midpoint(high);
            match enough(middle) {
                Some(part) => {
                    found = Some(part);
                    high = middle.saturating_sub(1);
                }
                None => low = middle.saturating_add(1),
            }
        }
        *target = found.unwrap_or(whole);
        leave(store, trial, target, true);
    }
}
