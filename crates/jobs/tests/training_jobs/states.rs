//! Tests of the end and progress of a training.

use berth_jobs::training::{
    Accelerators, RoleState, TrainingEnd, role_state, training_end, training_finish, training_pod_sets,
};
use berth_jobs::{ObjectPatch, requests_digest};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn state(status: Value) -> RoleState {
    role_state(&serde_json::from_value(json!({"spec": {"completions": 2}, "status": status})).unwrap())
}

fn ended(kind: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "message": "words"}]})
}

#[test]
fn role_state_counts_each_pod_once() {
    let found = state(json!({"active": 2, "ready": 1, "failed": 3}));
    assert_eq!((found.ready, found.pending, found.failed, found.is_up()), (1, 1, 3, false));
    assert!(state(json!({"active": 1, "ready": 1, "succeeded": 1})).is_up());
    assert!(!state(Value::Null).is_up());
}

#[test]
fn role_job_requests_equal_those_of_admitted_pod_set() {
    for (job_type, roles) in
        [("PyTorchJob", json!([])), ("MPIJob", json!([])), ("TFJob", json!([{"name": "ps"}])), ("JAXJob", json!([]))]
    {
        let job = super::job(job_type, json!({"sharedMemory": "1Gi", "roles": roles}));
        let sets = training_pod_sets(&job, &Accelerators::default()).unwrap();
        let made = super::run(&job);
        for set in &sets {
            let child = made.iter().find(|child| child.name == format!("gpt-{}", set.effective_name())).unwrap();
            let asks = role_state(&serde_json::from_value(child.body.clone()).unwrap()).asks;
            assert_eq!(asks, requests_digest(&set.template), "{job_type} {}", child.name);
        }
    }
}

#[test]
fn training_job_ends_by_deciding_role_and_fails_by_any() {
    let running = json!({"active": 2});
    for (roles, expected) in [
        (vec![("worker", &running)], None),
        (vec![("worker", &ended("Complete"))], Some(true)),
        (vec![("worker", &ended("Failed"))], Some(false)),
        (vec![("worker", &running), ("launcher", &ended("Complete"))], Some(true)),
        (vec![("worker", &ended("Failed")), ("launcher", &running)], Some(false)),
        (vec![("worker", &ended("Complete")), ("chief", &running), ("ps", &running)], None),
        (vec![("worker", &running), ("chief", &ended("Complete"))], Some(true)),
        (vec![("worker", &ended("Complete")), ("ps", &running)], Some(true)),
    ] {
        let states: BTreeMap<String, RoleState> =
            roles.iter().map(|(name, status)| ((*name).to_owned(), state((*status).clone()))).collect();
        let found = training_finish(&states);
        assert_eq!(found.as_ref().map(|finish| finish.success), expected, "{roles:?}");
        assert!(found.is_none_or(|finish| finish.message.contains(": words")));
    }
}

#[test]
fn training_end_annotation_is_read_as_written() {
    let end = training_end(&BTreeMap::from([("worker".to_owned(), state(ended("Failed")))])).unwrap();
    assert_eq!((end.role.as_str(), end.success, end.message.as_str()), ("worker", false, "words"));
    let note = end.note(ObjectPatch::of_any_version(None)).into_body();
    let text = note["metadata"]["annotations"]["berth.dev/training-end"].as_str().unwrap();
    assert_eq!(TrainingEnd::parse(text).as_ref(), Some(&end));
    assert_eq!(TrainingEnd::parse("worker"), None);
}

#[test]
fn job_end_after_its_deletion_does_not_count() {
    let deleted = Some("2026-11-27T10:00:01Z");
    for (at, deleted, counts) in [
        ("2026-11-27T10:00:02Z", None, true),
        ("2026-11-27T10:00:00Z", deleted, true),
        // An end in the same second as the deletion does not count, because both times are in full seconds.
        ("2026-11-27T10:00:01Z", deleted, false),
        ("2026-11-27T10:00:02Z", deleted, false),
    ] {
        for how in ["Complete", "Failed"] {
            let mut status = ended(how);
            status["conditions"][0]["lastTransitionTime"] = json!(at);
            let job = json!({
                "metadata": {"deletionTimestamp": deleted}, "spec": {"completions": 2}, "status": status,
            });
            let state = role_state(&serde_json::from_value(job).unwrap());
            assert_eq!(state.finish.is_some(), counts, "{how} at {at}, deleted: {deleted:?}");
        }
    }
}

#[test]
fn job_end_settled_before_deletion_counts_despite_later_finish() {
    for (how, settled) in [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")] {
        for (kind, holds, counts) in [(settled, "True", true), (settled, "False", false), ("Suspended", "True", false)]
        {
            let mut status = ended(how);
            status["conditions"][0]["lastTransitionTime"] = json!("2026-11-27T10:00:09Z");
            let before = json!({"type": kind, "status": holds, "lastTransitionTime": "2026-11-27T10:00:00Z"});
            status["conditions"].as_array_mut().unwrap().insert(0, before);
            let job = json!({
                "metadata": {"deletionTimestamp": "2026-11-27T10:00:05Z"}, "spec": {"completions": 2}, "status": status,
            });
            let state = role_state(&serde_json::from_value(job).unwrap());
            assert_eq!(state.finish.is_some(), counts, "{how}, {kind} is {holds}");
        }
    }
}
