//! The second check of a head when its turn in the cycle comes, as in Kueue: admissions and preemptions of earlier heads of the cycle count.

use crate::assign::mode::Mode;
use crate::cycle::entry::Entry;
use crate::cycle::nominate::Nominator;
use crate::cycle::report::Report;
use crate::cycle::run::Run;
use crate::options::profile::Departure;
use crate::preempt::spare;
use crate::quota::tree::Trial;
use crate::world::World;
use crate::world::beyond;

impl World {
    /// Whether the head still fits when its own victims and all earlier victims of the cycle are gone. If an earlier head took a victim of this head, `refresh`
    /// searches other victims for the same flavors, unless the head only waits for victims that are already leaving for it.
    pub(crate) fn refresh(&mut self, entry: &mut Entry, run: &Run, report: &mut Report) -> bool {
        let overlaps = entry.targets.iter().any(|target| run.victims.contains_key(&target.workload));
        if overlaps && entry.assignment.held_to == Some(Mode::Preempt) {
            entry.targets.retain(|target| !run.victims.contains_key(&target.workload));
            if self.fits_without(entry, run) {
                if entry.targets.is_empty() {
                    entry.assignment.held_to = Some(Mode::DeferredFit);
                }
                return true;
            }
        }
        if !overlaps || !self.options.gates.recompute_overlap {
            return self.fits_without(entry, run);
        }
        let pins = entry.assignment.pins();
        let mut gone = self.not_preemptible(entry.workload);
        gone.extend(run.victims.keys().chain(&run.admitted));
        let mut trial = Trial::new(&mut self.tree);
        beyond::set_trials_aside(&self.store, &mut trial, entry.workload, entry.queue);
        for victim in run.victims.values() {
            spare::leave(&self.store, &mut trial, victim, true);
        }
        let Some(workload) = self.store.workload(entry.workload) else { return false };
        let mut nominator =
            Nominator { store: &self.store, tree: trial.tree_mut(), options: &self.options, gone: &gone };
        let (mut assignment, targets) = nominator.nominate(workload, entry.queue, None, Some(&pins));
        drop(trial);
        assignment.held_to = (assignment.mode() == Mode::Fit).then_some(Mode::DeferredFit);
        assignment.progress = std::mem::take(&mut entry.assignment.progress);
        // If nomination found victims that broke a rule of preemption, this fault is still reported, whatever the second search for victims finds.
        assignment.breach = assignment.breach.or(entry.assignment.breach);
        entry.assignment = assignment;
        entry.targets = targets;
        let fits = self.fits_without(entry, run);
        let result = match entry.assignment.mode() {
            Mode::DeferredFit => "deferred_fit",
            _ if fits && !entry.targets.is_empty() => "new_targets",
            _ => "skipped",
        };
        let recomputed = report.recomputed.entry((entry.queue, result)).or_default();
        *recomputed = recomputed.saturating_add(1);
        fits
    }

    /// Whether eviction history now protects a victim of the head: the search for victims ran before the evictions of this cycle.
    pub(crate) fn would_close_a_circle(&self, entry: &Entry, run: &Run) -> bool {
        if run.victims.is_empty() || entry.targets.is_empty() || entry.assignment.held_to.is_some() {
            return false;
        }
        let not_preemptible = self.not_preemptible(entry.workload);
        entry.targets.iter().any(|target| not_preemptible.contains(&target.workload))
    }

    fn fits_without(&mut self, entry: &Entry, run: &Run) -> bool {
        let node = self.store.queues[entry.queue].node;
        let mut trial = Trial::new(&mut self.tree);
        beyond::set_trials_aside(&self.store, &mut trial, entry.workload, entry.queue);
        let own = entry.targets.iter().filter(|target| !run.victims.contains_key(&target.workload));
        for victim in run.victims.values().chain(own) {
            spare::leave(&self.store, &mut trial, victim, true);
        }
        if !trial.tree().fits(node, &entry.assignment.usage) {
            return false;
        }
        let beside = self.options.profile.has(Departure::FitsBesideVictims) && entry.assignment.mode() == Mode::Fit;
        if run.victims.is_empty() || !beside {
            return true;
        }
        // Victims hold their quota until they have left, so an admission in this cycle must fit while the victims still hold it.
        drop(trial);
        let mut trial = Trial::new(&mut self.tree);
        beyond::set_trials_aside(&self.store, &mut trial, entry.workload, entry.queue);
        for (queue, usage) in &run.assumed {
            trial.remove(self.store.queues[*queue].node, usage);
        }
        trial.tree().fits(node, &entry.assignment.usage)
    }
}
