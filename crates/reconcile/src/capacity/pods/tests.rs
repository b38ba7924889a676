use serde_json::{Value, json};

use super::*;
use crate::capacity::tests::patient;
use crate::testing::objects::{admitted, changed, flavor_of_tier, pod, started, workload_of_pod};
use crate::testing::step::step;
use crate::testing::{State, at, in_seconds};

/// Pod `a`, started in spot capacity, with these conditions.
fn running(conditions: Value, created: i64) -> State {
    let patch = json!({"metadata": {"creationTimestamp": at(created)}, "status": {"phase": "Pending", "conditions": conditions}});
    let pod = changed(started(pod("a")), patch);
    let workload = admitted(workload_of_pod(&crate::testing::objects::pod("a")));
    State::new().with(flavor_of_tier("f", "spot")).with(patient()).with(pod).with(workload)
}

fn decided(state: &State) -> String {
    let ctx = state.context();
    let rules = ctx.tier_rules(state.workload("w")).expect("rules");
    step(&decide(&ctx, state.workload("w"), rules, in_seconds(-60), crate::testing::now())).what
}

#[test]
fn unschedulable_pod_leaves_its_tier_after_its_patience() {
    let unschedulable =
        || json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}]);
    let ready = json!([{"type": "Ready", "status": "True"}]);
    assert_eq!(decided(&running(ready, -60)), "done");
    assert_eq!(decided(&running(unschedulable(), -50)), "Evict: apply status Workload ns/w");
    assert_eq!(decided(&running(unschedulable(), -2)), "wait 4250ms", "autoscalers are asked then");
    assert_eq!(decided(&running(unschedulable(), -10)), "FindStuckPods: ask Workload ns/w");
    assert!(decided(&running(json!([]), -60)).starts_with("wait"), "nothing is stuck: an image, or a slow start");
}

#[test]
fn role_is_late_if_patience_was_over_at_eviction() {
    let unschedulable =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}]);
    let state = running(unschedulable, -60);
    let late_at =
        |evicted: i64| late(&state.context(), state.workload("w"), (in_seconds(-60), in_seconds(evicted))).len();
    assert_eq!((late_at(-11), late_at(-10)), (0, 1));
}
