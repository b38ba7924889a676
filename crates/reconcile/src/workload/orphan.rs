//! Workloads whose job is gone: such a Workload is kept until no pod of the job can run any more.

use berth_api::conditions::{own_reasons, reasons, types};
use berth_cache::moments::after;
use berth_cache::{Owner, WorkloadView};
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::left::{self, PODS_COME_MS};
use crate::pod_group::without_pods;
use crate::workload::follow::adopt;
pub(crate) use crate::workload::owner::{OwnerState, lost_by, owner_state, parts_of};
use crate::workload::status::since;
use crate::workload::stops::{let_go, release};
use crate::workload::{FINALIZER, REPORTER, has_finalizer, notice, remove_finalizer, status_write};
use crate::write::{EventType, Kind, Purpose, Query};

/// Pause between two decisions while garbage collection has yet to delete Jobs, in milliseconds.
const CHILDREN_PAUSE_MS: i64 = 1_000;
/// Reason of the event about a workload with quota whose owner is of a kind that Berth does not know.
const STRANGER: &str = own_reasons::OWNER_KIND_UNKNOWN;

/// Decides about a workload whose owner is gone. If the workload has an owner reference, garbage collection deletes it, and Berth removes the finalizer when no
/// pod of the job is left: until then the quota is in use (invariant L4). Berth finishes a workload without an owner reference.
pub(crate) fn decide(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    if !workload.is_finished() && ctx.unlisted_owner(workload).is_some() {
        // The job's kind cannot be listed, so the view does not show whether pods of the workload run. The status of a waiting workload reports that its
        // owner's kind cannot be listed.
        return (workload.reserved() || workload.deleting).then_some(Decision::Done);
    }
    let Some(owner) = &workload.owner else { return without_owner(ctx, workload, now) };
    let Some(kind) = Kind::of_owner(&owner.kind) else { return of_stranger(ctx, workload, owner) };
    let owner_state = owner_state(ctx, workload);
    if owner_state == OwnerState::There || (owner_state == OwnerState::Leaving && !workload.deleting) {
        return None;
    }
    if owner_state == OwnerState::Absent && !ctx.manages_owner(workload) && !workload.reserved() && !workload.deleting {
        // The status of the workload says why the workload waits.
        return None;
    }
    let holds = workload.holds_quota();
    if kind.is_pods() {
        if workload.deleting {
            return Some(let_go(workload, now));
        }
        // The garbage collector deletes a group's Workload after the last of its pods. A Workload that never had a pod stays, unless another object owns the
        // Workload.
        let owned = workload.rare.as_ref().is_some_and(|rare| !rare.owners.is_empty());
        if holds && !owned && !ctx.session.is_offline() && workload.group.as_ref().is_some_and(|pods| pods.is_empty()) {
            return workload.phase.is_evicting().then(|| release(workload, now));
        }
        return if kind == Kind::PodGroup { without_pods(workload, now) } else { Some(Decision::Done) };
    }
    let parts = parts_of(ctx, workload, kind, &owner.uid);
    if parts.iter().any(|(_, part)| !part.deleting) {
        // Garbage collection will delete the Jobs that the absent job consisted of; until then the Jobs may create pods.
        return Some(Decision::Wait(after(now, CHILDREN_PAUSE_MS)));
    }
    if let Some((part, job)) = parts.into_iter().find(|(_, part)| !ctx.notes.jobs().of(&part.uid).is_rid_of_pods()) {
        // A finalizer keeps this Job, and the Job's pods run as long as the Job exists: the pods are deleted before the Job.
        return Some(Decision::write(Draft::delete_owned_first(Purpose::DeleteChild, part, &job.uid)));
    }
    if !workload.deleting || !(holds || has_finalizer(workload)) {
        return Some(Decision::Done);
    }
    let ran = workload.phase.was_admitted() || ctx.has_overrun(workload);
    if ran && !ctx.notes_of(workload).pods().are_gone() {
        let come = since(&workload.status.conditions, types::ADMITTED, "True")
            .map(|at| ctx.view.timeline().after(at, PODS_COME_MS));
        if let Some(come) = come.filter(|come| *come > now) {
            return Some(Decision::Wait(come));
        }
        let leaves = ctx.view.job_of(workload).is_some_and(|job| job.leaves_pods);
        return Some(if leaves { left::of_leaving(ctx, workload, now) } else { probe_pods(ctx, workload, now) });
    }
    Some(let_go(workload, now))
}

/// Decides about a workload without a controller. If the job of a workload without an owner reference exists, the reference was removed, and the job takes the
/// workload back.
fn without_owner(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let holds = workload.holds_quota();
    let Some(job) = workload.job_uid.as_deref().filter(|_| !workload.is_finished()) else {
        let left_behind = workload.is_finished() && workload.job_uid.is_some();
        if workload.deleting || left_behind {
            return (holds || has_finalizer(workload)).then(|| let_go(workload, now));
        }
        // No controller has created anything for the workload that would have to stop. Offline, the caller decides when an evicted workload releases its quota.
        return (workload.phase.is_evicting() && !ctx.session.is_offline()).then(|| release(workload, now));
    };
    if let Some(decision) = taken_back(ctx, workload, job) {
        return Some(decision);
    }
    let mut pods = ctx.view.pods().in_namespace(&workload.namespace);
    if holds && pods.any(|(_, pod)| *pod.uid == *job && !pod.ended()) {
        return Some(Decision::Wait(after(now, CHILDREN_PAUSE_MS)));
    }
    if !ctx.notes_of(workload).pods().are_gone() {
        // Running pods hold the quota of the workload, and can be stopped like any other pods. Pods of a job that was never admitted run without quota, and
        // are stopped at once.
        let leaves = workload.deleting || workload.is(types::EVICTED) || !workload.phase.was_admitted();
        return leaves.then(|| left::stop(ctx, workload, now));
    }
    if workload.deleting {
        return Some(let_go(workload, now));
    }
    Some(Decision::write(status_write(workload, Purpose::FinishWorkload, now, |edit| {
        edit.finish(reasons::OWNER_NOT_FOUND, "The workload's owner no longer exists");
    })))
}

/// Lets the job with the given uid take its workload back, if the job exists and is not being deleted. If the job is being deleted, the garbage collector has
/// removed the owner reference, so that the objects of the job are left behind. The cost of finding the job by its uid is proportional to the jobs of the
/// namespace.
fn taken_back(ctx: &Context<'_>, workload: &WorkloadView, uid: &str) -> Option<Decision> {
    let (view, namespace) = (&ctx.view, workload.namespace.as_str());
    let mut jobs = view.jobs_in(namespace).filter_map(|key| Some((key, view.jobs().get(key)?)));
    if let Some((key, job)) = jobs.find(|(_, job)| job.uid == uid && !job.deleting) {
        let info = job.kind.info();
        return Some(adopt(ctx, workload, (info.api_version, info.kind), (&key.name, uid)));
    }
    let first = (namespace.to_owned(), String::new());
    let mut training = view.training().range(first..).take_while(|(name, _)| name.0 == namespace);
    if let Some((name, _)) = training.find(|(_, job)| job.uid == uid && !job.deleting) {
        return Some(adopt(ctx, workload, (berth_api::berth::API_VERSION, Kind::TrainingJob.name()), (&name.1, uid)));
    }
    let mut pods = view.pods().in_namespace(namespace);
    let (name, _) = pods.find(|(_, pod)| *pod.uid == *uid && !pod.deleting())?;
    Some(adopt(ctx, workload, ("v1", Kind::Pod.name()), (&name.1, uid)))
}

/// Decides about a workload whose owner is of a kind that Berth does not know. If the owner's kind is not known to Berth, the owner's own controller starts and
/// stops the job and removes the finalizer: Berth does not see whether pods of a job run whose kind Berth does not know. Without quota no pods of the unknown
/// kind of job run, and the job's controller may be gone, as Kueue is after a migration.
fn of_stranger(ctx: &Context<'_>, workload: &WorkloadView, owner: &Owner) -> Option<Decision> {
    if !workload.reserved() {
        return (workload.deleting && has_finalizer(workload)).then(|| Decision::write(remove_finalizer(workload)));
    }
    if workload.is_finished() {
        return None;
    }
    let (event_type, holds) = if workload.deleting {
        (
            EventType::Warning,
            format!("it holds its quota until nothing of it runs and its finalizer {FINALIZER} is taken off"),
        )
    } else {
        (
            EventType::Normal,
            "whoever made it starts and stops it, and it holds its quota until it is finished or gone".into(),
        )
    };
    let message = format!("its owner, {} {:?}, is of a kind that Berth does not know: {holds}", owner.kind, owner.name);
    let event = (STRANGER, message);
    let is_new = ctx.is_unsent(&workload.object_key(), &event);
    is_new.then(|| Decision::event(notice(workload, event_type, STRANGER, event.1, REPORTER)))
}

impl Context<'_> {
    /// Whether the kind of a workload's owner is managed, or is not known to Berth.
    pub(crate) fn manages_owner(&self, workload: &WorkloadView) -> bool {
        workload.owner_key().is_none_or(|owner_key| self.sees(owner_key.kind))
    }

    /// Whether objects of a kind are managed.
    fn sees(&self, kind: Kind) -> bool {
        let kinds = &self.settings.job_kinds;
        match kind {
            Kind::Pod | Kind::PodGroup => kinds.contains(&Kind::Pod),
            kind if kind.is_job() => kinds.contains(&kind),
            _ => true,
        }
    }
}

/// Queries whether pods of a workload's job are left. The query for remaining pods finds only pods that a Job controls; a pod that was observed to have lost
/// its Job is found by its labels, as a left pod.
pub(crate) fn probe_pods(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if ctx.odd_pods_of(workload).any(|(_, odd)| odd.is_beside()) {
        return left::of_leaving(ctx, workload, now);
    }
    let query = Query::ProbePods { pods: ctx.training.pods_of(workload), most: 0 };
    Decision::write(Draft::ask(Purpose::ProbePods, workload.object_key(), query))
}

#[cfg(test)]
mod tests;
