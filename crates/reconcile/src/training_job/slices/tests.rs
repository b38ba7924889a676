use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition_since, deleting, evicted, training_job, with_condition, workload_of,
};
use crate::testing::{State, at, in_seconds};

/// An admitted slice of TrainingJob `a`, which replaces slice `w` unless the slice is `w` itself.
fn slice(name: &str, patch: Value) -> Value {
    let mut slice = admitted(workload_of(&training_job("a")));
    slice = changed(slice, json!({"metadata": {"name": name, "uid": format!("{name}-uid")}}));
    if name != "w" {
        slice = changed(
            slice,
            json!({"metadata": {"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w"}}}),
        );
    }
    changed(slice, patch)
}

#[test]
fn granted_workers_are_admitted_count_capped_by_spec() {
    let mut fewer = slice("w", json!({}));
    fewer["status"]["admission"]["podSetAssignments"][0]["count"] = json!(1);
    let mut more = slice("w", json!({}));
    more["status"]["admission"]["podSetAssignments"][0]["count"] = json!(9);
    let count = |object: Value| granted(State::new().with(object).workload("w"));
    assert_eq!(count(slice("w", json!({}))), 2);
    assert_eq!(count(fewer), 1);
    assert_eq!(count(more), 2, "never more than the spec has");
    assert_eq!(granted_to(State::new().with(slice("w", json!({}))).workload("w"), "ps"), 0);
}

#[test]
fn scale_up_continues_the_run_unless_it_was_evicted() {
    let past = json!({"queued": at(-900), "admitted": at(-500)}).to_string();
    let grown = || slice("x", json!({"metadata": {"annotations": {"berth.dev/before-growth": past}}}));
    let state = State::new().with(grown());
    assert!(grew(state.workload("x")));
    assert_eq!(runs_since(state.workload("x")), Some(in_seconds(-500)));
    let evicted = State::new().with(evicted(grown(), "Preempted"));
    assert!(!grew(evicted.workload("x")));
    assert_eq!(admitted_before(evicted.workload("x")), None);
    let first =
        State::new().with(with_condition(slice("w", json!({})), condition_since("Admitted", true, "Admitted", -7)));
    assert_eq!(runs_since(first.workload("w")), Some(in_seconds(-7)));
}

#[test]
fn newer_slice_stands_for_its_job_unless_deleted() {
    let both = State::new().with(slice("w", json!({}))).with(slice("x", json!({})));
    assert!(stands(&both.view, both.workload("x")));
    assert!(!stands(&both.view, both.workload("w")));
    let going = State::new().with(slice("w", json!({}))).with(deleting(slice("x", json!({}))));
    assert!(stands(&going.view, going.workload("w")));
}
