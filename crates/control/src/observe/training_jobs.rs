//! A new state of a TrainingJob, and its effects on other objects.

use crate::cache::training_view::TrainingView;

/// Effects of a new state of a TrainingJob on other objects.
pub(crate) struct TrainingNews {
    /// Its Workloads are passed to the engine and looked at: their loss at a preemption, or what they may do, has changed.
    pub(crate) concerns_workloads: bool,
    /// The TrainingJob is elastic, suspended, being deleted or over otherwise than before.
    pub(crate) is_ruled_otherwise: bool,
}

impl TrainingNews {
    /// Compares a state of a TrainingJob with the one before, `None` if the TrainingJob was not known.
    pub(crate) fn of(old: Option<&TrainingView>, new: &TrainingView) -> Self {
        let rules = |view: &TrainingView| (view.facts.elastic, view.facts.suspended, view.deleting, view.is_over());
        let is_ruled_otherwise = old.map(rules) != Some(rules(new));
        let saved = old.is_some_and(|old| old.saved != new.saved);
        // A job that asks for other pods cannot restart with fewer of those that it has.
        let asks_otherwise = old.is_some_and(|old| old.asked != new.asked);
        let stores_elsewhere = old.and_then(|old| old.facts.store.as_ref()) != new.facts.store.as_ref();
        Self {
            concerns_workloads: saved || asks_otherwise || is_ruled_otherwise || stores_elsewhere,
            is_ruled_otherwise,
        }
    }
}
