//! The order in which a cycle processes its heads, as in Kueue. Without fair sharing the heads are sorted once; with fair sharing a tournament over the cohort
//! tree is repeated after each head.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Amount, FlavorResource, Millis};
use crate::options::Gates;
use crate::queue::tie::start_of;
use crate::quota::balance::{Usage, units};
use crate::quota::share::{Share, asks_for, borrows_any, share_of};
use crate::quota::tree::{Tree, Trial};
use crate::world::ids::{NodeId, QueueId};
use crate::world::store::Store;

/// Values of a head, besides shares, that decide the order of heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nominee<N = Arc<str>> {
    /// The tie-break between equal heads: the head with the smaller tie goes first.
    pub tie: N,
    /// Height of the subtree of the cohort tree from which the head borrows.
    pub borrowing: u32,
    /// True if the head issued preemptions before and waits for its victims.
    pub preemptor: bool,
    /// Effective priority of the head, with the points for waiting.
    pub priority: i64,
    /// Queue-order timestamp.
    pub queued_at: Millis,
}

impl<N: Ord> Nominee<N> {
    fn by_age(&self, other: &Self, gates: &Gates) -> Ordering {
        let by_priority = Reverse(self.priority).cmp(&Reverse(other.priority));
        (if gates.priority_sorting { by_priority } else { Ordering::Equal })
            .then(self.queued_at.cmp(&other.queued_at))
            .then_with(|| self.tie.cmp(&other.tie))
    }

    fn by_preemptor(&self, other: &Self, gates: &Gates) -> Ordering {
        if gates.prioritize_preemptors { other.preemptor.cmp(&self.preemptor) } else { Ordering::Equal }
    }

    /// Compares two heads in the classical order: waiting preemptors first (if the gate is on), then less borrowing, higher priority, older, then the
    /// tie-break. Cost: constant.
    #[must_use]
    pub fn compare(&self, other: &Self, gates: &Gates) -> Ordering {
        self.by_preemptor(other, gates)
            .then(self.borrowing.cmp(&other.borrowing))
            .then_with(|| self.by_age(other, gates))
    }
}

/// A name that is compared in full only if the first bytes are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name<'a> {
    start: u64,
    full: &'a str,
}

impl<'a> Name<'a> {
    pub(crate) fn of(full: &'a str) -> Self {
        Self { start: start_of(full), full }
    }
}

/// Values of a head that decide between two heads that meet at a cohort of the fair-sharing tournament: the values of the cohort's child on the path to the
/// head's queue, with the head's usage added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FairShareValues {
    /// Fair share of the cohort's child on the path to the head's queue.
    pub share: Share,
    /// True if the cohort's child on the path to the head's queue exceeds its quota in a flavor and resource that the head requests.
    pub borrows_requested: bool,
}

impl FairShareValues {
    /// The values of a child whose share is `share` and that exceeds its quota in the cells `borrowed`, for a head that requests `requested`. Cost of `new`:
    /// the number of cells in `requested` times the number of cells in `borrowed`.
    #[must_use]
    pub fn new(share: Share, borrowed: &[FlavorResource], requested: &BTreeMap<FlavorResource, Amount>) -> Self {
        let requested = requested.iter().map(|(cell, value)| (cell, units(*value)));
        Self { share, borrows_requested: asks_for(requested, |cell| borrowed.contains(cell)) }
    }
}

/// Order of two heads that meet at a cohort. Cost: constant.
#[must_use]
pub fn compare_fair_share(a: (&Nominee, FairShareValues), b: (&Nominee, FairShareValues), gates: &Gates) -> Ordering {
    let by_borrowing = a.1.borrows_requested.cmp(&b.1.borrows_requested);
    a.0.by_preemptor(b.0, gates)
        .then(if gates.fair_prefer_non_borrowing { by_borrowing } else { Ordering::Equal })
        .then_with(|| a.1.share.compare(&b.1.share))
        .then_with(|| a.0.by_age(b.0, gates))
}

/// A head in the tournament of fair sharing.
pub(crate) struct Contender<E> {
    entry: E,
    nominee: Nominee,
    usage: Usage,
    /// Nodes of the cohort tree from the root to the head's queue.
    path: Vec<NodeId>,
    /// For each node of the head's path except the last: the values by which heads are compared at the node, which are values of the node below it. The list
    /// `values` of a head is empty until the tournament computes it.
    values: Vec<FairShareValues>,
}

/// The heads that are still to be processed, by cohort tree.
pub(crate) struct Tournament<E> {
    /// Contenders of each cohort tree, sorted by path, so that contenders of a subtree are adjacent.
    trees: BTreeMap<NodeId, Vec<Contender<E>>>,
}

impl<E> Tournament<E> {
    pub(crate) fn new(store: &Store, tree: &Tree, heads: Vec<(E, Nominee, QueueId, Usage)>) -> Self {
        let mut trees: BTreeMap<NodeId, Vec<Contender<E>>> = BTreeMap::new();
        for (entry, nominee, queue, usage) in heads {
            let node = store.queues[queue].node;
            let mut path: Vec<NodeId> = tree.ancestors(node).collect();
            path.reverse();
            path.push(node);
            let contender = Contender { entry, nominee, usage, path, values: Vec::new() };
            trees.entry(tree.root(node)).or_default().push(contender);
        }
        for contenders in trees.values_mut() {
            contenders.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Self { trees }
    }

    /// Takes the next head out of the tournament. The cost of the next head is the number of heads of its cohort tree, and the shares along the paths of the
    /// heads whose subtree changed.
    pub(crate) fn next(&mut self, store: &Store, tree: &mut Tree, gates: &Gates) -> Option<E> {
        let mut first = self.trees.first_entry()?;
        let contenders = first.get_mut();
        for contender in contenders.iter_mut().filter(|c| c.values.is_empty()) {
            contender.stand(store, tree);
        }
        let winner = winner(contenders, 0, 0, gates);
        let taken = contenders.remove(winner);
        // Usage changes shares only below the root, so the values of other branches below the root stay valid.
        let branch = taken.path.get(1).copied();
        for contender in contenders.iter_mut().filter(|c| c.path.get(1).copied() == branch) {
            contender.values.clear();
        }
        if contenders.is_empty() {
            first.remove();
        }
        Some(taken.entry)
    }
}

impl<E> Contender<E> {
    fn stand(&mut self, store: &Store, tree: &mut Tree) {
        let Some(queue) = self.path.last().copied() else { return };
        let mut trial = Trial::new(tree);
        trial.add(queue, &self.usage);
        let values_at = |node: &NodeId| FairShareValues {
            share: share_of(store, trial.tree(), *node, &[]).0,
            borrows_requested: borrows_any(trial.tree(), *node, &self.usage, &[]),
        };
        self.values = self.path.iter().skip(1).map(values_at).collect();
    }
}

/// Index of the winner among contenders whose paths agree up to `depth`; `offset` is the index of the first contender.
fn winner<E>(contenders: &[Contender<E>], depth: usize, offset: usize, gates: &Gates) -> usize {
    let mut best: Option<(usize, &Contender<E>)> = None;
    let mut start: usize = 0;
    let below = depth.saturating_add(1);
    for group in contenders.chunk_by(|a, b| a.path.get(below) == b.path.get(below)) {
        let index = if group.len() > 1 { winner(group, below, 0, gates) } else { 0 };
        if let Some(challenger) = group.get(index) {
            let values_at = |c: &Contender<E>| c.values.get(depth).copied().unwrap_or_default();
            let wins = best.is_none_or(|(_, champion)| {
                let (a, b) = (values_at(challenger), values_at(champion));
                compare_fair_share((&challenger.nominee, a), (&champion.nominee, b), gates).is_lt()
            });
            if wins {
                best = Some((start.saturating_add(index), challenger));
            }
        }
        start = start.saturating_add(group.len());
    }
    offset.saturating_add(best.map_or(0, |(index, _)| index))
}
