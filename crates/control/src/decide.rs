//! From the view to the next write of one object, one file per kind. A decision changes nothing. State about writes and their outcomes is noted in
//! the file of the decision that reads it.

pub(crate) mod altered;
pub(crate) mod blocked;
pub(crate) mod checkpoints;
pub(crate) mod checks;
pub(crate) mod explain;
mod follow;
pub(crate) mod gates;
pub(crate) mod grace;
pub(crate) mod job;
pub(crate) mod job_pods;
pub(crate) mod left;
pub(crate) mod names;
pub(crate) mod orphan;
pub(crate) mod placement;
pub(crate) mod pods;
pub(crate) mod pods_ready;
pub(crate) mod policies;
pub(crate) mod preempt;
pub(crate) mod provisioning;
pub(crate) mod queues;
mod retention;
pub(crate) mod stops;
pub(crate) mod training;
pub(crate) mod usage;
pub(crate) mod workload;

use jiff::Timestamp;

use crate::core::Control;
use crate::flight::{Decision, Draft};
use crate::write::{Kind, ObjectKey};

/// The next step for an object.
pub(crate) fn decide(control: &Control, key: &ObjectKey, now: Timestamp) -> Decision {
    job_pods::after_strays(control, by_kind(control, key, now), now)
}

fn by_kind(control: &Control, key: &ObjectKey, now: Timestamp) -> Decision {
    // Only the status of a TrainingJob is written, and that holds up nothing.
    if key.kind != Kind::TrainingJob && control.flights.busy(key) {
        // The outcome, or the sight of the result, brings the decision back.
        return Decision::Done;
    }
    if control.is_unlisted_object(key) {
        // The view shows such an object as it was seen last, and it may be long gone.
        return Decision::Done;
    }
    let name = (key.namespace.clone(), key.name.clone());
    match key.kind {
        Kind::Job(_) => job::decide(control, key, now),
        Kind::Workload => workload::decide(control, &name, now),
        Kind::ClusterQueue => queues::finalizer(control, key),
        Kind::ResourceFlavor => match queues::finalizer(control, key) {
            Decision::Done => queues::faults(control, key),
            decision => decision,
        },
        Kind::Cohort => queues::faults(control, key),
        Kind::TrainingJob => training::decide(control, &name, now),
        Kind::Checkpoints => checkpoints::decide(control, &name, now),
        Kind::Pod => pods::decide(control, &name, now),
        Kind::JobPod => job_pods::decide(control, &name, now),
        Kind::PodGroup => pods::group::decide(control, &name, now),
        Kind::AdmissionCheck => match queues::finalizer(control, key) {
            Decision::Done => provisioning::check(control, key, now),
            decision => decision,
        },
        Kind::ProvisioningRequest => provisioning::request(control, &name),
        Kind::Node => crate::ladder::reclaim::ask(control, key),
        Kind::LocalQueue
        | Kind::QueuePolicy
        | Kind::Service
        | Kind::ConfigMap
        | Kind::PodTemplate
        | Kind::Deployment
        | Kind::StatefulSet => Decision::Done,
    }
}

/// The status write of an object whose status is coalesced, `None` when nothing differs.
pub(crate) fn status(control: &Control, key: &ObjectKey, now: Timestamp) -> Option<Draft> {
    match key.kind {
        Kind::TrainingJob if control.is_unlisted(key.kind) => None,
        Kind::TrainingJob => training::status::status(control, key, now),
        _ => queues::status(control, key, now),
    }
}
