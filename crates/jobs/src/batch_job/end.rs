//! The end of a batch Job, as its status says it.

use crate::finish::Finish;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// The condition that says how a job ended, when it did.
pub(crate) fn end_of(job: &Job) -> Option<&JobCondition> {
    let is_final = |c: &&JobCondition| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True";
    job.status.as_ref()?.conditions.as_ref()?.iter().find(is_final)
}

/// The end of a Job, once it has ended.
pub(crate) fn finish_of(job: &Job) -> Option<Finish> {
    end_of(job).map(|condition| Finish {
        success: condition.type_ == "Complete",
        message: condition.message.clone().unwrap_or_default(),
        at: None,
    })
}
