use berth_api::conditions::find;
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, condition, with_condition, workload};
use crate::testing::step::step;
use crate::testing::{State, now};

#[test]
fn condition_of_missing_pods_is_written_where_it_differs() {
    let waiting =
        |generation: i64| changed(condition(WAITING, true, "PodsFailed"), json!({"observedGeneration": generation}));
    let written = |known: Option<Value>, waits: bool| {
        let object = known.into_iter().fold(workload("w"), with_condition);
        let state = State::new().with(object);
        let workload = state.workload("w");
        let old = find(&workload.status.conditions, WAITING);
        let message = "PodsFailed, in words";
        waits_for_pods(workload, (waits, "PodsFailed", message), old, now()).map(|decision| step(&decision))
    };
    let found = written(None, true).expect("a write");
    assert_eq!(found.what, "SetWaitingForPods: apply status Workload ns/w");
    assert_eq!(found.condition(WAITING), Some((true, "PodsFailed", "PodsFailed, in words")));
    assert_eq!(written(Some(waiting(1)), true), None);
    assert!(written(Some(waiting(0)), true).is_some(), "it was said of an older spec");
    let over = written(Some(waiting(1)), false).expect("a write");
    assert_eq!(over.condition(WAITING).map(|(is, ..)| is), Some(false));
}
