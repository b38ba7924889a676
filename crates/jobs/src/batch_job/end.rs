//! The end of a batch/v1 Job, read from its status.

use crate::finish::Finish;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// The condition of a Job that has ended, with the result and message of the end.
pub(crate) fn end_of(job: &Job) -> Option<&JobCondition> {
    let is_final = |c: &&JobCondition| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True";
    job.status.as_ref()?.conditions.as_ref()?.iter().find(is_final)
}

/// The end of a Job that has completed or failed; `None` before.
pub(crate) fn finish_of(job: &Job) -> Option<Finish> {
    end_of(job).map(|condition| Finish {
        success: condition.type_ == "Complete",
        message: condition.message.clone().unwrap_or_default(),
        at: None,
    })
}
