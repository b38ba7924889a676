//! The controller of an object, by the kinds that Berth knows.

use crate::job_type::JobType;
use crate::kinds::KINDS;
use crate::metadata::{controller, group_of, label};
use crate::state::JobOwner;
use crate::training::KIND as TRAINING_JOB;
use berth_api::berth;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The controller of an object, if it has one.
pub(crate) fn owner_of(metadata: &ObjectMeta) -> Option<JobOwner> {
    let controller = controller(metadata)?;
    Some(JobOwner {
        kind: kind_in_group(&controller.kind, &controller.api_version),
        name: controller.name.as_str().into(),
        uid: controller.uid.as_str().into(),
    })
}

/// A kind by its name, with the group if kinds of several groups have the name: Berth does not manage Volcano's Job.
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

/// Whether the controller of a job is one of Berth's kinds that are made of Jobs, beside TrainingJobs.
pub(crate) fn is_made_of_jobs(owner: &JobOwner) -> bool {
    KINDS.into_iter().any(|kind| kind.info().made_of_jobs && *kind.info().kind == *owner.kind)
}

/// The part of its controller that a Job names in a label, if the controller is of a kind that starts Jobs by such a label.
#[must_use]
pub fn named_part(job: &ObjectMeta) -> Option<&str> {
    let kind = JobType::of_owner(controller(job)?)?;
    label(job, kind.info().part_label?)
}
