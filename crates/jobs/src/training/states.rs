//! The state of a TrainingJob, computed from its children.

use berth_api::json::to_text;
use berth_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::owner::training_owner;
use super::role::deciding_role;
use super::role_state::RoleState;
use crate::batch_job::{end_of, finish_of};
use crate::equivalence::requests_digest;
use crate::finish::Finish;
use crate::object_patch::ObjectPatch;

/// State of the role that a Job runs, if a TrainingJob controls the Job.
pub(crate) fn role_of(job: &Job) -> Option<RoleState> {
    training_owner(&job.metadata).map(|_| role_state(job))
}

/// State of the role that a child Job runs.
#[must_use]
pub fn role_state(job: &Job) -> RoleState {
    let status = job.status.clone().unwrap_or_default();
    let ready = status.ready.unwrap_or_default();
    RoleState {
        wanted: job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or_default(),
        ready,
        pending: status.active.unwrap_or_default().saturating_sub(ready).max(0),
        succeeded: status.succeeded.unwrap_or_default(),
        failed: status.failed.unwrap_or_default(),
        finish: own_finish(job),
        ended: settled_at(job).map(Timestamp::as_second),
        asks: job.spec.as_ref().map(|spec| requests_digest(&spec.template)).unwrap_or_default(),
    }
}

/// The end of a role. A role has no end if its Job was being deleted when the Job's end was decided, because the deletion of the pods says nothing about the
/// training.
fn own_finish(job: &Job) -> Option<Finish> {
    let at = settled_at(job);
    let deleted = job.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let by_deletion = deleted.is_some_and(|deleted| at.is_none_or(|at| at >= deleted));
    if by_deletion { None } else { finish_of(job) }
}

/// Time at which a condition of a finished Job first decided its success or failure. A Job reports `Complete` or `Failed` only after all its pods are gone,
/// which may be much later than the condition that decides its end.
fn settled_at(job: &Job) -> Option<Timestamp> {
    let end = end_of(job)?;
    let before = if end.type_ == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
    let conditions = job.status.as_ref()?.conditions.as_ref()?.iter();
    let condition =
        conditions.filter(|one| one.status == "True" && [end.type_.as_str(), before].contains(&one.type_.as_str()));
    condition.filter_map(|one| one.last_transition_time.as_ref()).map(|time| time.0).min()
}

/// Result of a TrainingJob that one of its roles has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingEnd {
    /// Name of the role that ended the TrainingJob.
    pub role: String,
    /// True if the TrainingJob succeeded instead of failing.
    pub success: bool,
    /// Message of the role's Job.
    pub message: String,
}

impl TrainingEnd {
    /// Parses the result of a TrainingJob from the annotation `berth.dev/training-end`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Adds the annotation `berth.dev/training-end` with the TrainingJob's result to a patch of the Workload.
    #[must_use]
    pub fn note(&self, patch: ObjectPatch) -> ObjectPatch {
        patch.annotation(labels::TRAINING_END, Some(&to_text(self)))
    }

    /// The end of the role.
    #[must_use]
    pub fn of_role(&self) -> Finish {
        Finish { success: self.success, message: self.message.clone(), at: None }
    }

    /// Result of the TrainingJob, with the name of the role that ended it in the message.
    #[must_use]
    pub fn finish(&self) -> Finish {
        Finish { success: self.success, message: format!("{}: {}", self.role, self.message), at: None }
    }
}

/// Result of a TrainingJob: failure as soon as one role has failed, and success when the deciding role has succeeded; `None` for a TrainingJob that has not
/// ended.
#[must_use]
pub fn training_end(roles: &BTreeMap<String, RoleState>) -> Option<TrainingEnd> {
    let failed = roles.iter().find_map(|(name, state)| {
        let finish = state.finish.as_ref().filter(|finish| !finish.success)?;
        Some((name.as_str(), finish))
    });
    let decides = deciding_role(roles.keys().map(String::as_str));
    let (role, finish) = failed.or_else(|| Some((decides, roles.get(decides)?.finish.as_ref()?)))?;
    Some(TrainingEnd { role: role.to_owned(), success: finish.success, message: finish.message.clone() })
}

/// Result of the TrainingJob for its Workload, with the message of the Job that ended the TrainingJob.
#[must_use]
pub fn training_finish(roles: &BTreeMap<String, RoleState>) -> Option<Finish> {
    training_end(roles).map(|end| end.finish())
}
