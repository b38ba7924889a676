use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, deleting, evicted, training_job, workload_of};
use crate::testing::{State, in_seconds};
use crate::training_job::tests::{elastic, elastic_workers, granted_two, workers};

fn bounds(state: &State) -> Option<((i32, i32), i32)> {
    run_under(&state.view, state.workload("w")).map(|run| (run.bounds, run.workers))
}

#[test]
fn elastic_run_has_bounds_of_its_spec_and_pods() {
    let state = |job: Value, workload: Value, child: Value| State::new().with(job).with(workload).with(child);
    let all = || elastic_workers(json!({}));
    let ended = json!({"status": {"succeeded": 1}});
    let rows = [
        ("runs", state(elastic(), granted_two(), all()), Some(((1, 3), 2))),
        ("is not elastic", state(training_job("a"), admitted(workload_of(&training_job("a"))), all()), None),
        ("evicted", state(elastic(), evicted(granted_two(), "Preempted"), all()), None),
        ("goes", state(deleting(elastic()), granted_two(), all()), None),
        ("its Job goes", state(elastic(), granted_two(), deleting(all())), None),
        ("a worker has ended", state(elastic(), granted_two(), elastic_workers(ended)), None),
        ("its pods were told nothing", state(elastic(), granted_two(), workers(json!({}))), None),
        ("no Job", State::new().with(elastic()).with(granted_two()), None),
    ];
    for (name, state, expected) in rows {
        assert_eq!(bounds(&state), expected, "{name}");
    }
}

#[test]
fn workers_change_again_after_the_cool_down() {
    let state = State::new().with(elastic()).with(granted_two()).with(elastic_workers(json!({})));
    let mut run = run_under(&state.view, state.workload("w")).expect("a run");
    assert_eq!(run.due(in_seconds(-60), 300), in_seconds(240));
    run.last = Some(Scale { workers: 2, at: in_seconds(-10), workload: "w-uid".to_owned(), evictions: 0 });
    assert_eq!(run.due(in_seconds(-60), 300), in_seconds(290));
    assert!(!run.shrinks(state.workload("w")));
    run.workers = 1;
    run.last = Some(Scale { workers: 1, at: in_seconds(-10), workload: "w-uid".to_owned(), evictions: 0 });
    assert!(run.shrinks(state.workload("w")), "its quota is to follow");
}

#[test]
fn added_workers_that_are_not_ready_may_be_given_up() {
    let keeps = |ready: i32| Added { since: in_seconds(0), workers: 4, ready, least: 2 }.keeps();
    assert_eq!([1, 2, 3, 4].map(keeps), [None, Some(2), Some(3), None]);
}
