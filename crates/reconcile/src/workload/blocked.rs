//! Reasons why a pending workload may not be tried.

use berth_api::conditions::{own_reasons, reasons, types};
use berth_cache::{WorkloadPhase, WorkloadView};
use berth_engine::model::Blocked;

use crate::context::Context;
use crate::decision::Decision;
use crate::job;
use crate::pod;
use crate::workload::gates::{self, GATED};
use crate::workload::orphan::{OwnerState, owner_state, parts_of};
use crate::workload::status::find;
use crate::workload::stops::{WayBack, way_back};
use crate::workload::writes::{REPORTER, notice};
use crate::write::{EventType, Kind, ObjectKey};

/// Reason of a workload that waits because its owner wants no pods to run at present.
pub(crate) const ON_HOLD: &str = reasons::ON_HOLD;
/// Reason of the event about reserved quota whose amount cannot be read.
const UNREADABLE_USAGE: &str = own_reasons::UNREADABLE_USAGE;
/// Message of a workload whose job already runs pods without quota.
const LEFT_PODS: &str = "waits until the pods have ended that its job runs without quota";
/// Reason of the event about quota that a Workload keeps although its job does not request quota through the Workload any more.
const NOT_MANAGED: &str = own_reasons::NOT_MANAGED;

/// The reason why a pending workload may not be tried, with a message; `None` if the workload may be tried.
pub(crate) fn blocked(ctx: &Context<'_>, workload: &WorkloadView) -> Option<(&'static str, String)> {
    if let Some(refused) = workload.refused().map(str::to_owned).or_else(|| refused_job(ctx, workload)) {
        return Some((reasons::MISCONFIGURED, refused));
    }
    if let Some(unknown) = ctx.unlisted_owner(workload) {
        return Some((reasons::MISCONFIGURED, unknown));
    }
    if !ctx.manages_owner(workload) {
        return Some((reasons::MISCONFIGURED, unmanaged(workload)));
    }
    if let Some(why) = unasked(ctx, workload) {
        return Some((reasons::MISCONFIGURED, why));
    }
    if ctx.is_ending(&workload.namespace) {
        return Some((reasons::PENDING_EVALUATION, "its namespace is being deleted".to_owned()));
    }
    match owner_state(ctx, workload) {
        OwnerState::Absent if workload.group.is_some() => {
            return Some((reasons::PENDING_EVALUATION, "waits for the pods of its group: none is there".to_owned()));
        }
        OwnerState::There if !is_suspended(ctx, workload) => {}
        _ => return Some((reasons::PENDING_EVALUATION, String::new())),
    }
    if let Some(part) = last_run(ctx, workload) {
        let ObjectKey { namespace, name, .. } = part;
        return Some((
            reasons::PENDING_EVALUATION,
            format!("waits for Job {namespace}/{name} of its last run, which is being deleted"),
        ));
    }
    if job::counts_too_many_ended(ctx, workload) {
        return Some((reasons::PENDING_EVALUATION, String::new()));
    }
    if ctx.runs_without_quota(workload) && !ctx.is_on_trial(workload) {
        return Some((reasons::PENDING_EVALUATION, LEFT_PODS.to_owned()));
    }
    if let Some(fault) = ctx.lacks_store(workload) {
        return Some((reasons::MISCONFIGURED, fault));
    }
    if let Some(limit) = ctx.limit_on(workload) {
        return Some((own_reasons::ADMISSION_LIMIT, limit));
    }
    if let Some(message) = gates::message(workload) {
        return Some((GATED, message));
    }
    // A workload that was evicted for a reason of its own waits until its condition `Requeued` is True, and a workload that a stopped queue evicted waits until
    // the stop ends.
    if matches!(way_back(ctx, workload), Some(WayBack::Stays | WayBack::At(_, reasons::BACKOFF_FINISHED, _))) {
        return Some((reasons::PENDING_EVALUATION, String::new()));
    }
    held_back(workload)
}

/// Reason and message of a workload that its own job holds back: the job is on hold, or waits for replacement pods.
fn held_back(workload: &WorkloadView) -> Option<(&'static str, String)> {
    let reserved = find(&workload.status.conditions, types::QUOTA_RESERVED);
    if let Some(held) = reserved.filter(|condition| condition.status == "False" && condition.reason == ON_HOLD) {
        return Some((ON_HOLD, held.message.clone()));
    }
    workload.is(types::WAITING_FOR_REPLACEMENT_PODS).then(|| {
        let size = workload.sizes().map(|(_, count)| count).fold(0, i32::saturating_add);
        (reasons::PENDING_EVALUATION, format!("waits until all {size} pods of its group are there"))
    })
}

/// The reason, in words for the user, why the owner of a Workload requests no quota through the Workload; `None` if the owner does request quota, or is absent.
pub(crate) fn unasked(ctx: &Context<'_>, workload: &WorkloadView) -> Option<String> {
    let owner_key = workload.owner_key()?;
    if owner_key.kind.is_job() {
        return job::unasked(ctx, &owner_key, ctx.view.job_of(workload)?, workload);
    }
    if owner_state(ctx, workload) != OwnerState::There {
        return None;
    }
    if owner_key.kind == Kind::Pod {
        let name = (owner_key.namespace, owner_key.name);
        return pod::unasked(ctx, &name, ctx.view.pods().get(&name)?);
    }
    (!ctx.manages(&workload.namespace)).then(|| job::UNMANAGED_NAMESPACE.to_owned())
}

/// Sends one event about quota that a workload keeps although its job does not request the quota any more.
pub(crate) fn kept(ctx: &Context<'_>, workload: &WorkloadView) -> Option<Decision> {
    if workload.phase != WorkloadPhase::Admitted {
        return None;
    }
    let why = unasked(ctx, workload)?;
    let message = format!("{why}: what runs keeps its quota and runs on, and once it is evicted it does not come back");
    let event = (NOT_MANAGED, message);
    let is_new = ctx.is_unsent(&workload.object_key(), &event);
    is_new.then(|| Decision::event(notice(workload, EventType::Warning, NOT_MANAGED, event.1, REPORTER)))
}

/// The number of pending workloads (in their queue, or out of it) in which a pending workload counts that may not be tried; `None` if the workload may be
/// tried.
pub(crate) fn counted(ctx: &Context<'_>, workload: &WorkloadView) -> Option<Blocked> {
    let counted = if may_queue(workload) { Blocked::InQueue } else { Blocked::OutOfQueue };
    blocked(ctx, workload).map(|_| counted)
}

/// Whether a workload without quota counts as in its queue, as in Kueue: no admission gate is closed, and its job does not hold the workload back.
pub(crate) fn may_queue(workload: &WorkloadView) -> bool {
    gates::message(workload).is_none() && held_back(workload).is_none()
}

/// Whether a TrainingJob that its user has suspended controls the workload. The workload is deactivated after the status of the TrainingJob shows the
/// suspension, which may take a while.
pub(crate) fn is_suspended(ctx: &Context<'_>, workload: &WorkloadView) -> bool {
    let job = workload.training_job().and_then(|name| ctx.view.training().get(&name));
    job.is_some_and(|job| job.facts.suspended)
}

/// A Job of the last run of a TrainingJob that is still being deleted and whose name the next run needs.
fn last_run(ctx: &Context<'_>, workload: &WorkloadView) -> Option<ObjectKey> {
    workload.training_job()?;
    let owner = workload.owner.as_ref()?;
    let parts = parts_of(ctx, workload, Kind::TrainingJob, &owner.uid);
    parts.into_iter().find(|(_, part)| part.deleting).map(|(key, _)| key)
}

/// Sends one event about quota whose amount cannot be read: the requests of the pods count in place of that amount.
pub(crate) fn unreadable_usage(ctx: &Context<'_>, workload: &WorkloadView) -> Option<Decision> {
    let sets = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let mut amounts = sets.flat_map(|set| &set.resource_usage);
    let (resource, text) = amounts.find(|(resource, amount)| berth_quantity::request(resource, &amount.0).is_err())?;
    let message = format!(
        "status.admission says {:?} of {resource}, which nobody can hold; what its pods ask for is counted instead",
        text.0
    );
    let event = (UNREADABLE_USAGE, message);
    let is_new = ctx.is_unsent(&workload.object_key(), &event);
    is_new.then(|| Decision::event(notice(workload, EventType::Warning, UNREADABLE_USAGE, event.1, REPORTER)))
}

/// Message about a field of the job itself that affects admission and that Berth does not support.
fn refused_job(ctx: &Context<'_>, workload: &WorkloadView) -> Option<String> {
    ctx.view.job_of(workload)?.unsupported.as_deref().map(str::to_owned)
}

/// Message for a workload whose owner is of an unmanaged kind: no controller of Berth would start the owner.
fn unmanaged(workload: &WorkloadView) -> String {
    let (kind, name) = workload.owner.as_ref().map_or(("", ""), |owner| (&owner.kind, &owner.name));
    format!("its owner, {kind} {name:?}, is of a kind that is not managed: name it in integrations.frameworks")
}

#[cfg(test)]
mod tests;
