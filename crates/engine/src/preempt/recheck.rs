//! A second check of all rules of preemption, on the final victims after the unneeded ones were dropped. A set of victims that breaks a rule is refused: no
//! workload is preempted, the verdict says so, and a counter goes up.
//!
//! A condition that held when a victim was taken need not hold for the final set, because other victims were taken after it. The second check uses a condition
//! that always holds for the final set: if the last victim's usage is added again, each node that had to be above its quota is above it, and each side that had
//! to have the higher share has it.

use std::collections::{BTreeMap, BTreeSet};

use crate::options::Options;
use crate::preempt::ask::{Ask, Target};
use crate::preempt::breach::Breach;
use crate::preempt::candidates::{Filter, Right, fit_in_quota, satisfies, uses};
use crate::preempt::fair::{FAIR, RECLAIM, sides};
use crate::preempt::guard::{is_bounded, is_too_near, protected_until};
use crate::preempt::spare::leave;
use crate::preempt::trials::fits;
use crate::quota::share::share_of;
use crate::quota::tree::{Tree, Trial};
use crate::world::World;
use crate::world::ids::{NodeId, QueueId, WorkloadId};
use crate::world::store::{Held, Store, Workload};

/// Inputs that the checks of one set of victims have in common.
struct Check<'a> {
    store: &'a Store,
    ask: &'a Ask<'a>,
    filter: Filter<'a>,
    own: NodeId,
}

/// Checks victims a second time, in the state of quota on which their search was based. The parameter `taken` has all workloads that the search took, if some
/// of them on the preemptor's side were dropped as unneeded: in this case shares are judged on `taken`. The cost of `check` is the number of victims and of the
/// nodes above each of them.
///
/// # Errors
/// Returns a rule that the victims break, if they break one.
pub(crate) fn check(
    store: &Store,
    tree: &mut Tree,
    options: &Options,
    ask: &Ask<'_>,
    targets: &[Target],
    taken: Option<&[Target]>,
) -> Result<(), Breach> {
    if targets.is_empty() {
        return Ok(());
    }
    let check = Check { store, ask, filter: Filter::new(store, ask), own: store.queues[ask.queue].node };
    let mut seen = BTreeSet::new();
    for target in targets {
        if !seen.insert(target.workload) {
            return Err(Breach::NoVictim);
        }
        check.may_be_taken(tree, target)?;
    }
    if !is_bounded(store, ask, targets) {
        return Err(Breach::Bounds);
    }
    if options.fair_sharing.is_some() {
        check.fair(tree, options, targets, taken)
    } else {
        check.classical(tree, targets)
    }
}

impl Check<'_> {
    fn victim(&self, target: &Target) -> Result<(&Workload, &Held), Breach> {
        let workload = self.store.workload(target.workload).ok_or(Breach::NoVictim)?;
        Ok((workload, workload.held().ok_or(Breach::NoVictim)?))
    }

    fn node(&self, queue: QueueId) -> NodeId {
        self.store.queues[queue].node
    }

    /// Checks the rules for a victim that do not depend on the other victims.
    fn may_be_taken(&self, tree: &Tree, target: &Target) -> Result<(), Breach> {
        let (workload, held) = self.victim(target)?;
        let spares = |pods: i64| !held.evicted && held.spare.as_ref().is_some_and(|spare| spare.has(pods));
        let rules = [
            (target.gives_up.is_none_or(spares), Breach::NoVictim),
            (!self.ask.gone.contains(&target.workload), Breach::NotPreemptible),
            (self.store.queues[held.queue].active, Breach::Elsewhere),
            (tree.root(self.node(held.queue)) == tree.root(self.own), Breach::Elsewhere),
            (uses(held, self.ask.needs), Breach::Elsewhere),
            (!self.store.is_handing_over(workload), Breach::HandingOver),
            (satisfies(self.ask, workload, self.filter.policy_of(held.queue == self.ask.queue)), Breach::Policy),
            (!is_too_near(self.store, self.ask, workload.priority), Breach::TooNear),
            (protected_until(self.store, held).is_none(), Breach::Protected),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, breach)| Err(breach))
    }

    /// The cohorts above the preemptor's queue, the lowest first, each with a flag: true if the queue is closer to the quota than the other queues below the
    /// cohort.
    fn levels(&self, tree: &Tree) -> Vec<(NodeId, bool)> {
        let mut remaining = self.ask.usage.to_vec();
        let mut advantage = fit_in_quota(tree, self.own, &mut remaining);
        let mut levels = Vec::new();
        for cohort in tree.ancestors(self.own) {
            levels.push((cohort, advantage));
            advantage |= fit_in_quota(tree, cohort, &mut remaining);
        }
        levels
    }

    fn classical(&self, tree: &mut Tree, targets: &[Target]) -> Result<(), Breach> {
        let levels = self.levels(tree);
        let mut may_borrow = true;
        for target in targets {
            let (workload, held) = self.victim(target)?;
            let right = if held.queue == self.ask.queue {
                Right::WithinQueue
            } else {
                let common = |node: NodeId| levels.iter().find(|(cohort, _)| *cohort == node);
                let closer = tree.ancestors(self.node(held.queue)).find_map(common).is_some_and(|(_, closer)| *closer);
                self.filter.right_beyond(workload.priority, closer)
            };
            if right.reason() != target.reason {
                return Err(Breach::Right);
            }
            may_borrow &= right != Right::WithoutBorrowing;
        }
        let mut trial = self.without(tree, targets);
        if !fits(self.store, trial.tree(), self.ask, may_borrow) {
            return Err(Breach::NotEnough);
        }
        // For each node below the lowest common cohort: true if the node is above its quota when the usage of one of its victims is added again.
        let mut above: BTreeMap<NodeId, bool> = BTreeMap::new();
        for target in targets {
            let (_, held) = self.victim(target)?;
            if held.queue == self.ask.queue {
                continue;
            }
            leave(self.store, &mut trial, target, false);
            let (tree, node) = (trial.tree(), self.node(held.queue));
            let is_common = |node: &NodeId| levels.iter().any(|(cohort, _)| cohort == node);
            for node in std::iter::once(node).chain(tree.ancestors(node)).take_while(|node| !is_common(node)) {
                *above.entry(node).or_default() |= !tree.within_quota(node, self.ask.needs);
            }
            leave(self.store, &mut trial, target, true);
        }
        if above.into_values().all(|above| above) { Ok(()) } else { Err(Breach::WithinQuota) }
    }

    fn fair(
        &self,
        tree: &mut Tree,
        options: &Options,
        targets: &[Target],
        taken: Option<&[Target]>,
    ) -> Result<(), Breach> {
        let others = |target: &&Target| self.victim(target).is_ok_and(|(_, held)| held.queue != self.ask.queue);
        for target in targets.iter().filter(others) {
            let (_, held) = self.victim(target)?;
            if tree.within_quota(self.node(held.queue), self.ask.needs) {
                return Err(Breach::WithinQuota);
            }
        }
        let mut trial = Trial::new(tree);
        trial.add(self.own, self.ask.usage);
        let is_entitled =
            options.gates.fair_preempt_within_nominal && trial.tree().within_quota(self.own, self.ask.needs);
        drop(trial);
        let other = if is_entitled { RECLAIM } else { FAIR };
        for target in targets {
            let reason = if others(&target) { other } else { Right::WithinQueue.reason() };
            if target.reason != reason {
                return Err(Breach::Right);
            }
        }
        let trial = self.without(tree, targets);
        if !fits(self.store, trial.tree(), self.ask, true) {
            return Err(Breach::NotEnough);
        }
        drop(trial);
        let judged = taken.unwrap_or(targets);
        let known: BTreeSet<WorkloadId> = judged.iter().map(|target| target.workload).collect();
        if !targets.iter().all(|target| known.contains(&target.workload)) {
            return Err(Breach::Share);
        }
        let mut trial = self.without(tree, judged);
        // As in the search for victims, fair shares are compared as if the preemptor were admitted already.
        trial.add(self.own, self.ask.usage);
        let mut higher: BTreeMap<NodeId, bool> = BTreeMap::new();
        for target in judged.iter().filter(|target| target.reason == FAIR) {
            let (_, held) = self.victim(target)?;
            let (own_side, other_side) = sides(trial.tree(), self.own, self.node(held.queue));
            let (new, _) = share_of(self.store, trial.tree(), own_side, &[]);
            leave(self.store, &mut trial, target, false);
            let (old, _) = share_of(self.store, trial.tree(), other_side, &[]);
            leave(self.store, &mut trial, target, true);
            *higher.entry(other_side).or_default() |= new.compare(&old).is_le();
        }
        if higher.into_values().all(|higher| higher) { Ok(()) } else { Err(Breach::Share) }
    }

    /// The cohort tree without the usage of the victims, as a [`Trial`].
    fn without<'t>(&self, tree: &'t mut Tree, targets: &[Target]) -> Trial<'t> {
        let mut trial = Trial::new(tree);
        for target in targets {
            leave(self.store, &mut trial, target, true);
        }
        trial
    }
}

impl World {
    /// Number of sets of victims that the search for victims chose and that the second check of the preemption rules refused, so that no workload was
    /// preempted. A refused set of victims is a fault of the engine, so the number of refused sets must stay 0. Cost: constant.
    #[must_use]
    pub const fn refused_victims(&self) -> u64 {
        self.refused_victims
    }
}

#[cfg(test)]
mod tests;
