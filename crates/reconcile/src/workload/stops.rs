//! Release of the quota of workloads, and the effect of stopped or deleted queues on that quota.

use berth_api::conditions::{own_reasons, reasons, types};
use berth_cache::{WorkloadPhase, WorkloadView};
use jiff::Timestamp;

use crate::capacity::watch::returns_at_once;
use crate::context::Context;
use crate::decision::Decision;
pub(crate) use crate::workload::queue_stop::{lost_flavor, missing_queue, queue_stop};
use crate::workload::status::find;
use crate::workload::{evict, has_finalizer, remove_finalizer, status_write};
use crate::write::{Kind, Purpose};

/// Releases the quota of an evicted workload of which no pod runs any more. The reason of the eviction decides whether the workload may be tried again
/// immediately.
pub(crate) fn release(workload: &WorkloadView, now: Timestamp) -> Decision {
    let reason = find(&workload.status.conditions, types::EVICTED).map(|condition| condition.reason.as_str());
    release_as(workload, reason.is_some_and(returns_at_once), now)
}

/// Releases the quota of an evicted workload; `requeued` says whether the workload may be tried again immediately.
pub(crate) fn release_as(workload: &WorkloadView, requeued: bool, now: Timestamp) -> Decision {
    Decision::write(status_write(workload, Purpose::ReleaseQuota, now, |edit| edit.release(requeued)))
}

/// Releases the quota of a workload that will not be tried again, and of which no pod runs any more.
pub(crate) fn release_for_good(workload: &WorkloadView, message: &str, now: Timestamp) -> Decision {
    match workload.is(types::EVICTED) {
        true => release_as(workload, false, now),
        false => take_back(workload, (reasons::PENDING_EVALUATION, message), now),
    }
}

/// Releases a reservation that was not followed by an admission.
pub(crate) fn take_back(workload: &WorkloadView, (reason, message): (&str, &str), now: Timestamp) -> Decision {
    Decision::write(status_write(workload, Purpose::ReleaseQuota, now, |edit| edit.take_back(reason, message)))
}

/// Ends an admission that does not match the Workload's pods: the quota is released, and running pods are stopped first.
pub(crate) fn unfit(workload: &WorkloadView, only_reserved: bool, now: Timestamp) -> Option<Decision> {
    let why = workload.misfit()?;
    Some(match only_reserved {
        true => take_back(workload, (own_reasons::INVALID_ADMISSION, why), now),
        false => Decision::write(evict(workload, now, (own_reasons::INVALID_ADMISSION, ""), why)),
    })
}

/// Contradicts the condition `Admitted` of a Workload that holds no quota: no pod runs by such a Workload.
pub(crate) fn unadmitted(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let wrong = ctx.settings.refuse_invalid && workload.phase == WorkloadPhase::Inconsistent;
    wrong.then(|| Decision::write(status_write(workload, Purpose::ExplainPending, now, |edit| edit.not_admitted())))
}

/// The last steps of a workload that is being deleted and of which no pod runs: its quota is released if another finalizer keeps the workload, and then Berth's
/// finalizer is removed.
pub(crate) fn let_go(workload: &WorkloadView, now: Timestamp) -> Decision {
    let kept = workload.rare.as_ref().is_some_and(|rare| !rare.finalizers.is_empty());
    let holds = workload.holds_quota();
    if holds && (kept || !has_finalizer(workload)) {
        let message = "the Workload is being deleted, and nothing runs by it";
        return take_back(workload, (reasons::PENDING_EVALUATION, message), now);
    }
    if has_finalizer(workload) { Decision::write(remove_finalizer(workload)) } else { Decision::Done }
}

/// Releases a reservation that was not followed by an admission, if a queue or a flavor of the reservation is gone or being deleted, or if the namespace is
/// being deleted.
pub(crate) fn without_place(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let lost =
        missing_queue(ctx, workload).or_else(|| lost_flavor(ctx, workload).filter(|_| !ctx.session.is_offline()));
    let why = lost.as_deref().map(|message| (reasons::MISCONFIGURED, message));
    let ends = ctx.is_ending(&workload.namespace);
    let why = why.or_else(|| ends.then_some((reasons::PENDING_EVALUATION, "its namespace is being deleted")))?;
    Some(take_back(workload, why, now))
}

/// The way in which a workload comes back whose condition `Requeued` is False.
pub(crate) enum WayBack {
    /// The workload does not come back for now: the cause of its eviction persists.
    Stays,
    /// The workload is tried again from a time on; its condition `Requeued` then gets this reason and message.
    At(Timestamp, &'static str, String),
}

/// The way in which a workload comes back whose condition `Requeued` is False; `None` for any other workload. The engine gets the time of the next try from the
/// same result, so that the workload is part of the first plan after that time (`docs/departures/0049-requeued-in-the-same-plan.md`).
pub(crate) fn way_back(ctx: &Context<'_>, workload: &WorkloadView) -> Option<WayBack> {
    let condition =
        find(&workload.status.conditions, types::REQUEUED).filter(|condition| condition.status == "False")?;
    // A pod that has ended cannot run again: the Workload is deleted with its pod.
    if has_ended_pod(ctx, workload) || !workload.active || workload.is(types::DEACTIVATION_TARGET) {
        return Some(WayBack::Stays);
    }
    let at_once = |reason, message: &str| WayBack::At(Timestamp::MIN, reason, message.to_owned());
    Some(match condition.reason.as_str() {
        reason if reason.starts_with(reasons::DEACTIVATED) => {
            at_once(reasons::REACTIVATED, "The workload was reactivated")
        }
        reasons::INADMISSIBLE => WayBack::Stays,
        reason @ (reasons::CLUSTER_QUEUE_STOPPED | reasons::LOCAL_QUEUE_STOPPED) => {
            if queue_stop(ctx, workload).is_some() {
                WayBack::Stays
            } else {
                let (reason, what) = match reason {
                    reasons::CLUSTER_QUEUE_STOPPED => (reasons::CLUSTER_QUEUE_RESTARTED, "ClusterQueue"),
                    _ => (reasons::LOCAL_QUEUE_RESTARTED, "LocalQueue"),
                };
                at_once(reason, &stop_is_over(ctx, workload, condition.last_transition_time.0, what))
            }
        }
        _ => {
            let state = workload.status.requeue_state.as_ref();
            let at = state.and_then(|state| state.requeue_at.as_ref()).map_or(Timestamp::MIN, |time| time.0);
            WayBack::At(at, reasons::BACKOFF_FINISHED, "The workload backoff was finished".into())
        }
    })
}

/// Message that the stop of a queue is over: a LocalQueue that is gone, or younger than the stop, was not restarted.
fn stop_is_over(ctx: &Context<'_>, workload: &WorkloadView, since: Timestamp, what: &str) -> String {
    let Some(local) = ctx.view.local_queues().get(&workload.local_queue()) else {
        return "The LocalQueue of the workload does not exist any more".into();
    };
    let is_younger = local.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > since);
    match &local.spec.cluster_queue {
        Some(queue) if is_younger => {
            format!("The LocalQueue of the workload was created anew, and leads to ClusterQueue {queue}")
        }
        _ => format!("The {what} was restarted after being stopped"),
    }
}

/// Whether a workload belongs to a single pod that has been started, and that therefore cannot wait again.
fn has_ended_pod(ctx: &Context<'_>, workload: &WorkloadView) -> bool {
    let Some(owner_key) = workload.owner_key().filter(|owner_key| owner_key.kind == Kind::Pod) else { return false };
    ctx.view.pods().get(&(owner_key.namespace, owner_key.name)).is_none_or(|pod| !pod.gated || pod.deleting())
}

#[cfg(test)]
mod tests;
