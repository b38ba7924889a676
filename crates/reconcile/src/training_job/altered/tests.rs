use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition, controlled_by, job, training_job, with_condition};
use crate::testing::step::{Step, step};
use crate::testing::{State, at};
use crate::training_job::tests::{case_of, pending, workers};

/// TrainingJob `a` with a status that says that it has run since a second relative to the time of decisions.
fn up_since(second: i64) -> Value {
    let running = json!({"type": "Running", "status": "True", "reason": "PodsReady", "message": "", "lastTransitionTime": at(second)});
    changed(training_job("a"), json!({"status": {"conditions": [running]}}))
}

fn undone(training: Value, child: Value) -> Option<Step> {
    let state = State::new().with(training).with(admitted(pending())).with(child);
    case_of(&state, |case| case.undo_alterations(state.workload("w")).map(|decision| step(&decision)))
}

#[test]
fn altered_job_is_recreated_or_evicts_its_training_job() {
    let larger = || workers(json!({"spec": {"parallelism": 3, "completions": 3}}));
    let suspended =
        |created: i64| workers(json!({"metadata": {"creationTimestamp": at(created)}, "spec": {"suspend": true}}));
    let taken = || {
        let label = json!({"spec": {"template": {"metadata": {"labels": {"berth.dev/training-job-uid": "a-uid"}}}}});
        let other = controlled_by(&job("other"));
        changed(changed(workers(json!({})), label), json!({ "metadata": other }))
    };
    let drives_out = "StopTraining: delete after its objects Job ns/a-worker";
    let rows = [
        ("as it was made", up_since(-20), workers(json!({})), None),
        ("more pods, after it was up", up_since(-20), larger(), Some(drives_out)),
        ("more pods, and never up", training_job("a"), larger(), Some("Evict: apply status Workload ns/w")),
        ("suspended, young", training_job("a"), suspended(-4), Some("wait 6s")),
        ("suspended, old", training_job("a"), suspended(-50), Some("StopTraining: delete Job ns/a-worker")),
        ("names another controller", up_since(-20), taken(), Some(drives_out)),
    ];
    for (name, training, child, expected) in rows {
        assert_eq!(undone(training, child).map(|step| step.what).as_deref(), expected, "{name}");
    }
}

#[test]
fn eviction_for_altered_job_names_job_and_its_request() {
    let larger = workers(json!({"spec": {"parallelism": 3, "completions": 3}}));
    let found = undone(training_job("a"), larger).expect("a decision");
    let message =
        found.condition("Evicted").map(|(_, reason, message)| format!("{reason}: {message}")).unwrap_or_default();
    let expected = "JobAltered: Job a-worker was changed as it was made: it wants 3 pods, where quota is held for 2";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn given_up_training_job_is_retried_once_its_pods_change() {
    let given_up = with_condition(pending(), condition("Requeued", false, "DeactivatedDueToJobAltered"));
    let anew = |training: Value| {
        let state = State::new().with(training).with(given_up.clone());
        assert!(is_given_up(state.workload("w")));
        case_of(&state, |case| {
            case.tried_anew(state.workload("w")).map(|decision| step(&decision).body["spec"]["active"].clone())
        })
    };
    assert_eq!(anew(training_job("a")), None);
    assert_eq!(anew(changed(training_job("a"), json!({"spec": {"resources": {"maxReplicas": 3}}}))), Some(json!(true)));
    let state = State::new().with(with_condition(pending(), condition("Requeued", false, "Deactivated")));
    assert!(!is_given_up(state.workload("w")), "a user has deactivated it");
}
