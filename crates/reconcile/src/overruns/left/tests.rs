use serde_json::{Value, json};

use crate::overruns::tests::{running, shown};
use crate::testing::objects::{admitted, changed, controlled_by, job, workload, workload_of};
use crate::testing::{State, at, named, now};
use crate::write::{Kind, LeftPod};

/// The Workload `w` of Job `a`, which was deleted without its pods.
fn orphan() -> Value {
    changed(admitted(workload_of(&job("a"))), json!({"metadata": {"ownerReferences": null}}))
}

/// The state after a query that found a number of left pods.
fn with_left(workload: Value, count: usize) -> State {
    let mut state = State::new().with(workload);
    let pod = |number: usize| LeftPod {
        name: format!("p-{number}"),
        uid: format!("p-{number}-uid"),
        deleting: false,
        job: None,
    };
    let left = (0..count).map(pod).collect();
    state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_left(left, now()));
    state
}

/// The state with pod `p` of a job, which Workload `w` started in a pod set; `metadata` has further fields.
fn with_pod(mut state: State, set: &str, metadata: Value) -> State {
    let started = json!({"namespace": "ns", "name": "p", "uid": "p-uid", "resourceVersion": "5", "generation": 1,
        "labels": {"kueue.x-k8s.io/podset": set}, "annotations": {"kueue.x-k8s.io/workload": "w"}});
    state.put_job_pod(changed(started, metadata), now());
    state
}

fn of_w(state: &State) -> String {
    shown(state, &named(Kind::Workload, "w"))
}

#[test]
fn pods_left_by_deleted_job_are_charged_beyond_its_quota() {
    let label = "kueue.x-k8s.io/job-uid";
    let two_sets = || {
        let mut two = changed(workload("w"), json!({"metadata": {"labels": {label: "a-uid"}}}));
        let second = changed(two["spec"]["podSets"][0].clone(), json!({"name": "second", "count": 1}));
        two["spec"]["podSets"].as_array_mut().expect("a list").push(second);
        admitted(two)
    };
    let pending = changed(workload_of(&job("a")), json!({"metadata": {"ownerReferences": null}}));
    let unreadable = json!({"metadata": {"annotations": {"berth.dev/unreadable": "x"}}});
    let rows: Vec<(&str, State, &str)> = vec![
        ("three are left", with_left(orphan(), 3), "3/2 w-uid cq f/cpu 1000"),
        ("one is left, others may be hidden", with_left(orphan(), 1), "none"),
        ("never queried", State::new().with(orphan()), "none"),
        ("none is left", with_left(orphan(), 0), "none"),
        ("two pod sets", with_left(two_sets(), 5), "none"),
        ("its owner is known", with_left(admitted(workload_of(&job("a"))), 3), "none"),
        ("no quota", with_left(pending, 3), "none"),
        ("never had a job", with_left(admitted(workload("w")), 3), "none"),
        ("unreadable", with_left(changed(orphan(), unreadable), 3), "none"),
        ("no Workload", State::new(), "none"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(of_w(&state), expected, "{name}");
    }
}

/// A query shows only some of the pods of a deleted job, so the old charge of the job is not replaced by a smaller one.
#[test]
fn charge_of_deleted_job_stays_until_its_pods_are_counted() {
    let object = named(Kind::JOB, "a");
    let mut state = State::new().with(running(5)).with(admitted(workload_of(&job("a"))));
    state.note_overruns(std::slice::from_ref(&object));
    state.view.remove_job(&object);
    state.put(orphan());
    state.quota.overruns_mut().take(&object, None, true, now());
    let left = vec![LeftPod { name: "p".to_owned(), uid: "p-uid".to_owned(), deleting: false, job: None }; 3];
    state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_left(left, now()));
    assert_eq!(of_w(&state), "none", "the charge of the job counts");
}

/// Any client may write the labels of a pod. A pod with the label of the deleted job is one of the left pods, which a query counts.
#[test]
fn pod_that_no_job_counts_is_charged_to_orphaned_workload() {
    let beside = |set: &str, metadata: Value| of_w(&with_pod(State::new().with(orphan()), set, metadata));
    let one_more = "3/2 w-uid cq f/cpu 1000";
    assert_eq!(beside("main", json!({})), one_more);
    assert_eq!(beside("other", json!({})), one_more, "it counts for the first pod set");
    let named_job = json!({"labels": {"batch.kubernetes.io/controller-uid": "a-uid"}});
    assert_eq!(beside("main", named_job), "none");
}

#[test]
fn ending_pod_of_deleted_part_is_charged_to_orphaned_workload() {
    let gone = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "j-uid"}});
    let labels =
        json!({"labels": {"batch.kubernetes.io/controller-uid": "j-uid", "jobset.sigs.k8s.io/jobset-uid": "a-uid"}});
    let ends = changed(changed(labels, controlled_by(&gone)), json!({"deletionTimestamp": at(-5)}));
    let state = with_pod(State::new().with(orphan()), "main", ends.clone());
    assert_eq!(of_w(&state), "3/2 w-uid cq f/cpu 1000");
    let ended = with_pod(with_left(orphan(), 0), "main", ends);
    assert_eq!(of_w(&ended), "none", "it is the only pod");
}
