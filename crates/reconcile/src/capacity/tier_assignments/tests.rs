use serde_json::json;

use super::*;
use crate::testing::State;
use crate::testing::objects::{admitted, changed, flavor_of_tier, job, policy, workload_of};

#[test]
fn workload_holds_an_assignment_for_each_flavor_with_a_tier() {
    let assigned = |state: State| {
        let found = tier_assignments(&state.context(), state.workload("w"));
        found.into_iter().map(|one| (one.pod_set, one.flavor, one.tier.to_string(), one.pods)).collect::<Vec<_>>()
    };
    let workload = || admitted(workload_of(&job("a")));
    let spot = || State::new().with(flavor_of_tier("f", "spot"));
    assert_eq!(assigned(State::new().with(workload())), [], "its flavor has no tier");
    assert_eq!(assigned(spot().with(workload())), [("main".to_owned(), "f".to_owned(), "spot".to_owned(), 2)]);
    assert_eq!(assigned(spot().with(workload_of(&job("a")))), [], "it has no quota");
    let mut more = workload();
    more["status"]["admission"]["podSetAssignments"][0]["count"] = json!(9);
    assert_eq!(assigned(spot().with(more))[0].3, 2, "never more pods than the spec has");
}

#[test]
fn tier_rules_are_those_of_queue_policy_or_defaults() {
    let named =
        || changed(workload_of(&job("a")), json!({"metadata": {"annotations": {"berth.dev/capacity-tiers": "spot"}}}));
    let patience = |state: State| {
        let ctx = state.context();
        ctx.tier_rules(state.workload("w")).map(|rules| rules.patience_ms(berth_engine::model::Tier::Spot))
    };
    let rules = policy("p", json!({"capacityTiers": {"default": ["spot"], "patience": {"spot": "7s"}}}));
    assert_eq!(patience(State::new().with(workload_of(&job("a")))), None);
    assert!(patience(State::new().with(named())).is_some());
    assert_eq!(patience(State::new().with(rules).with(workload_of(&job("a")))), Some(7_000));
}
