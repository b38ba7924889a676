//! A claim is the quota for which a preemptor issued preemptions: the flavors of all its pod sets, their counts, and the victims. The claim is kept until the
//! preemptor starts, or until the preemptor could not start even after its last victim has left. Kueue keeps no claim, and searches again in each cycle. A new
//! search may find other flavors or other victims than the victims that are leaving, and then the quota of the first victims is free for any workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::assign;
use crate::assign::assignment::Choice;
use crate::assign::claim::{Claim, Leaver};
use crate::assign::mode::Mode;
use crate::assign::request::Request;
use crate::cycle::entry::Entry;
use crate::cycle::nominate::Nomination;
use crate::cycle::run::Run;
use crate::explain::why::Why;
use crate::options::profile::Departure;
use crate::preempt::ask::Target;
use crate::preempt::candidates::Right;
use crate::preempt::spare;
use crate::quota::tree::{Tree, Trial};
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{PodSet, Store, Workload};

impl Leaver {
    fn of(store: &Store, target: &Target) -> Option<Self> {
        let uid = Arc::clone(&store.workload(target.workload)?.uid);
        Some(Self { uid, reason: target.reason, gives_up: target.gives_up })
    }

    /// The preemption of a victim, if it is still under way; `None` when the victim is gone or is not leaving any more.
    fn target(&self, store: &Store) -> Option<Target> {
        let workload = store.by_uid.get(&*self.uid).copied()?;
        let held = store.workload(workload)?.held()?;
        let gives = |pods: &i64| held.giving >= *pods && held.spare.as_ref().is_some_and(|spare| spare.has(*pods));
        let gives_up = self.gives_up.filter(|_| !held.evicted);
        let leaves = gives_up.as_ref().map_or(held.evicted, gives);
        leaves.then_some(Target { workload, reason: self.reason, gives_up })
    }
}

/// The assignment that fits when the targets of preemption have left. Returns the victims as an error if the request does not fit even without their usage.
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
    let then = assign::assign_free(store, trial.tree_mut(), request);
    if then.mode() == Mode::Fit { Ok((then, targets)) } else { Err(targets) }
}

impl Workload {
    /// Whether the workload waits for quota for which it issued preemptions.
    pub(crate) fn has_claim(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.claim.is_some())
    }
}

impl World {
    /// Nominates a preemptor by its claim, the quota for which it issued preemptions: the preemptor starts, or waits for victims that are still leaving.
    /// Returns `None` if the preemptor can no longer start with the claimed quota and has to search for flavors and victims again. The cost of `nominate_claim`
    /// is up to three assignments without a search for victims.
    pub(crate) fn nominate_claim(&mut self, queue: QueueId, id: WorkloadId, claim: &Claim) -> Option<Nomination> {
        let workload = self.store.workload(id)?;
        let request = Request::of(&self.store, &self.options, workload, queue);
        let request = Request { counts: Some(&claim.counts), pins: Some(&claim.pins), ..request };
        let now = assign::assign_free(&self.store, &mut self.tree, &request);
        if now.mode() == Mode::Fit {
            return Some((now, Vec::new()));
        }
        let own: Vec<Target> = claim.leavers.iter().filter_map(|leaver| leaver.target(&self.store)).collect();
        let found = match once_gone(&self.store, &mut self.tree, &request, own) {
            Ok(found) => Some(found),
            Err(own) => {
                // Another preemptor may have started with the claimed quota, and the victims of that preemptor may still be leaving.
                let all = self.all_leaving(queue, own);
                once_gone(&self.store, &mut self.tree, &request, all).ok()
            }
        };
        let (mut then, targets) = found?;
        then.held_to = Some(Mode::Preempt);
        for (then, now) in then.pod_sets.iter_mut().zip(now.pod_sets) {
            // Reasons about flavors other than the claimed flavors are left out of the message.
            then.reasons = now.reasons.into_iter().filter(|why| !matches!(why, Why::Unpinned(..))).collect();
        }
        Some((then, targets))
    }

    /// The targets, and all other workloads in the cohort tree of a queue that were evicted and still hold quota.
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

    /// Whether a head issued preemptions and waits for its victims. A head that gave up the quota for which it issued preemptions no longer waits for victims:
    /// it comes after heads whose victims have left, and keeps no quota from these heads.
    pub(crate) fn is_waiting(&self, entry: &Entry) -> bool {
        let claims = entry.assignment.progress.claim.is_some() || !self.options.profile.has(Departure::Claims);
        claims && self.store.queues[entry.queue].pending.preemptor == Some(entry.workload)
    }

    /// Records the victims for which a head waits: the victims that it chose itself, or, if it fits only when the victims of other heads have left
    /// (`Mode::DeferredFit`), all victims that heads have chosen in this cycle in the same cohort tree.
    pub(crate) fn await_victims(&self, entry: &mut Entry, run: &Run) {
        if !self.options.profile.has(Departure::Claims) {
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
