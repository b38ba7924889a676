//! What a preemptor had freed for itself is its claim: the flavors of all its pod sets, their counts, and those who were evicted for
//! it. It is kept until the preemptor starts, or could not start so even with the last of them gone. Looking anew in each cycle, as
//! Kueue does, may find other flavors or other victims than those that are on their way out, and then what the first ones left is
//! free for anybody.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::assign as flavors;
use crate::assign::assignment::{Choice, Mode};
use crate::assign::{Pins, Request};
use crate::cycle::Entry;
use crate::cycle::effects::Run;
use crate::cycle::nominate::Nomination;
use crate::explain::why::Why;
use crate::preempt::candidates::Right;
use crate::preempt::{Target, spare};
use crate::quota::tree::{Tree, Trial};
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{PodSet, Store, Workload};

/// What a workload issued preemptions for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Pods of each pod set: fewer than asked for under partial admission.
    counts: Vec<i64>,
    pins: Pins,
    leavers: Vec<Leaver>,
}

/// One who was evicted, or gives up pods. By uid: ids are given anew to others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaver {
    uid: Arc<str>,
    reason: &'static str,
    gives_up: Option<i64>,
}

impl Leaver {
    fn of(store: &Store, target: &Target) -> Option<Self> {
        let uid = Arc::clone(&store.workload(target.workload)?.uid);
        Some(Self { uid, reason: target.reason, gives_up: target.gives_up })
    }

    /// What is still to come of it: nothing when it is gone, or stays after all.
    fn target(&self, store: &Store) -> Option<Target> {
        let workload = store.by_uid.get(&*self.uid).copied()?;
        let held = store.workload(workload)?.held()?;
        let gives = |pods: &i64| held.giving >= *pods && held.spare.as_ref().is_some_and(|spare| spare.has(*pods));
        let gives_up = self.gives_up.filter(|_| !held.evicted);
        let leaves = gives_up.as_ref().map_or(held.evicted, gives);
        leaves.then_some(Target { workload, reason: self.reason, gives_up })
    }
}

/// The assignment that fits once these have left; gives them back when it does not fit even then.
fn once_gone(
    store: &Store,
    tree: &mut Tree,
    request: &Request<'_>,
    targets: Vec<Target>,
) -> Result<Nomination, Vec<Target>> {
    if targets.is_empty() {
        return Err(targets);
    }
    let mut trial = Trial::new(tree);
    for target in &targets {
        spare::leave(store, &mut trial, target, true);
    }
    let then = flavors::assign_free(store, trial.tree_mut(), request);
    if then.mode() == Mode::Fit { Ok((then, targets)) } else { Err(targets) }
}

impl Workload {
    /// Whether it waits for what it had freed.
    pub(crate) fn has_claim(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.claim.is_some())
    }
}

impl World {
    /// What a claim gives its workload now: a start, or a wait for those who are still leaving. `None` when it can no longer become a
    /// fit, and the workload has to look anew. Costs up to three assignments without a search for victims.
    pub(crate) fn nominate_claim(&mut self, queue: QueueId, id: WorkloadId, claim: &Claim) -> Option<Nomination> {
        let workload = self.store.workload(id)?;
        let request = Request::of(&self.store, &self.options, workload, queue);
        let request = Request { counts: Some(&claim.counts), pins: Some(&claim.pins), ..request };
        let now = flavors::assign_free(&self.store, &mut self.tree, &request);
        if now.mode() == Mode::Fit {
            return Some((now, Vec::new()));
        }
        let own: Vec<Target> = claim.leavers.iter().filter_map(|leaver| leaver.target(&self.store)).collect();
        let found = match once_gone(&self.store, &mut self.tree, &request, own) {
            Ok(found) => Some(found),
            Err(own) => {
                // Another preemptor may have started in its room, and left it those who are still leaving for that one.
                let all = self.all_leaving(queue, own);
                once_gone(&self.store, &mut self.tree, &request, all).ok()
            }
        };
        let (mut then, targets) = found?;
        then.held_to = Some(Mode::Preempt);
        for (then, now) in then.pod_sets.iter_mut().zip(now.pod_sets) {
            // That other flavors are out of the question is nothing to be told.
            then.reasons = now.reasons.into_iter().filter(|why| !matches!(why, Why::Unpinned(..))).collect();
        }
        Some((then, targets))
    }

    /// These, and everybody else in the tree of a queue who was evicted and holds quota still.
    fn all_leaving(&self, queue: QueueId, mut targets: Vec<Target>) -> Vec<Target> {
        let root = self.tree.root(self.store.queues[queue].node);
        let own: BTreeSet<WorkloadId> = targets.iter().map(|target| target.workload).collect();
        for other in self.tree.nodes[root].queues.iter().copied() {
            let reason = if other == queue { Right::WithinQueue } else { Right::WithoutBorrowing }.reason();
            for rank in &self.store.queues[other].held.leaving {
                if !own.contains(&rank.workload) {
                    targets.push(Target { workload: rank.workload, reason, gives_up: None });
                }
            }
        }
        targets
    }

    /// Whether a head issued preemptions and waits for its victims. Who gave up its claim waits for nobody any more: it comes after those
    /// whose victims have left, and keeps nothing from them.
    pub(crate) fn is_waiting(&self, entry: &Entry) -> bool {
        let claims = entry.assignment.progress.claim.is_some() || !self.options.departures.claims;
        claims && self.store.queues[entry.queue].pending.preemptor == Some(entry.workload)
    }

    /// Notes what an entry waits for: its victims, or, where it was only to wait for those of others, all of the cycle.
    pub(crate) fn await_victims(&self, entry: &mut Entry, run: &Run) {
        if !self.options.departures.claims {
            entry.scans_anew = true;
            return;
        }
        let Some(workload) = self.store.workload(entry.workload) else { return };
        let request = Request::of(&self.store, &self.options, workload, entry.queue);
        let index = |pod_set: Option<&PodSet>, choice: &Choice| {
            let group = request.queue.group_of(choice.resource);
            let line = group.and_then(|group| Some(request.line(&self.store, pod_set?, group)));
            let at = line.and_then(|line| line.iter().position(|flavor| *flavor == choice.flavor));
            (choice.resource, at.and_then(|at| i32::try_from(at).ok()).unwrap_or(0))
        };
        let chosen = entry.assignment.by_place(|set| {
            let asked = request.pod_sets.get(set.index);
            set.choices.iter().map(|choice| index(asked, choice)).collect()
        });
        entry.assignment.progress.wait_for(chosen.into_iter());
        let root = self.tree.root(request.queue.node);
        let is_near = |target: &&Target| {
            let held = self.store.workload(target.workload).and_then(|workload| workload.held());
            held.is_some_and(|held| self.tree.root(self.store.queues[held.queue].node) == root)
        };
        let leaver = |target: &Target| Leaver::of(&self.store, target);
        let leavers = if entry.assignment.mode() == Mode::DeferredFit {
            run.victims.values().filter(is_near).filter_map(leaver).collect()
        } else {
            entry.targets.iter().filter_map(leaver).collect()
        };
        let counts = entry.assignment.by_place(|set| set.count);
        let pins = entry.assignment.pins();
        entry.assignment.progress.claim = Some(Box::new(Claim { counts, pins, leavers }));
    }
}
