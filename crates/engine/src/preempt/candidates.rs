//! The workloads that may be preempted for another workload, and the right by which each of them may be preempted.

use std::cmp::Ordering;

use crate::model::{Millis, Preemption, PreemptionPolicy};
use crate::preempt::ask::Ask;
use crate::preempt::guard::{is_too_near, protected_until};
use crate::queue::tie::Tie;
use crate::quota::balance::Units;
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, NodeId, QueueId, WorkloadId};
use crate::world::store::{Held, Rank, Store, Workload};

/// The right by which a workload may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Same queue.
    WithinQueue,
    /// The preemptor's queue has an advantage over the candidate's queue: it is closer to the quota.
    Hierarchical,
    /// The candidate may be preempted only if the preemptor's queue does not borrow afterwards.
    WithoutBorrowing,
    /// The candidate may be preempted even if the preemptor's queue borrows afterwards.
    WhileBorrowing,
}

impl Right {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::WithinQueue => "InClusterQueue",
            Self::Hierarchical | Self::WithoutBorrowing => "InCohortReclamation",
            Self::WhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }
}

/// A workload that may be preempted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) workload: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) right: Right,
    /// The lowest cohort that is above the candidate's queue and the preemptor's queue.
    pub(crate) common: Option<NodeId>,
    pub(crate) evicted: bool,
    pub(crate) priority: i64,
    pub(crate) at: Millis,
    pub(crate) uid: &'a str,
    pub(crate) tie: &'a Tie,
}

impl<'a> Candidate<'a> {
    /// A workload that holds quota, as a candidate.
    pub(crate) fn of(
        id: WorkloadId,
        workload: &'a Workload,
        held: &Held,
        right: Right,
        common: Option<NodeId>,
    ) -> Self {
        Self {
            workload: id,
            queue: held.queue,
            right,
            common,
            evicted: held.evicted,
            priority: workload.priority,
            at: held.loses_since(),
            uid: &workload.uid,
            tie: &workload.tie,
        }
    }

    /// Order of candidates: already evicted workloads first, then candidates of other queues, lower priority, later reservation or checkpoint, and the
    /// tie-break. The order by usage of LocalQueues is in the module `usage`.
    pub(crate) fn compare(&self, other: &Self, own: QueueId) -> Ordering {
        (!self.evicted, self.queue == own).cmp(&(!other.evicted, other.queue == own)).then_with(|| self.by_age(other))
    }

    pub(super) fn by_age(&self, other: &Self) -> Ordering {
        let by_time = other.at.cmp(&self.at);
        self.priority.cmp(&other.priority).then(by_time).then_with(|| self.tie.compare_victims(other.tie))
    }
}

impl Held {
    /// Start of the work that a preemption of the workload would lose: the later one of the last checkpoint and the reservation.
    pub(crate) fn loses_since(&self) -> Millis {
        self.saved.map_or(self.at, |saved| saved.max(self.at))
    }
}

/// Whether a policy lets the preemptor, with this priority and queue-order timestamp, preempt the candidate. Cost: constant.
#[must_use]
pub fn policy_allows(policy: PreemptionPolicy, preemptor: (i64, Millis), candidate: (i64, Millis)) -> bool {
    let is_lower = candidate.0 < preemptor.0;
    match policy {
        PreemptionPolicy::Never | PreemptionPolicy::Unset => false,
        PreemptionPolicy::LowerPriority => is_lower,
        PreemptionPolicy::LowerOrNewerEqualPriority => {
            is_lower || (candidate.0 == preemptor.0 && preemptor.1 < candidate.1)
        }
        PreemptionPolicy::Any => true,
    }
}

/// Whether a policy lets the preemptor preempt a candidate.
pub(crate) fn satisfies(ask: &Ask<'_>, candidate: &Workload, policy: PreemptionPolicy) -> bool {
    policy_allows(policy, (ask.priority, ask.queued_at), (candidate.priority, candidate.queued_at))
}

/// Whether the holder of quota has usage in a cell that lacks quota.
pub(crate) fn uses(held: &Held, needs: &[CellId]) -> bool {
    held.usage.iter().any(|(cell, _)| needs.contains(cell))
}

/// Properties that all candidates of a queue have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) queue: QueueId,
    pub(super) common: Option<NodeId>,
    pub(super) advantage: bool,
}

/// The conditions that a workload must meet to be a candidate.
pub(crate) struct Filter<'a> {
    pub(crate) store: &'a Store,
    pub(super) ask: &'a Ask<'a>,
    policy: Preemption,
}

impl<'a> Filter<'a> {
    pub(crate) fn new(store: &'a Store, ask: &'a Ask<'a>) -> Self {
        let policy = store.queues[ask.queue].spec.as_ref().map(|spec| spec.preemption).unwrap_or_default();
        Self { store, ask, policy: policy.of(ask.preempts) }
    }

    pub(crate) const fn policy_of(&self, is_own: bool) -> PreemptionPolicy {
        if is_own { self.policy.within_cluster_queue } else { self.policy.reclaim_within_cohort }
    }

    /// Whether no workload with the priority `priority`, or with a higher one, may be preempted.
    pub(super) const fn ends_at(&self, is_own: bool, priority: i64) -> bool {
        match self.policy_of(is_own) {
            PreemptionPolicy::Any => false,
            PreemptionPolicy::LowerOrNewerEqualPriority => priority > self.ask.priority,
            PreemptionPolicy::LowerPriority => priority >= self.ask.priority,
            PreemptionPolicy::Never | PreemptionPolicy::Unset => true,
        }
    }

    pub(super) fn candidate(&self, rank: &Rank, line: &Scope) -> Option<Candidate<'a>> {
        let workload = self.store.workload(rank.workload)?;
        let held = workload.held()?;
        let is_own = line.queue == self.ask.queue;
        if !satisfies(self.ask, workload, self.policy_of(is_own))
            || !uses(held, self.ask.needs)
            || self.ask.gone.contains(&rank.workload)
            || is_too_near(self.store, self.ask, workload.priority)
            || protected_until(self.store, held).is_some()
            || self.store.is_handing_over(workload)
        {
            return None;
        }
        let right = if is_own { Right::WithinQueue } else { self.right_beyond(workload.priority, line.advantage) };
        Some(Candidate::of(rank.workload, workload, held, right, line.common))
    }

    /// The right by which a workload with the priority `priority` in another queue may be preempted; `advantage` is true if the preemptor's queue is
    /// closer to the quota.
    pub(crate) fn right_beyond(&self, priority: i64, advantage: bool) -> Right {
        let above_threshold = self.policy.max_priority_threshold.is_some_and(|bound| priority > i64::from(bound));
        if advantage {
            Right::Hierarchical
        } else if !self.policy.borrow_within_cohort || priority >= self.ask.priority || above_threshold {
            Right::WithoutBorrowing
        } else {
            Right::WhileBorrowing
        }
    }
}

/// Whether requests fit the quota of a ClusterQueue, or of a cohort with all queues and cohorts below it. `fit_in_quota` reduces the requests to the part that
/// exceeds the free quota which the ClusterQueue or cohort keeps for itself.
pub(crate) fn fit_in_quota(tree: &Tree, node: NodeId, requests: &mut [(CellId, Units)]) -> bool {
    let mut fits = true;
    for (key, value) in requests {
        let cell = tree.cell(node, *key);
        fits &= !cell.exceeds_with(*value);
        *value = value.saturating_sub(cell.local_available()).max(0);
    }
    fits
}
