//! Tests of decisions about a Workload, without a controller.

use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition_since, deleting, evicted, finished, job, reserved, with_condition, workload,
    workload_of,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, in_seconds, now, own_name};
use berth_cache::settings::Settings;
use berth_engine::model::{Admission, Eviction, Limits};

/// The next decision about Workload `w`.
pub(super) fn decided(state: &State) -> Step {
    step(&decide(&state.context(), &own_name("w"), now()))
}

/// The Workload of job `a`, pending.
pub(super) fn pending() -> Value {
    workload_of(&job("a"))
}

/// The state with a suspended job `a` and a Workload of the job.
pub(super) fn with(workload: Value) -> State {
    State::new().with(job("a")).with(workload)
}

/// The state after the engine has planned an admission for Workload `w`.
fn planned(mut state: State) -> State {
    let admission: Admission = {
        state.pass_on_workloads();
        let plan = state.quota.world_mut().plan(berth_cache::moments::millis(now()), Limits { max_admissions: 9 });
        plan.admissions.into_iter().find(|admission| *admission.uid == *"w-uid").expect("an admission")
    };
    state.notes.workloads_mut().change("w-uid", |notes| notes.plan_mut().admit(admission));
    state
}

#[test]
fn workload_decision_follows_its_status_and_its_plan() {
    let inactive = |workload: Value| changed(workload, json!({"spec": {"active": false}}));
    let target = || with_condition(admitted(pending()), condition_since("DeactivationTarget", true, "JobAltered", -1));
    let deactivated = || inactive(evicted(pending(), "Deactivated"));
    let limited =
        |seconds: i32| changed(admitted(pending()), json!({"spec": {"maximumExecutionTimeSeconds": seconds}}));
    let requeued_at = |seconds: i64| {
        let waits = with_condition(pending(), condition_since("Requeued", false, "PodsReadyTimeout", -10));
        changed(waits, json!({"status": {"requeueState": {"count": 1, "requeueAt": at(seconds)}}}))
    };
    let status = "apply status Workload ns/w";
    let rows: Vec<(&str, State, String)> = vec![
        ("pending", with(pending()), "done".to_owned()),
        ("planned", planned(with(pending())), format!("ReserveQuota: {status}")),
        ("admitted", with(admitted(pending())), "done".to_owned()),
        ("evicted", with(evicted(admitted(pending()), "Preempted")), "done".to_owned()),
        ("asked to be deactivated", with(target()), "Deactivate: merge Workload ns/w".to_owned()),
        ("inactive with quota", with(inactive(admitted(pending()))), format!("Evict: {status}")),
        ("inactive without quota", with(inactive(pending())), format!("Evict: {status}")),
        ("deactivated", with(deactivated()), "done".to_owned()),
        ("time is left", with(limited(90)), "wait 30s".to_owned()),
        ("no time is left", with(limited(60)), format!("Deactivate: {status}")),
        ("backs off", with(requeued_at(5)), "wait 5s".to_owned()),
        ("back-off is over", with(requeued_at(0)), format!("Requeue: {status}")),
        ("going", with(deleting(admitted(pending()))), "done".to_owned()),
        (
            "admitted without quota",
            with(with_condition(pending(), condition_since("Admitted", true, "Admitted", -1))),
            format!("ExplainPending: {status}"),
        ),
        ("finished", with(finished(admitted(pending()))), "done".to_owned()),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

#[test]
fn reservation_has_the_planned_flavors_and_admits_without_checks() {
    let found = decided(&planned(with(pending())));
    let given = json!([{"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}]);
    assert_eq!(found.body["status"]["admission"], json!({"clusterQueue": "cq", "podSetAssignments": given}));
    assert_eq!(found.condition("QuotaReserved").map(|(is, reason, _)| (is, reason)), Some((true, "QuotaReserved")));
    assert_eq!(found.condition("Admitted").map(|(is, reason, _)| (is, reason)), Some((true, "Admitted")));
    assert_eq!(found.body["metadata"], json!({"namespace": "ns", "name": "w", "uid": "w-uid", "resourceVersion": "7"}));
    assert_eq!(
        found.events,
        [
            "Normal QuotaReserved: Quota reserved in ClusterQueue cq, wait time since queued was 600s",
            "Normal Admitted: Admitted by ClusterQueue cq, wait time since reservation was 0s",
        ]
    );
    let check = json!({"status": {"admissionChecks": [{"name": "c", "state": "Pending", "message": "", "lastTransitionTime": at(-5)}]}});
    let found = decided(&planned(with(changed(pending(), check))));
    assert_eq!(
        found.condition("Admitted").map(|(is, reason, _)| (is, reason)),
        Some((false, "UnsatisfiedAdmissionChecks"))
    );
    assert_eq!(found.events.len(), 1, "it is not admitted yet");
}

/// No controller would start a job that is being deleted: a planned admission is not written, unless an earlier write of the admission may still be applied.
#[test]
fn planned_admission_of_a_job_that_goes_is_not_written() {
    let mut state = planned(with(pending()));
    state.put(deleting(job("a")));
    assert_eq!(decided(&state).what, "done");
    state.in_flight.unresolved_mut().note_unresolved(crate::testing::named(Kind::Workload, "w"), 7);
    assert_eq!(decided(&state).what, "ReserveQuota: apply status Workload ns/w");
}

#[test]
fn deactivation_without_quota_says_at_once_why_the_workload_waits() {
    let found = decided(&with(changed(pending(), json!({"spec": {"active": false}}))));
    let message = "The workload is deactivated";
    assert_eq!(found.condition("Evicted"), Some((true, "Deactivated", message)));
    assert_eq!(found.condition("QuotaReserved"), Some((false, "Deactivated", message)));
    assert_eq!(found.condition("Requeued"), Some((false, "Deactivated", message)));
    assert_eq!(found.events, [""; 0], "it has lost no quota");
}

/// A workload over its longest execution time is deactivated, and gets the full time again when the workload is activated.
#[test]
fn workload_is_deactivated_at_maximum_execution_time_across_runs() {
    let ran = |past: i32| {
        let limit = json!({"spec": {"maximumExecutionTimeSeconds": 100}, "status": {"accumulatedPastExecutionTimeSeconds": past}});
        with(changed(admitted(pending()), limit))
    };
    assert_eq!(decided(&ran(39)).what, "wait 1s");
    let found = decided(&ran(40));
    let reason = "MaximumExecutionTimeExceeded";
    assert_eq!(found.condition("DeactivationTarget"), Some((true, reason, "exceeding the maximum execution time")));
    assert_eq!(found.body["status"].get("accumulatedPastExecutionTimeSeconds"), None);
    assert_eq!(found.events, [format!("Warning {reason}: The maximum execution time (100s) exceeded")]);
}

#[test]
fn pending_workload_reports_once_why_it_is_not_tried() {
    let gated = json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}}});
    let workload = || changed(pending(), gated.clone());
    let found = decided(&with(workload()));
    assert_eq!(found.what, "ExplainPending: apply status Workload ns/w");
    let message = "Admission is gated by: example.com/gate";
    assert_eq!(found.condition("QuotaReserved"), Some((false, "AdmissionGated", message)));
    let shown = json!([{"name": "main", "resources": {"cpu": "2"}}]);
    assert_eq!(found.body["status"]["resourceRequests"], shown);
    assert_eq!(found.events, ["Normal AdmissionGated: Workload admission is gated by: example.com/gate"]);
    let mut known = condition_since("QuotaReserved", false, "AdmissionGated", -1);
    known["message"] = json!(message);
    assert_eq!(decided(&with(with_condition(workload(), known))).what, "done");
}

/// A victim that the engine has chosen is evicted; a victim that was evicted meanwhile is not evicted again.
#[test]
fn planned_eviction_is_written_while_the_workload_keeps_its_quota() {
    let chosen = |workload: Value| {
        let mut state = with(workload);
        let eviction = Eviction {
            uid: "w-uid".into(),
            preemptor: "other-uid".into(),
            reason: "InClusterQueue",
            preemptor_path: "/cq".into(),
            preemptee_path: "/cq".into(),
            gives_up: None,
        };
        state.notes.workloads_mut().change("w-uid", |notes| notes.plan_mut().evict(eviction));
        decided(&state).what
    };
    assert_eq!(chosen(admitted(pending())), "Evict: apply status Workload ns/w");
    assert_eq!(chosen(reserved(pending())), "Evict: apply status Workload ns/w");
    assert_eq!(chosen(evicted(admitted(pending()), "PodsReadyTimeout")), "done");
    assert_eq!(chosen(pending()), "done");
}

#[test]
fn finished_workload_is_deleted_after_its_retention() {
    for (keep, expected) in
        [(None, "done"), (Some(90_000), "wait 30s"), (Some(60_000), "DeleteWorkload: delete Workload ns/w")]
    {
        let settings = Settings { retain_finished_ms: keep, ..Settings::default() };
        let state = State::with_settings(settings).with(finished(workload("w")));
        assert_eq!(decided(&state).what, expected);
    }
    assert_eq!(in_seconds(0), now());
}
