//! Names and references by which a TrainingJob and its children find each other.

use berth_api::berth::GROUP;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::metadata::{controller, group_of};

pub(crate) const KIND: &str = "TrainingJob";

/// Name of the Job that runs a role of a TrainingJob.
#[must_use]
pub fn child_job_name(training_job: &str, role: &str) -> String {
    format!("{training_job}-{role}")
}

/// The owner reference of an object to the TrainingJob that controls it.
#[must_use]
pub fn training_owner(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    controller(metadata).filter(|owner| is_training_job(owner))
}

/// Whether an owner reference names a TrainingJob.
#[must_use]
pub fn is_training_job(owner: &OwnerReference) -> bool {
    group_of(&owner.api_version) == GROUP && owner.kind == KIND
}

/// The role that a Job with this name may run for a TrainingJob. An owner reference does not prove a child, because any client may write one; a name is unique.
#[must_use]
pub fn role_of_child<'a>(training_job: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(training_job)?.strip_prefix('-')
}
