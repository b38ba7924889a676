//! v1 Pod, by itself or in a group, and the kinds whose pods are managed one by one or as a group.
//!
//! A pending pod has a scheduling gate. A start removes the gate and adds the placement in one write. A pod cannot be gated again, so a stop
//! writes the reason into a condition and deletes the pod. A finalizer keeps the pod until its end is accounted for. A group is the set of
//! pods that name it. A [`Tally`] counts the states of its pods as they change, so that no decision walks a group. Start reading at
//! [`PodState`].

mod group;
mod of_job;
mod parents;
mod patches;
mod role;
mod rules;
mod state;
mod topology;
mod workload;

pub use group::{Place, RoleTally, Tally, excess, last_place, placed, replaced};
pub use of_job::{COUNTED_ANNOTATION, JOB_TRACKING, counted_labels, uid_labels, validate_pod_of_job};
pub use parents::{
    OwningSet, ParentDefaults, deployment_defaults, group_of_stateful_set, stateful_set_defaults, validate_deployment,
    validate_deployment_update, validate_stateful_set, validate_stateful_set_update,
};
pub use patches::condemnation;
pub use role::role_hash;
pub(crate) use role::shape_with;
pub use rules::{
    PodDefaults, controlling_set, forged_controller, may_be_let_in, pod_defaults, validate_leaving_pod, validate_pod,
    validate_pod_update,
};
pub use state::{Membership, Phase, PodState};
pub use topology::place;
pub use workload::{SetState, group_workload, pod_workload, stateful_set_workload};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kind::{annotation, controller, group_of, label, queue_name};
use crate::kinds::JobType;
use crate::training::KIND as TRAINING_JOB;
use berth_api::{berth, labels};

/// Name of the integration in Kueue's configuration.
pub const POD_FRAMEWORK: &str = "pod";
/// The same of Deployments; also the value of the annotation on their pods.
pub const DEPLOYMENT_FRAMEWORK: &str = "deployment";
/// The same of StatefulSets.
pub const STATEFUL_SET_FRAMEWORK: &str = "statefulset";
/// Reporter of events about pods.
pub const POD_REPORTER: &str = "pod-kueue-controller";
/// Reporter of events about StatefulSets.
pub const STATEFUL_SET_REPORTER: &str = "statefulset-kueue-controller";
/// Most roles of a group: a Workload has no more pod sets.
pub const MOST_ROLES: usize = 18;

/// The group that a pod names; the annotation wins over the label.
#[must_use]
pub fn group_name(metadata: &ObjectMeta) -> Option<&str> {
    annotation(metadata, labels::POD_GROUP_NAME).or_else(|| label(metadata, labels::POD_GROUP_NAME))
}

/// Whether pods with that controller are admitted with it: they have no Workload of their own.
#[must_use]
pub fn is_admitted_with_owner(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some_and(|owner| {
        JobType::of_owner(owner).is_some()
            || (group_of(&owner.api_version), owner.kind.as_str()) == (berth::GROUP, TRAINING_JOB)
    })
}

/// Whether a Deployment or StatefulSet is left to its controller. One that names a queue itself is managed all the same, as in Kueue: an
/// operator without support for queues made it for a user who wants one.
fn is_left_to_controller(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some() && (queue_name(metadata).is_none() || is_admitted_with_owner(metadata))
}
