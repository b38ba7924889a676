//! `waitForPodsReady`: a workload whose pods are not ready in time is evicted, and is deactivated after too many retries.

use berth_api::conditions::{reasons, types};
use berth_cache::WorkloadView;
use berth_cache::moments::after;
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::evictions::evicted_for;
use crate::workload::status::find;
use crate::workload::{evict_for_seconds, status_write};
use crate::write::Purpose;

/// Reason of the eviction of a workload whose pods were not ready in time.
pub(crate) const PODS_READY_TIMEOUT: &str = reasons::PODS_READY_TIMEOUT;

/// Decides about a workload whose pods may be late; `admitted` is the time of its admission.
pub(crate) fn decide(ctx: &Context<'_>, workload: &WorkloadView, admitted: Timestamp, now: Timestamp) -> Decision {
    let Some(settings) = ctx.settings.wait_for_pods_ready.as_ref().filter(|_| workload.owner.is_some()) else {
        return Decision::Done;
    };
    let ready = find(&workload.status.conditions, types::PODS_READY);
    let (start, timeout, cause) = match ready.map(|condition| (condition.status.as_str(), condition.reason.as_str())) {
        Some(("True", _)) => return Decision::Done,
        Some((_, reasons::WAIT_FOR_RECOVERY)) => {
            let Some(timeout) = settings.recovery_timeout_ms else { return Decision::Done };
            let start = ready.map_or(admitted, |condition| condition.last_transition_time.0);
            (start, timeout, reasons::WAIT_FOR_RECOVERY)
        }
        _ => (admitted, settings.timeout_ms, reasons::WAIT_FOR_START),
    };
    let due = ctx.view.timeline().after(start, timeout);
    if due > now {
        return Decision::Wait(due);
    }
    let count =
        workload.status.requeue_state.as_ref().and_then(|state| state.count).unwrap_or_default().saturating_add(1);
    // Retries after a time-out of `schedulingTimeout` make the next pause longer, but never deactivate a TrainingJob.
    let own = if workload.training_job().is_some() { count.min(time_outs(workload).saturating_add(1)) } else { count };
    if settings.backoff_limit_count.is_some_and(|limit| own > limit) {
        return Decision::write(status_write(workload, Purpose::Deactivate, now, |edit| {
            edit.set(
                types::DEACTIVATION_TARGET,
                true,
                reasons::REQUEUING_LIMIT_EXCEEDED,
                "exceeding the maximum number of re-queuing retries",
            );
        }));
    }
    let delay = backoff_seconds(settings.backoff_base_seconds, settings.backoff_max_seconds, count);
    let message = format!("Exceeded the PodsReady timeout {}/{}", workload.namespace, workload.name);
    Decision::write(evict_for_seconds(workload, now, (PODS_READY_TIMEOUT, cause), &message, (count, delay)))
}

/// Number of times that the pods of a workload were not ready in time, over the workload's lifetime.
pub(crate) fn time_outs(workload: &WorkloadView) -> i32 {
    evicted_for(workload, PODS_READY_TIMEOUT)
}

/// Time after the admission, in milliseconds, in which a job whose pods have all succeeded gets no condition that its pods were ready: the end of the job
/// mostly follows soon, and replaces that condition.
const END_MS: i64 = 60_000;

/// Updates the condition `PodsReady` of a Workload to its job.
pub(crate) fn follow_job(ctx: &Context<'_>, workload: &WorkloadView, job: &JobState, now: Timestamp) -> Decision {
    let Some(draft) = follow(ctx, workload, job.ready, now) else { return Decision::Done };
    let others_wait = ctx.settings.wait_for_pods_ready.as_ref().is_some_and(|settings| settings.block_admission);
    let admitted = find(&workload.status.conditions, types::ADMITTED).map(|condition| condition.last_transition_time.0);
    match admitted.map(|at| after(at, END_MS)).filter(|until| job.succeeded && !others_wait && *until > now) {
        Some(until) => Decision::Wait(until),
        None => Decision::write(draft),
    }
}

/// The write that sets the condition `PodsReady` to `ready`, `None` if the condition is up to date.
pub(crate) fn follow(ctx: &Context<'_>, workload: &WorkloadView, ready: bool, now: Timestamp) -> Option<Draft> {
    ctx.settings.wait_for_pods_ready.as_ref()?;
    let old = find(&workload.status.conditions, types::PODS_READY);
    let was = old.is_some_and(|condition| condition.status == "True");
    let started = old.is_some_and(|condition| {
        condition.status == "True"
            || condition.reason == reasons::WAIT_FOR_RECOVERY
            || condition.reason == reasons::RECOVERED
    });
    let (status, reason, message) = match (ready, was, started) {
        (true, false, false) => (true, reasons::STARTED, "All pods reached readiness and the workload is running"),
        (true, false, true) => (true, reasons::RECOVERED, "All pods reached readiness and the workload is running"),
        (false, true, _) => (false, reasons::WAIT_FOR_RECOVERY, "At least one pod has failed, waiting for recovery"),
        _ => return None,
    };
    Some(status_write(workload, Purpose::SetPodsReady, now, |edit| {
        edit.set(types::PODS_READY, status, reason, message)
    }))
}

/// Delay in seconds before the next try after `count` time-outs: the delay doubles with each time-out, up to `most`.
pub(crate) fn backoff_seconds(base: i64, most: i64, count: i32) -> i64 {
    let doublings = u32::try_from(count.saturating_sub(1).clamp(0, 40)).unwrap_or(0);
    base.saturating_mul(1_i64.checked_shl(doublings).unwrap_or(i64::MAX)).min(most).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requeue_backoff_doubles_up_to_maximum() {
        let delays: Vec<i64> = [1, 2, 3, 7, 100, i32::MAX, 0].map(|count| backoff_seconds(60, 3_600, count)).into();
        assert_eq!(delays, [60, 120, 240, 3_600, 3_600, 3_600, 60]);
    }
}
