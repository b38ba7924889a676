//! The pod group or the controller with which a pod is admitted, from the pod's metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::job_type::JobType;
use crate::metadata::{annotation, controller, group_of, label, queue_name};
use crate::training::KIND as TRAINING_JOB;
use berth_api::{berth, labels};

/// Name of the pod group in the metadata of a pod; the annotation wins over the label.
#[must_use]
pub fn group_name(metadata: &ObjectMeta) -> Option<&str> {
    annotation(metadata, labels::POD_GROUP_NAME).or_else(|| label(metadata, labels::POD_GROUP_NAME))
}

/// Whether a pod is admitted with its controller, and has no Workload of its own.
#[must_use]
pub fn is_admitted_with_owner(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some_and(|owner| {
        JobType::of_owner(owner).is_some()
            || (group_of(&owner.api_version), owner.kind.as_str()) == (berth::GROUP, TRAINING_JOB)
    })
}

/// Whether Berth leaves a Deployment or StatefulSet to its controller. A Deployment or StatefulSet that names a queue itself is managed although it has a
/// controller, as in Kueue, unless it is admitted with that controller: an operator without support for queues may have created it for a user who wants a
/// queue.
pub(super) fn is_left_to_controller(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some() && (queue_name(metadata).is_none() || is_admitted_with_owner(metadata))
}
