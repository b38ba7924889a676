use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition_since, evicted, job, with_condition, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, in_seconds, named, now};

/// The Workload of a job that was deleted without its pods, admitted `admitted_ago` seconds ago.
fn orphan(admitted_ago: i64) -> Value {
    let workload = changed(admitted(workload_of(&job("a"))), json!({"metadata": {"ownerReferences": null}}));
    with_condition(workload, condition_since("Admitted", true, "Admitted", -admitted_ago))
}

fn pod(name: &str, job: Option<&str>) -> LeftPod {
    let job = job.map(|job| (job.to_owned(), format!("{job}-uid")));
    LeftPod { name: name.to_owned(), uid: format!("{name}-uid"), deleting: false, job }
}

/// A state in which the left pods were found `ago` seconds ago.
fn with_left(workload: Value, pods: Vec<LeftPod>, ago: i64) -> State {
    let mut state = State::new().with(workload);
    state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_left(pods, in_seconds(-ago)));
    state
}

fn watched(state: &State) -> Step {
    step(&watch(&state.context(), state.workload("w"), now()))
}

#[test]
fn pods_left_by_deleted_job_are_queried_and_reported() {
    let left = || vec![pod("p", None)];
    let asked = "FindLeftPods: ask Workload ns/w";
    let mut reported = with_left(orphan(60), left(), 4);
    let message = "its job was deleted and its pods were left: they hold its quota until they have ended";
    reported.note_event(named(Kind::Workload, "w"), "OwnerNotFound", message);
    let rows: Vec<(&str, State, &str)> = vec![
        ("its job is there", State::new().with(admitted(workload_of(&job("a")))), "done"),
        ("evicted", State::new().with(evicted(orphan(60), "Preempted")), "done"),
        ("pods may still come", State::new().with(orphan(1)), "wait 2s"),
        ("never looked", State::new().with(orphan(60)), asked),
        ("pods found", with_left(orphan(60), left(), 4), "tell"),
        ("pods found, and reported", reported, "wait 6s"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(watched(&state).what, expected, "{name}");
    }
}

#[test]
fn left_pods_are_deleted_when_their_workload_is_evicted() {
    let stopped = |pods: Vec<LeftPod>, ago: i64| {
        let state = with_left(evicted(orphan(60), "Preempted"), pods, ago);
        step(&stop(&state.context(), state.workload("w"), now()))
    };
    assert_eq!(stopped(vec![pod("p", None)], 0).what, "DeletePod: delete Pod ns/p");
    assert_eq!(stopped(vec![pod("p", None)], 0).body, json!("p-uid"));
    assert_eq!(stopped(vec![pod("p", Some("j"))], 0).what, "DeleteChild: delete after its objects Job ns/j");
    let going = || vec![LeftPod { deleting: true, ..pod("p", None) }];
    assert_eq!(stopped(going(), 0).what, "wait 1s");
    assert_eq!(stopped(going(), 1).what, "FindLeftPods: ask Workload ns/w");
}

/// Any client may write the label with the uid of a job, so a pod that another job counts is left alone.
#[test]
fn pods_of_other_jobs_are_not_left_behind() {
    let other = changed(job("other"), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}));
    let unmanaged = changed(job("free"), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}));
    let managed_pod = json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": "managed", "uid": "m", "labels": {
        "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true"}}, "spec": {"containers": []}});
    let state = State::new().with(orphan(60)).with(other).with(unmanaged).with(managed_pod);
    let found = vec![
        pod("alone", None),
        pod("managed", None),
        pod("of-gone", Some("a")),
        pod("of-other", Some("other")),
        pod("of-free", Some("free")),
        pod("of-unknown", Some("unknown")),
    ];
    let left = without_job(&state.context(), &named(Kind::Workload, "w"), found);
    let left: Vec<&str> = left.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(left, ["alone", "of-gone", "of-free", "of-unknown"]);
}
