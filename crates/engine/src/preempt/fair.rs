//! Fair-sharing preemption, as in Kueue: victims come from the branch of the cohort tree with the highest share, as long as the rules on shares before and
//! after the preemption allow it. A second pass may take candidates that the first pass skipped.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::options::{Gates, ShareStrategy};
use crate::preempt::ask::{Ask, Target, Victims};
use crate::preempt::candidates::{Candidate, Filter, Right};
use crate::preempt::lines::{Line, collect_borrowers};
use crate::preempt::spare::reduce_targets;
use crate::preempt::trials::{fill_back, fits, leave};
use crate::quota::share::{Share, share_of};
use crate::quota::tree::{Tree, Trial};
use crate::world::ids::{NodeId, QueueId, WorkloadId};
use crate::world::store::Store;

/// Reason of victims in other queues if the preemptor's queue reclaims its own quota.
pub(crate) const RECLAIM: &str = "InCohortReclamation";
/// Reason of victims in other queues if shares decide.
pub(crate) const FAIR: &str = "InCohortFairSharing";

/// The queues from which victims are taken, one after the other: always from the branch of the cohort tree with the highest share.
pub(crate) struct Turns<'a> {
    asking: QueueId,
    own: NodeId,
    /// The cohorts above the preemptor's queue.
    path: BTreeSet<NodeId>,
    lines: BTreeMap<NodeId, Line<'a>>,
    pruned: BTreeSet<NodeId>,
}

impl<'a> Turns<'a> {
    pub(crate) fn new(store: &Store, tree: &Tree, asking: QueueId, lines: impl Iterator<Item = Line<'a>>) -> Self {
        let own = store.queues[asking].node;
        let lines = lines.map(|line| (store.queues[line.head.queue].node, line)).collect();
        Self { asking, own, path: tree.ancestors(own).collect(), lines, pruned: BTreeSet::new() }
    }

    /// The sequence of the queues of `candidates` from which victims are taken; `candidates` has the candidates of each queue in their order.
    pub(crate) fn listed(store: &Store, tree: &Tree, asking: QueueId, candidates: &[Candidate<'a>]) -> Self {
        let mut lists: BTreeMap<QueueId, Vec<Candidate<'a>>> = BTreeMap::new();
        for candidate in candidates {
            lists.entry(candidate.queue).or_default().push(*candidate);
        }
        Self::new(store, tree, asking, lists.into_values().filter_map(Line::listed))
    }

    /// The next queue from which a victim is taken.
    pub(crate) fn next(&mut self, store: &Store, tree: &Tree) -> Option<NodeId> {
        let root = tree.root(self.own);
        if root == self.own {
            return self.lines.contains_key(&root).then_some(root);
        }
        while !self.pruned.contains(&root) {
            if let Some(queue) = self.descend(store, tree, root) {
                return Some(queue);
            }
        }
        None
    }

    /// Takes the first candidate of a queue.
    pub(crate) fn pop(&mut self, filter: &Filter<'a>, queue: NodeId) -> Option<Candidate<'a>> {
        let line = self.lines.get_mut(&queue)?;
        let first = line.head;
        if !line.advance(filter) {
            self.lines.remove(&queue);
        }
        Some(first)
    }

    /// Ends the search for victims in a queue.
    pub(crate) fn drop_queue(&mut self, queue: NodeId) {
        self.lines.remove(&queue);
    }

    fn descend(&mut self, store: &Store, tree: &Tree, cohort: NodeId) -> Option<NodeId> {
        let mut queue: Option<(Share, Candidate<'a>, NodeId)> = None;
        let mut below: Option<(Share, NodeId)> = None;
        for child in tree.nodes[cohort].children.iter().copied() {
            if self.pruned.contains(&child) {
                continue;
            }
            let (share, _) = share_of(store, tree, child, &[]);
            if tree.nodes[child].is_queue {
                let line = self.lines.get(&child).filter(|_| share.borrowing || child == self.own);
                let Some(first) = line.map(|line| line.head) else {
                    self.pruned.insert(child);
                    continue;
                };
                let is_higher = queue.is_none_or(|(best, best_first, _)| match share.compare(&best) {
                    Ordering::Greater => true,
                    Ordering::Equal => first.compare(&best_first, self.asking).is_lt(),
                    Ordering::Less => false,
                });
                if is_higher {
                    queue = Some((share, first, child));
                }
            } else if !share.borrowing && !self.path.contains(&child) {
                self.pruned.insert(child);
            } else if below.is_none_or(|(best, _)| share.compare(&best).is_ge()) {
                below = Some((share, child));
            }
        }
        match (queue, below) {
            (None, None) => {
                self.pruned.insert(cohort);
                None
            }
            (Some((own, _, queue)), Some((share, _))) if share.compare(&own).is_lt() => Some(queue),
            (_, Some((_, child))) => self.descend(store, tree, child),
            (Some((_, _, queue)), None) => Some(queue),
        }
    }
}

/// The fair-sharing strategies in the order in which they are tried.
pub(crate) const fn in_order(strategies: &[ShareStrategy]) -> &[ShareStrategy] {
    match strategies {
        [] => &[ShareStrategy::LessThanOrEqualToFinalShare, ShareStrategy::LessThanInitialShare],
        given => given,
    }
}

/// Whether a queue may reclaim its quota whatever the shares are: the case if it is within its nominal quota with the preemptor admitted.
pub(crate) fn is_entitled(tree: &Tree, own: NodeId, gates: &Gates, ask: &Ask<'_>) -> bool {
    gates.fair_preempt_within_nominal && tree.within_quota(own, ask.needs)
}

/// Whether a strategy of fair sharing allows the preemption of a victim. The parameter `new` is the share of the preemptor's side with the preemptor admitted,
/// `old` is the share of the victim's side, and `after` returns the share of the victim's side without the victim.
pub(crate) fn lets(strategy: ShareStrategy, new: &Share, old: &Share, after: impl FnOnce() -> Share) -> bool {
    let hopeless = new.value().is_infinite() && old.value().is_finite();
    !hopeless
        && match strategy {
            ShareStrategy::LessThanInitialShare => new.compare(old).is_lt(),
            ShareStrategy::LessThanOrEqualToFinalShare => new.compare(&after()).is_le(),
        }
}

/// The fair share of a queue or cohort after a victim has left.
pub(crate) fn share_without(store: &Store, trial: &mut Trial<'_>, victim: WorkloadId, node: NodeId) -> Share {
    leave(store, trial, victim, true);
    let (share, _) = share_of(store, trial.tree(), node, &[]);
    leave(store, trial, victim, false);
    share
}

struct Search<'a> {
    store: &'a Store,
    ask: &'a Ask<'a>,
    filter: &'a Filter<'a>,
    own: NodeId,
    gates: &'a Gates,
}

/// The victims. If all taken workloads on the preemptor's side of the cohort tree are evicted, the share rules hold for the final victims, too. If some of the
/// taken workloads on the preemptor's side stay, or only give up pods, the result contains all taken workloads, too.
pub(crate) fn targets(
    store: &Store,
    tree: &mut Tree,
    strategies: &[ShareStrategy],
    gates: &Gates,
    ask: &Ask<'_>,
) -> Victims {
    let filter = Filter::new(store, ask);
    let lines = collect_borrowers(&filter, tree);
    if lines.is_empty() {
        return (Vec::new(), None);
    }
    let strategies = in_order(strategies);
    let search = Search { store, ask, filter: &filter, own: store.queues[ask.queue].node, gates };
    let mut trial = Trial::new(tree);
    // Fair shares are compared as if the preemptor were admitted already.
    trial.add(search.own, ask.usage);
    let mut targets = Vec::new();
    let mut retry = Vec::new();
    let first = strategies.first().copied().unwrap_or(ShareStrategy::LessThanInitialShare);
    let mut found = search.first_pass(&mut trial, lines, first, &mut targets, &mut retry);
    if !found && strategies.len() > 1 {
        found = search.second_pass(&mut trial, retry, &mut targets);
    }
    if !found {
        return (Vec::new(), None);
    }
    trial.remove(search.own, ask.usage);
    let taken = targets.clone();
    fill_back(store, &mut trial, ask, &mut targets, true);
    reduce_targets(store, &mut trial, ask, &mut targets, true);
    let beside = |targets: &[Target]| search.beside(trial.tree(), targets);
    let stay = beside(&targets) != beside(&taken);
    (targets, stay.then_some(taken))
}

/// The children of the lowest common cohort of two queues, one child on the path to each queue.
pub(crate) fn sides(tree: &Tree, own: NodeId, other: NodeId) -> (NodeId, NodeId) {
    let line = |node: NodeId| -> Vec<NodeId> {
        let mut line: Vec<NodeId> = std::iter::once(node).chain(tree.ancestors(node)).collect();
        line.reverse();
        line
    };
    let (own_line, other_line) = (line(own), line(other));
    let differ = own_line.iter().zip(&other_line).find(|(a, b)| a != b);
    differ.map_or((own, other), |(a, b)| (*a, *b))
}

impl<'a> Search<'a> {
    fn take(
        &self,
        trial: &mut Trial<'_>,
        candidate: &Candidate<'_>,
        reason: &'static str,
        targets: &mut Vec<Target>,
    ) -> bool {
        leave(self.store, trial, candidate.workload, true);
        targets.push(Target { workload: candidate.workload, reason, gives_up: None });
        trial.remove(self.own, self.ask.usage);
        let fits = fits(self.store, trial.tree(), self.ask, true);
        trial.add(self.own, self.ask.usage);
        fits
    }

    /// Number of victims that are evicted as a whole and are on the preemptor's side of the cohort tree below the root.
    fn beside(&self, tree: &Tree, targets: &[Target]) -> usize {
        let line = |node: NodeId| std::iter::once(node).chain(tree.ancestors(node));
        let top = line(self.own).take_while(|node| tree.nodes[*node].parent.is_some()).last();
        let node = |target: &Target| Some(self.store.queues[self.store.workload(target.workload)?.held()?.queue].node);
        let evicted_fully = targets.iter().filter(|target| target.gives_up.is_none());
        evicted_fully.filter_map(node).filter(|node| line(*node).any(|at| Some(at) == top)).count()
    }

    fn share(&self, tree: &Tree, node: NodeId) -> Share {
        share_of(self.store, tree, node, &[]).0
    }

    fn first_pass(
        &self,
        trial: &mut Trial<'_>,
        lines: Vec<Line<'a>>,
        strategy: ShareStrategy,
        targets: &mut Vec<Target>,
        retry: &mut Vec<Candidate<'a>>,
    ) -> bool {
        let is_entitled = is_entitled(trial.tree(), self.own, self.gates, self.ask);
        let mut turns = Turns::new(self.store, trial.tree(), self.ask.queue, lines.into_iter());
        while let Some(queue) = turns.next(self.store, trial.tree()) {
            if queue == self.own || is_entitled {
                let Some(candidate) = turns.pop(self.filter, queue) else { break };
                let reason = if queue == self.own { Right::WithinQueue.reason() } else { RECLAIM };
                if self.take(trial, &candidate, reason, targets) {
                    return true;
                }
                continue;
            }
            let (own_side, other_side) = sides(trial.tree(), self.own, queue);
            let new = self.share(trial.tree(), own_side);
            let old = self.share(trial.tree(), other_side);
            while let Some(candidate) = turns.pop(self.filter, queue) {
                let after = || share_without(self.store, trial, candidate.workload, other_side);
                if !lets(strategy, &new, &old, after) {
                    retry.push(candidate);
                    continue;
                }
                if self.take(trial, &candidate, FAIR, targets) {
                    return true;
                }
                break;
            }
        }
        false
    }

    /// Takes victims among skipped candidates; the parameter `retry` has the candidates of each queue in their order.
    fn second_pass(&self, trial: &mut Trial<'_>, retry: Vec<Candidate<'a>>, targets: &mut Vec<Target>) -> bool {
        let mut turns = Turns::listed(self.store, trial.tree(), self.ask.queue, &retry);
        while let Some(queue) = turns.next(self.store, trial.tree()) {
            let (own_side, other_side) = sides(trial.tree(), self.own, queue);
            let is_less = self.share(trial.tree(), own_side).compare(&self.share(trial.tree(), other_side)).is_lt();
            if is_less
                && let Some(candidate) = turns.pop(self.filter, queue)
                && self.take(trial, &candidate, FAIR, targets)
            {
                return true;
            }
            turns.drop_queue(queue);
        }
        false
    }
}
