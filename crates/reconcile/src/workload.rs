//! The life of a Workload apart from its job: reservation, eviction, requeueing, deactivation, time limits.

pub(crate) mod blocked;
pub(crate) mod checks;
pub(crate) mod columns;
pub(crate) mod evictions;
pub mod explain;
pub(crate) mod follow;
pub(crate) mod gates;
pub(crate) mod names;
pub(crate) mod older_reasons;
pub(crate) mod orphan;
pub(crate) mod owner;
pub(crate) mod pods_ready;
pub mod preempt;
pub(crate) mod queue_stop;
pub mod reason_limiter;
pub(crate) mod reason_notes;
pub(crate) mod requests;
pub(crate) mod retention;
mod running_time;
pub mod status;
pub(crate) mod stops;
pub mod transitions;
mod translation;
mod workload_patch;
pub(crate) mod writes;

use berth_api::conditions::reasons::{self, DEACTIVATED_DUE_TO_PREFIX};
use berth_api::conditions::{check_states, types};
use berth_cache::deltas;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::context::Context;
use crate::job::left;
pub(crate) use crate::workload::blocked::ON_HOLD;
use crate::workload::blocked::{blocked, is_suspended, kept, unasked, unreadable_usage};
use crate::workload::gates::{GATED, LIFTED};
use crate::workload::orphan::OwnerState;

use crate::decision::Decision;
use crate::workload::stops::{WayBack, queue_stop, take_back, unadmitted, unfit, way_back, without_place};

use crate::training_job::restarts::reported_start;
use crate::workload::status::{Edit, find, find_true, since};
pub use crate::workload::writes::{
    FINALIZER, REPORTER, cannot_start, evict, evict_for_seconds, evicted_due_to, has_finalizer, notice, object_write,
    remove_finalizer, remove_finalizer_and, separate_write, status_write,
};
use crate::write::{EventType, Kind, Purpose, SCHEDULER, key};
use berth_cache::{Name, WorkloadView};

/// Decides about one Workload.
pub fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let Some(workload) = ctx.view.workloads().get(name) else {
        return Decision::Done;
    };
    if let Some(decision) = crate::workload::orphan::decide(ctx, workload, now) {
        return decision;
    }
    if workload.is_finished() {
        return retention::finished(ctx, workload, now);
    }
    if workload.deleting {
        // The job of a deleted Workload stops first; the decision about the job then removes the Workload's finalizer.
        return Decision::Done;
    }
    if workload.unreadable {
        return Decision::Done;
    }
    let notes = ctx.notes_of(workload);
    if let Some(admission) = notes.plan().admission() {
        let feared = ctx.in_flight.unresolved().may_apply(&key(Kind::Workload, name));
        let leaves =
            crate::workload::orphan::owner_state(ctx, workload) == OwnerState::Leaving || ctx.is_ending(&name.0);
        if (leaves || unasked(ctx, workload).is_some()) && !feared {
            // No controller would start the job of the planned admission. If an earlier write may still be applied, only the next write shows the outcome of
            // the earlier write.
            return Decision::Done;
        }
        return reserve(ctx, workload, admission, now);
    }
    if let Some(eviction) = notes.plan().eviction()
        && workload.phase.keeps_quota()
    {
        return crate::workload::preempt::preempt(ctx, workload, eviction, now);
    }
    if let Some(asked) = notes.scale().gives_up()
        && workload.phase.keeps_quota()
        && ctx.stands(workload)
        && ctx.surplus_of(workload).is_none()
    {
        // The elastic job has no workers left to give up: the complete job is preempted.
        return crate::workload::preempt::preempt(ctx, workload, &asked.eviction, now);
    }
    if let Some(value) = ctx.view.new_value(workload) {
        return Decision::write(object_write(workload, Purpose::UpdateWorkload, |patch| patch.priority(value)));
    }
    if let Some(draft) = gates::sync(ctx, workload, now) {
        return Decision::write(draft);
    }
    if let Some(decision) = unadmitted(ctx, workload, now) {
        return decision;
    }
    if !workload.active || workload.is(types::DEACTIVATION_TARGET) {
        return inactive(ctx, workload, now);
    }
    if workload.reserved() {
        let decided = kept(ctx, workload);
        return decided.unwrap_or_else(|| holding(ctx, workload, now).or_else(|| left::watch(ctx, workload, now)));
    }
    let checks = crate::workload::checks::list(ctx, workload, now)
        .or_else(|| crate::workload::checks::answered(ctx, workload, now));
    checks.unwrap_or_else(|| waiting(ctx, workload, now))
}

fn reserve(ctx: &Context<'_>, workload: &WorkloadView, plan: &engine::Admission, now: Timestamp) -> Decision {
    let admission = deltas::admission(plan);
    let ready = |name: &String| {
        workload.status.admission_checks.iter().any(|c| c.name == *name && c.state == check_states::READY)
    };
    let states = &workload.status.admission_checks;
    let checks =
        !plan.admission_checks.iter().all(ready) || states.iter().any(|check| check.state != check_states::READY);
    let tracks_ready = ctx.settings.wait_for_pods_ready.is_some() && workload.owner.is_some();
    let older = ctx.replaced_by(workload);
    let tiers = ctx.tiers_of(plan.pod_sets.iter().flat_map(|set| set.flavors.values()));
    let mut draft = status_write(workload, Purpose::ReserveQuota, now, |edit| {
        // The admission may be planned before a status could say that the workload may be tried again.
        if let Some(WayBack::At(_, reason, message)) = way_back(ctx, workload) {
            edit.requeue(reason, &message);
        }
        edit.reserve(admission, checks);
        edit.tiers(&tiers);
        if let Some(older) = older {
            edit.take_over(&older.status, ctx.time_run(older, now));
        }
        if tracks_ready {
            edit.set(types::PODS_READY, false, reasons::WAIT_FOR_START, "Not all pods are ready or succeeded");
        }
    });
    // A scale-up has waited since its slice was created, independent of the time when its job was queued.
    let queued = older.map_or_else(|| workload.queued_at(false, false), |_| workload.created);
    let waited = ctx.view.timeline().seconds_between(queued, now);
    let mut message =
        format!("Quota reserved in ClusterQueue {}, wait time since queued was {waited}s", plan.cluster_queue);
    for tier in tiers {
        message.push_str(&format!("; capacity tier {tier}"));
    }
    if let Some(considered) = &plan.flavors_considered {
        message.push_str("; Flavors considered: ");
        message.push_str(considered);
    }
    draft.notices.extend(gates::lifted(workload));
    draft.notices.push(notice(workload, EventType::Normal, reasons::QUOTA_RESERVED, message, SCHEDULER));
    if !checks {
        let message = format!("Admitted by ClusterQueue {}, wait time since reservation was 0s", plan.cluster_queue);
        draft.notices.push(notice(workload, EventType::Normal, reasons::ADMITTED, message, SCHEDULER));
    }
    Decision::write(draft)
}

fn inactive(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let target = find_true(&workload.status.conditions, types::DEACTIVATION_TARGET);
    if workload.active {
        // The condition `DeactivationTarget` requests a deactivation of the Workload: `spec.active` follows.
        return Decision::write(object_write(workload, Purpose::Deactivate, |patch| patch.active(false)));
    }
    let evicted = find_true(&workload.status.conditions, types::EVICTED);
    if evicted.is_some_and(|condition| condition.reason.starts_with(reasons::DEACTIVATED)) {
        return if !workload.reserved() && (target.is_some() || workload.status.requeue_state.is_some()) {
            Decision::write(status_write(workload, Purpose::Requeue, now, |edit| edit.forget_deactivation()))
        } else {
            retention::retention(ctx, workload, now)
        };
    }
    let (cause, message) = match target {
        Some(target) => (target.reason.clone(), format!("The workload is deactivated due to {}", target.message)),
        None => (String::new(), "The workload is deactivated".to_owned()),
    };
    if workload.reserved() {
        // The eviction of a deactivated workload removes the condition `DeactivationTarget`, which requests the deactivation: an owner may reactivate the
        // workload before its pods have ended.
        return Decision::write(writes::evict_and(workload, now, (reasons::DEACTIVATED, &cause), &message, |edit| {
            edit.forget_deactivation()
        }));
    }
    // A waiting workload has nothing to stop: its status says at once why the workload waits. If a workload without quota is deactivated or stopped, the
    // workload loses no quota, so there is no event, as in Kueue.
    Decision::write(status_write(workload, Purpose::Evict, now, |edit| {
        edit.evict(reasons::DEACTIVATED, &cause, &message);
        edit.pending(reasons::DEACTIVATED, &message);
        let reason = if cause.is_empty() {
            reasons::DEACTIVATED.to_owned()
        } else {
            format!("{DEACTIVATED_DUE_TO_PREFIX}{cause}")
        };
        edit.set(types::REQUEUED, false, &reason, &message);
        edit.forget_deactivation();
    }))
}

/// Decides about a workload with quota: stop policies, time limits.
fn holding(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if workload.is(types::EVICTED) {
        return Decision::Done;
    }
    if let Some(decided) = unreadable_usage(ctx, workload) {
        return decided;
    }
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True");
    // Only an eviction resets failed admission checks: without an eviction the failed checks would keep the workload from being tried again.
    let only_reserved =
        admitted.is_none() && !berth_cache::admission_checks::have_failed(&workload.status.admission_checks);
    if let Some(decision) = unfit(workload, only_reserved, now) {
        return decision;
    }
    if let Some(decision) = only_reserved.then(|| without_place(ctx, workload, now)).flatten() {
        return decision;
    }
    if let Some((reason, drain, message)) = queue_stop(ctx, workload) {
        if only_reserved {
            return take_back(workload, (reasons::SUSPENDED, &message), now);
        }
        if drain {
            return Decision::write(evict(workload, now, (reason, ""), &message));
        }
    }
    if let Some(decision) = crate::workload::checks::decide(ctx, workload, now) {
        return decision;
    }
    let Some(admitted) = admitted else { return Decision::Done };
    // The time limit of pods that were started again counts from the restart, not from the admission.
    let begun = reported_start(workload).unwrap_or(admitted);
    within_limit(ctx, workload, admitted, now)
        .or_else(|| crate::capacity::promotion::decide(ctx, workload, now))
        .or_else(|| crate::capacity::watch::decide(ctx, workload, begun, now))
        .or_else(|| crate::workload::pods_ready::decide(ctx, workload, begun, now))
}

/// Ends the run of a workload at its longest execution time.
fn within_limit(ctx: &Context<'_>, workload: &WorkloadView, admitted: Timestamp, now: Timestamp) -> Decision {
    let Some(limit) = workload.max_execution_seconds else { return Decision::Done };
    let past = workload.status.accumulated_past_execution_time_seconds.unwrap_or_default();
    let left = i64::from(limit.saturating_sub(past)).max(0);
    let due = ctx.view.timeline().after_seconds(admitted, left);
    if due > now {
        return Decision::Wait(due);
    }
    let reason = reasons::MAXIMUM_EXECUTION_TIME_EXCEEDED;
    let draft = status_write(workload, Purpose::Deactivate, now, |edit| {
        edit.set(types::DEACTIVATION_TARGET, true, reason, "exceeding the maximum execution time");
        edit.status.accumulated_past_execution_time_seconds = None;
    });
    let message = format!("The maximum execution time ({limit}s) exceeded");
    Decision::write(draft.with_event(notice(workload, EventType::Warning, reason, message, REPORTER)))
}

/// Decides about a workload without quota: its next try, or the reason why the workload may not be tried.
fn waiting(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if crate::workload::orphan::owner_state(ctx, workload) == OwnerState::Leaving {
        // The waiting workload is deleted together with its owner.
        return Decision::Done;
    }
    if is_suspended(ctx, workload) {
        // The workload is about to be deactivated, and its status will say so.
        return Decision::Done;
    }
    match way_back(ctx, workload) {
        Some(WayBack::Stays) => return Decision::Done,
        Some(WayBack::At(at, ..)) if at > now => return Decision::Wait(at),
        Some(WayBack::At(_, reason, message)) => {
            let requeue = |edit: &mut Edit<'_>| edit.requeue(reason, &message);
            return Decision::write(status_write(workload, Purpose::Requeue, now, requeue));
        }
        None => {}
    }
    let lifted = gates::lifted(workload);
    let free = || lifted.is_some().then(|| (reasons::PENDING_EVALUATION, LIFTED.to_owned()));
    let blocked = blocked(ctx, workload);
    // Only a pending reason with a message gets an event.
    let holds = blocked.as_ref().is_some_and(|(_, message)| !message.is_empty());
    let Some((reason, message)) = blocked.or_else(free) else { return Decision::Done };
    let reason = if ctx.settings.observe_unadmitted { reason } else { older_reasons::of(reason) };
    let current = find(&workload.status.conditions, types::QUOTA_RESERVED);
    if current.is_some_and(|condition| condition.reason == reason && condition.message == message) {
        // The present requests are written into the status after the next try of the workload, as in Kueue.
        return Decision::Done;
    }
    let mut draft = status_write(workload, Purpose::ExplainPending, now, |edit| {
        edit.pending(reason, &message);
        edit.status.resource_requests = crate::workload::explain::requests_of(workload);
    });
    draft.notices.extend(lifted);
    draft.notices.extend(holds.then(|| match reason {
        GATED if !workload.gated_by().is_empty() => gates::closed(workload),
        _ => notice(workload, EventType::Warning, reason, message, REPORTER),
    }));
    Decision::write(draft)
}

#[cfg(test)]
mod tests;
