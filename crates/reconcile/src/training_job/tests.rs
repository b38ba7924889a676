//! Tests of decisions about a TrainingJob, without a controller.

use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition_since, controlled_by, deleting, evicted, finished, job, reserved, training_job,
    with_condition, workload_of,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, in_seconds, named, now, own_name};
use crate::training_job::saves::note_listing;
use crate::write::Checkpoint;

/// Calls `ask` with TrainingJob `a` of the state.
pub(super) fn case_of<R>(state: &State, ask: impl FnOnce(TrainingCase<'_>) -> R) -> R {
    let ctx = state.context();
    let name = own_name("a");
    let view = ctx.view.training().get(&name).unwrap_or_else(|| panic!("no TrainingJob a"));
    ask(TrainingCase { ctx: &ctx, name: &name, view, now: now() })
}

/// The Workload `w` of TrainingJob `a`, pending.
pub(super) fn pending() -> Value {
    workload_of(&training_job("a"))
}

/// The Job of the workers of TrainingJob `a`: two running and ready pods, created half a minute ago.
pub(super) fn workers(patch: Value) -> Value {
    let owner = controlled_by(&training_job("a"));
    let labels = json!({"labels": null, "creationTimestamp": at(-30)});
    let status = json!({"startTime": at(-30), "active": 2, "ready": 2});
    let made = changed(changed(job("a-worker"), json!({ "metadata": owner })), json!({ "metadata": labels }));
    changed(changed(made, json!({"spec": {"suspend": false}, "status": status})), patch)
}

/// The state of a running TrainingJob: admitted, with all its workers.
pub(super) fn running() -> State {
    State::new().with(training_job("a")).with(admitted(pending())).with(workers(json!({})))
}

/// A TrainingJob of one to four workers whose number changes while it runs.
pub(super) fn elastic() -> Value {
    let config = json!({"enabled": true, "minWorkers": 1, "maxWorkers": 4});
    let spec = json!({"resources": {"minReplicas": 1, "maxReplicas": 4}, "elasticConfig": config});
    changed(training_job("a"), json!({ "spec": spec }))
}

/// The Workload of the elastic TrainingJob `a`, admitted with two of four workers.
pub(super) fn granted_two() -> Value {
    let mut workload = admitted(workload_of(&elastic()));
    workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(2);
    workload["spec"]["podSets"][0]["count"] = json!(2);
    workload
}

/// The Job of the elastic TrainingJob's workers, with the limits with which its pods started.
pub(super) fn elastic_workers(patch: Value) -> Value {
    changed(workers(json!({"metadata": {"annotations": {"berth.dev/elastic-workers": "1:3"}}})), patch)
}

/// A TrainingJob of two to four workers whose pods restart if the number of workers changes.
pub(super) fn restarting() -> Value {
    let config = json!({"enabled": true, "minWorkers": 2, "maxWorkers": 4});
    let spec = json!({"jobType": "TFJob", "resources": {"minReplicas": 2, "maxReplicas": 4}, "elasticConfig": config});
    changed(training_job("a"), json!({ "spec": spec }))
}

/// TrainingJob `a`, which saves every twenty seconds to a store, and has run since a second relative to the time of decisions.
pub(super) fn saving(store: &str, up_since: i64) -> Value {
    let running = json!({"type": "Running", "status": "True", "reason": "PodsReady", "message": "", "lastTransitionTime": at(up_since)});
    let checkpoint = json!({"enabled": true, "store": store, "interval": "20s"});
    changed(training_job("a"), json!({"spec": {"checkpoint": checkpoint}, "status": {"conditions": [running]}}))
}

/// The CheckpointStore `main`.
pub(super) fn store() -> Value {
    json!({"kind": "CheckpointStore", "metadata": {"name": "main"}, "spec": {"s3": {"bucket": "b"}, "prefix": "all"}})
}

/// The state after a listing of the checkpoints with these steps; a checkpoint with a smaller step is older.
pub(super) fn listed(mut state: State, steps: &[i64], seconds_ago: i64) -> State {
    let name = own_name("a");
    let checkpoint = |step: &i64| Checkpoint {
        id: format!("step-{step}"),
        at: in_seconds(*step - 100),
        step: *step,
        epoch: None,
        bytes: 1,
        metadata: BTreeMap::new(),
    };
    let place = state.context().place_of(&name, &state.view.training()[&name]).expect("a place");
    let found = Ok(steps.iter().map(checkpoint).collect());
    note_listing(state.notes.jobs_mut(), &state.view, &name, Some(&place), found, in_seconds(-seconds_ago));
    state
}

/// The next decision about TrainingJob `a`.
pub(super) fn decided(state: &State) -> Step {
    step(&decide(&state.context(), &own_name("a"), now()))
}

/// The status of the workers' Job after an end of the given kind.
pub(super) fn ended(kind: &str) -> Value {
    let condition =
        json!({"type": kind, "status": "True", "reason": "R", "message": "in words", "lastTransitionTime": at(-5)});
    json!({"status": {"active": 0, "ready": 0, "conditions": [condition]}})
}

/// Writes the status of TrainingJob `a` into the state, as long as the next decision is a status write.
fn shown(state: &mut State) {
    for _ in 0..3 {
        let found = decided(state);
        if !found.what.starts_with("TrainingStatus") {
            return;
        }
        let mut object =
            serde_json::to_value(state.view.training()[&own_name("a")].decode().expect("its JSON")).expect("JSON");
        object["kind"] = json!("TrainingJob");
        object["metadata"]["resourceVersion"] = json!("7");
        let status = serde_json::to_value(&state.view.training()[&own_name("a")].status).expect("JSON");
        object["status"] = changed(status, found.body["status"].clone());
        state.put(object);
    }
}

#[test]
fn training_job_decision_follows_its_workload() {
    let job = || training_job("a");
    let invalid = changed(job(), json!({"spec": {"resources": {"maxReplicas": 0}}}));
    let store = changed(job(), json!({"spec": {"checkpoint": {"enabled": true, "store": "none"}}}));
    let ending = || {
        let mut state = running();
        state.end_namespace();
        state
    };
    let no_pods = |mut state: State| {
        state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
        state
    };
    let name = berth_jobs::workload_name("TrainingJob", "berth.dev", "a", "a-uid");
    let created = format!("CreateWorkload: create Workload ns/{name}");
    let rows: Vec<(&str, State, &str)> = vec![
        ("no Workload", State::new().with(job()), &created),
        ("an invalid spec", State::new().with(invalid), "tell"),
        ("a store that is not there", State::new().with(store), "tell"),
        (
            "pending with a Job",
            State::new().with(job()).with(pending()).with(workers(json!({}))),
            "StopTraining: delete Job ns/a-worker",
        ),
        // The suffix of the Service's name is the beginning of the SHA-1 of the job's uid, `a-uid`.
        ("admitted", State::new().with(job()).with(admitted(pending())), "PrepareTraining: apply Service ns/a-f63a6"),
        (
            "evicted",
            State::new().with(job()).with(evicted(admitted(pending()), "Preempted")).with(workers(json!({}))),
            "StopTraining: delete Job ns/a-worker",
        ),
        (
            "evicted, Jobs are gone",
            State::new().with(job()).with(evicted(admitted(pending()), "Preempted")),
            "ProbePods: ask Workload ns/w",
        ),
        (
            "evicted, pods are gone",
            no_pods(State::new().with(job()).with(evicted(admitted(pending()), "Preempted"))),
            "ReleaseQuota: apply status Workload ns/w",
        ),
        ("its namespace goes", ending(), "StopTraining: delete Job ns/a-worker"),
        (
            "goes, and runs",
            State::new().with(deleting(job())).with(admitted(pending())).with(workers(json!({}))),
            "done",
        ),
        (
            "goes, reserved",
            State::new().with(deleting(job())).with(reserved(pending())),
            "ProbePods: ask Workload ns/w",
        ),
    ];
    for (name, mut state, expected) in rows {
        shown(&mut state);
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

#[test]
fn training_job_finishes_once_its_deciding_role_has_ended() {
    let state = |patch: Value| State::new().with(training_job("a")).with(admitted(pending())).with(workers(patch));
    for (kind, reason) in [("Complete", "Succeeded"), ("Failed", "Failed")] {
        let found = decided(&state(ended(kind)));
        assert_eq!(found.what, "FinishWorkload: apply status Workload ns/w");
        assert_eq!(found.condition("Finished").map(|(is, reason, _)| (is, reason)), Some((true, reason)));
    }
}

/// A failure that the Job controller reports after Berth has begun to delete Jobs says nothing about the training.
#[test]
fn job_failure_while_its_run_is_deleted_is_ignored() {
    let mut state = State::new()
        .with(training_job("a"))
        .with(evicted(admitted(pending()), "Preempted"))
        .with(deleting(workers(ended("Failed"))));
    shown(&mut state);
    assert!(decided(&state).condition("Finished").is_none(), "{:?}", decided(&state));
    let states = case_of(&state, |case| case.states());
    assert_eq!(states["worker"].finish, None);
}

#[test]
fn suspended_training_job_deactivates_its_workload_with_a_mark() {
    let suspended = changed(training_job("a"), json!({"spec": {"suspend": true}}));
    let mut state = State::new().with(suspended).with(pending());
    shown(&mut state);
    let found = decided(&state);
    assert_eq!(found.what, "Deactivate: merge Workload ns/w");
    assert_eq!(found.body["spec"], json!({"active": false}));
    assert_eq!(found.body["metadata"]["annotations"], json!({"berth.dev/suspended-with-job": "true"}));
    let inactive =
        json!({"spec": {"active": false}, "metadata": {"annotations": {"berth.dev/suspended-with-job": "true"}}});
    let mut resumed = State::new().with(training_job("a")).with(changed(evicted(pending(), "Deactivated"), inactive));
    shown(&mut resumed);
    let found = decided(&resumed);
    assert_eq!(found.what, "Requeue: merge Workload ns/w");
    assert_eq!(found.body["spec"], json!({"active": true}));
}

/// The longest wait begins when the Workload is created, and begins again when the job has stopped running.
#[test]
fn waiting_training_job_finishes_after_its_max_wait_time() {
    let patient = |wait: &str, stopped: i64| {
        let job = changed(training_job("a"), json!({"spec": {"schedulingConfig": {"maxWaitTime": wait}}}));
        with_condition(job, condition_since("Running", false, "NotAdmitted", stopped))
    };
    let ends = "FinishWorkload: apply status Workload ns/w";
    for (wait, stopped, expected, reason) in [
        ("11m", -600, "wait 60s", None),
        ("10m", -600, ends, Some("MaxWaitTimeExceeded")),
        ("10m", -60, "wait 540s", None),
        ("1m", -60, ends, Some("MaxWaitTimeExceeded")),
    ] {
        let mut state = State::new().with(patient(wait, stopped)).with(pending());
        shown(&mut state);
        let found = decided(&state);
        assert_eq!(found.what, expected, "{wait} since {stopped}s");
        assert_eq!(found.condition("Finished").map(|(_, reason, _)| reason), reason, "{wait} since {stopped}s");
    }
}

#[test]
fn waiting_training_workload_follows_spec_of_its_training_job() {
    let edited = changed(
        training_job("a"),
        json!({"spec": {"schedulingConfig": {"queue": "other"}, "resources": {"maxReplicas": 3}}}),
    );
    let mut state = State::new().with(edited).with(pending());
    shown(&mut state);
    let found = decided(&state);
    assert_eq!(found.what, "UpdateWorkload: merge Workload ns/w");
    assert_eq!(
        (&found.body["spec"]["queueName"], &found.body["spec"]["podSets"][0]["count"]),
        (&json!("other"), &json!(3))
    );
    assert_eq!(
        decided(&State::new().with(training_job("a")).with(finished(pending()))).what.split(':').next(),
        Some("TrainingStatus")
    );
    assert_eq!(named(Kind::JOB, "a-worker"), case_of(&running(), |case| case.child_key("worker")));
}
