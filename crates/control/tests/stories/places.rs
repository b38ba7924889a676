//! A running pod has a place of its own in an admission, into which its requests fit, or is stopped: a user who removes gates, renames roles, scales without
//! the webhook or resizes a pod gets no further quota that way.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job};
use crate::stories::groups::{gated, member, replica, running_set};
use crate::stories::pod_queue;
use crate::stories::pods::pod;

/// A client removes the gate of a pod, and the pod starts.
fn let_loose(cluster: &mut Cluster, name: &str) {
    cluster.edit(Kind::Pod, "team", name, &json!({"spec": {"schedulingGates": []}}));
}

/// Adds a finalizer to a pod, or removes the finalizer; with the finalizer, a deleted pod stays, so that the reason in its status can be read.
fn keep(cluster: &mut Cluster, name: &str, keep: bool) {
    let ours = "kueue.x-k8s.io/managed";
    let finalizers = if keep { json!([ours, "example.com/keep"]) } else { json!([]) };
    cluster.edit(Kind::Pod, "team", name, &json!({"metadata": {"finalizers": finalizers}}));
    cluster.pass(5);
}

fn annotate(cluster: &mut Cluster, name: &str, role: &str) {
    cluster.edit(Kind::Pod, "team", name, &json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": role}}}));
}

/// The reason in the status of a deleted pod.
fn termination_reason(cluster: &Cluster, name: &str) -> Value {
    let pod = cluster.pod(name).expect(name);
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found_condition = conditions.into_iter().find(|condition| condition["type"] == "TerminationTarget");
    found_condition.map(|condition| condition["reason"].clone()).unwrap_or_default()
}

fn role(cluster: &Cluster) -> String {
    let workload = &cluster.objects()[&Cluster::key(Kind::Workload, "team", "g")];
    workload["spec"]["podSets"][0]["name"].as_str().unwrap().to_owned()
}

fn runs(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.pod(name);
    pod.is_some_and(|pod| pod["status"]["phase"] == json!("Running") && pod["metadata"]["deletionTimestamp"].is_null())
}

#[test]
fn running_group_member_larger_than_its_role_is_stopped() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[("role-hash", "x")]));
    cluster.put(Kind::Pod, member("b", "100", 2, &[("role-hash", "x")]));
    cluster.pass(5);
    assert!(runs(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
    keep(&mut cluster, "b", true);
    let_loose(&mut cluster, "b");
    cluster.settle();
    assert_eq!(termination_reason(&cluster, "b"), json!("OutOfSync"), "{:?}", cluster.writes);
    assert!(
        cluster.notices.iter().any(|n| n.key.name == "b" && n.message.contains("100 of cpu")),
        "{:?}",
        cluster.notices
    );
    keep(&mut cluster, "b", false);
    assert!(cluster.pod("b").is_none() && runs(&cluster, "a"), "{:?}", cluster.writes);
    cluster.put(Kind::Pod, member("b", "1", 2, &[("role-hash", "x")]));
    cluster.pass(5);
    assert!(runs(&cluster, "b"), "its place waits for one that fits: {:?}", cluster.writes);
    // A pod that a client makes larger after its admission has no quota for the difference.
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]);
    cluster.edit(Kind::Pod, "team", "b", &json!({"spec": {"containers": containers}}));
    cluster.pass(5);
    assert!(cluster.pod("b").is_none() && runs(&cluster, "a"), "{:?}", cluster.writes);
}

#[test]
fn running_group_member_of_unknown_role_is_stopped() {
    let fast = ("pod-group-fast-admission", "true");
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[fast]));
    cluster.pass(5);
    cluster.put(Kind::Pod, member("b", "100", 2, &[fast]));
    cluster.pass(5);
    assert!(runs(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
    keep(&mut cluster, "b", true);
    let_loose(&mut cluster, "b");
    cluster.settle();
    assert_eq!(termination_reason(&cluster, "b"), json!("RoleNotFound"), "{:?}", cluster.writes);
    keep(&mut cluster, "b", false);
    assert!(cluster.pod("b").is_none() && runs(&cluster, "a"), "{:?}", cluster.writes);
}

#[test]
fn ungated_stateful_set_pod_beyond_admission_is_stopped_then_waits() {
    let (mut cluster, _) = running_set();
    for index in [2, 3] {
        replica(&mut cluster, index);
    }
    for name in ["web-2", "web-3"] {
        let_loose(&mut cluster, name);
    }
    cluster.pass(5);
    assert!(cluster.pod("web-2").is_none() && cluster.pod("web-3").is_none(), "{:?}", cluster.writes);
    assert!(runs(&cluster, "web-0") && runs(&cluster, "web-1"), "{:?}", cluster.writes);
    let stopped = cluster.notices.iter().filter(|n| n.reason == "Stopped" && n.message.contains("one more"));
    assert_eq!(stopped.count(), 2, "{:?}", cluster.notices);
    // The StatefulSet's controller makes the deleted pods again.
    for index in [2, 3] {
        replica(&mut cluster, index);
    }
    cluster.pass(60);
    assert!(gated(&cluster, "web-2") && gated(&cluster, "web-3"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::DeletePod), 2, "{:?}", cluster.writes);
}

#[test]
fn started_pod_with_another_role_hash_keeps_its_place() {
    for restarts in [false, true] {
        let mut cluster = pod_queue("2");
        cluster.put(Kind::Pod, member("p1", "2", 1, &[]));
        cluster.pass(5);
        let role = role(&cluster);
        annotate(&mut cluster, "p1", "bogus");
        if restarts {
            cluster.restart();
        }
        cluster.put(Kind::Pod, member("p2", "2", 1, &[("role-hash", &role)]));
        cluster.pass(5);
        assert!(runs(&cluster, "p1") && !runs(&cluster, "p2"), "restarts {restarts}: {:?}", cluster.writes);
    }
}

#[test]
fn group_member_start_waits_until_pod_of_unknown_role_ends() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("p1", "2", 1, &[]));
    cluster.pass(5);
    let role = role(&cluster);
    // The new leader does not know for which role the pod was started.
    annotate(&mut cluster, "p1", "bogus");
    cluster.edit(Kind::Pod, "team", "p1", &json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": "bogus"}}}));
    cluster.controller_sleeps = true;
    cluster.restart();
    cluster.put(Kind::Pod, member("p2", "2", 1, &[("role-hash", &role)]));
    cluster.pass(5);
    assert_eq!(termination_reason(&cluster, "p1"), json!("RoleNotFound"), "{:?}", cluster.writes);
    assert!(gated(&cluster, "p2"), "the other one still runs: {:?}", cluster.writes);
    cluster.controller_sleeps = false;
    cluster.pass(5);
    assert!(cluster.pod("p1").is_none() && runs(&cluster, "p2"), "{:?}", cluster.writes);
}

#[test]
fn pod_resized_above_its_quota_is_evicted() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, pod("a", "1"));
    cluster.pass(5);
    let resize = |cluster: &mut Cluster, cpu: &str| {
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
        cluster.edit(Kind::Pod, "team", "a", &json!({"spec": {"containers": containers}}));
        cluster.pass(5);
    };
    resize(&mut cluster, "500m");
    assert!(runs(&cluster, "a"), "less is no harm: {:?}", cluster.writes);
    resize(&mut cluster, "1000m");
    assert!(runs(&cluster, "a"), "{:?}", cluster.writes);
    resize(&mut cluster, "100");
    assert!(cluster.pod("a").is_none(), "{:?}", cluster.writes);
    let event = cluster.notices.iter().find(|notice| notice.reason == "EvictedDueToPodResized").expect("told");
    assert!(event.message.contains("100 of cpu"), "{}", event.message);
    assert_eq!(cluster.count(Purpose::FinishWorkload), 0, "it leaves like any victim: {:?}", cluster.writes);
}

/// A pod that is made larger keeps running as long as its queue has room for the difference, whether the pod is single or in a group.
#[test]
fn resized_pod_is_charged_where_its_queue_has_room() {
    for made in [pod("a", "1"), member("a", "1", 1, &[])] {
        for restarts in [false, true] {
            let mut cluster = pod_queue("6");
            cluster.put(Kind::Pod, made.clone());
            cluster.pass(5);
            let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]);
            cluster.edit(Kind::Pod, "team", "a", &json!({"spec": {"containers": containers}}));
            cluster.pass(5);
            if restarts {
                cluster.restart();
            }
            cluster.put(Kind::JOB, job("next", "lq", "2", true));
            cluster.pass(5);
            assert!(runs(&cluster, "a"), "restarts {restarts}: {made}: {:?}", cluster.writes);
            assert!(!cluster.is("next", "Admitted"), "5 of 6 are in use: {made}: {:?}", cluster.writes);
            cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "4")]));
            cluster.pass(5);
            assert!(!runs(&cluster, "a"), "restarts {restarts}: {made}: {:?}", cluster.writes);
        }
    }
}
