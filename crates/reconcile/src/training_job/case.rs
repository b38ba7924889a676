//! The input of decisions about one TrainingJob.

use berth_cache::Name;
use berth_cache::training_view::TrainingView;
use jiff::Timestamp;

use crate::context::Context;

/// The input of decisions about one TrainingJob: the context, the TrainingJob and the time.
pub(crate) struct TrainingCase<'a> {
    /// The state that decisions read.
    pub(super) ctx: &'a Context<'a>,
    /// Namespace and name of the TrainingJob.
    pub(super) name: &'a Name,
    /// The observed state of the TrainingJob.
    pub(super) view: &'a TrainingView,
    /// The time of the decision.
    pub(super) now: Timestamp,
}

#[cfg(test)]
mod tests;
