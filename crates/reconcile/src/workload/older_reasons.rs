//! Reasons of Workloads that are not admitted, with the gate `UnadmittedWorkloadsObservability` off: the reasons are Kueue's older reasons, and
//! `Admitted=False` is written only for Workloads that were admitted.

use berth_api::WorkloadStatus;
use berth_api::conditions::{check_states, own_reasons, reasons, types};
use berth_api::json::to_value;
use berth_engine::model::{PendingReason, Verdict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::decision::Draft;
use crate::workload::status::{ADMISSION_MANAGER, find};
use crate::write::{Action, Write};

/// Older reason of a verdict; `None` for a workload that no scheduling cycle tried, unless its queue takes no workloads, which is all that Kueue reports of
/// such a workload.
pub(crate) fn of_verdict(verdict: &Verdict) -> Option<&'static str> {
    match verdict.reason {
        PendingReason::Suspended | PendingReason::Misconfigured if !verdict.leading => Some(reasons::INADMISSIBLE),
        _ if !verdict.leading => None,
        reason => Some(of_cycle(Some(reason))),
    }
}

/// Older reason of a workload at the head of its ClusterQueue, by the reason of its scheduling cycle, which may be absent.
pub(crate) fn of_cycle(reason: Option<PendingReason>) -> &'static str {
    match reason {
        Some(PendingReason::WaitingForPodsReady) => reasons::WAITING,
        _ => reasons::PENDING,
    }
}

/// The older name of a reason of `QuotaReserved=False`.
pub(crate) fn of(reason: &str) -> &str {
    match reason {
        reasons::MISCONFIGURED | reasons::SUSPENDED => reasons::INADMISSIBLE,
        reasons::PENDING_EVALUATION | own_reasons::ADMISSION_LIMIT => reasons::PENDING,
        other => other,
    }
}

/// Replaces the reasons in a status that is about to be written by Kueue's older reasons. A condition that the older statuses do not have keeps its previous
/// state.
pub(crate) fn reword(draft: &mut Draft, before: &WorkloadStatus) {
    let Action::Write(Write::Apply { manager, body, .. }) = &mut draft.action else { return };
    if *manager != ADMISSION_MANAGER {
        return;
    }
    let checks = body.pointer("/status/admissionChecks").and_then(Value::as_array);
    let checks_wait =
        checks.is_some_and(|checks| checks.iter().any(|check| text(check, "state") != check_states::READY));
    if let Some(Value::Array(conditions)) = body.pointer_mut("/status/conditions") {
        conditions.retain_mut(|condition| reword_condition(condition, before, checks_wait));
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Rewords a condition; false if the condition must not be written.
fn reword_condition(condition: &mut Value, before: &WorkloadStatus, checks_wait: bool) -> bool {
    if text(condition, "status") != "False" {
        return true;
    }
    let (kind, reason) = (text(condition, "type").to_owned(), text(condition, "reason").to_owned());
    let old = find(&before.conditions, &kind);
    let was_true = old.is_some_and(|old| old.status == "True");
    let (reason, message) = match (kind.as_str(), reason.as_str()) {
        (types::QUOTA_RESERVED, reasons::DEACTIVATED) => return put_back(condition, old),
        (types::QUOTA_RESERVED, reason) => (of(reason).to_owned(), None),
        (types::ADMITTED, _) if !was_true => return put_back(condition, old),
        (types::ADMITTED, reasons::NO_RESERVATION) if checks_wait => {
            let message = "The workload has no reservation and not all checks ready";
            (reasons::NO_RESERVATION_UNSATISFIED_CHECKS.to_owned(), Some(message))
        }
        (types::ADMITTED, reasons::UNSATISFIED_ADMISSION_CHECKS) => (reasons::UNSATISFIED_CHECKS.to_owned(), None),
        _ => return true,
    };
    if let Some(fields) = condition.as_object_mut() {
        fields.insert("reason".to_owned(), reason.into());
        if let Some(message) = message {
            fields.insert("message".to_owned(), message.into());
        }
    }
    true
}

/// Restores the previous state of a condition; false if the condition did not exist before.
fn put_back(condition: &mut Value, old: Option<&Condition>) -> bool {
    let Some(old) = old else { return false };
    *condition = to_value(old);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_maps_to_older_kueue_reason_if_kueue_reports_one() {
        for (reason, leading, reported) in [
            (PendingReason::WaitingForQuota, true, Some("Pending")),
            (PendingReason::Misconfigured, true, Some("Pending")),
            (PendingReason::WaitingForPodsReady, true, Some("Waiting")),
            (PendingReason::Misconfigured, false, Some("Inadmissible")),
            (PendingReason::Suspended, false, Some("Inadmissible")),
            (PendingReason::ExceedsMaxQuota, false, None),
        ] {
            let verdict = Verdict { uid: "u".into(), reason, message: "m".into(), leading };
            assert_eq!(of_verdict(&verdict), reported, "{reason:?} {leading}");
        }
    }
}
