//! Pods, pod groups and jobs that claim the Workload or the place of another pod, group or job: no pod runs without quota, and no quota of another job is
//! blocked.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, merge};
use crate::stories::groups::{gated, member, running_set, set, set_workload};
use crate::stories::pods::pod;
use crate::stories::{one_queue, pod_queue};

const HASH: &str = "role-hash";

fn has_event(cluster: &Cluster, reason: &str, part: &str) -> bool {
    cluster.notices.iter().any(|notice| notice.reason == reason && notice.message.contains(part))
}

#[test]
fn group_pod_larger_than_its_claimed_role_does_not_start() {
    let mut cluster = pod_queue("8");
    cluster.put(Kind::Pod, member("a", "1", 2, &[(HASH, "same")]));
    cluster.put(Kind::Pod, member("b", "4", 2, &[(HASH, "same")]));
    cluster.pass(10);
    assert!(!gated(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
    assert!(has_event(&cluster, "OutOfSync", "asks for more cpu"), "{:?}", cluster.notices);
}

/// Kueue's hash of a pod does not distinguish an init container from a sidecar.
#[test]
fn group_pod_with_sidecar_beyond_its_role_does_not_start() {
    let beside = |name: &str, policy: Value| {
        let mut pod = member(name, "1", 2, &[]);
        let requests = json!({"requests": {"cpu": "1"}});
        pod["spec"]["initContainers"] = json!([{"name": "i", "restartPolicy": policy, "resources": requests}]);
        pod
    };
    let mut cluster = pod_queue("8");
    cluster.put(Kind::Pod, beside("a", Value::Null));
    cluster.put(Kind::Pod, beside("b", json!("Always")));
    cluster.pass(10);
    let sets = cluster.objects()[&Cluster::key(Kind::Workload, "team", "g")]["spec"]["podSets"].clone();
    assert_eq!(sets.as_array().unwrap().len(), 1, "they have one role: {sets}");
    assert!(!gated(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
    assert!(has_event(&cluster, "OutOfSync", "asks for more cpu"), "{:?}", cluster.notices);
}

#[test]
fn group_pod_of_unadmitted_role_waits_with_event_naming_fix() {
    // The Workload is made from the first pod of the group, whose annotation says that all pods of the group are equal.
    let fast = |role| [(HASH, role), ("pod-group-fast-admission", "true")];
    let mut cluster = pod_queue("8");
    cluster.put(Kind::Pod, member("a", "1", 3, &fast("same")));
    cluster.settle();
    cluster.put(Kind::Pod, member("b", "1", 3, &fast("other")));
    cluster.put(Kind::Pod, member("c", "1", 3, &fast("same")));
    cluster.settle();
    assert!(!gated(&cluster, "a") && gated(&cluster, "b") && !gated(&cluster, "c"), "{:?}", cluster.writes);
    let events: Vec<_> = cluster.notices.iter().filter(|notice| notice.reason == "RoleNotFound").collect();
    assert_eq!(events.len(), 1, "{:?}", cluster.notices);
    assert_eq!(events[0].key.name, "b");
    for part in ["role \"other\"", "Workload \"g\" (same)", "annotation kueue.x-k8s.io/role-hash"] {
        assert!(events[0].message.contains(part), "{part}: {}", events[0].message);
    }
    cluster.put(Kind::Pod, member("d", "1", 3, &fast("same")));
    cluster.settle();
    assert!(!gated(&cluster, "d"), "one that was made anew with that role: {:?}", cluster.writes);
}

#[test]
fn unsuspended_job_naming_another_jobs_workload_is_suspended_again() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].clone();
    let mut thief = job("b", "lq", "1", true);
    thief["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = workload;
    cluster.put(Kind::JOB, thief);
    cluster.settle();
    cluster.edit(Kind::JOB, "team", "b", &json!({"spec": {"suspend": false}}));
    cluster.settle();
    assert_eq!(cluster.job("b")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn ended_pod_without_queue_does_not_finish_its_pod_group() {
    let mut cluster = pod_queue("4");
    let mut odd_pod = member("stray", "1", 1, &[]);
    odd_pod["metadata"]["labels"].as_object_mut().unwrap().remove("kueue.x-k8s.io/queue-name");
    merge(&mut odd_pod, &json!({"metadata": {"finalizers": []}, "spec": {"schedulingGates": []}}));
    cluster.put(Kind::Pod, member("a", "1", 1, &[]));
    cluster.settle();
    cluster.put(Kind::Pod, odd_pod);
    cluster.settle();
    cluster.end_pod("stray", "Succeeded");
    cluster.settle();
    assert!(!cluster.workload_is("g", "Finished"), "its only pod still runs: {:?}", cluster.writes);
    assert!(!gated(&cluster, "a"));
}

#[test]
fn finished_group_workload_stops_pods_that_still_run() {
    let mut cluster = pod_queue("4");
    cluster.put(Kind::Pod, member("a", "1", 2, &[]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[]));
    cluster.settle();
    assert!(!gated(&cluster, "a") && !gated(&cluster, "b"));
    let finished = json!({"status": {"conditions": [{"type": "Finished", "status": "True", "reason": "FailedToStart",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    cluster.edit(Kind::Workload, "team", "g", &finished);
    cluster.pass(60);
    assert!(cluster.pod("a").is_none() && cluster.pod("b").is_none(), "{:?}", cluster.writes);
}

#[test]
fn ended_pod_is_deleted_with_the_workload_of_its_group() {
    let mut cluster = pod_queue("4");
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
    }
    cluster.settle();
    cluster.end_pod("a", "Succeeded");
    cluster.settle();
    cluster.delete(&Cluster::key(Kind::Workload, "team", "g"));
    cluster.pass(10);
    assert!(cluster.pod("a").is_none() && cluster.pod("b").is_none(), "{:?}", cluster.writes);
    assert!(!cluster.objects().contains_key(&Cluster::key(Kind::Workload, "team", "g")), "{:?}", cluster.writes);
    // If the pod of the old group still existed, the next group of the same name would have an excess pod.
    for name in ["c", "d"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
    }
    cluster.settle();
    assert!(!gated(&cluster, "c") && !gated(&cluster, "d"), "{:?}", cluster.writes);
}

#[test]
fn pod_that_left_its_queue_does_not_keep_group_workload() {
    let mut cluster = pod_queue("1");
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
    }
    cluster.settle();
    assert!(gated(&cluster, "a") && cluster.objects().contains_key(&Cluster::key(Kind::Workload, "team", "g")));
    cluster.edit(Kind::Pod, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}));
    cluster.delete(&Cluster::key(Kind::Workload, "team", "g"));
    cluster.pass(10);
    assert!(!cluster.objects().contains_key(&Cluster::key(Kind::Workload, "team", "g")), "{:?}", cluster.writes);
    assert!(gated(&cluster, "a") && cluster.pod("b").is_none(), "{:?}", cluster.writes);
}

#[test]
fn stateful_set_workload_deletion_stops_pods_and_workload_is_remade() {
    let (mut cluster, name) = running_set();
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.pass(60);
    for pod in ["web-0", "web-1"] {
        assert!(cluster.pod(pod).is_none_or(|_| gated(&cluster, pod)), "{pod}: {:?}", cluster.writes);
    }
    let uid = |workload: &Value| workload["metadata"]["uid"].clone();
    assert!(
        cluster.objects().contains_key(&Cluster::key(Kind::Workload, "team", &name)),
        "it asks again: {:?}",
        cluster.writes
    );
    assert_ne!(uid(set_workload(&cluster)), json!(null));
}

#[test]
fn deactivated_stateful_set_scaled_to_zero_frees_its_quota() {
    let (mut cluster, name) = running_set();
    cluster.put(Kind::StatefulSet, set(0));
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.settle();
    for index in [0, 1] {
        cluster.delete(&Cluster::key(Kind::Pod, "team", &format!("web-{index}")));
    }
    cluster.pass(60);
    assert!(!cluster.workload_is(&name, "QuotaReserved"), "{:?}", set_workload(&cluster));
    cluster.put(Kind::Pod, pod("next", "5"));
    cluster.settle();
    assert!(!gated(&cluster, "next"));
}
