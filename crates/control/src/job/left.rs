//! Pods of a job that was deleted without them (`--cascade=orphan`). They hold its quota until they have ended, and are stopped when the quota has to
//! go back. They are found by the labels in which pods name the uid of their job. Anybody may write these labels, so a pod for which another job
//! answers does not count as left behind.

use berth_api::conditions::{reasons, types};
use berth_jobs::pods::uid_labels;
use jiff::Timestamp;

use crate::cache::WorkloadView;
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::moments::after;
use crate::workload::status::since;
use crate::workload::{REPORTER, notice};
use crate::write::{EventType, Kind, LeftPod, ObjectKey, Purpose, Query, key};

/// Time after an admission in which a controller that has not yet seen its job go may still make pods, in milliseconds: before its end the absence of
/// pods proves nothing.
pub(crate) const PODS_COME_MS: i64 = 3_000;
/// Pause between two looks for such pods while they may run on, in milliseconds.
const LOOK_MS: i64 = 10_000;
/// Pause between two looks while such pods are stopped, in milliseconds.
const CHASE_MS: i64 = 1_000;

/// Looks whether pods of a workload whose job is gone are left: the workload goes on as long as they do.
pub(crate) fn watch(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let ours = workload.owner.is_none() && workload.job_uid.is_some() && workload.is(types::ADMITTED);
    if !ours || workload.is(types::EVICTED) || workload.deleting {
        return Decision::Done;
    }
    if ctx.notes_of(workload).pods().left().is_some() {
        let message =
            "its job was deleted and its pods were left: they hold its quota until they have ended".to_owned();
        let said = (reasons::OWNER_NOT_FOUND, message);
        if ctx.is_untold(&workload.object_key(), &said) {
            return Decision::tell(notice(workload, EventType::Warning, said.0, said.1, REPORTER));
        }
    }
    look_again(ctx, workload, now)
}

/// Asks from time to time whether pods are left.
fn look_again(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let left = ctx.notes_of(workload).pods().left();
    ask_after(workload, left.map(|left| after(left.at, LOOK_MS)), now)
}

/// The wait until no pod runs, as in [`watch`], for a workload whose job is being deleted and lets its pods go before it.
pub(crate) fn of_leaving(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if workload.deleting || workload.is(types::EVICTED) {
        return stop(ctx, workload, now);
    }
    look_again(ctx, workload, now)
}

/// The next step for a workload that has to give its quota back: its remaining pods are stopped.
pub(crate) fn stop(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let known = ctx.notes_of(workload).pods().left();
    let next = known.and_then(|left| left.pods.iter().find_map(|pod| send_off(ctx, &workload.namespace, pod)));
    next.unwrap_or_else(|| ask_after(workload, known.map(|left| after(left.at, CHASE_MS)), now))
}

/// The write that makes a pod go: the deletion of its Job, where that would make the pod again.
fn send_off(ctx: &Context<'_>, namespace: &str, pod: &LeftPod) -> Option<Decision> {
    let object = |kind: Kind, name: &str| key(kind, &(namespace.to_owned(), name.to_owned()));
    let draft = match &pod.job {
        Some((_, uid)) if ctx.notes.jobs.of(uid).is_rid_of_pods() => return None,
        Some((name, uid)) => Draft::delete_owned_first(Purpose::DeleteChild, object(Kind::JOB, name), uid),
        None if pod.deleting => return None,
        None => Draft::delete(Purpose::DeletePod, object(Kind::Pod, &pod.name), &pod.uid),
    };
    Some(Decision::write(draft))
}

/// Looks at the time `due`, or as soon as all pods of the last start must have come.
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

/// The pods among the found ones for which no job answers any more.
pub(crate) fn without_job(ctx: &Context<'_>, object: &ObjectKey, mut pods: Vec<LeftPod>) -> Vec<LeftPod> {
    let workload = ctx.view.workloads.get(&(object.namespace.clone(), object.name.clone()));
    let gone = workload.and_then(|workload| workload.job_uid.as_deref()).unwrap_or_default();
    pods.retain(|pod| is_left(ctx, object, pod, gone));
    pods
}

/// Whether no job answers for a pod any more, nor for the Job that makes it; the job with the uid `gone` is on its way out itctx.
fn is_left(ctx: &Context<'_>, workload: &ObjectKey, pod: &LeftPod, gone: &str) -> bool {
    let name = |name: &str| (workload.namespace.clone(), name.to_owned());
    let Some((job, uid)) = &pod.job else {
        // A managed pod has a Workload of its own.
        return ctx.view.pods.get(&name(&pod.name)).is_none();
    };
    if *uid == gone {
        return true;
    }
    let job = ctx.view.jobs.get(&key(Kind::JOB, &name(job))).filter(|job| job.uid == *uid);
    job.is_none_or(|job| match &job.owner {
        // The job is being deleted, and has not let go of this Job yet.
        Some(owner) => *owner.uid == *gone,
        None => ctx.view.workloads.owned_by(&job.uid).next().is_none() && !ctx.manages_job(Kind::JOB, job),
    })
}

#[cfg(test)]
mod tests;
