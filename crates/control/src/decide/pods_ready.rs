//! `waitForPodsReady`: pods that are not ready in time cost a workload its quota, and later its activity.

use berth_api as api;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::workload::{REPORTER, notice, status_write};
use crate::core::Control;
use crate::flight::Decision;
use crate::status::{find, seconds};
use crate::view::WorkloadView;
use crate::write::{EventType, Purpose};

/// Looks after the pods of a workload that was admitted at that time.
pub(crate) fn decide(control: &Control, workload: &WorkloadView, admitted: Timestamp, now: Timestamp) -> Decision {
    let Some(settings) = control.settings.wait_for_pods_ready.as_ref().filter(|_| workload.owner.is_some()) else {
        return Decision::Done;
    };
    let ready = find(&workload.status.conditions, "PodsReady");
    let (start, timeout, cause) = match ready.map(|condition| (condition.status.as_str(), condition.reason.as_str())) {
        Some(("True", _)) => return Decision::Done,
        Some((_, "WaitForRecovery")) => {
            let Some(timeout) = settings.recovery_timeout_ms else { return Decision::Done };
            let start = ready.map_or(admitted, |condition| condition.last_transition_time.0);
            (start, timeout, "WaitForRecovery")
        }
        _ => (admitted, settings.timeout_ms, "WaitForStart"),
    };
    let due = start.checked_add(SignedDuration::from_millis(timeout)).unwrap_or(start);
    if due > now {
        return Decision::Wait(due);
    }
    let count =
        workload.status.requeue_state.as_ref().and_then(|state| state.count).unwrap_or_default().saturating_add(1);
    if settings.backoff_limit_count.is_some_and(|limit| count > limit) {
        return Decision::write(status_write(workload, Purpose::Deactivate, now, |edit| {
            edit.set(
                "DeactivationTarget",
                true,
                "RequeuingLimitExceeded",
                "exceeding the maximum number of re-queuing retries",
            );
        }));
    }
    let doubled = settings.backoff_base_seconds.saturating_mul(
        1_i64.checked_shl(u32::try_from(count.saturating_sub(1).min(40)).unwrap_or(0)).unwrap_or(i64::MAX),
    );
    let delay = doubled.min(settings.backoff_max_seconds).max(0);
    let at = now.checked_add(SignedDuration::from_secs(delay)).unwrap_or(now);
    let message = format!("Exceeded the PodsReady timeout {}/{}", workload.namespace, workload.name);
    let mut draft = status_write(workload, Purpose::Evict, now, |edit| {
        edit.evict("PodsReadyTimeout", cause, &message);
        edit.status.requeue_state = Some(api::RequeueState { count: Some(count), requeue_at: Some(Time(seconds(at))) });
    });
    draft.notices.push(notice(workload, EventType::Normal, "EvictedDueToPodsReadyTimeout", message, REPORTER));
    Decision::write(draft)
}
