use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, deleting, evicted, finished, reserved, training_job};
use crate::testing::step::{Step, written};
use crate::testing::{State, named, now};
use crate::training_job::tests::{case_of, pending, running, workers};

fn status_write(state: &State) -> Option<Step> {
    status(&state.context(), &named(Kind::TrainingJob, "a"), now()).map(|draft| written(&draft))
}

fn with(training: Value, workload: Option<Value>) -> State {
    workload.into_iter().fold(State::new().with(training), State::with)
}

#[test]
fn phase_follows_the_workload_and_the_pods() {
    let suspended = || changed(training_job("a"), json!({"spec": {"suspend": true}}));
    let late = || with(training_job("a"), Some(admitted(pending()))).with(workers(json!({"status": {"ready": 1}})));
    let rows = [
        ("no Workload", with(training_job("a"), None), "Pending"),
        ("suspended, no Workload", with(suspended(), None), "Suspended"),
        ("waits", with(training_job("a"), Some(pending())), "Queued"),
        ("reserved", with(training_job("a"), Some(reserved(pending()))), "Queued"),
        ("admitted", with(training_job("a"), Some(admitted(pending()))), "Pending"),
        ("not all pods are ready", late(), "Pending"),
        ("runs", running(), "Running"),
        ("evicted", with(training_job("a"), Some(evicted(admitted(pending()), "Preempted"))), "Queued"),
        (
            "inactive",
            with(training_job("a"), Some(changed(pending(), json!({"spec": {"active": false}})))),
            "Suspended",
        ),
        ("has succeeded", with(training_job("a"), Some(finished(admitted(pending())))), "Succeeded"),
    ];
    for (name, state, expected) in rows {
        let phase = status_write(&state).map(|step| step.body["status"]["phase"].clone());
        assert_eq!(phase, Some(json!(expected)), "{name}");
    }
    assert_eq!(status_write(&with(deleting(training_job("a")), Some(pending()))), None);
}

#[test]
fn status_is_written_only_where_it_differs() {
    let first = status_write(&running()).expect("a status");
    assert_eq!(first.what, "TrainingStatus: merge status TrainingJob ns/a");
    assert_eq!(first.body["metadata"], json!({"uid": "a-uid", "resourceVersion": "7"}));
    let shown = changed(training_job("a"), json!({"status": first.body["status"].clone()}));
    let state = running().with(shown);
    assert_eq!(status_write(&state), None);
    assert!(case_of(&state, |case| urgent_status(&case)).is_none());
    let worse = state.with(workers(json!({"status": {"ready": 1}})));
    let next = status_write(&worse).expect("a status");
    assert_eq!(next.body["status"].get("phase"), None, "it is up: a pod that fails later is left to the backoff limit");
}

/// A change of the phase is written at once, and any other change is coalesced.
#[test]
fn changed_phase_is_written_at_once() {
    let at_once = |state: State| {
        case_of(&state, |case| urgent_status(&case)).map(|draft| written(&draft).body["status"]["phase"].clone())
    };
    assert_eq!(at_once(with(training_job("a"), Some(pending()))), Some(json!("Queued")));
    let known = changed(training_job("a"), json!({"status": {"phase": "Queued"}}));
    assert_eq!(at_once(with(known.clone(), Some(pending()))), None);
    assert_eq!(at_once(with(known, Some(admitted(pending())))), Some(json!("Pending")));
}

#[test]
fn conditions_say_why_the_job_waits_or_stalls() {
    let reason = |state: &State, kind: &str| {
        let step = status_write(state)?;
        step.condition(kind).map(|(is, reason, _)| (is, reason.to_owned()))
    };
    let waits = crate::testing::objects::with_condition(
        pending(),
        crate::testing::objects::condition("QuotaReserved", false, "WaitingForQuota"),
    );
    assert_eq!(reason(&with(training_job("a"), Some(waits)), "Queued"), Some((true, "WaitingForQuota".to_owned())));
    let invalid = changed(training_job("a"), json!({"spec": {"resources": {"maxReplicas": 0}}}));
    assert_eq!(reason(&with(invalid, None), "Stalled"), Some((true, "InvalidSpec".to_owned())));
    let store = changed(training_job("a"), json!({"spec": {"checkpoint": {"enabled": true, "store": "none"}}}));
    assert_eq!(reason(&with(store, None), "Stalled"), Some((true, "CheckpointStoreNotFound".to_owned())));
    assert_eq!(reason(&running(), "Stalled"), None);
    assert_eq!(reason(&running(), "Running").map(|(is, _)| is), Some(true));
}
