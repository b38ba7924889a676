use serde_json::{Value, json};

use crate::testing::State;
use crate::testing::objects::{changed, policy, template, workload};

#[test]
fn reason_of_workload_beyond_a_limit_names_field_and_value() {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "2"}}});
    let set = json!({"name": "main", "count": 3, "minCount": 2, "template": changed(template(), json!({"spec": {"containers": [container]}}))});
    let gpus = changed(workload("w"), json!({"spec": {"podSets": [set]}}));
    let of = |priority: i64| changed(workload("w"), json!({"spec": {"priority": priority}}));
    let range = |min: i64, max: i64| json!({"admission": {"priorityRange": {"min": min, "max": max}}});
    let rows: Vec<(Value, Value, Option<&str>)> = vec![
        (json!({"admission": {"maxGPUsPerJob": 4}}), gpus.clone(), None),
        (
            json!({"admission": {"maxGPUsPerJob": 3}}),
            gpus,
            Some("QueuePolicy p: spec.admission.maxGPUsPerJob is 3, and the workload asks for 4 at least"),
        ),
        (range(0, 10), of(5), None),
        (
            range(6, 10),
            of(5),
            Some("QueuePolicy p: spec.admission.priorityRange.min is 6, and the workload's priority is 5"),
        ),
        (
            range(0, 4),
            of(5),
            Some("QueuePolicy p: spec.admission.priorityRange.max is 4, and the workload's priority is 5"),
        ),
    ];
    for (rules, workload, expected) in rows {
        let state = State::new().with(policy("p", rules)).with(workload);
        assert_eq!(state.context().limit_on(state.workload("w")).as_deref(), expected);
    }
    let free = State::new().with(workload("w"));
    assert_eq!(free.context().limit_on(free.workload("w")), None, "no policy holds");
}
