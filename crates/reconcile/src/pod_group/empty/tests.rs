use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition_since, evicted, with_condition, workload};
use crate::testing::step::step;
use crate::testing::{State, now};

/// The Workload of a group that has a controller among its owners.
fn kept(workload: Value) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r-uid"});
    let group = json!({"annotations": {"kueue.x-k8s.io/is-group-workload": "true"}, "ownerReferences": [owner]});
    changed(workload, json!({ "metadata": group }))
}

#[test]
fn group_without_pods_waits_ten_seconds_with_its_quota() {
    let waits = |since: i64| {
        with_condition(
            kept(admitted(workload("w"))),
            condition_since("WaitingForReplacementPods", true, "PodsFailed", since),
        )
    };
    let rows = [
        ("its last pod has gone", kept(admitted(workload("w"))), Some("SetWaitingForPods: apply status Workload ns/w")),
        ("it waits", waits(-4), Some("wait 6s")),
        ("it has waited", waits(-10), Some("ReleaseQuota: apply status Workload ns/w")),
        ("inactive", changed(waits(-10), json!({"spec": {"active": false}})), None),
        (
            "evicted",
            kept(evicted(admitted(workload("w")), "Preempted")),
            Some("ReleaseQuota: apply status Workload ns/w"),
        ),
        ("no quota", kept(workload("w")), None),
        ("no controller owns it", admitted(workload("w")), Some("done")),
    ];
    for (name, object, expected) in rows {
        let state = State::new().with(object);
        let found = without_pods(state.workload("w"), now()).map(|decision| step(&decision).what);
        assert_eq!(found.as_deref(), expected, "{name}");
    }
}
