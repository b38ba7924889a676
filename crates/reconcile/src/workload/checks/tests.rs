use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, cluster_queue, condition, job, reserved, with_condition, workload_of,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, now};

/// ClusterQueue `cq` with these admission checks for all flavors.
fn queue(checks: &[&str]) -> Value {
    let rules: Vec<Value> = checks.iter().map(|check| json!({"name": check})).collect();
    changed(cluster_queue("cq", &[("f", 10)]), json!({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}))
}

/// The Workload of job `a` with admission checks in these states.
fn checked(workload: Value, states: &[(&str, &str)]) -> Value {
    let states = states.iter().map(|(name, state)| {
        json!({"name": name, "state": state, "message": format!("{state}, in words"), "lastTransitionTime": at(-10)})
    });
    changed(workload, json!({"status": {"admissionChecks": states.collect::<Vec<_>>()}}))
}

fn pending() -> Value {
    workload_of(&job("a"))
}

fn decided(checks: &[&str], workload: Value) -> Option<Step> {
    let state = State::new().with(queue(checks)).with(job("a")).with(workload);
    decide(&state.context(), state.workload("w"), now()).map(|decision| step(&decision))
}

#[test]
fn reserved_workload_is_admitted_when_all_checks_are_ready() {
    let status = "apply status Workload ns/w";
    let not_admitted = condition("Admitted", false, "UnsatisfiedAdmissionChecks");
    let rows = [
        ("none is left", &[][..], with_condition(reserved(pending()), not_admitted), format!("SetAdmitted: {status}")),
        ("none, and another controller reserved", &[][..], reserved(pending()), "none".to_owned()),
        ("not listed", &["c"][..], reserved(pending()), "SyncAdmissionChecks: merge status Workload ns/w".to_owned()),
        ("pending", &["c"][..], checked(reserved(pending()), &[("c", "Pending")]), "none".to_owned()),
        ("ready", &["c"][..], checked(reserved(pending()), &[("c", "Ready")]), format!("SetAdmitted: {status}")),
        (
            "one pending",
            &["c", "d"][..],
            checked(reserved(pending()), &[("c", "Ready"), ("d", "Pending")]),
            "none".to_owned(),
        ),
        ("rejected", &["c"][..], checked(admitted(pending()), &[("c", "Rejected")]), format!("Deactivate: {status}")),
        ("retry", &["c"][..], checked(admitted(pending()), &[("c", "Retry")]), format!("Evict: {status}")),
        ("admitted", &["c"][..], checked(admitted(pending()), &[("c", "Ready")]), "none".to_owned()),
    ];
    for (name, checks, workload, expected) in rows {
        let found = decided(checks, workload).map_or("none".to_owned(), |step| step.what);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn admission_after_checks_says_how_long_quota_was_held() {
    let found = decided(&["c"], checked(reserved(pending()), &[("c", "Ready")])).expect("a decision");
    assert_eq!(found.condition("Admitted"), Some((true, "Admitted", "The workload is admitted")));
    assert_eq!(found.events, ["Normal Admitted: Admitted by ClusterQueue cq, wait time since reservation was 60s"]);
}

/// Checks that another controller has answered keep their state when the list of checks changes.
#[test]
fn listed_checks_are_those_of_the_queue_with_their_answers() {
    let found =
        decided(&["new", "c"], checked(reserved(pending()), &[("gone", "Ready"), ("c", "Ready")])).expect("a list");
    let listed = found.body["status"]["admissionChecks"].as_array().expect("checks");
    let listed: Vec<(&str, &str)> = listed
        .iter()
        .map(|check| (check["name"].as_str().unwrap_or(""), check["state"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(listed, [("c", "Ready"), ("new", "Pending")]);
}

#[test]
fn check_answer_before_quota_deactivates_or_requeues_the_workload() {
    let found = |states: &[(&str, &str)]| {
        let state = State::new().with(queue(&["c"])).with(job("a")).with(checked(pending(), states));
        answered(&state.context(), state.workload("w"), now()).map(|decision| step(&decision))
    };
    assert_eq!(found(&[("c", "Ready")]), None);
    assert_eq!(
        found(&[("c", "Rejected")]).map(|step| step.what).as_deref(),
        Some("Deactivate: apply status Workload ns/w")
    );
    let later = found(&[("c", "Retry")]).expect("a requeue");
    assert_eq!(later.what, "Requeue: apply status Workload ns/w");
    assert_eq!(later.condition("Requeued").map(|(is, reason, _)| (is, reason)), Some((false, "AdmissionCheck")));
    let check = &later.body["status"]["admissionChecks"][0];
    assert_eq!((&check["state"], &check["retryCount"]), (&json!("Pending"), &json!(1)));
}

#[test]
fn job_gets_messages_of_pending_checks_while_it_holds_quota() {
    let reported_by = |workload: Value| {
        let state = State::new().with(queue(&["c"])).with(job("a")).with(workload);
        let workload = state.workload("w");
        let decision =
            check_event(workload, |kind, reason, text| crate::workload::notice(workload, kind, reason, text, REPORTER));
        step(&decision).events
    };
    let pending_check = [("c", "Pending")];
    let event = "Normal AdmissionCheckUpdated: c: Pending, in words";
    assert_eq!(reported_by(checked(reserved(pending()), &pending_check)).len(), 1, "{event}");
    assert_eq!(reported_by(checked(admitted(pending()), &pending_check)), [""; 0]);
    assert_eq!(reported_by(checked(reserved(pending()), &[("c", "Ready")])), [""; 0]);
}
