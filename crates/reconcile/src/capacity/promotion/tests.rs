use serde_json::{Value, json};

use super::*;
use crate::capacity::promotions::Better;
use crate::testing::objects::{
    admitted, changed, condition_since, evicted, flavor_of_tier, job, policy, with_condition, workload_of,
};
use crate::testing::step::step;
use crate::testing::{State, in_seconds, now};

fn promoting(more: Value) -> Value {
    let promotion = changed(json!({"minStay": "1m", "maxTimes": 2}), more);
    policy("p", json!({"capacityTiers": {"default": ["reserved", "spot"], "climbBack": promotion}}))
}

/// Job `a` in spot capacity since so many seconds.
fn running(seconds: i64, patch: Value) -> State {
    let workload =
        with_condition(admitted(workload_of(&job("a"))), condition_since("Admitted", true, "Admitted", -seconds));
    State::new()
        .with(flavor_of_tier("f", "spot"))
        .with(promoting(json!({})))
        .with(job("a"))
        .with(changed(workload, patch))
}

#[test]
fn workload_may_move_back_after_stay_and_limited_times() {
    let found = |state: State| {
        let queues = super::promoting(&state.view);
        let (queue, rules) = queues.first().expect("rules");
        candidates(&state.context(), queue, *rules, now()).len()
    };
    let back = |times: i64| json!({"status": {"schedulingStats": {"evictions": [{"reason": "ClimbedBack", "underlyingCause": "", "count": times}]}}});
    assert_eq!(found(running(59, json!({}))), 0);
    assert_eq!(found(running(60, json!({}))), 1);
    assert_eq!(found(running(60, back(1))), 1);
    assert_eq!(found(running(60, back(2))), 0);
    let going = evicted(admitted(workload_of(&job("a"))), "Preempted");
    assert_eq!(found(running(60, json!({})).with(going)), 0);
}

#[test]
fn chosen_workload_is_evicted_for_the_better_tier() {
    let decided = |now_is_the_time: bool| {
        let mut state = running(60, json!({}));
        let better = Better { tier: Tier::Reserved, since: in_seconds(-30), now: now_is_the_time };
        state.notes.workloads_mut().change("w-uid", |notes| notes.capacity_mut().note_better_tier(Some(better)));
        step(&decide(&state.context(), state.workload("w"), now()))
    };
    assert_eq!(decided(false).what, "done");
    let message = "goes back up from spot to reserved capacity, which has been free for 30s";
    assert_eq!(decided(true).condition("Evicted"), Some((true, "ClimbedBack", message)));
}

#[test]
fn workload_without_remembered_stock_out_keeps_its_tier_order() {
    let line = |workload: Value| {
        let state =
            State::new().with(flavor_of_tier("f", "spot")).with(promoting(json!({}))).with(job("a")).with(workload);
        let workload = state.workload("w");
        state.context().line_of(workload, Some(vec![Tier::Reserved, Tier::Spot]), &workload.shape.pod_sets)
    };
    let usual = Some(vec![Tier::Reserved, Tier::Spot]);
    assert_eq!(line(workload_of(&job("a"))), usual);
    assert_eq!(line(evicted(workload_of(&job("a")), "ClimbedBack")), usual, "no stock-out is remembered");
}
