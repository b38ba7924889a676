use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, cluster_queue, job, policy};
use crate::testing::{State, at, in_seconds, now, own_name};
use crate::training_job::tests::{elastic, elastic_workers, granted_two};

/// A TrainingJob of one to three workers, which runs with two workers, with its Workload and its Job.
fn running() -> State {
    State::new().with(elastic()).with(granted_two()).with(elastic_workers(json!({})))
}

/// The numbers of workers that are offered to a run that was admitted ten minutes ago.
fn wanted(state: State, patch: Value) -> Vec<i32> {
    let workload = changed(granted_two(), patch);
    let aged = crate::testing::objects::condition_since("Admitted", true, "Admitted", -600);
    let state = state.with(crate::testing::objects::with_condition(workload, aged));
    candidates(&state.context(), now()).into_iter().map(|candidate| candidate.workers).collect()
}

#[test]
fn run_may_grow_by_a_step_after_its_cool_down() {
    let nothing = || json!({});
    assert_eq!(wanted(running(), nothing()), [3]);
    assert!(candidates(&running().context(), now()).is_empty(), "it was admitted a minute ago");
    let late = running().with(elastic_workers(json!({"status": {"ready": 1}})));
    assert_eq!(wanted(late, nothing()), [0; 0], "not all of its workers are ready");
    let stopped = running().with(changed(cluster_queue("cq", &[("f", 10)]), json!({"spec": {"stopPolicy": "Hold"}})));
    assert_eq!(wanted(stopped, nothing()), [0; 0], "its queue stands");
    let checked = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}});
    assert_eq!(
        wanted(running().with(changed(cluster_queue("cq", &[("f", 10)]), checked)), nothing()),
        [0; 0],
        "a check would be asked again"
    );
}

#[test]
fn elastic_run_offers_workers_above_its_minimum() {
    let surplus =
        |state: State| state.context().surplus_of(state.workload("w")).map(|surplus| (surplus.pods, surplus.step));
    assert_eq!(surplus(running()), Some((1, 1)));
    assert_eq!(surplus(running().with(changed(elastic(), json!({"spec": {"suspend": true}})))), None);
    assert_eq!(surplus(State::new().with(elastic()).with(granted_two())), None, "it has no Job");
}

#[test]
fn slice_replaces_the_older_one_while_that_holds_quota() {
    let after = |older: Value| {
        let slice = changed(
            crate::testing::objects::workload_of(&elastic()),
            json!({"metadata": {"name": "x", "uid": "x-uid", "annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w"}}}),
        );
        let state = State::new().with(elastic()).with(older).with(slice);
        let found = state.context().replaced_by(state.workload("x")).map(|older| older.name.clone());
        (found, slices_after(&state.view, &own_name("w")))
    };
    assert_eq!(after(granted_two()), (Some("w".to_owned()), vec![own_name("x")]));
    let pending = crate::testing::objects::workload_of(&elastic());
    assert_eq!(after(pending).0, None, "it has no quota to take over");
    let foreign = changed(
        granted_two(),
        json!({"metadata": {"ownerReferences": crate::testing::objects::controlled_by(&job("b"))["ownerReferences"]}}),
    );
    assert_eq!(after(foreign), (None, Vec::new()));
}

#[test]
fn gpu_limit_of_policy_does_not_bound_growth_without_accelerators() {
    let limited = policy("p", json!({"admission": {"maxGPUsPerJob": 0}}));
    assert_eq!(wanted(running().with(limited), json!({})), [3], "it has no accelerators");
    assert_eq!((at(0), now()), (in_seconds(0).to_string(), in_seconds(0)));
}
