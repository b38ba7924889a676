//! Classical preemption, as in Kueue: candidates are taken in order until the preemptor fits, and then the candidates that are not needed are dropped.

use crate::preempt::ask::{Ask, Target};
use crate::preempt::candidates::{Candidate, Filter, Right};
use crate::preempt::lines::{Candidates, collect};
use crate::preempt::spare::reduce_targets;
use crate::preempt::trials::{fill_back, fits, leave};
use crate::quota::tree::{Tree, Trial};
use crate::world::ids::NodeId;
use crate::world::store::Store;

fn may_borrow(store: &Store, ask: &Ask<'_>) -> bool {
    store.queues[ask.queue].spec.as_ref().is_some_and(|spec| spec.preemption.borrow_within_cohort)
}

/// Whether candidates of other queues count only if the preemptor's queue is closer to the quota: the case if the preemptor's queue may not borrow by
/// preemption and has used up its own nominal quota.
pub(crate) fn only_borrowing(store: &Store, tree: &Tree, ask: &Ask<'_>) -> bool {
    let is_under_nominal = ask.needs.iter().all(|key| {
        let cell = tree.cell(store.queues[ask.queue].node, *key);
        cell.usage < cell.nominal
    });
    !may_borrow(store, ask) && !is_under_nominal
}

/// Whether the request is larger than the quota of the queue, so that it never fits without borrowing, whichever workloads leave.
pub(crate) fn must_borrow(store: &Store, tree: &Tree, ask: &Ask<'_>) -> bool {
    let node = store.queues[ask.queue].node;
    ask.usage.iter().any(|(key, value)| *value > tree.cell(node, *key).subtree)
}

pub(crate) fn targets(store: &Store, tree: &mut Tree, ask: &Ask<'_>) -> Vec<Target> {
    let (may_borrow, only_borrowing) = (may_borrow(store, ask), only_borrowing(store, tree, ask));
    let filter = Filter::new(store, ask);
    let found = collect(&filter, tree, only_borrowing);
    if found.is_empty() {
        return Vec::new();
    }
    let attempts: &[bool] = if only_borrowing || !found.has_others() {
        &[true]
    } else if !may_borrow && !found.has_hierarchical() {
        &[false, true]
    } else {
        &[true, false]
    };
    attempts
        .iter()
        .map(|borrow| attempt(&filter, tree, ask, &found, *borrow))
        .find(|targets| !targets.is_empty())
        .unwrap_or_default()
}

fn attempt<'a>(
    filter: &Filter<'a>,
    tree: &mut Tree,
    ask: &'a Ask<'a>,
    found: &Candidates<'a>,
    borrow: bool,
) -> Vec<Target> {
    let store = filter.store;
    if !borrow && must_borrow(store, tree, ask) {
        return Vec::new();
    }
    let mut sequence = found.sequence();
    let mut trial = Trial::new(tree);
    let mut targets = Vec::new();
    while let Some(candidate) = sequence.next(filter, |next| is_above_quota(store, trial.tree(), ask, next)) {
        if borrow && candidate.right == Right::WithoutBorrowing {
            continue;
        }
        leave(store, &mut trial, candidate.workload, true);
        targets.push(Target { workload: candidate.workload, reason: candidate.right.reason(), gives_up: None });
        if fits(store, trial.tree(), ask, borrow) {
            fill_back(store, &mut trial, ask, &mut targets, borrow);
            reduce_targets(store, &mut trial, ask, &mut targets, borrow);
            return targets;
        }
    }
    Vec::new()
}

/// Whether a candidate's queue, and every cohort between this queue and the lowest common cohort, is above its quota; always true for candidates of the
/// preemptor's own queue. A queue within its quota stays within its quota while workloads of other queues leave.
fn is_above_quota(store: &Store, tree: &Tree, ask: &Ask<'_>, candidate: &Candidate<'_>) -> bool {
    if candidate.queue == ask.queue {
        return true;
    }
    let node = store.queues[candidate.queue].node;
    let below_common = |cohort: &NodeId| Some(*cohort) != candidate.common;
    !tree.within_quota(node, ask.needs)
        && tree.ancestors(node).take_while(below_common).all(|cohort| !tree.within_quota(cohort, ask.needs))
}
