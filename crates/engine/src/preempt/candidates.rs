//! Who may be preempted for a workload, by which right, and in which order they are tried.

use std::cmp::Reverse;

use crate::afs::{self, AdmissionFairSharing};
use crate::balance::Units;
use crate::ids::{CellId, NodeId, QueueId, WorkloadId};
use crate::model::{Millis, Preemption, PreemptionPolicy};
use crate::preempt::Ask;
use crate::store::{Held, Store, Workload};
use crate::tree::Tree;

/// By which right a workload may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Same queue.
    WithinQueue,
    /// The asking queue is closer to the quota.
    Hierarchical,
    /// Only if the asking queue does not borrow afterwards.
    WithoutBorrowing,
    /// Even if it borrows afterwards.
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
pub(crate) struct Candidate {
    pub(crate) workload: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) right: Right,
    /// The lowest cohort above both queues.
    pub(crate) common: Option<NodeId>,
    pub(crate) evicted: bool,
}

/// The three lists, each in order.
#[derive(Default)]
pub(crate) struct Candidates {
    hierarchical: Vec<Candidate>,
    priority: Vec<Candidate>,
    own: Vec<Candidate>,
}

impl Candidates {
    pub(crate) fn has_others(&self) -> bool {
        !self.hierarchical.is_empty() || !self.priority.is_empty()
    }

    pub(crate) fn has_hierarchical(&self) -> bool {
        !self.hierarchical.is_empty()
    }

    /// The sequence in which they are tried: those on their way out first.
    pub(crate) fn sequence(&self) -> Vec<Candidate> {
        let all = || self.hierarchical.iter().chain(&self.priority).chain(&self.own);
        all().filter(|c| c.evicted).chain(all().filter(|c| !c.evicted)).copied().collect()
    }
}

/// Whether a policy lets a workload of this priority and queue-order timestamp preempt another.
#[must_use]
pub fn policy_allows(policy: PreemptionPolicy, preemptor: (i32, Millis), candidate: (i32, Millis)) -> bool {
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

/// Whether a policy lets the asking workload preempt a candidate.
pub(crate) fn satisfies(ask: &Ask<'_>, candidate: &Workload, policy: PreemptionPolicy) -> bool {
    policy_allows(policy, (ask.priority, ask.queued_at), (candidate.priority, candidate.queued_at))
}

fn uses(held: &Held, needs: &[CellId]) -> bool {
    held.usage.iter().any(|(cell, _)| needs.contains(cell))
}

/// Order of candidates: on their way out, other queues first, in the own queue those of the LocalQueue that used most
/// lately (under admission fair sharing), lower priority, later reservation, uid.
pub(crate) fn sort(store: &Store, afs: Option<&AdmissionFairSharing>, own: QueueId, candidates: &mut [Candidate]) {
    let is_usage_based = |queue: QueueId| store.queues[queue].spec.as_ref().is_some_and(|spec| spec.usage_based);
    let afs = afs.filter(|_| is_usage_based(own));
    candidates.sort_by_cached_key(|candidate| {
        let workload = store.workload(candidate.workload);
        let usage = match (afs, workload) {
            (Some(afs), Some(workload)) if candidate.queue == own => {
                afs::usage_of(store, afs, &store.local_queues[workload.local_queue])
            }
            _ => 0.0,
        };
        (
            !candidate.evicted,
            candidate.queue == own,
            Reverse(TotalOrder(usage)),
            workload.map(|w| w.priority),
            Reverse(workload.and_then(Workload::held).map(|held| held.at)),
            workload.map(|w| w.uid.clone()),
        )
    });
}

/// Usage as part of a sort key.
struct TotalOrder(f64);

impl PartialEq for TotalOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TotalOrder {}

impl PartialOrd for TotalOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TotalOrder {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

struct Collector<'a> {
    store: &'a Store,
    tree: &'a Tree,
    ask: &'a Ask<'a>,
    policy: Preemption,
}

/// Everybody who may be preempted. Costs the workloads of the queues that are above their quota.
pub(crate) fn collect(store: &Store, tree: &Tree, ask: &Ask<'_>) -> Candidates {
    let queue = &store.queues[ask.queue];
    let policy = queue.spec.as_ref().map(|spec| spec.preemption).unwrap_or_default();
    let collector = Collector { store, tree, ask, policy };
    let mut found = Candidates::default();
    if policy.within_cluster_queue != PreemptionPolicy::Never {
        collector.add_queue(ask.queue, None, false, &mut found.own);
    }
    if policy.reclaim_within_cohort != PreemptionPolicy::Never {
        collector.add_cohorts(queue.node, &mut found);
    }
    for list in [&mut found.hierarchical, &mut found.priority, &mut found.own] {
        sort(store, ask.afs, ask.queue, list);
    }
    found
}

/// Everybody whom fair sharing may take, in order: the own queue, and every queue of the tree that borrows what is needed.
pub(crate) fn collect_borrowers(store: &Store, tree: &Tree, ask: &Ask<'_>) -> Vec<Candidate> {
    let queue = &store.queues[ask.queue];
    let policy = queue.spec.as_ref().map(|spec| spec.preemption).unwrap_or_default();
    let collector = Collector { store, tree, ask, policy };
    let mut found = Vec::new();
    if policy.within_cluster_queue != PreemptionPolicy::Never {
        collector.add_queue(ask.queue, None, false, &mut found);
    }
    if policy.reclaim_within_cohort != PreemptionPolicy::Never {
        for node in tree.bottom_up(tree.root(queue.node)) {
            let other = store.queue_of_node.get(&node).filter(|_| node != queue.node);
            if let Some(other) = other.filter(|_| !tree.within_quota(node, ask.needs)) {
                collector.add_queue(*other, None, false, &mut found);
            }
        }
    }
    sort(store, ask.afs, ask.queue, &mut found);
    found
}

impl Collector<'_> {
    fn add_cohorts(&self, node: NodeId, found: &mut Candidates) {
        let mut remaining: Vec<(CellId, Units)> = self.ask.usage.to_vec();
        let mut advantage = self.fit_in_quota(node, &mut remaining);
        let mut visited = node;
        for cohort in self.tree.ancestors(node) {
            let list = if advantage { &mut found.hierarchical } else { &mut found.priority };
            self.add_subtree(cohort, visited, advantage, list);
            let fits = self.fit_in_quota(cohort, &mut remaining);
            advantage |= fits;
            visited = cohort;
        }
    }

    /// Whether the requests fit the node's quota; leaves what it cannot give from its own.
    fn fit_in_quota(&self, node: NodeId, requests: &mut [(CellId, Units)]) -> bool {
        let mut fits = true;
        for (key, value) in requests {
            let cell = self.tree.cell(node, *key);
            fits &= !cell.exceeds_with(*value);
            *value = (*value - cell.local_available()).max(0);
        }
        fits
    }

    fn add_subtree(&self, common: NodeId, skip: NodeId, advantage: bool, list: &mut Vec<Candidate>) {
        let mut stack = vec![common];
        while let Some(cohort) = stack.pop() {
            for child in self.tree.nodes[cohort].children.iter().copied() {
                if child == skip || self.tree.within_quota(child, self.ask.needs) {
                    continue;
                }
                match self.store.queue_of_node.get(&child) {
                    Some(queue) => self.add_queue(*queue, Some(common), advantage, list),
                    None => stack.push(child),
                }
            }
        }
    }

    fn add_queue(&self, queue: QueueId, common: Option<NodeId>, advantage: bool, list: &mut Vec<Candidate>) {
        // A queue that may not admit is out of the cycle, and so are its workloads.
        if !self.store.queues[queue].active {
            return;
        }
        for id in self.store.queues[queue].held.iter().copied() {
            let Some(workload) = self.store.workload(id) else { continue };
            let Some(held) = workload.held() else { continue };
            if self.ask.gone.contains(&id) || !uses(held, self.ask.needs) {
                continue;
            }
            if let Some(right) = self.right(workload, queue, advantage) {
                list.push(Candidate { workload: id, queue, right, common, evicted: held.evicted });
            }
        }
    }

    fn right(&self, workload: &Workload, queue: QueueId, advantage: bool) -> Option<Right> {
        if queue == self.ask.queue {
            return satisfies(self.ask, workload, self.policy.within_cluster_queue).then_some(Right::WithinQueue);
        }
        if !satisfies(self.ask, workload, self.policy.reclaim_within_cohort) {
            return None;
        }
        let above_threshold = self.policy.max_priority_threshold.is_some_and(|bound| workload.priority > bound);
        Some(if advantage {
            Right::Hierarchical
        } else if !self.policy.borrow_within_cohort || workload.priority >= self.ask.priority || above_threshold {
            Right::WithoutBorrowing
        } else {
            Right::WhileBorrowing
        })
    }
}
