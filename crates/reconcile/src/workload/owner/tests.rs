use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, controlled_by, deleting, job, job_set, training_job, workload, workload_of};
use crate::testing::{State, own_name};

#[test]
fn owner_state_is_decided_by_its_uid_in_the_view() {
    let other = changed(job("a"), json!({"metadata": {"uid": "x"}}));
    let of_pod = || {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": true});
        changed(workload("w"), json!({"metadata": {"ownerReferences": [owner]}}))
    };
    let pod = json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": "p", "uid": "p-uid", "labels": {
        "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true"}}, "spec": {"containers": []}});
    let training = || training_job("t");
    let rows: Vec<(&str, State, OwnerState)> = vec![
        ("no owner", State::new().with(workload("w")), OwnerState::There),
        ("a job", State::new().with(job("a")).with(workload_of(&job("a"))), OwnerState::There),
        ("a job that goes", State::new().with(deleting(job("a"))).with(workload_of(&job("a"))), OwnerState::Leaving),
        ("another job of that name", State::new().with(other).with(workload_of(&job("a"))), OwnerState::Absent),
        ("a pod", State::new().with(pod).with(of_pod()), OwnerState::There),
        ("a pod that is gone", State::new().with(of_pod()), OwnerState::Absent),
        (
            "a TrainingJob that goes",
            State::new().with(deleting(training())).with(workload_of(&training())),
            OwnerState::Leaving,
        ),
        ("a TrainingJob that is gone", State::new().with(workload_of(&training())), OwnerState::Absent),
    ];
    for (name, state, expected) in rows {
        assert_eq!(owner_state(&state.context(), state.workload("w")), expected, "{name}");
    }
}

#[test]
fn parts_are_jobs_that_name_their_owner_by_uid() {
    let part = |name: &str, owner: &Value| changed(job(name), json!({"metadata": controlled_by(owner)}));
    let names = |state: &State, kind: Kind| {
        let ctx = state.context();
        let found = parts_of(&ctx, state.workload("w"), kind, "a-uid");
        found.into_iter().map(|(key, _)| key.name).collect::<Vec<_>>()
    };
    let set = job_set("a", 2);
    let of_set = State::new()
        .with(workload_of(&set))
        .with(part("a-main-0", &set))
        .with(part("other", &set))
        .with(job("a-main-1"));
    assert_eq!(names(&of_set, Kind::JOB_SET), ["a-main-0", "other"]);
    let training = training_job("a");
    let of_training = State::new()
        .with(training.clone())
        .with(workload_of(&training))
        .with(part("a-worker", &training))
        .with(part("other", &training));
    assert_eq!(names(&of_training, Kind::TrainingJob), ["a-worker"], "other Jobs only claim to be a part");
    let of_job = State::new().with(workload_of(&job("a")));
    assert_eq!(names(&of_job, Kind::JOB), [""; 0]);
}

#[test]
fn workload_is_lost_by_the_job_whose_reference_was_removed() {
    let unowned = changed(workload_of(&job("a")), json!({"metadata": {"ownerReferences": null}}));
    let state = State::new().with(unowned);
    assert!(lost_by(&state.context(), &own_name("w"), "a-uid").is_some());
    assert!(lost_by(&state.context(), &own_name("w"), "b-uid").is_none());
    let owned = State::new().with(workload_of(&job("a")));
    assert!(lost_by(&owned.context(), &own_name("w"), "a-uid").is_none());
}
