//! Chooses the decision for an object by its kind. A decision reads the state of control and changes nothing in it.

use crate::context::Context;
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

use crate::decision::{Decision, Draft};
use crate::write::{Kind, ObjectKey};

/// The next write, query or wait for an object.
pub fn decide(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Decision {
    job_pods::after_uncovered_odd_pods(ctx, by_kind(ctx, key, now), now)
}

fn by_kind(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Decision {
    // Control writes only the status of a TrainingJob, and a status write under way delays no decision about the TrainingJob.
    if key.kind != Kind::TrainingJob && ctx.in_flight.busy(key) {
        // Control decides about a busy object again when its write ends or the watch shows the result.
        return Decision::Done;
    }
    if ctx.is_unlisted_object(key) {
        // If a resource of the API cannot be listed, the view shows its last observed objects, which may be gone.
        return Decision::Done;
    }
    let name = (key.namespace.clone(), key.name.clone());
    match key.kind {
        Kind::Job(_) => job::decide(ctx, key, now),
        Kind::Workload => workload::decide(ctx, &name, now),
        Kind::ClusterQueue => queues::finalizer(ctx, key),
        Kind::ResourceFlavor => match queues::finalizer(ctx, key) {
            Decision::Done => queues::faults(ctx, key),
            decision => decision,
        },
        Kind::Cohort => queues::faults(ctx, key),
        Kind::TrainingJob => training_job::decide(ctx, &name, now),
        Kind::Checkpoints => stored::decide(ctx, &name, now),
        Kind::Pod => pod::decide(ctx, &name, now),
        Kind::JobPod => job_pods::decide(ctx, &name, now),
        Kind::PodGroup => pod_group::decide(ctx, &name, now),
        Kind::AdmissionCheck => match queues::finalizer(ctx, key) {
            Decision::Done => check::check(ctx, key, now),
            decision => decision,
        },
        Kind::ProvisioningRequest => check::request(ctx, &name),
        Kind::Node => crate::capacity::reclaim::ask(ctx, key),
        Kind::LocalQueue
        | Kind::QueuePolicy
        | Kind::Service
        | Kind::ConfigMap
        | Kind::PodTemplate
        | Kind::Deployment
        | Kind::StatefulSet => Decision::Done,
    }
}

/// The status write of an object whose status writes are coalesced; `None` if the status is up to date.
pub fn status(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Option<Draft> {
    match key.kind {
        Kind::TrainingJob if ctx.is_unlisted(key.kind) => None,
        Kind::TrainingJob => training_job::status::status(ctx, key, now),
        _ => queues::status(ctx, key, now),
    }
}
