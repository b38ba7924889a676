use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, evicted, flavor_of_tier, job, policy, workload_of};
use crate::testing::{State, in_seconds, named, now};

/// A policy with a patience of fifty seconds with spot capacity.
pub(super) fn patient() -> Value {
    policy("p", json!({"capacityTiers": {"default": ["spot", "on-demand"], "patience": {"spot": "50s"}}}))
}

fn state(workload: Value) -> State {
    let ready = changed(job("a"), json!({"spec": {"suspend": false}, "status": {"active": 2, "ready": 2}}));
    State::new().with(flavor_of_tier("f", "spot")).with(patient()).with(ready).with(workload)
}

#[test]
fn running_job_with_all_pods_shows_available_capacity() {
    let found = |workload: Value| {
        let state = state(workload);
        let object = named(Kind::JOB, "a");
        turned_up(&state.context(), &object, &state.view.jobs()[&object]).len()
    };
    assert_eq!(found(admitted(workload_of(&job("a")))), 1);
    assert_eq!(
        found(evicted(admitted(workload_of(&job("a"))), "Preempted")),
        0,
        "it says nothing of what others would get"
    );
    assert_eq!(found(workload_of(&job("a"))), 0);
}

#[test]
fn stock_out_is_noted_for_evictions_that_lacked_capacity() {
    let between = |reason: &str| {
        let (old, new) =
            (state(admitted(workload_of(&job("a")))), state(evicted(admitted(workload_of(&job("a"))), reason)));
        new.context().stock_out_between(old.workload("w"), new.workload("w"))
    };
    assert_eq!(between("StockOut"), Some(in_seconds(-60)));
    assert_eq!(between("CapacityReclaimed"), Some(in_seconds(-60)));
    assert_eq!(between("Preempted"), None);
    let known = state(evicted(admitted(workload_of(&job("a"))), "StockOut"));
    assert_eq!(known.context().stock_out_between(known.workload("w"), known.workload("w")), None, "it is known");
}

/// A replica that does not lead follows the status of the policy.
#[test]
fn stock_out_names_assignments_without_nodes_only_on_leader() {
    let mut state = state(evicted(admitted(workload_of(&job("a"))), "StockOut"));
    let found = stock_outs(&state.context(), state.workload("w"), now()).expect("a stock-out");
    assert_eq!(found.assignments.len(), 1);
    state.session.set_term(None);
    let found = stock_outs(&state.context(), state.workload("w"), now()).expect("a stock-out");
    assert_eq!(found.assignments.len(), 0);
    let free = State::new().with(job("a")).with(evicted(admitted(workload_of(&job("a"))), "StockOut"));
    assert!(stock_outs(&free.context(), free.workload("w"), now()).is_none(), "no rules of tiers hold");
}
