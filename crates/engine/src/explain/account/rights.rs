//! The rule by which a holder of quota may or may not be preempted: the rules of the search for victims, applied to each holder alone.
//!
//! Rules about all victims together are evaluated in the case that is best for the preemptor. A holder of quota that is protected by a rule about all victims
//! together is therefore never preempted.

use std::collections::BTreeMap;

use crate::model::{PreemptionPolicy, Preempts};
use crate::options::{FairSharing, Options, ShareStrategy};
use crate::preempt;
use crate::preempt::ask::Ask;
use crate::preempt::candidates::{self, Candidate, Filter, satisfies};
use crate::preempt::classical::{must_borrow, only_borrowing};
use crate::preempt::fair::{Turns, in_order, is_entitled, lets, share_without, sides};
use crate::preempt::guard::{is_bounded, is_too_near, protected_until};
use crate::preempt::lines::{Line, collect, collect_borrowers};
use crate::preempt::trials::leave;
use crate::quota::share::{Share, share_of};
use crate::quota::tree::{Tree, Trial};
use crate::world::ids::{CellId, NodeId, WorkloadId};
use crate::world::store::{Held, Store, Workload};

/// The rule by which a holder of quota may or may not be preempted for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// The workload that holds quota has been evicted already and is leaving.
    Leaving,
    /// The rules allow the preemption of the workload that holds quota. The benefit of the preemption depends on the other workloads that have to leave.
    MayBePreempted,
    /// The ClusterQueue of the workload that holds quota is stopped or inactive: its workloads are not preempted.
    Stopped,
    /// The workload that holds quota is a workload slice whose old or replacement slice holds quota, too.
    HandingOver,
    /// The workload that holds quota is in the pending workload's own queue, and `withinClusterQueue` is `Never`.
    WithinQueueNever,
    /// The workload that holds quota is in another queue, and `reclaimWithinCohort` is `Never`.
    ReclaimNever,
    /// The pending workload preempts no workload, whatever its queue allows.
    PreemptsNobody,
    /// The priority (or age) of the workload that holds quota protects it under the preemption policy.
    Priority,
    /// The ClusterQueue of the workload that holds quota does not use more than its own quota of the requested cells.
    WithinItsQuota,
    /// A cohort between the ClusterQueue of the workload that holds quota and the lowest common cohort is within its quota.
    CohortWithinQuota,
    /// The workload that holds quota is preempted only for a workload that does not borrow, because `borrowWithinCohort` does not cover it.
    Borrowing,
    /// The workload that holds quota is preempted only for a workload that does not borrow, because its priority is above
    /// `borrowWithinCohort.maxPriorityThreshold`.
    Threshold,
    /// Under fair sharing, the holder's side of the cohort tree would not have the larger share with the pending workload admitted.
    Share,
    /// The workload that holds quota cannot be stopped at present.
    Kept,
    /// The workload that holds quota began a short while ago, and the policy of its queue protects it.
    Protected,
    /// The priority of the workload that holds quota is too near to the priority of the pending workload for the policy of the queue.
    TooNear,
    /// The workload that holds quota is one of the victims that are together more, or hold together more, than the queue's policy allows for one workload.
    Bounds,
    /// Eviction history forbids the preemption, and nothing has changed since: the pending workload was evicted for the holder, directly or through other
    /// workloads, or the holder would return to its queue before a workload of that chain of evictions.
    RepeatedPreemption,
}

impl Right {
    /// The rule of preemption in words, for a sentence whose subject is the workload that holds quota. Cost: constant.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Leaving => "has been evicted and is leaving",
            Self::MayBePreempted => "may be preempted",
            Self::Stopped => "is of a ClusterQueue that is stopped or inactive",
            Self::HandingOver => "is a slice that takes the place of another, or makes room for one",
            Self::WithinQueueNever => "withinClusterQueue is Never",
            Self::ReclaimNever => "reclaimWithinCohort is Never",
            Self::PreemptsNobody => "this workload preempts nobody",
            Self::Priority => "is protected by its priority or age",
            Self::WithinItsQuota => "is within the quota of its own ClusterQueue",
            Self::CohortWithinQuota => "is in a cohort that is within its quota",
            Self::Borrowing => "is not preempted for who borrows",
            Self::Threshold => "has a priority above borrowWithinCohort's maxPriorityThreshold",
            Self::Share => "is of a ClusterQueue or cohort that would not have the larger share",
            Self::Kept => "could not be stopped at present",
            Self::Protected => "began a short while ago and is protected by its queue's policy",
            Self::TooNear => "has a priority too near for the queue's policy",
            Self::Bounds => "would leave with more than the queue's policy allows",
            Self::RepeatedPreemption => "preempted this workload before, and nothing changed since",
        }
    }
}

/// The workloads that the search for victims considers, each with its verdict.
pub(super) type Judged = BTreeMap<WorkloadId, Right>;

/// Asks the search for victims about each workload that holds quota, whether it may be preempted. The cost of `judge` is a pass over the workloads that hold
/// quota in the cohort tree, and a search if preemption is bounded.
pub(super) fn judge(store: &Store, tree: &mut Tree, options: &Options, ask: &Ask<'_>) -> Judged {
    let mut judged = match &options.fair_sharing {
        None => classically(store, tree, ask),
        Some(sharing) => fairly(store, tree, sharing, options, ask),
    };
    if store.guarded > 0 && !tree.fits(store.queues[ask.queue].node, ask.usage) {
        let (targets, _) = preempt::unbounded(store, tree, options, ask);
        if !is_bounded(store, ask, &targets) {
            judged.extend(targets.iter().map(|target| (target.workload, Right::Bounds)));
        }
    }
    judged
}

fn classically(store: &Store, tree: &Tree, ask: &Ask<'_>) -> Judged {
    let filter = Filter::new(store, ask);
    let found = collect(&filter, tree, only_borrowing(store, tree, ask));
    let borrows = must_borrow(store, tree, ask);
    let mut judged = Judged::new();
    let mut sequence = found.sequence();
    while let Some(candidate) = sequence.next(&filter, |_| true) {
        let right = match candidate.right {
            candidates::Right::WithoutBorrowing if borrows => uncovered(&filter, ask, candidate.priority),
            _ => Right::MayBePreempted,
        };
        judged.insert(candidate.workload, right);
    }
    judged
}

/// The rule because of which `borrowWithinCohort` does not cover the priority `priority`.
fn uncovered(filter: &Filter<'_>, ask: &Ask<'_>, priority: i64) -> Right {
    let spec = filter.store.queues[ask.queue].spec.as_ref();
    let threshold = spec.and_then(|spec| spec.preemption.max_priority_threshold);
    let would_be = |bound: i32| filter.right_beyond(priority.min(i64::from(bound)), false);
    if threshold.is_some_and(|bound| would_be(bound) == candidates::Right::WhileBorrowing) {
        Right::Threshold
    } else {
        Right::Borrowing
    }
}

fn all_of<'a>(filter: &Filter<'a>, line: &Line<'a>) -> Vec<Candidate<'a>> {
    let mut line = line.clone();
    let mut all = vec![line.head];
    while line.advance(filter) {
        all.push(line.head);
    }
    all
}

fn fairly(store: &Store, tree: &mut Tree, sharing: &FairSharing, options: &Options, ask: &Ask<'_>) -> Judged {
    let filter = Filter::new(store, ask);
    let own = store.queues[ask.queue].node;
    let lines = collect_borrowers(&filter, tree);
    let all: Vec<Candidate<'_>> = lines.iter().flat_map(|line| all_of(&filter, line)).collect();
    let mut trial = Trial::new(tree);
    // The request of the pending workload is added to the usage of its queue for the time of the check, because the search for victims compares shares as if
    // the pending workload were admitted.
    trial.add(own, ask.usage);
    let is_entitled = is_entitled(trial.tree(), own, &options.gates, ask);
    let strategies = in_order(&sharing.strategies);
    let first = strategies.first().copied().unwrap_or(ShareStrategy::LessThanInitialShare);
    let mut least_shares: BTreeMap<NodeId, Share> = BTreeMap::new();
    let mut judged = Judged::new();
    for line in &lines {
        let queue = line.head.queue;
        let node = store.queues[queue].node;
        let mut turns = Turns::new(store, trial.tree(), ask.queue, std::iter::once(line.clone()));
        let has_turn = turns.next(store, trial.tree()).is_some();
        let (own_side, other_side) = sides(trial.tree(), own, node);
        for candidate in all.iter().filter(|candidate| candidate.queue == queue) {
            let right = if !has_turn {
                let kept = is_kept_by_a_cohort(trial.tree(), own, node, ask.needs);
                if kept { Right::CohortWithinQuota } else { Right::Share }
            } else if node == own || is_entitled {
                Right::MayBePreempted
            } else {
                let least = least_shares.entry(own_side);
                let new = *least.or_insert_with(|| least_share(store, &mut trial, own_side, &all));
                let (old, _) = share_of(store, trial.tree(), other_side, &[]);
                let after = || share_without(store, &mut trial, candidate.workload, other_side);
                let passes = lets(first, &new, &old, after)
                    || (strategies.len() > 1 && lets(ShareStrategy::LessThanInitialShare, &new, &old, || old));
                if passes { Right::MayBePreempted } else { Right::Share }
            };
            judged.insert(candidate.workload, right);
        }
    }
    judged
}

/// The smallest share that a queue or cohort can have while victims leave: the share without the candidates for preemption in this queue or below this cohort.
fn least_share(store: &Store, trial: &mut Trial<'_>, node: NodeId, all: &[Candidate<'_>]) -> Share {
    let mut gone = Trial::new(trial.tree_mut());
    for candidate in all {
        let queue = store.queues[candidate.queue].node;
        let is_below = queue == node || gone.tree().ancestors(queue).any(|above| above == node);
        if is_below {
            leave(store, &mut gone, candidate.workload, true);
        }
    }
    let (share, _) = share_of(store, gone.tree(), node, &[]);
    share
}

/// Whether a cohort above `other`, and not above `own`, is within its quota.
fn is_kept_by_a_cohort(tree: &Tree, own: NodeId, other: NodeId, needs: &[CellId]) -> bool {
    let path: Vec<NodeId> = tree.ancestors(own).collect();
    let mut below_common = tree.ancestors(other).take_while(|node| !path.contains(node));
    below_common.any(|node| tree.within_quota(node, needs))
}

/// The rule for one holder of the quota that the pending workload lacks.
pub(super) fn right(
    store: &Store,
    tree: &Tree,
    ask: &Ask<'_>,
    judged: &Judged,
    (id, holder, held): (WorkloadId, &Workload, &Held),
) -> Right {
    if held.evicted {
        return Right::Leaving;
    }
    if let Some(right) = judged.get(&id) {
        return *right;
    }
    // If the search for victims did not consider the holder, the first rule that forbids the preemption is the reason.
    let (queue, is_own) = (&store.queues[held.queue], held.queue == ask.queue);
    let own = store.queues[ask.queue].node;
    let plain = Ask { preempts: Preempts::AsQueue, ..*ask };
    let policy = Filter::new(store, ask).policy_of(is_own);
    let policy_of_queue = Filter::new(store, &plain).policy_of(is_own);
    let is_never = |policy| matches!(policy, PreemptionPolicy::Never | PreemptionPolicy::Unset);
    let never = if is_own { Right::WithinQueueNever } else { Right::ReclaimNever };
    let rules = [
        (!queue.active, Right::Stopped),
        (store.is_handing_over(holder), Right::HandingOver),
        (ask.gone.contains(&id), Right::RepeatedPreemption),
        (held.kept, Right::Kept),
        (protected_until(store, held).is_some(), Right::Protected),
        (is_too_near(store, ask, holder.priority), Right::TooNear),
        (is_never(policy_of_queue), never),
        (is_never(policy), Right::PreemptsNobody),
        (!is_own && tree.within_quota(queue.node, ask.needs), Right::WithinItsQuota),
        (!satisfies(ask, holder, policy), Right::Priority),
        (!is_own && is_kept_by_a_cohort(tree, own, queue.node, ask.needs), Right::CohortWithinQuota),
    ];
    rules.into_iter().find(|(forbids, _)| *forbids).map_or(Right::Borrowing, |(_, right)| right)
}
