//! How long Berth's finalizer keeps the pods of a group: until the end of each pod is recorded. Berth's finalizer never keeps a pod because a replacement pod
//! is missing.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, merge};
use crate::stories::groups::{gated, member, set};
use crate::stories::pod_queue;

fn group(cluster: &Cluster) -> Option<&Value> {
    cluster.objects().get(&Cluster::key(Kind::Workload, "team", "g"))
}

fn pods(cluster: &Cluster) -> Vec<&str> {
    cluster.objects().keys().filter(|key| key.kind == Kind::Pod).map(|key| key.name.as_str()).collect()
}

fn delete(cluster: &mut Cluster, names: &[&str]) {
    for name in names {
        cluster.delete(&Cluster::key(Kind::Pod, "team", name));
    }
}

fn activate(cluster: &mut Cluster, active: bool) {
    cluster.edit(Kind::Workload, "team", "g", &json!({"spec": {"active": active}}));
    cluster.pass(30);
}

fn put(cluster: &mut Cluster, names: &[&str]) {
    for name in names {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
    }
    cluster.pass(5);
}

/// A StatefulSet that names no queue, and whose pods name a group.
fn with_controller(quota: &str) -> Cluster {
    let mut cluster = pod_queue(quota);
    let mut stranger = set(2);
    stranger["metadata"]["labels"] = json!({});
    stranger["spec"]["template"]["metadata"]["annotations"] = json!({});
    cluster.put(Kind::StatefulSet, stranger);
    cluster
}

/// Creates pods of the StatefulSet `web` with the given names in the group.
fn make(cluster: &mut Cluster, names: &[&str]) {
    let uid = cluster.objects()[&Cluster::key(Kind::StatefulSet, "team", "web")]["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": true});
    for name in names {
        let mut made = member(name, "1", 2, &[]);
        merge(&mut made, &json!({"metadata": {"ownerReferences": [owner]}, "spec": {"restartPolicy": "Always"}}));
        cluster.put(Kind::Pod, made);
    }
    cluster.pass(5);
}

fn run(cluster: &Cluster, names: &[&str]) -> bool {
    names.iter().all(|name| !gated(cluster, name))
}

#[test]
fn waiting_group_is_deleted_with_its_pods() {
    // The queue of the pod group has no room (`lq`), or does not exist (`absent`).
    for queue in ["lq", "absent"] {
        let mut cluster = pod_queue("1");
        for name in ["a", "b"] {
            let mut made = member(name, "1", 2, &[]);
            made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
            cluster.put(Kind::Pod, made);
        }
        cluster.pass(5);
        assert!(group(&cluster).is_some() && gated(&cluster, "a"), "{:?}", cluster.writes);
        delete(&mut cluster, &["a", "b"]);
        cluster.pass(5);
        assert!(pods(&cluster).is_empty() && group(&cluster).is_none(), "{queue}: {:?}", cluster.writes);
    }
}

#[test]
fn group_that_waits_for_pods_says_how_many() {
    let mut cluster = pod_queue("1");
    put(&mut cluster, &["a", "b"]);
    delete(&mut cluster, &["b"]);
    cluster.pass(5);
    assert_eq!(pods(&cluster), ["a"], "its name is free: {:?}", cluster.writes);
    let conditions = group(&cluster).unwrap()["status"]["conditions"].as_array().unwrap().clone();
    let found_condition = conditions.iter().find(|condition| condition["type"] == "QuotaReserved").unwrap();
    let text = "waits until all 2 pods of its group are there";
    assert_eq!(
        (&found_condition["reason"], &found_condition["message"]),
        (&json!("PendingEvaluation"), &json!(text)),
        "{conditions:?}"
    );
    let silent = cluster.notices.iter().filter(|notice| notice.message.is_empty()).count();
    assert_eq!(silent, 0, "{:?}", cluster.notices);
    cluster.put(Kind::ClusterQueue, crate::stories::cluster::cluster_queue("cq", None, &[("default", "2")]));
    cluster.pass(5);
    assert!(gated(&cluster, "a"), "it is not whole: {:?}", cluster.writes);
    put(&mut cluster, &["b"]);
    assert!(run(&cluster, &["a", "b"]), "{:?}", cluster.writes);
}

#[test]
fn deleted_pod_of_running_group_frees_its_name_once_ended() {
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"]);
    delete(&mut cluster, &["b"]);
    cluster.pass(5);
    assert_eq!(pods(&cluster), ["a"], "{:?}", cluster.writes);
    assert!(cluster.workload_is("g", "WaitingForReplacementPods") && cluster.workload_is("g", "Admitted"));
    put(&mut cluster, &["b"]);
    assert!(run(&cluster, &["a", "b"]) && !cluster.workload_is("g", "WaitingForReplacementPods"));
    assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "without another admission");
}

#[test]
fn deleted_succeeded_pod_counts_towards_end_of_its_group() {
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"]);
    cluster.end_pod("a", "Succeeded");
    delete(&mut cluster, &["a"]);
    cluster.pass(5);
    assert_eq!(pods(&cluster), ["a", "b"], "{:?}", cluster.writes);
    cluster.end_pod("b", "Succeeded");
    cluster.pass(5);
    assert!(cluster.workload_is("g", "Finished"), "{:?}", cluster.writes);
    assert_eq!(pods(&cluster), ["b"], "the other one is let go: {:?}", cluster.writes);
    // The group ends if all of its pods are deleted.
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"]);
    cluster.end_pod("a", "Succeeded");
    delete(&mut cluster, &["a", "b"]);
    cluster.pass(5);
    assert!(pods(&cluster).is_empty() && group(&cluster).is_none(), "{:?}", cluster.writes);
}

#[test]
fn evicted_pod_with_fixed_name_frees_it_once_ended() {
    for restarts in [false, true] {
        let mut cluster = with_controller("2");
        make(&mut cluster, &["web-0", "web-1"]);
        assert!(run(&cluster, &["web-0", "web-1"]), "{:?}", cluster.writes);
        activate(&mut cluster, false);
        assert!(pods(&cluster).is_empty(), "{:?}", cluster.writes);
        assert!(group(&cluster).is_some() && !cluster.workload_is("g", "QuotaReserved"), "{:?}", cluster.writes);
        if restarts {
            cluster.restart();
        }
        make(&mut cluster, &["web-0", "web-1"]);
        cluster.pass(30);
        assert!(gated(&cluster, "web-0"), "it stays deactivated: {:?}", cluster.writes);
        activate(&mut cluster, true);
        assert!(run(&cluster, &["web-0", "web-1"]), "restarts {restarts}: {:?}", cluster.writes);
        let written = cluster.writes.len();
        cluster.pass(300);
        assert_eq!(&cluster.writes[written..], &[], "quiet at rest");
    }
}

#[test]
fn deleted_pod_with_fixed_name_is_recreated_at_once() {
    let mut cluster = with_controller("2");
    make(&mut cluster, &["web-0", "web-1"]);
    // The container of the pod exits with success because Berth's deletion stops the pod, so that the pod does not count as succeeded.
    cluster.controller_sleeps = true;
    delete(&mut cluster, &["web-1"]);
    cluster.end_pod("web-1", "Succeeded");
    cluster.controller_sleeps = false;
    cluster.pass(5);
    assert_eq!(pods(&cluster), ["web-0"], "{:?}", cluster.writes);
    make(&mut cluster, &["web-1"]);
    assert!(run(&cluster, &["web-0", "web-1"]), "{:?}", cluster.writes);
    // The last pod of the group may be deleted like any other pod.
    delete(&mut cluster, &["web-0", "web-1"]);
    cluster.settle();
    assert!(pods(&cluster).is_empty() && cluster.workload_is("g", "Admitted"), "{:?}", cluster.writes);
    make(&mut cluster, &["web-0", "web-1"]);
    assert!(run(&cluster, &["web-0", "web-1"]), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "all of it under one admission");
}

#[test]
fn group_whose_controller_makes_no_pods_gives_its_quota_back() {
    let mut cluster = with_controller("2");
    make(&mut cluster, &["web-0", "web-1"]);
    delete(&mut cluster, &["web-0", "web-1"]);
    cluster.pass(5);
    assert!(cluster.workload_is("g", "QuotaReserved"), "they may come again: {:?}", cluster.writes);
    cluster.pass(10);
    assert!(!cluster.workload_is("g", "QuotaReserved"), "{:?}", group(&cluster));
    cluster.pass(30);
    let written = cluster.writes.len();
    cluster.pass(120);
    assert_eq!(&cluster.writes[written..], &[], "quiet at rest");
    make(&mut cluster, &["web-0"]);
    assert!(gated(&cluster, "web-0") && !cluster.workload_is("g", "QuotaReserved"), "{:?}", cluster.writes);
    make(&mut cluster, &["web-1"]);
    assert!(run(&cluster, &["web-0", "web-1"]), "{:?}", cluster.writes);
    // The Workload of the pod group is deleted with the last controller that makes pods of the group.
    cluster.delete(&Cluster::key(Kind::StatefulSet, "team", "web"));
    cluster.pass(30);
    assert!(pods(&cluster).is_empty() && group(&cluster).is_none(), "{:?}", cluster.writes);
}

#[test]
fn terminating_pod_makes_no_successor_excess() {
    let mut cluster = with_controller("2");
    make(&mut cluster, &["one", "two"]);
    cluster.controller_sleeps = true;
    activate(&mut cluster, false);
    make(&mut cluster, &["three", "four"]);
    cluster.pass(60);
    assert_eq!(cluster.count(Purpose::DeletePod), 2, "the evicted ones: {:?}", cluster.writes);
    assert_eq!(pods(&cluster), ["four", "one", "three", "two"]);
    assert!(!cluster.notices.iter().any(|notice| notice.reason == "ExcessPod"), "{:?}", cluster.notices);
    cluster.controller_sleeps = false;
    activate(&mut cluster, true);
    assert_eq!(pods(&cluster), ["four", "three"], "{:?}", cluster.writes);
    assert!(run(&cluster, &["three", "four"]), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::DeletePod), 2, "{:?}", cluster.writes);
}

#[test]
fn excess_pod_of_a_controller_waits_with_event() {
    // The group's excess pod is created before the Workload of the group exists (`early`), or after the creation of the Workload.
    for early in [true, false] {
        let mut cluster = with_controller("4");
        let names = ["one", "three", "two"];
        make(&mut cluster, if early { &names } else { &["one", "two"] });
        make(&mut cluster, if early { &[] } else { &["three"] });
        cluster.pass(60);
        assert_eq!(pods(&cluster), names, "{:?}", cluster.writes);
        let waiting: Vec<&str> = names.into_iter().filter(|name| gated(&cluster, name)).collect();
        assert_eq!(waiting.len(), 1, "early {early}: {:?}", cluster.writes);
        let events =
            cluster.notices.iter().filter(|events| events.reason == "ExcessPod" && events.key.name == waiting[0]);
        assert_eq!(events.count(), 1, "{:?}", cluster.notices);
        assert_eq!(cluster.count(Purpose::DeletePod), 0, "{:?}", cluster.writes);
        // The excess pod starts when the pod that it replaces is deleted.
        let runs = names.into_iter().find(|name| *name != waiting[0]).unwrap();
        delete(&mut cluster, &[runs]);
        cluster.pass(5);
        assert!(!gated(&cluster, waiting[0]), "{:?}", cluster.writes);
    }
}

#[test]
fn finished_group_goes_with_its_pods_and_frees_its_name() {
    let mut cluster = with_controller("2");
    make(&mut cluster, &["one", "two"]);
    let owners = |cluster: &Cluster| group(cluster).unwrap()["metadata"]["ownerReferences"].as_array().unwrap().len();
    assert_eq!(owners(&cluster), 3, "its pods, and their controller");
    for name in ["one", "two"] {
        cluster.edit(Kind::Pod, "team", name, &json!({"spec": {"restartPolicy": "Never"}}));
        cluster.end_pod(name, "Succeeded");
    }
    cluster.pass(5);
    assert!(cluster.workload_is("g", "Finished"), "{:?}", cluster.writes);
    assert_eq!(owners(&cluster), 2, "{:?}", group(&cluster));
    delete(&mut cluster, &["one", "two"]);
    cluster.pass(5);
    assert!(group(&cluster).is_none(), "{:?}", cluster.writes);
    make(&mut cluster, &["one", "two"]);
    assert!(run(&cluster, &["one", "two"]), "{:?}", cluster.writes);
}

/// The pods of a group are deleted while a new pod is created. Berth removes the finalizer of the last old pod only after the new pod is an owner of the
/// Workload, because a Workload is deleted with its last owner.
#[test]
fn new_pods_own_group_workload_before_its_last_owner_goes() {
    let mut cluster = pod_queue("2");
    put(&mut cluster, &["a", "b"]);
    cluster.faults.push((Purpose::AddOwners, berth_control::write::WriteOutcome::Busy(2_000), false));
    let uid = group(&cluster).unwrap()["metadata"]["uid"].clone();
    cluster.controller_sleeps = true;
    delete(&mut cluster, &["a", "b"]);
    cluster.put(Kind::Pod, member("c", "1", 2, &[]));
    cluster.controller_sleeps = false;
    cluster.pass(10);
    put(&mut cluster, &["d"]);
    assert_eq!(pods(&cluster), ["c", "d"], "{:?}", cluster.writes);
    assert_eq!(group(&cluster).unwrap()["metadata"]["uid"], uid, "{:?}", cluster.writes);
    assert!(run(&cluster, &["c", "d"]), "{:?}", cluster.writes);
}

/// The role that is tried first gets the better flavor: the order of the roles follows from the pods of a role, and not from the name of the role.
#[test]
fn role_names_of_a_client_do_not_order_pod_sets() {
    let sets = |big: &str, small: &str| {
        let mut cluster = pod_queue("6");
        cluster.put(Kind::Pod, member("b", "2", 2, &[("role-hash", big)]));
        cluster.put(Kind::Pod, member("s", "1", 2, &[("role-hash", small)]));
        cluster.pass(5);
        let sets = group(&cluster).unwrap()["spec"]["podSets"].as_array().unwrap().clone();
        let cpu = |set: &Value| {
            let container = &set["template"]["spec"]["containers"][0];
            container["resources"]["requests"]["cpu"].as_str().unwrap().to_owned()
        };
        sets.iter().map(cpu).collect::<Vec<_>>()
    };
    assert_eq!(sets("aaaa", "zzzz"), sets("zzzz", "aaaa"));
}
