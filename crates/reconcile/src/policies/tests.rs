use serde_json::{Value, json};

use super::*;
use crate::testing::State;
use crate::testing::objects::{admitted, changed, cluster_queue, local_queue, policy, workload};

#[test]
fn policy_rules_follow_queue_that_workload_holds_or_awaits() {
    let limited = || policy("p", json!({"admission": {"maxJobs": 3}}));
    let rules = |state: State| state.context().rules_for(state.workload("w")).map(|rules| rules.limits.max_jobs);
    assert_eq!(rules(State::new().with(workload("w"))), None);
    assert_eq!(rules(State::new().with(limited()).with(workload("w"))), Some(Some(3)));
    let moved = State::new().with(limited()).with(cluster_queue("other", &[("f", 1)])).with(local_queue("lq", "other"));
    assert_eq!(rules(moved.with(admitted(workload("w")))), Some(Some(3)), "it holds quota of cq");
    let elsewhere = changed(limited(), json!({"spec": {"clusterQueues": ["other"]}}));
    assert_eq!(rules(State::new().with(elsewhere).with(workload("w"))), None);
}

#[test]
fn engine_gets_limits_and_bounds_of_the_policies() {
    let spec = |rules: Value| {
        let state = State::new().with(policy("p", rules));
        state.context().queue_spec(&state.view.cluster_queues()["cq"])
    };
    let limit = spec(json!({"admission": {"maxJobs": 3}})).max_jobs.expect("a limit");
    assert_eq!((limit.most, limit.source.as_str()), (3, "QueuePolicy p: spec.admission.maxJobs"));
    let borrowing = spec(json!({"borrowingRatioPercent": 50})).groups[0].flavors[0].quotas[0].borrowing_limit;
    assert_eq!(borrowing, Some(engine::Amount::new(5_000)));
}

#[test]
fn selectors_yield_to_tiers_only_with_policy_override() {
    let overrides = |rules: Value| {
        let state = State::new().with(policy("p", rules)).with(workload("w"));
        state.context().overrides_selectors(state.workload("w"))
    };
    assert!(!overrides(json!({"capacityTiers": {"default": ["spot"]}})));
    assert!(overrides(json!({"capacityTiers": {"default": ["spot"], "selectors": "Override"}})));
}
