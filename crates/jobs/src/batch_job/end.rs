//! Result and message of a finished batch/v1 Job, read from its status.

use crate::finish::Finish;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// The condition `Complete` or `Failed` of a finished Job, which has the Job's result and message.
pub(crate) fn end_of(job: &Job) -> Option<&JobCondition> {
    let is_final = |c: &&JobCondition| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True";
    job.status.as_ref()?.conditions.as_ref()?.iter().find(is_final)
}

/// Result and message of a Job that has completed or failed; `None` for a Job that has not finished.
pub(crate) fn finish_of(job: &Job) -> Option<Finish> {
    end_of(job).map(|condition| Finish {
        success: condition.type_ == "Complete",
        message: condition.message.clone().unwrap_or_default(),
        at: None,
    })
}
