//! The controller of an object, in terms of the kinds that Berth knows.

use crate::job_type::JobType;
use crate::kinds::KINDS;
use crate::metadata::{controller, group_of, label};
use crate::state::JobOwner;
use crate::training::KIND as TRAINING_JOB;
use berth_api::berth;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The controller of an object, if any.
pub(crate) fn owner_of(metadata: &ObjectMeta) -> Option<JobOwner> {
    let controller = controller(metadata)?;
    Some(JobOwner {
        kind: kind_in_group(&controller.kind, &controller.api_version),
        name: controller.name.as_str().into(),
        uid: controller.uid.as_str().into(),
    })
}

/// The name of a kind. A kind that shares its name with a kind of Berth gets its group appended, because Berth does not manage, for example, Volcano's Job.
#[must_use]
pub fn kind_in_group(kind: &str, api_version: &str) -> Box<str> {
    let group = group_of(api_version);
    let ours = match KINDS.into_iter().find(|known| known.info().kind == kind) {
        Some(known) => known.info().group,
        None if kind == TRAINING_JOB => berth::GROUP,
        None => group,
    };
    if group == ours { kind.into() } else { format!("{kind}.{group}").into() }
}

/// Whether the controller of a job is of a kind made of Jobs, other than TrainingJob.
pub(crate) fn is_made_of_jobs(owner: &JobOwner) -> bool {
    KINDS.into_iter().any(|kind| kind.info().made_of_jobs && *kind.info().kind == *owner.kind)
}

/// The part that a Job names in a label, if the Job's controller starts Jobs by such a label.
#[must_use]
pub fn named_part(job: &ObjectMeta) -> Option<&str> {
    let kind = JobType::of_owner(controller(job)?)?;
    label(job, kind.info().part_label?)
}
