use serde_json::{Value, json};

use super::*;
use crate::capacity::tests::patient;
use crate::testing::objects::{admitted, changed, flavor_of_tier, job, workload_of};
use crate::testing::step::step;
use crate::testing::{State, in_seconds, now, read};
use crate::write::cluster_key;

/// Job `a`, which runs in capacity of the given tier, with the QueuePolicy of its ClusterQueue.
fn running(tier: &str, spec: Value) -> State {
    let running = changed(job("a"), json!({"spec": {"suspend": false, "completionMode": "Indexed"}}));
    let signals = changed(patient(), json!({ "spec": spec }));
    State::new()
        .with(flavor_of_tier("f", tier))
        .with(signals)
        .with(changed(running, json!({})))
        .with(admitted(workload_of(&job("a"))))
}

fn on_node() -> PodOnNode {
    PodOnNode {
        namespace: "ns".to_owned(),
        name: "p".to_owned(),
        uid: "p-uid".to_owned(),
        pod_set: "main".to_owned(),
        job: Some(("a".to_owned(), "a-uid".to_owned())),
    }
}

#[test]
fn workload_in_spot_capacity_leaves_with_its_node() {
    let lost = |state: State, pod: PodOnNode| {
        lost_with(&state.context(), &[pod]).into_iter().map(|(name, ..)| name.1).collect::<Vec<_>>()
    };
    let signals = json!({"capacityTiers": {"stockOutOn": ["NodeReclaimed"]}});
    assert_eq!(lost(running("spot", signals.clone()), on_node()), ["w"]);
    assert_eq!(
        lost(running("reserved", signals.clone()), on_node()),
        [""; 0],
        "other capacity is not taken back like that"
    );
    assert_eq!(lost(running("spot", json!({"capacityTiers": {"stockOutOn": ["Unschedulable"]}})), on_node()), [""; 0]);
    let stranger = PodOnNode { job: Some(("a".to_owned(), "other".to_owned())), ..on_node() };
    assert_eq!(lost(running("spot", signals), stranger), [""; 0]);
}

#[test]
fn pods_on_terminating_node_are_queried_once() {
    let taint = json!({"key": "example.com/ends", "effect": "NoSchedule"});
    let node = read(json!({"metadata": {"name": "n", "uid": "n-uid"}, "spec": {"taints": [taint]}}));
    let mut state = State::new();
    let object = cluster_key(Kind::Node, "n");
    assert_eq!(step(&ask(&state.context(), &object)).what, "done", "it is not known");
    state.capacity.put_node("n", Some(&node), &["example.com/ends".to_owned()].into());
    assert_eq!(step(&ask(&state.context(), &object)).what, "FindPodsOnNode: ask Node /n");
    state.capacity.note_pods_on_node(state.notes.workloads_mut(), "n", Vec::new(), now());
    assert_eq!(step(&ask(&state.context(), &object)).what, "done");
}

#[test]
fn workload_that_lost_a_node_since_its_start_is_evicted() {
    let mut state = running("spot", json!({}));
    let assignment = crate::capacity::tier_assignments(&state.context(), state.workload("w")).remove(0);
    let loss = crate::capacity::loss::Loss::new(assignment, ("n", "example.com/ends"), in_seconds(-10));
    state.notes.workloads_mut().change("w-uid", |notes| notes.capacity_mut().note_loss(loss));
    let found = |begun: i64| {
        decide(&state.context(), state.workload("w"), in_seconds(begun), now()).map(|decision| step(&decision))
    };
    assert_eq!(found(-5), None, "it was an earlier run");
    let evicted = found(-60).expect("an eviction");
    let message = "flavor f (spot capacity) takes node n back: it has the taint example.com/ends";
    assert_eq!(evicted.condition("Evicted"), Some((true, "CapacityReclaimed", message)));
}
