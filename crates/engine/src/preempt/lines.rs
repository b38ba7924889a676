//! The candidates of each queue in order, and the sequence in which the candidates of all queues are tried.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::model::PreemptionPolicy;
use crate::preempt::candidates::{Candidate, Filter, Scope, fit_in_quota};
use crate::preempt::usage::{is_usage_based, sort_line};
use crate::queue::sorted::{self, Sorted};
use crate::quota::balance::Units;
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, NodeId, QueueId};
use crate::world::store::Rank;

#[derive(Clone, Debug)]
enum Rest<'a> {
    /// The workloads of the queue that hold quota, in stored order: the list that is read now, and the list that is read after it.
    Kept(sorted::Iter<'a, Rank>, Option<&'a Sorted<Rank>>),
    Listed(std::vec::IntoIter<Candidate<'a>>),
}

/// The candidates of one queue, in order. The candidates are found one by one, because only few of them are needed in most cases.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) head: Candidate<'a>,
    scope: Scope,
    rest: Rest<'a>,
}

impl<'a> Line<'a> {
    /// The candidates of a queue; `None` if the queue has no candidates.
    fn of(filter: &Filter<'a>, scope: Scope) -> Option<Self> {
        let queue = &filter.store.queues[scope.queue];
        // A queue that may not admit takes no part in the cycle, and its workloads are no candidates.
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

    /// The candidates of one queue, which the parameter `candidates` has in order already.
    pub(crate) fn listed(candidates: Vec<Candidate<'a>>) -> Option<Self> {
        let mut rest = candidates.into_iter();
        let head = rest.next()?;
        let scope = Scope { queue: head.queue, common: head.common, advantage: false };
        Some(Self { head, scope, rest: Rest::Listed(rest) })
    }

    /// Goes on to the next candidate of the queue; returns `false` if there is none.
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

/// The kinds of lists of candidates, in the order in which the lists are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Hierarchical,
    Priority,
    Own,
}

/// All candidates of classical preemption.
pub(crate) struct Candidates<'a>(Vec<(List, Line<'a>)>);

impl<'a> Candidates<'a> {
    /// Candidates of the preemptor's queue, and of queues over which the preemptor's queue has no advantage.
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

    /// The sequence in which the candidates are tried: evicted workloads first.
    pub(crate) fn sequence(&self) -> Sequence<'a> {
        Sequence(self.0.iter().map(|(list, line)| Turn { list: *list, line: line.clone() }).collect())
    }
}

/// The candidates of a queue that are still to be tried; the first of them is tried next.
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

/// Candidates of all queues in their order, merged as far as candidates are requested.
pub(crate) struct Sequence<'a>(BinaryHeap<Turn<'a>>);

impl<'a> Sequence<'a> {
    /// The next candidate. `keep` returns false for a candidate if its queue may give no more workloads, including this candidate.
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

/// All candidates of classical preemption. With `only_borrowing`, other queues count only if the preemptor's queue is closer to the quota. The cost of
/// `collect` is the number of queues that are above their quota.
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

/// All candidates of fair sharing: workloads of the preemptor's own queue, and of every queue of the cohort tree that borrows in a cell that lacks quota.
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
        // If the preemptor's queue has no advantage and no policy to borrow, other queues count only while the preemptor's queue does not borrow.
        if advantage || !only_borrowing {
            add_subtree(filter, tree, cohort, visited, advantage, found);
        }
        advantage |= fit_in_quota(tree, cohort, &mut remaining);
        visited = cohort;
    }
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
