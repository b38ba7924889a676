//! A namespace that is being deleted: Kubernetes deletes the pods of the namespace first, and no other object while a pod is left. No object of Berth may delay
//! the deletion of a namespace, and no job starts in a namespace that is being deleted.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job};
use crate::stories::groups::{gated, member, running_set};
use crate::stories::pods::pod;
use crate::stories::{one_queue, pod_queue};

fn pods(cluster: &Cluster) -> usize {
    cluster.objects().keys().filter(|key| key.kind == Kind::Pod).count()
}

fn workloads(cluster: &Cluster) -> Vec<&Value> {
    cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object).collect()
}

/// The quota that Workloads have reserved in ClusterQueue `cq`.
fn reserved(cluster: &Cluster) -> &Value {
    let queue = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")];
    &queue["status"]["flavorsReservation"][0]["resources"][0]["total"]
}

/// Deletes the namespace with its pods and then its other objects, and asserts that no object is left and no quota is held.
fn ends(mut cluster: Cluster, what: &str, restarts: bool) {
    cluster.end_namespace();
    if restarts {
        cluster.restart();
    }
    cluster.pass(30);
    assert_eq!(pods(&cluster), 0, "{what}: {:?}", cluster.writes);
    let rest = cluster.objects().keys().filter(|key| key.namespace == "team").cloned().collect::<Vec<_>>();
    for object in rest {
        cluster.delete(&object);
    }
    cluster.pass(30);
    let left: Vec<_> = cluster.objects().keys().filter(|key| key.namespace == "team").collect();
    assert!(left.is_empty(), "{what}: {left:?}");
    assert_eq!(reserved(&cluster), &json!("0"), "{what}");
}

fn group(quota: &str) -> Cluster {
    let mut cluster = pod_queue(quota);
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
    }
    cluster.pass(5);
    cluster
}

#[test]
fn pod_groups_and_pods_are_deleted_with_their_namespace() {
    for restarts in [false, true] {
        ends(group("2"), "running", restarts);
        ends(group("1"), "waiting", restarts);
        let mut cluster = group("2");
        cluster.end_pod("a", "Succeeded");
        cluster.settle();
        ends(cluster, "one has succeeded", restarts);
        let mut cluster = group("2");
        cluster.edit(Kind::Workload, "team", "g", &json!({"spec": {"active": false}}));
        cluster.pass(5);
        ends(cluster, "evicted", restarts);
        let mut cluster = pod_queue("2");
        cluster.put(Kind::Pod, pod("a", "1"));
        cluster.put(Kind::Pod, pod("b", "2"));
        cluster.settle();
        ends(cluster, "pods by themselves", restarts);
        ends(running_set().0, "a StatefulSet", restarts);
    }
}

#[test]
fn jobs_and_pods_in_terminating_namespace_get_no_quota() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::JOB, job("waits", "lq", "2", true));
    cluster.put(Kind::Pod, pod("alone", "2"));
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "2", 2, &[]));
    }
    cluster.pass(5);
    let made = workloads(&cluster).len();
    assert_eq!(made, 3, "{:?}", cluster.writes);
    // Finalizers of the user keep the pods of the deleted namespace.
    for name in ["alone", "a", "b"] {
        let kept = json!({"metadata": {"finalizers": ["example.com/keep"]}});
        cluster.edit(Kind::Pod, "team", name, &kept);
    }
    cluster.end_namespace();
    cluster.put(Kind::JOB, job("late", "lq", "1", true));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "9")]));
    cluster.pass(30);
    assert_eq!(workloads(&cluster).len(), made, "{:?}", cluster.writes);
    assert_eq!((cluster.count(Purpose::ReserveQuota), cluster.count(Purpose::StartJob)), (0, 0));
    assert!(gated(&cluster, "alone") && cluster.job("waits")["spec"]["suspend"] == json!(true));
    let found_condition = cluster.workload_of("waits").unwrap()["status"]["conditions"].as_array().unwrap().clone();
    let says = |condition: &Value| condition["message"] == json!("its namespace is being deleted");
    assert!(found_condition.iter().any(says), "{found_condition:?}");
}

#[test]
fn running_job_is_deleted_in_terminating_namespace_and_frees_quota() {
    for restarts in [false, true] {
        let mut cluster = one_queue("2");
        cluster.put(Kind::JOB, job("runs", "lq", "2", true));
        cluster.settle();
        cluster.put(Kind::JOB, job("waits", "lq", "1", true));
        cluster.settle();
        assert!(cluster.is("runs", "Admitted"), "{:?}", cluster.writes);
        // The pods of the Job end slowly, and Kubernetes deletes the Job only when no pod is left.
        cluster.keep_pods_of(Kind::JOB, "runs");
        cluster.end_namespace();
        if restarts {
            cluster.restart();
        }
        cluster.pass(5);
        assert!(!cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", "runs")), "{:?}", cluster.writes);
        assert!(cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", "waits")), "it has no pods");
        assert_eq!(reserved(&cluster), &json!("2"), "its pods still end");
        cluster.pods_left.clear();
        ends(cluster, "a Job", false);
    }
}

#[test]
fn running_training_job_is_stopped_in_terminating_namespace() {
    for restarts in [false, true] {
        let mut cluster = crate::stories::training::started("2", json!({}));
        let jobs = |cluster: &Cluster| cluster.objects().keys().filter(|key| key.kind == Kind::JOB).count();
        assert!(jobs(&cluster) > 0, "{:?}", cluster.writes);
        cluster.end_namespace();
        if restarts {
            cluster.restart();
        }
        cluster.pass(30);
        assert_eq!(jobs(&cluster), 0, "{:?}", cluster.writes);
        assert!(
            cluster.objects().keys().any(|key| key.kind == Kind::TrainingJob),
            "Kubernetes deletes it after the pods"
        );
        ends(cluster, "a TrainingJob", false);
    }
}
