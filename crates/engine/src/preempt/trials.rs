//! Trials of the quota without victims: the usage of victims is removed and added again, and it is checked whether the preemptor fits.

use crate::preempt::ask::{Ask, Target};
use crate::quota::tree::{Tree, Trial};
use crate::world::beyond;
use crate::world::store::Store;

/// Removes the usage of a workload from the cohort tree of a [`Trial`], or adds this usage again.
pub(crate) fn leave(store: &Store, trial: &mut Trial<'_>, workload: crate::world::ids::WorkloadId, out: bool) {
    if let Some(held) = store.workload(workload).and_then(|w| w.held()) {
        let node = store.queues[held.queue].node;
        beyond::leave(store, trial, workload, out);
        if out {
            trial.remove(node, &held.usage);
        } else {
            trial.add(node, &held.usage);
        }
    }
}

/// Takes every victim that the preemptor does not need out of `targets`, from the last to the first; the very last victim is always needed.
pub(crate) fn fill_back(store: &Store, trial: &mut Trial<'_>, ask: &Ask<'_>, targets: &mut Vec<Target>, borrow: bool) {
    for index in (0..targets.len().saturating_sub(1)).rev() {
        let Some(target) = targets.get(index).copied() else { continue };
        leave(store, trial, target.workload, false);
        if fits(store, trial.tree(), ask, borrow) {
            targets.swap_remove(index);
        } else {
            leave(store, trial, target.workload, true);
        }
    }
}

/// Whether the preemptor fits into the quota of the cohort tree `tree`; without borrowing if `borrow` is false.
pub(crate) fn fits(store: &Store, tree: &Tree, ask: &Ask<'_>, borrow: bool) -> bool {
    let node = store.queues[ask.queue].node;
    ask.usage.iter().all(|(key, value)| {
        (borrow || !tree.cell(node, *key).exceeds_with(*value)) && *value <= tree.available(node, *key)
    })
}
