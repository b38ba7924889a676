//! A new state of a TrainingJob, and the effects of the new state on other objects.

use berth_cache::training_view::TrainingView;

/// The effects of a new state of a TrainingJob on other objects.
pub struct TrainingNews {
    /// True if the Workloads of the TrainingJob are to be passed to the engine and decided about again, because the work that a preemption would lose has
    /// changed, or the rules for the Workloads have changed.
    pub concerns_workloads: bool,
    /// True if the TrainingJob has become elastic or not, suspended or not, or has begun to be deleted, or has ended.
    pub is_ruled_otherwise: bool,
}

impl TrainingNews {
    /// Compares a new state of a TrainingJob with its older state; `old` is `None` if the TrainingJob was not known.
    pub fn of(old: Option<&TrainingView>, new: &TrainingView) -> Self {
        let rules = |view: &TrainingView| (view.facts.elastic, view.facts.suspended, view.deleting, view.is_over());
        let is_ruled_otherwise = old.map(rules) != Some(rules(new));
        let saved = old.is_some_and(|old| old.saved != new.saved);
        // A TrainingJob whose requested pods have changed cannot restart with fewer of its present pods.
        let asks_otherwise = old.is_some_and(|old| old.asked != new.asked);
        let stores_elsewhere = old.and_then(|old| old.facts.store.as_ref()) != new.facts.store.as_ref();
        Self {
            concerns_workloads: saved || asks_otherwise || is_ruled_otherwise || stores_elsewhere,
            is_ruled_otherwise,
        }
    }
}
