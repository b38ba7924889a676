use serde_json::json;

use super::*;
use crate::capacity::capacity_notes::Answer;
use crate::capacity::tests::patient;
use crate::testing::objects::{admitted, changed, flavor_of_tier, job, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, in_seconds, now};

/// Job `a`, which runs with so many ready pods in spot capacity.
fn running(ready: i64) -> State {
    let metadata =
        json!({"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": "w"}});
    let patch = json!({"spec": {"suspend": false, "template": {"metadata": metadata}}, "status": {"active": 2, "ready": ready}});
    State::new()
        .with(flavor_of_tier("f", "spot"))
        .with(patient())
        .with(changed(job("a"), patch))
        .with(admitted(workload_of(&job("a"))))
}

/// The state after an answer about pods of the workload, so many seconds ago.
fn answered(mut state: State, stuck: &[StuckPod], ago: i64) -> State {
    let answer = Answer { at: in_seconds(-ago), stuck: stuck.to_vec() };
    state.notes.workloads_mut().change("w-uid", |notes| notes.capacity_mut().note_answer(answer));
    state
}

fn stuck(refused: Option<&str>) -> StuckPod {
    StuckPod { pod_set: "main".to_owned(), message: "no node fits".to_owned(), refused: refused.map(str::to_owned) }
}

fn decided(state: &State, admitted_ago: i64) -> Step {
    step(&decide(&state.context(), state.workload("w"), in_seconds(-admitted_ago), now()))
}

#[test]
fn workload_without_nodes_leaves_its_tier_after_its_patience() {
    let asks = "FindStuckPods: ask Workload ns/w";
    let leaves = "Evict: apply status Workload ns/w";
    let rows = [
        ("all pods are ready", running(2), 60, "done"),
        ("its patience is not over", running(1), 2, "wait 4250ms"),
        ("nobody has looked", running(1), 60, asks),
        ("no pod is stuck", answered(running(1), &[], 1), 60, "wait 29s"),
        ("stuck, and late", answered(running(1), &[stuck(None)], 1), 60, leaves),
        ("refused, and early", answered(running(1), &[stuck(Some("no spot nodes"))], 1), 10, leaves),
    ];
    for (name, state, admitted, expected) in rows {
        assert_eq!(decided(&state, admitted).what, expected, "{name}");
    }
}

#[test]
fn eviction_names_the_flavor_and_the_words_about_the_pod() {
    let found = decided(&answered(running(1), &[stuck(None)], 1), 60);
    let message = "flavor f (spot capacity) had no nodes for all 2 pods within 60s: no node fits";
    assert_eq!(found.condition("Evicted"), Some((true, "StockOut", message)));
    let refused = decided(&answered(running(1), &[stuck(Some("none left"))], 1), 10);
    assert!(refused.condition("Evicted").is_some_and(|(_, _, text)| text.ends_with(": none left")), "{refused:?}");
}

#[test]
fn workload_without_rules_of_tiers_is_not_watched() {
    let patch = json!({"spec": {"suspend": false}, "status": {"active": 2, "ready": 1}});
    let state = State::new()
        .with(flavor_of_tier("f", "spot"))
        .with(changed(job("a"), patch))
        .with(admitted(workload_of(&job("a"))));
    assert_eq!(decided(&state, 600).what, "done");
    assert!(late(&state.context(), state.workload("w"), (in_seconds(-600), now())).is_empty());
}

#[test]
fn pod_set_is_late_if_stuck_pods_outlast_its_patience() {
    let late_of = |ago: i64| {
        late(
            &answered(running(1), &[stuck(None)], ago).context(),
            answered(running(1), &[stuck(None)], ago).workload("w"),
            (in_seconds(-60), now()),
        )
        .len()
    };
    assert_eq!(late_of(1), 1);
    assert_eq!(late_of(30), 0, "the answer came before the patience was over");
}
