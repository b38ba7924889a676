use serde_json::json;

use super::*;
use crate::testing::objects::{changed, condition, with_condition, workload};
use crate::testing::step::written;
use crate::testing::{State, now};

#[test]
fn explanation_has_reason_requests_and_an_event() {
    let state = State::new()
        .with(changed(workload("w"), json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}})));
    let report = |leading, is_gated| PendingReport { reason: "WaitingForQuota", message: "no room", leading, is_gated };
    let found = written(&explain(state.workload("w"), &report(true, false), now()));
    assert_eq!(found.what, "ExplainPending: apply status Workload ns/w");
    assert_eq!(found.condition("QuotaReserved"), Some((false, "WaitingForQuota", "no room")));
    assert_eq!(found.condition("BlockedOnPreemptionGates"), None);
    assert_eq!(found.body["status"]["resourceRequests"], json!([{"name": "main", "resources": {"cpu": "2"}}]));
    assert_eq!(found.events, ["Warning WaitingForQuota: no room"]);
    assert_eq!(
        written(&explain(state.workload("w"), &report(false, false), now())).what,
        "ExplainUnseen: apply status Workload ns/w"
    );
    let gated = written(&explain(state.workload("w"), &report(true, true), now()));
    assert_eq!(gated.condition("BlockedOnPreemptionGates"), Some((true, "PreemptionGated", "no room")));
}

/// The event that the last admission gate is gone is sent with the first reason after that.
#[test]
fn explanation_after_gates_reports_that_they_are_gone() {
    let state = State::new().with(with_condition(workload("w"), condition("QuotaReserved", false, "AdmissionGated")));
    let report = PendingReport { reason: "WaitingForQuota", message: "no room", leading: true, is_gated: false };
    let found = written(&explain(state.workload("w"), &report, now()));
    assert_eq!(found.events[0], "Normal AdmissionGateCleared: Admission gate cleared, workload is now admissible");
}
