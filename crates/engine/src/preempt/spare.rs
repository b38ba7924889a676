//! Surplus pods: a workload gives its surplus pods up before it is evicted.

use std::borrow::Cow;

use crate::preempt::ask::{Ask, Target};
use crate::preempt::trials::fits;
use crate::quota::balance::{Units, Usage};
use crate::quota::tree::Trial;
use crate::world::beyond;
use crate::world::store::{Held, Store};

impl Held {
    /// Usage of `pods` pods of the workload's surplus.
    fn part(&self, pods: i64) -> Usage {
        let each = self.spare.iter().flat_map(|spare| &spare.each);
        each.map(|(cell, value)| (*cell, value.saturating_mul(Units::from(pods)))).collect()
    }

    /// Usage that a target of preemption gives back.
    pub(crate) fn given_back(&self, target: &Target) -> Cow<'_, Usage> {
        target.gives_up.map_or(Cow::Borrowed(&self.usage), |pods| Cow::Owned(self.part(pods)))
    }
}

/// Removes the usage that a victim gives back from the cohort tree of a [`Trial`], or adds this usage again.
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

/// Replaces evictions, from the last to the first, by giving up surplus pods if that is enough, with no more pods than needed. The usage that the victims in
/// `targets` give back must be out of `trial` before the call.
pub(crate) fn reduce_targets(
    store: &Store,
    trial: &mut Trial<'_>,
    ask: &Ask<'_>,
    targets: &mut [Target],
    borrow: bool,
) {
    for target in targets.iter_mut().rev() {
        let held = store.workload(target.workload).and_then(|workload| workload.held()).filter(|held| !held.evicted);
        let Some(spare) = held.and_then(|held| held.spare.as_deref()) else { continue };
        leave(store, trial, target, false);
        let full_eviction = *target;
        let mut enough = |steps: i64| {
            let part = Target { gives_up: Some(spare.after(steps)), ..full_eviction };
            leave(store, trial, &part, true);
            let enough = fits(store, trial.tree(), ask, borrow);
            leave(store, trial, &part, false);
            enough.then_some(part)
        };
        // The smallest number of steps of surplus pods that lets the preemptor fit lies in `low..=high`.
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
        *target = found.unwrap_or(full_eviction);
        leave(store, trial, target, true);
    }
}
