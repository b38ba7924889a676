//! The owner of a Workload, and the Jobs that the owner consists of.

use berth_cache::WorkloadView;
use berth_cache::names::Name;
use berth_jobs::JobState;
use berth_jobs::training::child_job_name;

use crate::context::Context;
use crate::write::{Kind, ObjectKey, key};

/// The Workload of a name, if the owner reference to its owner with this uid was removed.
pub(crate) fn lost_by<'a>(ctx: &'a Context<'a>, name: &Name, uid: &str) -> Option<&'a WorkloadView> {
    let found = ctx.view.workloads().get(name)?;
    (found.owner.is_none() && found.job_uid.as_deref() == Some(uid)).then_some(found)
}

/// The remaining Jobs of a workload's job, if the job consists of Jobs.
pub(crate) fn parts_of<'a>(
    ctx: &'a Context<'a>,
    workload: &'a WorkloadView,
    kind: Kind,
    uid: &'a str,
) -> Vec<(ObjectKey, &'a JobState)> {
    let view = &ctx.view;
    match workload.training_job() {
        // Jobs that only claim to be a part of the job are not waited for.
        Some(name) => {
            let roles = workload.shape.digests.iter();
            let child = |role: &str| {
                let object = key(Kind::JOB, &(name.0.clone(), child_job_name(&name.1, role)));
                Some((object, view.child_of(&name, uid, role)?))
            };
            roles.filter_map(|set| child(&set.name)).collect()
        }
        None if kind.is_made_of_jobs() => {
            let all = view.jobs().controlled_by(&workload.namespace, uid);
            all.map(|(object, job)| (object.clone(), job)).collect()
        }
        None => Vec::new(),
    }
}

/// State of a workload's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// The owner exists, or is of a kind that Berth does not know: the owner's controller may start the job.
    There,
    /// The owner of the workload is being deleted.
    Leaving,
    /// The owner of the workload does not exist. A group of pods is absent if all of its pods are gone, so that no pod could use the quota.
    Absent,
}

/// The state of the owner of a workload.
pub(crate) fn owner_state(ctx: &Context<'_>, workload: &WorkloadView) -> OwnerState {
    let Some(owner) = &workload.owner else { return OwnerState::There };
    let Some(kind) = Kind::of_owner(&owner.kind) else { return OwnerState::There };
    let name = (workload.namespace.clone(), owner.name.clone());
    let view = &ctx.view;
    let leaving = match kind {
        Kind::Pod => view.pods().get(&name).filter(|pod| *pod.uid == *owner.uid).map(|_| false),
        Kind::PodGroup => {
            (view.pods().group(&name).is_some() || view.sets().of_group(&name).is_some()).then_some(false)
        }
        Kind::TrainingJob => view.training().get(&name).filter(|job| job.uid == owner.uid).map(|job| job.deleting),
        _ => view.job_of(workload).map(|job| job.deleting),
    };
    match leaving {
        Some(false) => OwnerState::There,
        Some(true) => OwnerState::Leaving,
        None if ctx.unlisted_owner(workload).is_some() => OwnerState::There,
        None => OwnerState::Absent,
    }
}

#[cfg(test)]
mod tests;
