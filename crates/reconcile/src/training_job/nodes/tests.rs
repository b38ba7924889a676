use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, evicted, training_job};
use crate::testing::step::step;
use crate::testing::{State, at, now, own_name};
use crate::training_job::tests::{case_of, pending, running, workers};

fn asked(state: &State) -> Option<String> {
    case_of(state, |case| case.count_nodes().map(|decision| step(&decision).what))
}

fn shown(state: &State) -> Option<i32> {
    case_of(state, |case| case.nodes(state.workload("w"), &case.states()))
}

#[test]
fn nodes_are_counted_once_when_all_pods_are_ready() {
    let ask = Some("CountNodes: ask TrainingJob ns/a");
    let with = |workload: Value, child: Value| State::new().with(training_job("a")).with(workload).with(child);
    assert_eq!(asked(&running()).as_deref(), ask);
    assert_eq!(asked(&with(admitted(pending()), workers(json!({"status": {"ready": 1}})))), None, "one is not ready");
    assert_eq!(asked(&with(evicted(admitted(pending()), "Preempted"), workers(json!({})))), None, "it stops");
    assert_eq!(asked(&with(pending(), workers(json!({})))), None, "it has no quota");
    let mut known = running();
    let answer = counted(&known.context(), &own_name("a"), 3, now());
    known.view.note_counted_nodes(&own_name("a"), answer);
    assert_eq!((asked(&known), shown(&known)), (None, Some(3)));
    known.put(workers(json!({"status": {"failed": 1}})));
    assert_eq!(asked(&known).as_deref(), ask, "a pod that failed runs elsewhere");
}

/// The number of nodes that another process has counted is in the TrainingJob's status, and holds as long as the pods are the same.
#[test]
fn node_count_in_status_counts_for_the_same_pods() {
    let describe = |since: i64, wanted: i32| {
        let condition = json!({"type": "Admitted", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at(since)});
        let status =
            json!({"conditions": [condition], "workers": format!("2/{wanted}"), "allocatedResources": {"nodes": 5}});
        let state = running().with(changed(training_job("a"), json!({ "status": status })));
        shown(&state)
    };
    assert_eq!(describe(-60, 2), Some(5));
    assert_eq!(describe(-61, 2), None, "it is of an earlier admission");
    assert_eq!(describe(-60, 3), None, "it is of more workers");
    let mut gone = running();
    let answer = counted(&gone.context(), &own_name("a"), 0, now());
    gone.view.note_counted_nodes(&own_name("a"), answer);
    assert_eq!(shown(&gone), None, "pods that have gone do not show where they ran");
}
