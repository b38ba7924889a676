//! The kind v1 Pod, single or in a pod group, and the kinds that are admitted through their pods.
//!
//! A pending pod has a scheduling gate. The start of a pod removes its scheduling gate and adds its placement in one write. A started pod cannot get its gate
//! back, so a stop writes the reason into a condition and deletes the pod. Berth's finalizer keeps an ended pod until Berth has counted its end in the pod's
//! Workload. A pod group consists of the pods that name it. A [`Tally`] counts the states of a group's pods as they change, so that no decision reads all pods
//! of the group. [`PodState`] is the place to start reading.

mod governing;
mod group;
mod names;
mod of_job;
mod owning_set;
mod parents;
mod patches;
mod role;
mod rules;
mod state;
mod topology;
mod workload;

pub use governing::{group_name, is_admitted_with_owner};
pub use group::{Place, RoleTally, Tally, excess, last_place, placed, replaced};
pub use names::{
    DEPLOYMENT_FRAMEWORK, MOST_ROLES, POD_FRAMEWORK, POD_REPORTER, STATEFUL_SET_FRAMEWORK, STATEFUL_SET_REPORTER,
};
pub use of_job::{COUNTED_ANNOTATION, JOB_TRACKING, counted_labels, uid_labels, validate_pod_of_job};
pub use owning_set::{OwningSet, controlling_set, group_of_stateful_set};
pub use parents::{
    ParentDefaults, deployment_defaults, stateful_set_defaults, validate_deployment, validate_deployment_update,
    validate_stateful_set, validate_stateful_set_update,
};
pub use patches::condemnation;
pub use role::role_hash;
pub(crate) use role::shape_with;
pub use rules::{
    PodDefaults, forged_controller, may_be_let_in, pod_defaults, validate_leaving_pod, validate_pod,
    validate_pod_update,
};
pub use state::{Membership, Phase, PodState};
pub use topology::place;
pub use workload::{SetState, group_workload, pod_workload, stateful_set_workload};
