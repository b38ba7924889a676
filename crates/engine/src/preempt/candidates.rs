//! The workloads that may be preempted for another one, the right for each, and the order in which they are tried.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::model::{Millis, Preemption, PreemptionPolicy};
use crate::preempt::Ask;
use crate::preempt::guard::{is_too_near, protected_until};
use crate::preempt::usage::{is_usage_based, sort_line};
use crate::queue::sorted::{self, Sorted};
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
pub(crate) struct Candidate<'a> {
    pub(crate) workload: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) right: Right,
    /// The lowest cohort above both queues.
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

    /// Order of candidates: evicted already, other queues first, lower priority, later reservation or checkpoint, the tie break. The order by
    /// usage is in `usage`.
    pub(crate) fn compare(&self, other: &Self, own: QueueId) -> Ordering {
        (!self.evicted, self.queue == own).cmp(&(!other.evicted, other.queue == own)).then_with(|| self.by_age(other))
    }

    pub(super) fn by_age(&self, other: &Self) -> Ordering {
        let by_time = other.at.cmp(&self.at);
        self.priority.cmp(&other.priority).then(by_time).then_with(|| self.tie.compare_victims(other.tie))
    }
}

impl Held {
    /// Start of the work that a preemption would lose: the last checkpoint or the reservation.
    pub(crate) fn loses_since(&self) -> Millis {
        self.saved.map_or(self.at, |saved| saved.max(self.at))
    }
}

/// Whether a policy lets a workload of this priority and queue-order timestamp preempt another.
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

/// Whether a policy lets the asking workload preempt a candidate.
pub(crate) fn satisfies(ask: &Ask<'_>, candidate: &Workload, policy: PreemptionPolicy) -> bool {
    policy_allows(policy, (ask.priority, ask.queued_at), (candidate.priority, candidate.queued_at))
}

/// Whether the holder has usage in a cell that lacks quota.
pub(crate) fn uses(held: &Held, needs: &[CellId]) -> bool {
    held.usage.iter().any(|(cell, _)| needs.contains(cell))
}

/// The conditions for candidates.
pub(crate) struct Filter<'a> {
    pub(crate) store: &'a Store,
    ask: &'a Ask<'a>,
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

    /// Whether no workload of this priority or a higher one may be preempted.
    const fn ends_at(&self, is_own: bool, priority: i64) -> bool {
        match self.policy_of(is_own) {
            PreemptionPolicy::Any => false,
            PreemptionPolicy::LowerOrNewerEqualPriority => priority > self.ask.priority,
            PreemptionPolicy::LowerPriority => priority >= self.ask.priority,
            PreemptionPolicy::Never | PreemptionPolicy::Unset => true,
        }
    }

    fn candidate(&self, rank: &Rank, line: &Scope) -> Option<Candidate<'a>> {
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
        let right = self.right(workload.priority, is_own, line.advantage);
        Some(Candidate::of(rank.workload, workload, held, right, line.common))
    }

    /// The right by which a workload of this priority may be preempted; `advantage` when the asking queue is closer to quota.
    pub(crate) fn right(&self, priority: i64, is_own: bool, advantage: bool) -> Right {
        let above_threshold = self.policy.max_priority_threshold.is_some_and(|bound| priority > i64::from(bound));
        if is_own {
            Right::WithinQueue
        } else if advantage {
            Right::Hierarchical
        } else if !self.policy.borrow_within_cohort || priority >= self.ask.priority || above_threshold {
            Right::WithoutBorrowing
        } else {
            Right::WhileBorrowing
        }
    }
}

/// Properties that all candidates of a line have in common.
#[derive(Clone, Copy, Debug)]
struct Scope {
    queue: QueueId,
    common: Option<NodeId>,
    advantage: bool,
}

#[derive(Clone, Debug)]
enum Rest<'a> {
    /// The holders of quota in stored order: the part that is read, and the part after it.
    Kept(sorted::Iter<'a, Rank>, Option<&'a Sorted<Rank>>),
    Listed(std::vec::IntoIter<Candidate<'a>>),
}

/// The candidates of one queue, in order, found one by one: mostly few are needed.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) head: Candidate<'a>,
    scope: Scope,
    rest: Rest<'a>,
}

impl<'a> Line<'a> {
    /// `None` when the queue has no candidates.
    fn of(filter: &Filter<'a>, scope: Scope) -> Option<Self> {
        let queue = &filter.store.queues[scope.queue];
        // A queue that may not admit is out of the cycle, and so are its workloads.
        if !queue.active || filter.ends_at(scope.queue == filter.ask.queue, i64::MIN) {
            return None;
        }
        let mut rest = Rest::Kept(queue.held.leaving.iter(), Some(&queue.held.staying));
        let head = rest.next(filter, &scope)?;
        let line = Self { head, scope, rest };
        let afs = filter.ask.afs.filter(|_| is_usage_based(filter.store, scope.queue));
        if afs.is_none() {
            return Some(line);
        }
        Self::listed(sort_line(filter.store, afs, line.into_candidates(filter), &|_| true))
    }

    /// Candidates of one queue, in order already.
    pub(crate) fn listed(candidates: Vec<Candidate<'a>>) -> Option<Self> {
        let mut rest = candidates.into_iter();
        let head = rest.next()?;
        let scope = Scope { queue: head.queue, common: head.common, advantage: false };
        Some(Self { head, scope, rest: Rest::Listed(rest) })
    }

    /// Goes on to the next candidate; `false` when there is none.
    pub(crate) fn advance(&mut self, filter: &Filter<'a>) -> bool {
        let next = self.rest.next(filter, &self.scope);
        next.is_some_and(|next| {
            self.head = next;
            true
        })
    }

    fn into_candidates(mut self, filter: &Filter<'a>) -> Vec<Candidate<'a>> {
        let mut all = vec![self.head];
        while self.advance(filter) {
            all.push(self.head);
        }
        all
    }
}

impl<'a> Rest<'a> {
    fn next(&mut self, filter: &Filter<'a>, scope: &Scope) -> Option<Candidate<'a>> {
        let (part, after) = match self {
            Self::Kept(part, after) => (part, after),
            Self::Listed(rest) => return rest.next(),
        };
        let is_own = scope.queue == filter.ask.queue;
        loop {
            match part.next().filter(|rank| !filter.ends_at(is_own, rank.priority)) {
                Some(rank) => {
                    if let Some(candidate) = filter.candidate(rank, scope) {
                        return Some(candidate);
                    }
                }
                None => *part = after.take()?.iter(),
            }
        }
    }
}

/// The lists in which candidates are tried, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Hierarchical,
    Priority,
    Own,
}

/// All candidates of classical preemption.
pub(crate) struct Candidates<'a>(Vec<(List, Line<'a>)>);

impl<'a> Candidates<'a> {
    /// Candidates of the asking queue, and of queues over which it has no advantage.
    pub(crate) fn listed(lines: impl IntoIterator<Item = Line<'a>>, own: QueueId) -> Self {
        let list = |line: &Line<'a>| if line.head.queue == own { List::Own } else { List::Priority };
        Self(lines.into_iter().map(|line| (list(&line), line)).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has_others(&self) -> bool {
        self.0.iter().any(|(list, _)| *list != List::Own)
    }

    pub(crate) fn has_hierarchical(&self) -> bool {
        self.0.iter().any(|(list, _)| *list == List::Hierarchical)
    }

    /// The sequence in which they are tried: evicted workloads first.
    pub(crate) fn sequence(&self) -> Sequence<'a> {
        Sequence(self.0.iter().map(|(list, line)| Turn { list: *list, line: line.clone() }).collect())
    }
}

/// A line that waits for its next candidate to be tried.
struct Turn<'a> {
    list: List,
    line: Line<'a>,
}

impl Turn<'_> {
    fn is_before(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.line.head, &other.line.head);
        (!a.evicted, self.list).cmp(&(!b.evicted, other.list)).then_with(|| a.by_age(b))
    }
}

impl PartialEq for Turn<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.is_before(other).is_eq()
    }
}

impl Eq for Turn<'_> {}

impl PartialOrd for Turn<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Turn<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.is_before(self)
    }
}

/// Candidates of all lines in their order, merged as far as they are asked for.
pub(crate) struct Sequence<'a>(BinaryHeap<Turn<'a>>);

impl<'a> Sequence<'a> {
    /// The next candidate; `keep` returns false if its queue may give no more, this candidate included.
    pub(crate) fn next(&mut self, filter: &Filter<'a>, keep: impl Fn(&Candidate<'a>) -> bool) -> Option<Candidate<'a>> {
        loop {
            let mut turn = self.0.peek_mut()?;
            let candidate = turn.line.head;
            if !keep(&candidate) {
                PeekMut::pop(turn);
                continue;
            }
            if !turn.line.advance(filter) {
                PeekMut::pop(turn);
            }
            return Some(candidate);
        }
    }
}

/// All candidates; with `only_borrowing`, other queues count only where the asking queue is closer to quota. Costs the queues that are above
/// their quota.
pub(crate) fn collect<'a>(filter: &Filter<'a>, tree: &Tree, only_borrowing: bool) -> Candidates<'a> {
    let ask = filter.ask;
    let mut found = Vec::new();
    if !matches!(filter.policy_of(false), PreemptionPolicy::Never | PreemptionPolicy::Unset) {
        add_cohorts(filter, tree, filter.store.queues[ask.queue].node, only_borrowing, &mut found);
    }
    let own = Line::of(filter, Scope { queue: ask.queue, common: None, advantage: false });
    found.extend(own.map(|line| (List::Own, line)));
    Candidates(found)
}

/// All candidates of fair sharing: workloads of the own queue, and of every queue of the tree that borrows in a cell that lacks quota.
pub(crate) fn collect_borrowers<'a>(filter: &Filter<'a>, tree: &Tree) -> Vec<Line<'a>> {
    let (store, ask) = (filter.store, filter.ask);
    let own = store.queues[ask.queue].node;
    let line = |queue| Line::of(filter, Scope { queue, common: None, advantage: false });
    let mut found: Vec<Line<'a>> = line(ask.queue).into_iter().collect();
    if !matches!(filter.policy_of(false), PreemptionPolicy::Never | PreemptionPolicy::Unset) {
        for node in tree.bottom_up(tree.root(own)) {
            let other = store.queue_of_node.get(&node).filter(|_| node != own);
            found.extend(other.filter(|_| !tree.within_quota(node, ask.needs)).and_then(|other| line(*other)));
        }
    }
    found
}

fn add_cohorts<'a>(
    filter: &Filter<'a>,
    tree: &Tree,
    node: NodeId,
    only_borrowing: bool,
    found: &mut Vec<(List, Line<'a>)>,
) {
    let mut remaining: Vec<(CellId, Units)> = filter.ask.usage.to_vec();
    let mut advantage = fit_in_quota(tree, node, &mut remaining);
    let mut visited = node;
    for cohort in tree.ancestors(node) {
        // Without an advantage, and without a policy to borrow, other queues count only while the asking queue does not borrow.
        if advantage || !only_borrowing {
            add_subtree(filter, tree, cohort, visited, advantage, found);
        }
        advantage |= fit_in_quota(tree, cohort, &mut remaining);
        visited = cohort;
    }
}

/// Whether the requests fit the node's quota; reduces the requests to the part that the node cannot give from its own.
pub(crate) fn fit_in_quota(tree: &Tree, node: NodeId, requests: &mut [(CellId, Units)]) -> bool {
    let mut fits = true;
    for (key, value) in requests {
        let cell = tree.cell(node, *key);
        fits &= !cell.exceeds_with(*value);
        *value = value.saturating_sub(cell.local_available()).max(0);
    }
    fits
}

fn add_subtree<'a>(
    filter: &Filter<'a>,
    tree: &Tree,
    common: NodeId,
    skip: NodeId,
    advantage: bool,
    found: &mut Vec<(List, Line<'a>)>,
) {
    let list = if advantage { List::Hierarchical } else { List::Priority };
    let mut below = Vec::new();
    let mut next = Some(common);
    while let Some(cohort) = next {
        for child in tree.nodes[cohort].children.iter().copied() {
            if child == skip || tree.within_quota(child, filter.ask.needs) {
                continue;
            }
            match filter.store.queue_of_node.get(&child) {
                Some(queue) => {
                    let line = Line::of(filter, Scope { queue: *queue, common: Some(common), advantage });
                    found.extend(line.map(|line| (list, line)));
                }
                None => below.push(child),
            }
        }
        next = below.pop();
    }
}
