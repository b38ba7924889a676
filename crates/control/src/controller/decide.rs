//! From the view to the next write of one object, one file per kind. A decision changes nothing. State about writes and their outcomes is noted in
//! the file of the decision that reads it.

use crate::job;
use crate::pod;
use crate::pod::job_pods;
use crate::pod_group;
use crate::provisioning::check;
use crate::queues;
use crate::training_job;
use crate::training_job::stored;
use crate::workload;
use jiff::Timestamp;

use crate::controller::Control;
use crate::controller::flight::{Decision, Draft};
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
        Kind::TrainingJob => training_job::decide(control, &name, now),
        Kind::Checkpoints => stored::decide(control, &name, now),
        Kind::Pod => pod::decide(control, &name, now),
        Kind::JobPod => job_pods::decide(control, &name, now),
        Kind::PodGroup => pod_group::decide(control, &name, now),
        Kind::AdmissionCheck => match queues::finalizer(control, key) {
            Decision::Done => check::check(control, key, now),
            decision => decision,
        },
        Kind::ProvisioningRequest => check::request(control, &name),
        Kind::Node => crate::capacity::reclaim::ask(control, key),
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
        Kind::TrainingJob => training_job::status::status(control, key, now),
        _ => queues::status(control, key, now),
    }
}
