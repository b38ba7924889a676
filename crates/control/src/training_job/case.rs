//! A TrainingJob to decide about.

use jiff::Timestamp;

use crate::cache::Name;
use crate::cache::training_view::TrainingView;
use crate::context::Context;

/// A TrainingJob to decide about, with the view and the time.
pub(crate) struct TrainingCase<'a> {
    pub(super) ctx: &'a Context<'a>,
    pub(super) name: &'a Name,
    pub(super) view: &'a TrainingView,
    pub(super) now: Timestamp,
}
