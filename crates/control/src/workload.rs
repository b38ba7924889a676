//! The life of a Workload apart from its job: reservation, eviction, requeueing, deactivation, time limits.

pub(crate) mod blocked;
pub(crate) mod checks;
pub(crate) mod columns;
pub(crate) mod explain;
pub(crate) mod follow;
pub(crate) mod gates;
pub(crate) mod names;
pub(crate) mod older_reasons;
pub(crate) mod orphan;
pub(crate) mod pods_ready;
pub(crate) mod preempt;
pub(crate) mod ration;
pub(crate) mod retention;
pub(crate) mod status;
pub(crate) mod stops;
pub(crate) mod transitions;

use berth_api as api;
use berth_api::conditions::reasons::{self, DEACTIVATED_DUE_TO_PREFIX};
use berth_api::conditions::{check_states, event_reasons, own_reasons, types};
use berth_engine::model as engine;
use berth_jobs::PlacementError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::context::Context;
use crate::job::left;
use crate::workload::blocked::{blocked, is_suspended, kept, unasked, unreadable_usage};
use crate::workload::gates::{GATED, LIFTED};
use crate::workload::orphan::Standing;

use crate::controller::flight::{Decision, Draft};
use crate::controller::{after_seconds, key};
use crate::deltas;
use crate::workload::stops::{WayBack, queue_stop, take_back, unadmitted, unfit, way_back, without_place};

use crate::cache::{Name, WorkloadView};
use crate::training_job::restarts::told_from;
use crate::workload::status::{ADMISSION_MANAGER, Edit, admission_body, find, find_true, seconds, since};
pub(crate) use crate::write::WORKLOADS as REPORTER;
use crate::write::{EventType, Kind, Notice, Purpose, Request, SCHEDULER, Subresource};

/// Finalizer that Kueue and Berth put on Workloads and queues.
pub(crate) const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
/// Pause in seconds before a workload is tried again that could not be started as it was admitted.
const PLACEMENT_SECONDS: i64 = 60;
/// Reason of a workload that waits because its owner wants nothing to run at present.
pub(crate) const ON_HOLD: &str = reasons::ON_HOLD;

pub(crate) fn notice(
    workload: &WorkloadView,
    event_type: EventType,
    reason: &str,
    message: String,
    reporter: &'static str,
) -> Notice {
    Notice {
        key: key(Kind::Workload, &workload.key()),
        uid: workload.uid.clone(),
        event_type,
        reason: reason.to_owned(),
        message,
        reporter,
    }
}

/// Reason of the event about an eviction for that reason.
pub(crate) fn evicted_due_to(reason: &str) -> String {
    format!("{}{reason}", event_reasons::EVICTED_DUE_TO_PREFIX)
}

/// A status write by the admission manager: `change` edits a copy of the complete status.
pub(crate) fn status_write(
    workload: &WorkloadView,
    purpose: Purpose,
    now: Timestamp,
    change: impl FnOnce(&mut Edit<'_>),
) -> Draft {
    let mut status = workload.status.clone();
    change(&mut Edit { status: &mut status, generation: workload.generation, now });
    Draft {
        purpose,
        key: key(Kind::Workload, &workload.key()),
        request: Request::Apply {
            manager: ADMISSION_MANAGER,
            subresource: Subresource::Status,
            body: admission_body(&workload.identity(), &status),
        },
        based_on: workload.version(),
        notices: Vec::new(),
    }
}

/// A status write of a manager of its own, which owns no more than these fields, whatever others have written meanwhile.
pub(crate) fn separate_write(
    workload: &WorkloadView,
    purpose: Purpose,
    manager: &'static str,
    status: &Value,
) -> Decision {
    let body = json!({
        "apiVersion": api::API_VERSION, "kind": "Workload",
        "metadata": workload.identity().of_any_version(), "status": status,
    });
    Decision::write(Draft {
        purpose,
        key: key(Kind::Workload, &workload.key()),
        request: Request::Apply { manager, subresource: Subresource::Status, body },
        based_on: workload.version(),
        notices: Vec::new(),
    })
}

/// A merge patch of the Workload itself.
pub(crate) fn object_write(workload: &WorkloadView, purpose: Purpose, patch: Value) -> Draft {
    merge_write(workload, purpose, Subresource::None, patch)
}

/// A merge patch for the version that was read.
pub(crate) fn merge_write(workload: &WorkloadView, purpose: Purpose, subresource: Subresource, patch: Value) -> Draft {
    let mut body = patch;
    if let Some(map) = body.as_object_mut() {
        let metadata = map.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("uid".into(), workload.uid.clone().into());
            metadata.insert("resourceVersion".into(), workload.resource_version.clone().into());
        }
    }
    Draft {
        purpose,
        key: key(Kind::Workload, &workload.key()),
        request: Request::Merge { manager: "kueue", subresource, body },
        based_on: workload.version(),
        notices: Vec::new(),
    }
}

/// Removes Berth's finalizer from a Workload.
pub(crate) fn remove_finalizer(workload: &WorkloadView) -> Draft {
    let rest = workload.rare.as_ref().map_or(&[][..], |rare| &rare.finalizers);
    let idle = workload.is(types::FINISHED) && !workload.deleting;
    let purpose = if idle { Purpose::LetFinishedGo } else { Purpose::RemoveFinalizer };
    object_write(workload, purpose, json!({"metadata": {"finalizers": rest}}))
}

pub(crate) fn has_finalizer(workload: &WorkloadView) -> bool {
    workload.guarded
}

/// Decides about one Workload.
pub(crate) fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let Some(workload) = ctx.view.workloads.get(name) else {
        return Decision::Done;
    };
    if let Some(decision) = crate::workload::orphan::decide(ctx, workload, now) {
        return decision;
    }
    if workload.is(types::FINISHED) {
        return retention::finished(ctx, workload, now);
    }
    if workload.deleting {
        // The job stops first; see the job's decision.
        return Decision::Done;
    }
    if workload.unreadable {
        return Decision::Done;
    }
    if let Some(admission) = ctx.quota.plans.get(&workload.uid) {
        let feared = ctx.flights.strays.may_land(&key(Kind::Workload, name));
        let leaves = crate::workload::orphan::standing(ctx, workload) == Standing::Leaving || ctx.is_ending(&name.0);
        if (leaves || unasked(ctx, workload).is_some()) && !feared {
            // No controller would start it. Where an earlier write may still be applied, only the next one shows its outcome.
            return Decision::Done;
        }
        return reserve(ctx, workload, admission, now);
    }
    if let Some(eviction) = ctx.quota.plans.eviction(&workload.uid)
        && workload.reserved()
        && !workload.is(types::EVICTED)
    {
        return crate::workload::preempt::preempt(ctx, workload, eviction, now);
    }
    if let Some(asked) = ctx.training.growth.gives_up.get(&workload.uid)
        && workload.reserved()
        && !workload.is(types::EVICTED)
        && ctx.stands(workload)
        && ctx.surplus_of(workload).is_none()
    {
        // The job has no workers left to spare: all of it is preempted.
        return crate::workload::preempt::preempt(ctx, workload, &asked.eviction, now);
    }
    if let Some(value) = ctx.view.new_value(workload) {
        let patch = json!({"spec": {"priority": value}});
        return Decision::write(object_write(workload, Purpose::UpdateWorkload, patch));
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
        let told = kept(ctx, workload);
        return told.unwrap_or_else(|| holding(ctx, workload, now).or_else(|| left::watch(ctx, workload, now)));
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
        // The plan may come before a status could say that the workload may come back.
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
    // A scale-up waits since its slice was made, whenever its job was queued.
    let queued = older.map_or_else(|| workload.queued_at(false, false), |_| workload.created);
    let waited = ctx.view.timeline.seconds_between(queued, now);
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

/// An eviction with its event.
pub(crate) fn evict(workload: &WorkloadView, now: Timestamp, why: (&str, &str), message: &str) -> Draft {
    evict_and(workload, now, why, message, |_| {})
}

/// An eviction for the `count`th time-out: the workload is not tried again before `delay` seconds are over.
pub(crate) fn evict_for_seconds(
    workload: &WorkloadView,
    now: Timestamp,
    why: (&str, &str),
    message: &str,
    (count, delay): (i32, i64),
) -> Draft {
    let at = after_seconds(now, delay);
    evict_and(workload, now, why, message, |edit| {
        edit.status.requeue_state = Some(api::RequeueState { count: Some(count), requeue_at: Some(Time(seconds(at))) });
    })
}

fn evict_and(
    workload: &WorkloadView,
    now: Timestamp,
    (reason, cause): (&str, &str),
    message: &str,
    change: impl FnOnce(&mut Edit<'_>),
) -> Draft {
    let mut draft = status_write(workload, Purpose::Evict, now, |edit| {
        edit.evict(reason, cause, message);
        change(edit);
    });
    let event = if cause.is_empty() || reason != reasons::DEACTIVATED {
        evicted_due_to(reason)
    } else {
        evicted_due_to(&format!("{DEACTIVATED_DUE_TO_PREFIX}{cause}"))
    };
    draft.notices.push(notice(workload, EventType::Normal, &event, message.to_owned(), REPORTER));
    draft
}

/// Handles a workload that cannot be started as it was admitted. A problem that may pass costs its reservation, and it is tried again after a minute.
/// Any other problem ends it. `tell` makes the event at its job (`docs/departures/0044-placement-that-passes.md`).
pub(crate) fn cannot_start(
    workload: &WorkloadView,
    now: Timestamp,
    error: &PlacementError,
    tell: impl FnOnce(&str, String) -> Notice,
) -> Draft {
    let message = error.to_string();
    if !error.passes() {
        return status_write(workload, Purpose::FinishWorkload, now, |edit| {
            edit.finish(reasons::FAILED_TO_START, &message);
        });
    }
    let at = after_seconds(now, PLACEMENT_SECONDS);
    let draft = evict_and(workload, now, (own_reasons::PLACEMENT_FAILED, ""), &message, |edit| {
        let state = edit.status.requeue_state.get_or_insert_with(Default::default);
        state.requeue_at = Some(Time(seconds(at)));
    });
    draft.telling(tell(own_reasons::PLACEMENT_FAILED, message))
}

fn inactive(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let target = find_true(&workload.status.conditions, types::DEACTIVATION_TARGET);
    if workload.active {
        // The condition asks for it: spec.active follows.
        return Decision::write(object_write(workload, Purpose::Deactivate, json!({"spec": {"active": false}})));
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
        // With its target the workload loses the request to deactivate it: an owner may reactivate it before its pods have ended.
        return Decision::write(evict_and(workload, now, (reasons::DEACTIVATED, &cause), &message, |edit| {
            edit.forget_deactivation()
        }));
    }
    // A waiting workload has nothing to stop: its status says at once why it waits. It loses no quota, so that there is no event, as in Kueue.
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
    if let Some(told) = unreadable_usage(ctx, workload) {
        return told;
    }
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True");
    // Only an eviction resets failed checks: without it they would go on keeping the workload out of its queue.
    let only_reserved = admitted.is_none() && !crate::queues::checks::have_failed(&workload.status.admission_checks);
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
    // Pods that were started anew are not late by the time of earlier pods.
    let begun = told_from(workload).unwrap_or(admitted);
    within_limit(ctx, workload, admitted, now)
        .or_else(|| crate::capacity::climb::decide(ctx, workload, now))
        .or_else(|| crate::capacity::watch::decide(ctx, workload, begun, now))
        .or_else(|| crate::workload::pods_ready::decide(ctx, workload, begun, now))
}

/// Ends a run at its longest time.
fn within_limit(ctx: &Context<'_>, workload: &WorkloadView, admitted: Timestamp, now: Timestamp) -> Decision {
    let Some(limit) = workload.max_execution_seconds else { return Decision::Done };
    let past = workload.status.accumulated_past_execution_time_seconds.unwrap_or_default();
    let left = i64::from(limit.saturating_sub(past)).max(0);
    let due = ctx.view.timeline.after_seconds(admitted, left);
    if due > now {
        return Decision::Wait(due);
    }
    let reason = reasons::MAXIMUM_EXECUTION_TIME_EXCEEDED;
    let draft = status_write(workload, Purpose::Deactivate, now, |edit| {
        edit.set(types::DEACTIVATION_TARGET, true, reason, "exceeding the maximum execution time");
        edit.status.accumulated_past_execution_time_seconds = None;
    });
    let message = format!("The maximum execution time ({limit}s) exceeded");
    Decision::write(draft.telling(notice(workload, EventType::Warning, reason, message, REPORTER)))
}

/// Decides about a workload without quota: its next try, or the reason why nothing may try it.
fn waiting(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if crate::workload::orphan::standing(ctx, workload) == Standing::Leaving {
        // The workload goes with its owner.
        return Decision::Done;
    }
    if is_suspended(ctx, workload) {
        // The workload is deactivated in a moment, and its status says so then.
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
    // Only a reason with a message gets an event.
    let holds = blocked.as_ref().is_some_and(|(_, message)| !message.is_empty());
    let Some((reason, message)) = blocked.or_else(free) else { return Decision::Done };
    let reason = if ctx.settings.observe_unadmitted { reason } else { older_reasons::of(reason) };
    let current = find(&workload.status.conditions, types::QUOTA_RESERVED);
    if current.is_some_and(|condition| condition.reason == reason && condition.message == message) {
        // Its present requests are shown once something looks at it again, as under Kueue.
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
