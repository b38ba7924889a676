use serde_json::{Value, json};

use super::*;
use crate::pod::tests::{case_of, pending};
use crate::testing::State;
use crate::testing::objects::{admitted, changed, pod, started};
use crate::testing::step::step;

/// A running pod that requests `cpus` cpus, while its Workload was admitted for one cpu.
fn resized(cpus: &str) -> State {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus}}});
    let runs = changed(started(pod("a")), json!({"spec": {"containers": [container]}}));
    State::new().with(runs).with(admitted(pending()))
}

#[test]
fn pod_resized_beyond_quota_evicts_its_workload() {
    let found = |cpus: &str| {
        let state = resized(cpus);
        case_of(&state, "a", |case| case.too_large(state.workload("w")).map(|decision| step(&decision)))
    };
    assert_eq!(found("1"), None);
    assert_eq!(found("500m"), None);
    let evicted = found("2").expect("an eviction");
    let (_, reason, message) = evicted.condition("Evicted").expect("a condition");
    assert_eq!(reason, "PodResized");
    let expected = "Pod a asks for 2 of cpu, pod set \"main\" of Workload \"w\" has 1 for each of its pods, and its ClusterQueue has no room for more";
    assert_eq!(message, expected);
}

/// LimitRanges may have changed since the admission, so the admitted amount counts if it is more than the present requests of the pod set.
#[test]
fn pod_excess_is_counted_above_larger_of_request_and_quota() {
    let given = |usage: &str| {
        let mut workload = admitted(pending());
        workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = json!(usage);
        workload
    };
    let excess = |workload: Value, cpus: &str| {
        let state = resized(cpus).with(workload);
        let asked = state.view.pods().asked(&crate::testing::own_name("a")).expect("needs").clone();
        beyond(state.workload("w"), "main", &asked)
            .map(|excess| (excess.resource, excess.asked.get(), excess.given.get()))
    };
    assert_eq!(excess(given("1"), "2"), Some(("cpu".to_owned(), 2_000, 1_000)));
    assert_eq!(excess(given("2"), "2"), None);
    assert_eq!(excess(given("500m"), "1"), None);
}
