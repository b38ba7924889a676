//! Admission in two phases: quota is reserved, then every admission check of the ClusterQueue must be ready.

use berth_api as api;
use berth_api::conditions::{check_states, event_reasons, reasons, types};
use berth_cache::admission_checks::concerning;
use berth_cache::{WorkloadPhase, WorkloadView};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::status::{find, seconds, since};
use crate::workload::{REPORTER, evict, notice, object_write, status_write};
use crate::write::{EventType, Notice, Purpose};

/// Reason of the event by which a job gets the messages of its admission checks.
const UPDATED: &str = event_reasons::UPDATED_ADMISSION_CHECK;

/// The next step of a workload with quota with regard to its admission checks; `None` if the checks require no step.
pub(crate) fn decide(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let admission = workload.status.admission.as_ref()?;
    let name = admission.cluster_queue.as_deref()?;
    let states = &workload.status.admission_checks;
    if let Some(decision) = rejected(workload, now) {
        return Some(decision);
    }
    if let Some(message) = in_state(states, check_states::RETRY) {
        let message = format!("Evicted due to {message}");
        return Some(Decision::write(evict(workload, now, (reasons::ADMISSION_CHECK, ""), &message)));
    }
    if workload.is(types::ADMITTED) {
        return crate::provisioning::check::decide(ctx, workload, now);
    }
    let queue = ctx.view.cluster_queues().get(name)?;
    // With Kueue's older reasons, a Workload with reserved quota has no condition `Admitted` before its first admission.
    let says = ctx.settings.observe_unadmitted;
    let silent = says && states.is_empty() && find(&workload.status.conditions, types::ADMITTED).is_none();
    if silent && concerning(&queue.spec, Some(admission)).is_empty() {
        // Another controller has reserved the workload's quota without admission checks and without a condition `Admitted`, so Berth does not admit the
        // workload.
        return None;
    }
    if ctx.session.schedules_only() {
        return None;
    }
    if let Some(draft) = sync(workload, &queue.spec, now) {
        return Some(Decision::write(draft));
    }
    if let Some(decision) = crate::provisioning::check::decide(ctx, workload, now) {
        return Some(decision);
    }
    if states.iter().any(|check| check.state != check_states::READY) {
        return None;
    }
    let older = ctx.replaced_by(workload);
    let mut draft = status_write(workload, Purpose::SetAdmitted, now, |edit| {
        edit.set(types::ADMITTED, true, reasons::ADMITTED, "The workload is admitted");
        if let Some(older) = older {
            edit.take_over(&older.status, ctx.time_run(older, now));
        }
    });
    let reserved = since(&workload.status.conditions, types::QUOTA_RESERVED, "True").unwrap_or(now);
    let waited = ctx.view.timeline().seconds_between(reserved, now);
    let message = format!("Admitted by ClusterQueue {name}, wait time since reservation was {waited}s");
    draft.notices.push(notice(workload, EventType::Normal, reasons::ADMITTED, message, REPORTER));
    Some(Decision::write(draft))
}

/// Deactivates a workload that an admission check has rejected.
fn rejected(workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let message = in_state(&workload.status.admission_checks, check_states::REJECTED)?;
    let mut draft = status_write(workload, Purpose::Deactivate, now, |edit| {
        edit.set(types::DEACTIVATION_TARGET, true, reasons::ADMISSION_CHECK, &message);
    });
    let text = format!("Deactivated due to {message}");
    draft.notices.push(notice(workload, EventType::Warning, event_reasons::ADMISSION_CHECK_REJECTED, text, REPORTER));
    Some(Decision::write(draft))
}

/// Handles answers of admission checks that came before there was quota. A workload that a check rejects is deactivated. A workload that a check wants to retry
/// waits for the time of the retry, and its checks are requested again (`docs/departures/0034-checks-before-quota.md`).
pub(crate) fn answered(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    if ctx.session.schedules_only() {
        return None;
    }
    if let Some(decision) = rejected(workload, now) {
        return Some(decision);
    }
    let message = in_state(&workload.status.admission_checks, check_states::RETRY)?;
    Some(Decision::write(status_write(workload, Purpose::Requeue, now, |edit| {
        edit.reset_checks("its answer");
        edit.set(types::REQUEUED, false, reasons::ADMISSION_CHECK, &message);
        edit.pending(reasons::PENDING_EVALUATION, &message);
    })))
}

/// Lists the admission checks of a workload without quota: all checks that the workload must pass with any flavors.
pub(crate) fn list(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let local = ctx.view.local_queues().get(&workload.local_queue()).filter(|_| !ctx.session.schedules_only())?;
    let queue = ctx.view.cluster_queues().get(local.spec.cluster_queue.as_deref()?)?;
    sync(workload, &queue.spec, now).map(Decision::write)
}

/// Lists the admission checks that concern a workload; `None` if the list is up to date.
fn sync(workload: &WorkloadView, queue: &api::ClusterQueueSpec, now: Timestamp) -> Option<Draft> {
    let states = &workload.status.admission_checks;
    if states.is_empty() && queue.admission_checks_strategy.is_none() {
        return None;
    }
    let mut wanted = concerning(queue, workload.status.admission.as_ref());
    wanted.sort_unstable();
    if states.iter().map(|check| &check.name).eq(wanted.iter()) {
        return None;
    }
    // The controller of an admission check owns the check's entry in `status.admissionChecks`, too: an entry is removed only if the complete list is written.
    let listed = synced(states, &wanted, now);
    Some(object_write(workload, Purpose::SyncAdmissionChecks, |patch| patch.admission_checks(&listed)))
}

/// Sends the messages of pending admission checks to a job that waits with reserved quota; `notice` makes the event.
pub(crate) fn check_event(workload: &WorkloadView, notice: impl FnOnce(EventType, &str, String) -> Notice) -> Decision {
    let waits = workload.phase == WorkloadPhase::Reserved;
    let speak =
        |check: &&api::AdmissionCheckState| waits && check.state == check_states::PENDING && !check.message.is_empty();
    let checks = workload.status.admission_checks.iter().filter(speak);
    let checks: Vec<String> = checks.map(|check| format!("{}: {}", check.name, check.message)).collect();
    if checks.is_empty() {
        Decision::Done
    } else {
        Decision::event(notice(EventType::Normal, UPDATED, checks.join("; ")))
    }
}

/// Admission checks in a state with their messages, in Kueue's words; `None` if no check is in that state.
fn in_state(states: &[api::AdmissionCheckState], state: &str) -> Option<String> {
    let mut found: Vec<_> = states.iter().filter(|check| check.state == state).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let plural = if found.len() > 1 { "s" } else { "" };
    let named = found.iter().map(|check| match check.message.as_str() {
        "" => format!("\"{}\"", check.name),
        message => format!("\"{}\" ({message})", check.name),
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| format!("AdmissionCheck{plural} in {state} state: {}", named.join("; ")))
}

/// The wanted admission checks by name: known checks keep their state, and new checks are Pending.
fn synced(known: &[api::AdmissionCheckState], wanted: &[String], now: Timestamp) -> Vec<api::AdmissionCheckState> {
    let state = |name: &String| {
        known.iter().find(|check| check.name == *name).cloned().unwrap_or_else(|| api::AdmissionCheckState {
            name: name.clone(),
            state: check_states::PENDING.to_owned(),
            last_transition_time: Time(seconds(now)),
            message: String::new(),
            requeue_after_seconds: None,
            retry_count: None,
            pod_set_updates: Vec::new(),
        })
    };
    wanted.iter().map(state).collect()
}

#[cfg(test)]
mod tests;
