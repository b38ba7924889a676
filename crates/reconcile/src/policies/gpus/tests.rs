use serde_json::{Value, json};

use crate::testing::State;
use crate::testing::objects::{changed, policy, template, workload};

/// A Workload of so many pods with two accelerators each, which may do with fewer.
fn pods(count: i64, least: Option<i64>) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "2"}}});
    let set = json!({"name": "main", "count": count, "template": changed(template(), json!({"spec": {"containers": [container]}}))});
    let set = least.map_or(set.clone(), |least| changed(set, json!({"minCount": least})));
    changed(workload("w"), json!({"spec": {"podSets": [set]}}))
}

fn limited(most: i64, workload: Value) -> State {
    State::new().with(policy("p", json!({"admission": {"maxGPUsPerJob": most}}))).with(workload)
}

#[test]
fn workload_is_capped_at_the_accelerators_of_its_policy() {
    let capped = |most: i64, workload: Value| {
        let state = limited(most, workload);
        let mut sets = state.workload("w").shape.pod_sets.clone();
        state.context().cap_gpus(state.workload("w"), &mut sets);
        sets[0].count
    };
    assert_eq!(capped(100, pods(4, Some(1))), 4);
    assert_eq!(capped(5, pods(4, Some(1))), 2, "five accelerators are enough for two pods");
    assert_eq!(capped(1, pods(4, Some(3))), 3, "not below the fewest pods");
    assert_eq!(capped(1, pods(4, None)), 4, "it takes no fewer");
}

#[test]
fn accelerators_of_all_pods_are_counted_together() {
    let state = State::new().with(pods(4, None));
    assert_eq!(state.context().accelerators_of(state.workload("w")), 8);
    let plain = State::new().with(workload("w"));
    assert_eq!(plain.context().accelerators_of(plain.workload("w")), 0);
}
