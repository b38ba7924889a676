//! A job to decide about.

use berth_jobs::JobState;
use jiff::Timestamp;

use crate::context::Context;
use crate::write::ObjectKey;

/// A job to decide about, with the view and the time.
#[derive(Clone, Copy)]
pub(super) struct JobCase<'a> {
    pub(super) ctx: &'a Context<'a>,
    pub(super) key: &'a ObjectKey,
    pub(super) job: &'a JobState,
    pub(super) now: Timestamp,
}
