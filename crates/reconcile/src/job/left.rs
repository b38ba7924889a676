//! Pods of a job that was deleted without its pods (`--cascade=orphan`). Left pods hold the quota of their deleted job until they have ended, and are stopped
//! when the quota has to be given back. Left pods are found by the labels with the uid of their job. Any client may write the labels of a pod, so a pod that
//! another job counts is not a left pod.

use berth_api::conditions::{reasons, types};
use berth_cache::WorkloadView;
use berth_cache::moments::after;
use berth_jobs::pods::uid_labels;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::status::since;
use crate::workload::{REPORTER, notice};
use crate::write::{EventType, Kind, LeftPod, ObjectKey, Purpose, Query, key};

/// Time in milliseconds after an admission in which a job controller that has not observed the deletion of its job may still create pods. A query for left pods
/// that finds no pods proves nothing while pods of the last admission may still be created.
pub(crate) const PODS_COME_MS: i64 = 3_000;
/// Pause in milliseconds between two queries for left pods, while the left pods may run on.
const LOOK_MS: i64 = 10_000;
/// Pause in milliseconds between two queries for left pods, while the left pods are being stopped.
const CHASE_MS: i64 = 1_000;

/// Watches for left pods of a Workload whose job is gone; the Workload holds its quota as long as left pods run.
pub fn watch(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let ours = workload.owner.is_none() && workload.job_uid.is_some() && workload.is(types::ADMITTED);
    if !ours || workload.is(types::EVICTED) || workload.deleting {
        return Decision::Done;
    }
    if ctx.notes_of(workload).pods().left().is_some() {
        let message =
            "its job was deleted and its pods were left: they hold its quota until they have ended".to_owned();
        let event = (reasons::OWNER_NOT_FOUND, message);
        if ctx.is_unsent(&workload.object_key(), &event) {
            return Decision::event(notice(workload, EventType::Warning, event.0, event.1, REPORTER));
        }
    }
    look_again(ctx, workload, now)
}

/// Queries left pods again after a pause.
fn look_again(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let left = ctx.notes_of(workload).pods().left();
    ask_after(workload, left.map(|left| after(left.at, LOOK_MS)), now)
}

/// The wait until no pod runs, as in [`watch`], for a Workload whose job is being deleted and orphans its pods.
pub(crate) fn of_leaving(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if workload.deleting || workload.is(types::EVICTED) {
        return stop(ctx, workload, now);
    }
    look_again(ctx, workload, now)
}

/// The next step for a Workload that has to give its quota back: its left pods are stopped.
pub(crate) fn stop(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let known = ctx.notes_of(workload).pods().left();
    let next = known.and_then(|left| left.pods.iter().find_map(|pod| send_off(ctx, &workload.namespace, pod)));
    next.unwrap_or_else(|| ask_after(workload, known.map(|left| after(left.at, CHASE_MS)), now))
}

/// The write that deletes a left pod, or its Job if the Job would create the pod again.
fn send_off(ctx: &Context<'_>, namespace: &str, pod: &LeftPod) -> Option<Decision> {
    let object = |kind: Kind, name: &str| key(kind, &(namespace.to_owned(), name.to_owned()));
    let draft = match &pod.job {
        Some((_, uid)) if ctx.notes.jobs().of(uid).is_rid_of_pods() => return None,
        Some((name, uid)) => Draft::delete_owned_first(Purpose::DeleteChild, object(Kind::JOB, name), uid),
        None if pod.deleting => return None,
        None => Draft::delete(Purpose::DeletePod, object(Kind::Pod, &pod.name), &pod.uid),
    };
    Some(Decision::write(draft))
}

/// Queries left pods at the time `due`, or else when all pods of the last start must have been created.
fn ask_after(workload: &WorkloadView, due: Option<Timestamp>, now: Timestamp) -> Decision {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True");
    let due = due.or_else(|| admitted.map(|at| after(at, PODS_COME_MS)));
    if let Some(due) = due.filter(|due| *due > now) {
        return Decision::Wait(due);
    }
    let labels = uid_labels().collect();
    let uid = workload.job_uid.clone().unwrap_or_default();
    let query = Query::FindLeftPods { labels, uid };
    Decision::write(Draft::ask(Purpose::FindLeftPods, workload.object_key(), query))
}

/// The found pods that no job counts any more.
pub fn without_job(ctx: &Context<'_>, object: &ObjectKey, mut pods: Vec<LeftPod>) -> Vec<LeftPod> {
    let workload = ctx.view.workloads().get(&(object.namespace.clone(), object.name.clone()));
    let gone = workload.and_then(|workload| workload.job_uid.as_deref()).unwrap_or_default();
    pods.retain(|pod| is_left(ctx, object, pod, gone));
    pods
}

/// Whether no job counts a pod any more, nor the Job that created the pod; `gone` is the uid of the job that is being deleted.
fn is_left(ctx: &Context<'_>, workload: &ObjectKey, pod: &LeftPod, gone: &str) -> bool {
    let name = |name: &str| (workload.namespace.clone(), name.to_owned());
    let Some((job, uid)) = &pod.job else {
        // A managed pod has a Workload of its own.
        return ctx.view.pods().get(&name(&pod.name)).is_none();
    };
    if *uid == gone {
        return true;
    }
    let job = ctx.view.jobs().get(&key(Kind::JOB, &name(job))).filter(|job| job.uid == *uid);
    job.is_none_or(|job| match &job.owner {
        // The controlling job is being deleted, and has not orphaned this Job yet.
        Some(owner) => *owner.uid == *gone,
        None => ctx.view.workloads().owned_by(&job.uid).next().is_none() && !ctx.manages_job(Kind::JOB, job),
    })
}

#[cfg(test)]
mod tests;
