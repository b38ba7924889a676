use serde_json::{Value, json};

use super::*;
use crate::testing::State;
use crate::testing::objects::{admitted, changed, cluster_queue, deleting, job, local_queue, reserved, workload_of};

fn with_queues(cluster: Value, local: Value) -> State {
    State::new().with(cluster).with(local).with(admitted(workload_of(&job("a"))))
}

fn stopping(object: Value, policy: &str) -> Value {
    changed(object, json!({"spec": {"stopPolicy": policy}}))
}

#[test]
fn quota_is_lost_with_its_queues_and_flavors() {
    let cq = || cluster_queue("cq", &[("f", 10)]);
    let lq = || local_queue("lq", "cq");
    let rows = [
        ("both there", with_queues(cq(), lq()), None),
        ("LocalQueue goes", with_queues(cq(), deleting(lq())), Some("LocalQueue lq is terminating or missing")),
        ("ClusterQueue goes", with_queues(deleting(cq()), lq()), Some("ClusterQueue cq is terminating or missing")),
    ];
    for (name, state, expected) in rows {
        assert_eq!(missing_queue(&state.context(), state.workload("w")).as_deref(), expected, "{name}");
    }
    let unnamed = changed(reserved(workload_of(&job("a"))), json!({"spec": {"queueName": ""}}));
    let state = State::new().with(unnamed);
    assert_eq!(missing_queue(&state.context(), state.workload("w")), None, "another client gave it its quota");
    let other = with_queues(cluster_queue("cq", &[("g", 10)]), lq());
    let lost = "ClusterQueue cq has flavor f no longer";
    assert_eq!(lost_flavor(&other.context(), other.workload("w")).as_deref(), Some(lost));
    let same = with_queues(cq(), lq());
    assert_eq!(lost_flavor(&same.context(), same.workload("w")), None);
}

#[test]
fn stopped_queue_keeps_or_drains_its_workloads() {
    let cq = || cluster_queue("cq", &[("f", 10)]);
    let lq = || local_queue("lq", "cq");
    let rows = [
        ("none", cq(), lq(), None),
        ("ClusterQueue holds", stopping(cq(), "Hold"), lq(), Some(("ClusterQueueStopped", false))),
        ("ClusterQueue drains", stopping(cq(), "HoldAndDrain"), lq(), Some(("ClusterQueueStopped", true))),
        ("LocalQueue holds", cq(), stopping(lq(), "Hold"), Some(("LocalQueueStopped", false))),
        ("LocalQueue drains", cq(), stopping(lq(), "HoldAndDrain"), Some(("LocalQueueStopped", true))),
        ("both", stopping(cq(), "Hold"), stopping(lq(), "HoldAndDrain"), Some(("ClusterQueueStopped", false))),
    ];
    for (name, cluster, local, expected) in rows {
        let state = with_queues(cluster, local);
        let found = queue_stop(&state.context(), state.workload("w")).map(|(reason, drains, _)| (reason, drains));
        assert_eq!(found, expected, "{name}");
    }
}
