use serde_json::json;

use crate::queues::figures::tests::gauges_of;
use crate::testing::State;
use crate::testing::objects::{admitted, changed, cluster_queue, reserved, workload};

/// ClusterQueue `cq` in cohort `b`, which is in cohort `a`, with one workload that holds quota.
fn tree() -> State {
    let parent = json!({"kind": "Cohort", "metadata": {"name": "b", "uid": "b-uid"}, "spec": {"parentName": "a"}});
    let queue = changed(cluster_queue("cq", &[("f", 10)]), json!({"spec": {"cohortName": "b"}}));
    let mut state = State::new().with(parent).with(queue).with(admitted(workload("w")));
    state.pass_on_workloads();
    state
}

#[test]
fn cohorts_above_a_queue_are_listed_from_the_nearest() {
    let state = tree();
    assert_eq!(state.context().above("cq"), ["b", "a"]);
    let circle = json!({"kind": "Cohort", "metadata": {"name": "a", "uid": "a-uid"}, "spec": {"parentName": "b"}});
    assert_eq!(tree().with(circle).context().above("cq"), ["b", "a"], "a cycle ends where it closes");
    assert_eq!(State::new().context().above("cq"), [""; 0]);
}

#[test]
fn gauges_of_a_cohort_sum_its_subtree() {
    let state = tree();
    let admitted = gauges_of(&state, "kueue_cohort_subtree_admitted_active_workloads");
    assert_eq!(admitted, [("a".to_owned(), 1.0), ("b".to_owned(), 1.0)]);
    assert_eq!(gauges_of(&state, "kueue_cohort_subtree_quota"), [("cpu".to_owned(), 10.0), ("cpu".to_owned(), 10.0)]);
    assert_eq!(gauges_of(&state, "kueue_cohort_subtree_resource_reservations")[0].1, 2.0);
}

#[test]
fn admission_counts_in_each_cohort_above() {
    let state = tree();
    let before = State::new().with(reserved(workload("w")));
    let found = state.context().cohort_measures(before.workload("w"), state.workload("w"));
    assert_eq!(found.len(), 2);
    assert!(state.context().cohort_measures(state.workload("w"), state.workload("w")).is_empty());
}
