//! The search for victims. `candidates` has the workloads that may be preempted and their order; `classical` and `fair` choose among them.

pub(crate) mod candidates;
pub(crate) mod classical;
pub(crate) mod fair;
pub(crate) mod feuds;
pub(crate) mod guard;
pub(crate) mod recheck;
pub(crate) mod spare;
pub(crate) mod usage;

use std::collections::BTreeSet;

use crate::assign::assignment::PreemptionPossibility;
use crate::model::{Millis, Preempts};
use crate::options::Options;
use crate::preempt::recheck::Breach;
use crate::queue::afs::AdmissionFairSharing;
use crate::quota::balance::Units;
use crate::quota::tree::{Tree, Trial};
use crate::world::ids::{CellId, QueueId, WorkloadId};
use crate::world::store::{Store, Workload};

/// One victim and the reason of its Preempted condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) reason: &'static str,
    /// Number of surplus pods that it gives up in place of leaving.
    pub(crate) gives_up: Option<i64>,
}

/// Victims, and all workloads that were taken before the unneeded ones were put back, if shares can be judged on these only.
pub(crate) type Victims = (Vec<Target>, Option<Vec<Target>>);

/// A query for victims: the preemptor and its request.
pub(crate) struct Ask<'a> {
    pub(crate) queue: QueueId,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    /// Cells that lack quota, sorted.
    pub(crate) needs: &'a [CellId],
    /// Everything the workload would use.
    pub(crate) usage: &'a [(CellId, Units)],
    /// Workloads that are not to be preempted.
    pub(crate) gone: &'a BTreeSet<WorkloadId>,
    /// Set when the usage of LocalQueues orders candidates.
    pub(crate) afs: Option<&'a AdmissionFairSharing>,
    /// Preemption scope of the workload, applied after the queue's policy.
    pub(crate) preempts: Preempts,
    /// The preemptor, set only if a policy bounds preemption.
    pub(crate) asking: Option<WorkloadId>,
}

impl<'a> Ask<'a> {
    pub(crate) fn of(
        store: &Store,
        workload: &Workload,
        queue: QueueId,
        gone: &'a BTreeSet<WorkloadId>,
        options: &'a Options,
    ) -> Self {
        let afs = options.admission_fair_sharing.as_ref();
        let preempts = store.classes[workload.class].preempts;
        Self {
            queue,
            priority: workload.priority,
            queued_at: workload.queued_at,
            needs: &[],
            usage: &[],
            gone,
            afs,
            preempts,
            asking: if store.guarded > 0 { store.by_uid.get(&workload.uid).copied() } else { None },
        }
    }
}

/// Victims whose leaving makes the usage fit; empty when there is no such set.
///
/// # Errors
/// The rule that the victims break when they are checked again; no search should let that happen.
pub(crate) fn targets(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Result<Vec<Target>, Breach> {
    let (targets, taken) = search(store, tree, options, ask);
    recheck::check(store, tree, options, ask, &targets, taken.as_deref()).map(|()| targets)
}

/// The victims within the queue's bounds, before they are checked again.
fn search(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Victims {
    let (targets, taken) = unbounded(store, tree, options, ask);
    (guard::bounded(store, ask, targets), taken)
}

/// The victims, whatever their number.
pub(crate) fn unbounded(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Victims {
    match &options.fair_sharing {
        None => (classical::targets(store, tree, ask), None),
        Some(sharing) => fair::targets(store, tree, &sharing.strategies, &options.gates, ask),
    }
}

/// The search for a single cell, as flavor assignment needs it.
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
