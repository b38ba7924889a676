use serde_json::{Value, json};

use crate::job::tests::{case_of, placed, running};
use crate::testing::objects::{
    admitted, changed, condition_since, evicted, job, job_set, reserved, with_condition, workload_of,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, in_seconds, named, now};
use crate::write::Kind;

/// Suspended job `a` with the placement of a start and the given status.
fn stopped(status: &Value) -> Value {
    changed(placed(job("a"), true), json!({ "status": status }))
}

/// The Workload of job `a`, admitted a minute ago and evicted `-since` seconds ago.
fn evicting(since: i64) -> Value {
    let workload = admitted(workload_of(&job("a")));
    with_condition(workload, condition_since("Evicted", true, "Preempted", since))
}

/// The decision about the stop of job `a`.
fn stop(state: &State) -> Step {
    case_of(state, &named(Kind::JOB, "a"), |case| step(&case.stop(state.workload("w"))))
}

fn at_rest(mut state: State) -> State {
    state.notes.jobs_mut().change("a-uid", |notes| notes.note_at_rest());
    state
}

#[test]
fn evicted_job_releases_its_quota_when_nothing_of_it_runs() {
    let started = json!({"startTime": "2027-01-15T07:59:00Z"});
    let state = |job: Value, workload: Value| State::new().with(job).with(workload);
    let gone = || {
        let mut state = state(stopped(&json!({})), evicting(-30));
        state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
        state
    };
    let feared = || {
        let mut state = state(job("a"), evicting(-30));
        state.in_flight.unresolved_mut().note_unresolved(named(Kind::JOB, "a"), 7);
        state
    };
    let rows: Vec<(&str, State, &str)> = vec![
        ("runs", state(running(), evicting(-30)), "SuspendJob: merge Job ns/a"),
        ("waits without quota", state(job("a"), evicted(workload_of(&job("a")), "Preempted")), "done"),
        ("pods still run", state(stopped(&json!({"active": 1})), evicting(-30)), "done"),
        ("its controller has not answered yet", state(stopped(&started), evicting(-30)), "done"),
        ("a start that nobody has seen, just before", state(stopped(&json!({})), evicting(-1)), "wait 2s"),
        ("a start that nobody has seen", state(stopped(&json!({})), evicting(-30)), "ProbePods: ask Workload ns/w"),
        ("no pod was found", gone(), "RestoreTemplate: merge Job ns/a"),
        (
            "at rest, with its start time",
            at_rest(state(stopped(&started), evicting(-30))),
            "ClearStartTime: merge status Job ns/a",
        ),
        ("at rest", at_rest(state(stopped(&json!({})), evicting(-30))), "RestoreTemplate: merge Job ns/a"),
        ("never started", state(job("a"), evicting(-30)), "ReleaseQuota: apply status Workload ns/w"),
        ("never started, as far as is known", feared(), "WithdrawStart: merge Job ns/a"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(stop(&state).what, expected, "{name}");
    }
}

/// A preempted Workload may be tried again at once, and a Workload whose pods were not ready only after its back-off.
#[test]
fn released_workload_is_requeued_by_the_reason_of_its_eviction() {
    for (reason, requeued) in [("Preempted", true), ("ClusterQueueStopped", false), ("PodsReadyTimeout", false)] {
        let workload = evicted(admitted(workload_of(&job("a"))), reason);
        let found = stop(&State::new().with(job("a")).with(workload));
        assert_eq!(found.condition("Requeued"), Some((requeued, reason, &*format!("{reason}, in words"))));
        assert_eq!(found.body["status"].get("admission"), None);
        let words = format!("{reason}, in words");
        assert_eq!(found.condition("QuotaReserved"), Some((false, "PendingEvaluation", &*words)));
    }
}

/// A merge patch removes by name each key that the user did not write, and leaves all other keys unchanged.
#[test]
fn restored_template_is_the_one_that_the_user_wrote() {
    let job = changed(stopped(&json!({})), json!({"spec": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}));
    let found = stop(&at_rest(State::new().with(job).with(evicting(-30))));
    let metadata = json!({"labels": {"kueue.x-k8s.io/podset": null}, "annotations": {"kueue.x-k8s.io/workload": null}});
    let template = json!({"metadata": metadata, "spec": {"nodeSelector": {"pool": null}}});
    assert_eq!(found.body["spec"], json!({ "template": template }));
    assert_eq!(found.body["metadata"].get("annotations"), None, "no stop is under way");
}

#[test]
fn job_without_eviction_gives_quota_back_with_the_reason_given() {
    let state = State::new().with(job("a")).with(admitted(workload_of(&job("a"))));
    let found =
        case_of(&state, &named(Kind::JOB, "a"), |case| step(&case.without_quota(state.workload("w"), "it has moved")));
    assert_eq!(found.what, "ReleaseQuota: apply status Workload ns/w");
    assert_eq!(found.condition("QuotaReserved"), Some((false, "PendingEvaluation", "it has moved")));
    assert_eq!(found.condition("Requeued"), None);
}

/// A JobSet whose controller does not report the stop has its status ignored after five seconds, and its pods are probed.
#[test]
fn silent_job_set_is_probed_after_five_seconds() {
    let set = changed(
        job_set("a", 1),
        json!({"status": {"replicatedJobsStatus": [
        {"name": "main", "active": 1, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}]}}),
    );
    for (since, gone, expected) in [
        (-4, false, "wait 1s"),
        (-5, false, "ProbePods: ask Workload ns/w"),
        (-5, true, "ReleaseQuota: apply status Workload ns/w"),
    ] {
        let workload = with_condition(
            reserved(workload_of(&job_set("a", 1))),
            condition_since("Evicted", true, "Preempted", since),
        );
        let mut state = State::new().with(set.clone()).with(workload);
        if gone {
            state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
        }
        let found = case_of(&state, &named(Kind::JOB_SET, "a"), |case| step(&case.stop(state.workload("w"))));
        assert_eq!(found.what, expected, "{since}s");
    }
    assert_eq!(in_seconds(0), now());
}
