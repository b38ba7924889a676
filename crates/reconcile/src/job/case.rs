//! The input of a decision about a job.

use berth_jobs::JobState;
use jiff::Timestamp;

use crate::context::Context;
use crate::write::ObjectKey;

/// A job to decide about, with the context and the time of the decision.
#[derive(Clone, Copy)]
pub(super) struct JobCase<'a> {
    /// The state that the decision reads.
    pub(super) ctx: &'a Context<'a>,
    /// The key of the job.
    pub(super) key: &'a ObjectKey,
    /// The observed state of the job.
    pub(super) job: &'a JobState,
    /// The time of the decision.
    pub(super) now: Timestamp,
}

#[cfg(test)]
mod tests;
