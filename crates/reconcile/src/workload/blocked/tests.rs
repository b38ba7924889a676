use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition, deleting, job, training_job, with_condition, workload, workload_of,
};
use crate::testing::step::step;
use crate::testing::{State, at, named, now};

fn pending() -> Value {
    workload_of(&job("a"))
}

#[test]
fn pending_workload_is_blocked_by_first_reason_that_holds() {
    let only_job_sets = || State::with_settings(Settings { job_kinds: [Kind::JOB_SET].into(), ..Settings::default() });
    let ending = || {
        let mut state = State::new().with(job("a")).with(pending());
        state.end_namespace();
        state
    };
    let gated =
        changed(pending(), json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "x.io/g"}}}));
    let tiers = changed(pending(), json!({"metadata": {"annotations": {"berth.dev/capacity-tiers": "gold"}}}));
    let held = with_condition(pending(), condition("QuotaReserved", false, "OnHold"));
    let requeued = with_condition(pending(), condition("Requeued", false, "PodsReadyTimeout"));
    let stopped = with_condition(pending(), condition("Requeued", false, "Inadmissible"));
    let managed_by = changed(job("a"), json!({"spec": {"managedBy": "example.com/other"}}));
    let no_queue = changed(job("a"), json!({"metadata": {"labels": null}}));
    let suspended = changed(training_job("a"), json!({"spec": {"suspend": true}}));
    let misconfigured = "Misconfigured";
    type Row = (&'static str, State, Option<(&'static str, &'static str)>);
    let rows: Vec<Row> = vec![
        ("may be tried", State::new().with(job("a")).with(pending()), None),
        (
            "an invalid annotation",
            State::new().with(job("a")).with(tiers),
            Some((misconfigured, "annotation berth.dev/capacity-tiers: ")),
        ),
        (
            "a field of its job",
            State::new().with(managed_by).with(pending()),
            Some((misconfigured, "spec.managedBy: ")),
        ),
        (
            "its kind is not managed",
            only_job_sets().with(job("a")).with(pending()),
            Some((misconfigured, "its owner, Job \"a\", is of a kind")),
        ),
        (
            "its job names no queue",
            State::new().with(no_queue).with(pending()),
            Some((misconfigured, "its job names no queue")),
        ),
        ("its namespace goes", ending(), Some(("PendingEvaluation", "its namespace is being deleted"))),
        ("its job goes", State::new().with(deleting(job("a"))).with(pending()), Some(("PendingEvaluation", ""))),
        ("its job is gone", State::new().with(pending()), Some(("PendingEvaluation", ""))),
        (
            "its TrainingJob is suspended",
            State::new().with(suspended.clone()).with(workload_of(&suspended)),
            Some(("PendingEvaluation", "")),
        ),
        ("gated", State::new().with(job("a")).with(gated), Some(("AdmissionGated", "Admission is gated by: x.io/g"))),
        ("backs off", State::new().with(job("a")).with(requeued), Some(("PendingEvaluation", ""))),
        ("does not come back", State::new().with(job("a")).with(stopped), Some(("PendingEvaluation", ""))),
        ("on hold", State::new().with(job("a")).with(held), Some(("OnHold", "OnHold, in words"))),
    ];
    for (name, state, expected) in rows {
        let found = blocked(&state.context(), state.workload("w"));
        let (reason, message) = found.as_ref().map(|(reason, message)| (*reason, message.as_str())).unzip();
        assert_eq!(reason, expected.map(|(reason, _)| reason), "{name}: {message:?}");
        let begins = message
            .zip(expected)
            .is_none_or(|(found, (_, wanted))| found.starts_with(wanted) && found.is_empty() == wanted.is_empty());
        assert!(begins, "{name}: {message:?}");
    }
}

/// A gated workload, or a workload on hold, does not count among the workloads that wait in its queue.
#[test]
fn blocked_workload_counts_in_queue_unless_gated_or_held() {
    let counts = |workload: Value, job: Value| {
        let state = State::new().with(job).with(workload);
        counted(&state.context(), state.workload("w"))
    };
    let gated =
        changed(pending(), json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "x.io/g"}}}));
    let held = with_condition(pending(), condition("QuotaReserved", false, "OnHold"));
    assert_eq!(counts(pending(), job("a")), None);
    assert_eq!(counts(pending(), deleting(job("a"))), Some(Blocked::InQueue));
    assert_eq!(counts(gated, job("a")), Some(Blocked::OutOfQueue));
    assert_eq!(counts(held, job("a")), Some(Blocked::OutOfQueue));
}

#[test]
fn quota_of_job_that_names_no_queue_is_reported_once() {
    let no_queue = changed(job("a"), json!({"metadata": {"labels": null}}));
    let mut state = State::new().with(no_queue).with(admitted(pending()));
    let found = kept(&state.context(), state.workload("w")).map(|decision| step(&decision).events);
    let message =
        "its job names no queue: what runs keeps its quota and runs on, and once it is evicted it does not come back";
    assert_eq!(found, Some(vec![format!("Warning NotManaged: {message}")]));
    state.note_event(named(Kind::Workload, "w"), "NotManaged", message);
    assert!(kept(&state.context(), state.workload("w")).is_none(), "it is known");
    let managed = State::new().with(job("a")).with(admitted(pending()));
    assert!(kept(&managed.context(), managed.workload("w")).is_none());
}

#[test]
fn unreadable_resource_usage_is_reported_with_its_text() {
    let reported_by = |usage: &str| {
        let mut workload = admitted(workload("w"));
        workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = json!(usage);
        let state = State::new().with(workload);
        unreadable_usage(&state.context(), state.workload("w")).map(|decision| step(&decision).events.concat())
    };
    assert_eq!(reported_by("2"), None);
    let event = reported_by("-2").expect("an event");
    assert!(event.starts_with("Warning UnreadableUsage: status.admission says \"-2\" of cpu"), "{event}");
}

/// The next run of a TrainingJob needs the names of the Jobs of the last run.
#[test]
fn training_job_waits_for_jobs_of_its_last_run() {
    let training = training_job("a");
    let owner = crate::testing::objects::controlled_by(&training);
    let labels = json!({"metadata": {"labels": null}});
    let part = changed(changed(job("a-worker"), labels), json!({ "metadata": owner }));
    let state = |part: Value| State::new().with(training.clone()).with(workload_of(&training)).with(part);
    let found = |state: State| blocked(&state.context(), state.workload("w")).map(|(_, message)| message);
    assert_eq!(found(state(part.clone())), None);
    let message = "waits for Job ns/a-worker of its last run, which is being deleted";
    assert_eq!(found(state(deleting(part))).as_deref(), Some(message));
    assert_eq!(at(0), now().to_string());
}
