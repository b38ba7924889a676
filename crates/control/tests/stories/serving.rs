//! Groups of serving pods, made by any controller: such a group has no end, and its Workload stays while single pods are created and deleted.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, local_queue};
use crate::stories::groups::{gated, member};
use crate::stories::pod_queue;

const SERVING: &[(&str, &str)] = &[("pod-group-serving", "true")];

fn put(cluster: &mut Cluster, names: &[&str], notes: &[(&str, &str)]) {
    for name in names {
        cluster.put(Kind::Pod, member(name, "1", 2, notes));
    }
    cluster.pass(5);
}

fn group(cluster: &Cluster) -> &Value {
    cluster.objects().get(&Cluster::key(Kind::Workload, "team", "g")).expect("the Workload of the group")
}

fn waits(cluster: &Cluster) -> bool {
    cluster.workload_is("g", "WaitingForReplacementPods")
}

fn activate(cluster: &mut Cluster, active: bool) {
    cluster.edit(Kind::Workload, "team", "g", &json!({"spec": {"active": active}}));
    cluster.pass(10);
}

#[test]
fn serving_pod_group_never_finishes_and_keeps_its_quota() {
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"], SERVING);
    for name in ["a", "b"] {
        cluster.end_pod(name, "Succeeded");
        cluster.settle();
        assert!(!cluster.workload_is("g", "Finished"), "{:?}", cluster.writes);
        assert!(cluster.workload_is("g", "QuotaReserved"), "{:?}", cluster.writes);
    }
    assert_eq!(group(&cluster)["status"].get("reclaimablePods"), None);
}

#[test]
fn failed_pod_of_serving_group_is_replaced_without_new_admission() {
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"], SERVING);
    cluster.end_pod("a", "Failed");
    cluster.settle();
    assert!(waits(&cluster), "{:?}", group(&cluster)["status"]);
    put(&mut cluster, &["c"], SERVING);
    assert!(!waits(&cluster) && !gated(&cluster, "c"), "{:?}", cluster.writes);
    assert_eq!(cluster.pod("a").unwrap()["metadata"]["finalizers"], json!([]), "its place is taken");
    assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "{:?}", cluster.writes);
}

#[test]
fn evicted_serving_group_gets_no_quota_until_its_pods_return() {
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"], SERVING);
    activate(&mut cluster, false);
    activate(&mut cluster, true);
    assert!(waits(&cluster) && !cluster.workload_is("g", "QuotaReserved"), "{:?}", group(&cluster)["status"]);
    put(&mut cluster, &["c", "d"], SERVING);
    assert!(cluster.workload_is("g", "Admitted") && !waits(&cluster), "{:?}", cluster.writes);
    assert!(!gated(&cluster, "c") && !gated(&cluster, "d"), "{:?}", cluster.writes);
}

#[test]
fn serving_pod_group_cannot_move_to_another_queue() {
    for (notes, queue) in [(SERVING, "lq"), (&[][..], "other")] {
        let mut cluster = pod_queue("1");
        cluster.put(Kind::LocalQueue, local_queue("other", "cq"));
        put(&mut cluster, &["a", "b"], notes);
        assert!(gated(&cluster, "a"), "there is room for one of two");
        for name in ["a", "b"] {
            let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}});
            cluster.edit(Kind::Pod, "team", name, &moved);
        }
        cluster.pass(5);
        assert_eq!(group(&cluster)["spec"]["queueName"], json!(queue), "{notes:?}");
    }
}

#[test]
fn fast_admission_group_waits_for_pods_only_when_none_remain() {
    let fast = [("pod-group-fast-admission", "true")];
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"], &fast);
    cluster.end_pod("a", "Failed");
    cluster.settle();
    assert!(!waits(&cluster), "b goes on: {:?}", group(&cluster)["status"]);
    activate(&mut cluster, false);
    assert!(waits(&cluster), "nobody is left: {:?}", group(&cluster)["status"]);
    activate(&mut cluster, true);
    assert!(!cluster.workload_is("g", "QuotaReserved"), "{:?}", cluster.writes);
    put(&mut cluster, &["c"], &fast);
    assert!(cluster.workload_is("g", "Admitted") && !gated(&cluster, "c"), "{:?}", cluster.writes);
}
