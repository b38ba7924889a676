//! The search for victims. The module `candidates` has the workloads that may be preempted, and `lines` their order; `classical` and `fair` choose the victims
//! among them.

pub(crate) mod ask;
pub(crate) mod breach;
pub(crate) mod candidates;
pub(crate) mod classical;
pub(crate) mod eviction_history;
pub(crate) mod fair;
pub(crate) mod guard;
pub(crate) mod lines;
mod recheck;
pub(crate) mod spare;
pub(crate) mod trials;
pub(crate) mod usage;

use crate::assign::mode::PreemptionPossibility;
use crate::options::Options;
use crate::preempt::ask::{Ask, Target, Victims};
use crate::preempt::breach::Breach;
use crate::quota::balance::Units;
use crate::quota::tree::{Tree, Trial};
use crate::world::ids::CellId;
use crate::world::store::{Store, Workload};

/// Victims after whose end the preemptor's usage fits; empty if there is no such set of victims.
///
/// # Errors
/// Returns the rule that the victims break in the second check, which is a fault of the search.
pub(crate) fn targets(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Result<Vec<Target>, Breach> {
    let (targets, taken) = search(store, tree, options, ask);
    recheck::check(store, tree, options, ask, &targets, taken.as_deref()).map(|()| targets)
}

/// The victims of a preemptor within the bounds of its queue's policy, before the rules are checked a second time.
fn search(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Victims {
    let (targets, taken) = unbounded(store, tree, options, ask);
    (guard::bounded(store, ask, targets), taken)
}

/// The victims of a preemptor, whatever bounds the policy of its queue sets.
pub(crate) fn unbounded(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Victims {
    match &options.fair_sharing {
        None => (classical::targets(store, tree, ask), None),
        Some(sharing) => fair::targets(store, tree, &sharing.strategies, &options.gates, ask),
    }
}

/// The search for victims for a single cell, as flavor assignment needs it.
pub(crate) fn possibility(
    store: &Store,
    tree: &mut Tree,
    options: &Options,
    ask: &Ask<'_>,
    cell: CellId,
    value: Units,
) -> (PreemptionPossibility, u32) {
    let ask = Ask { needs: &[cell], usage: &[(cell, value)], ..*ask };
    let (victims, _) = search(store, tree, options, &ask);
    let node = store.queues[ask.queue].node;
    let mut trial = Trial::new(tree);
    let mut own = false;
    for target in &victims {
        spare::leave(store, &mut trial, target, true);
        own |= store.workload(target.workload).and_then(Workload::held).is_some_and(|held| held.queue == ask.queue);
    }
    let (borrow, _) = trial.tree().height_that_fits(node, cell, value);
    let possibility = match (victims.is_empty(), own) {
        (true, _) => PreemptionPossibility::NoCandidates,
        (false, true) => PreemptionPossibility::Preempt,
        (false, false) => PreemptionPossibility::Reclaim,
    };
    (possibility, borrow)
}
