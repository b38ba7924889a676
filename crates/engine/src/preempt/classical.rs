//! Classical preemption (kueue.md 6.8): take candidates in order until the workload fits, then give back whom it does not
//! need.

use crate::ids::NodeId;
use crate::preempt::candidates::{Candidate, Right, collect};
use crate::preempt::{Ask, Target};
use crate::store::Store;
use crate::tree::{Tree, Trial};

pub(crate) fn targets(store: &Store, tree: &mut Tree, ask: &Ask<'_>) -> Vec<Target> {
    let queue = &store.queues[ask.queue];
    let found = collect(store, tree, ask);
    let sequence = found.sequence();
    if sequence.is_empty() {
        return Vec::new();
    }
    let may_borrow = queue.spec.as_ref().is_some_and(|spec| spec.preemption.borrow_within_cohort);
    let is_under_nominal = ask.needs.iter().all(|key| {
        let cell = tree.cell(queue.node, *key);
        cell.usage < cell.nominal
    });
    let attempts: &[bool] = if !found.has_others() || (!may_borrow && !is_under_nominal) {
        &[true]
    } else if !may_borrow && !found.has_hierarchical() {
        &[false, true]
    } else {
        &[true, false]
    };
    attempts
        .iter()
        .map(|borrow| attempt(store, tree, ask, &sequence, *borrow))
        .find(|targets| !targets.is_empty())
        .unwrap_or_default()
}

fn attempt(store: &Store, tree: &mut Tree, ask: &Ask<'_>, sequence: &[Candidate], borrow: bool) -> Vec<Target> {
    let mut trial = Trial::new(tree);
    let mut targets = Vec::new();
    for candidate in sequence {
        if !is_valid(store, trial.tree(), ask, candidate, borrow) {
            continue;
        }
        leave(store, &mut trial, candidate.workload, true);
        targets.push(Target { workload: candidate.workload, reason: candidate.right.reason() });
        if fits(store, trial.tree(), ask, borrow) {
            fill_back(store, &mut trial, ask, &mut targets, borrow);
            return targets;
        }
    }
    Vec::new()
}

/// Takes a workload out of the what-if, or puts it back.
pub(crate) fn leave(store: &Store, trial: &mut Trial<'_>, workload: crate::ids::WorkloadId, out: bool) {
    if let Some(held) = store.workload(workload).and_then(|w| w.held()) {
        let node = store.queues[held.queue].node;
        if out {
            trial.remove(node, &held.usage);
        } else {
            trial.add(node, &held.usage);
        }
    }
}

/// Puts back, last first, everybody whose leaving is not needed; the very last one always is.
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

/// Whether the workload fits, without borrowing if that is asked for.
pub(crate) fn fits(store: &Store, tree: &Tree, ask: &Ask<'_>, borrow: bool) -> bool {
    let node = store.queues[ask.queue].node;
    ask.usage.iter().all(|(key, value)| {
        (borrow || !tree.cell(node, *key).exceeds_with(*value)) && *value <= tree.available(node, *key)
    })
}

/// A candidate of another queue counts only while its queue, and every cohort below the common one, is above its quota.
fn is_valid(store: &Store, tree: &Tree, ask: &Ask<'_>, candidate: &Candidate, borrow: bool) -> bool {
    if candidate.queue == ask.queue {
        return true;
    }
    if borrow && candidate.right == Right::WithoutBorrowing {
        return false;
    }
    let node = store.queues[candidate.queue].node;
    let below_common = |cohort: &NodeId| Some(*cohort) != candidate.common;
    !tree.within_quota(node, ask.needs)
        && tree.ancestors(node).take_while(below_common).all(|cohort| !tree.within_quota(cohort, ask.needs))
}
