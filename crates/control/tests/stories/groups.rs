//! Groups of pods, and StatefulSets as groups: all pods of a group start together, single pods are replaced, and the whole group is stopped together.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, merge};
use crate::stories::faults::with_every_fault;
use crate::stories::pod_queue;
use crate::stories::pods::pod;

const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";

/// A pod of the group `g`, which has `total` pods.
pub fn member(name: &str, cpu: &str, total: i32, more: &[(&str, &str)]) -> Value {
    let mut pod = pod(name, cpu);
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("g");
    pod["metadata"]["annotations"] = json!({TOTAL: total.to_string()});
    for (key, value) in more {
        pod["metadata"]["annotations"][format!("kueue.x-k8s.io/{key}")] = json!(value);
    }
    pod
}

pub fn gated(cluster: &Cluster, name: &str) -> bool {
    cluster.pod(name).expect(name)["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

fn group(cluster: &Cluster) -> Option<&Value> {
    cluster.objects().get(&Cluster::key(Kind::Workload, "team", "g"))
}

fn is(cluster: &Cluster, kind: &str) -> bool {
    cluster.workload_is("g", kind)
}

fn pods(cluster: &Cluster) -> Vec<&str> {
    cluster.objects().keys().filter(|key| key.kind == Kind::Pod).map(|key| key.name.as_str()).collect()
}

fn deactivate(cluster: &mut Cluster, active: bool) {
    cluster.edit(Kind::Workload, "team", "g", &json!({"spec": {"active": active}}));
}

#[test]
fn group_with_roles_starts_all_pods_and_ends_with_last() {
    let mut cluster = pod_queue("4");
    cluster.put(Kind::Pod, pod("other", "1"));
    cluster.put(Kind::Pod, member("lead", "2", 3, &[]));
    cluster.put(Kind::Pod, member("work-0", "1", 3, &[]));
    cluster.settle();
    assert!(group(&cluster).is_none(), "one pod is missing");
    assert!(cluster.notices.iter().any(|n| n.reason == "ErrWorkloadCompose" && n.message.contains("fewer")));
    cluster.put(Kind::Pod, member("work-1", "1", 3, &[]));
    cluster.settle();
    let made = group(&cluster).expect("a Workload called as the group").clone();
    assert_eq!(made["metadata"]["ownerReferences"].as_array().unwrap().len(), 3);
    assert_eq!(made["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], json!("true"));
    let sets = made["spec"]["podSets"].as_array().unwrap();
    let mut counts: Vec<i64> = sets.iter().map(|set| set["count"].as_i64().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2], "{sets:?}");
    let names: Vec<&str> = sets.iter().map(|set| set["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.iter().all(|name| name.len() == 8), "{names:?}");
    assert!(["lead", "work-0", "work-1"].iter().all(|name| gated(&cluster, name)), "4 of 5 are free: none starts");

    cluster.end_pod("other", "Succeeded");
    cluster.settle();
    assert!(!["lead", "work-0", "work-1"].iter().any(|name| gated(&cluster, name)), "{:?}", cluster.writes);
    let role = cluster.pod("lead").unwrap()["metadata"]["labels"]["kueue.x-k8s.io/podset"].clone();
    assert!(names.contains(&role.as_str().unwrap()));
    cluster.end_pod("lead", "Succeeded");
    cluster.settle();
    let reclaimed = group(&cluster).unwrap()["status"]["reclaimablePods"].clone();
    assert_eq!(reclaimed, json!([{"name": role, "count": 1}]));
    cluster.end_pod("work-0", "Succeeded");
    cluster.settle();
    assert!(!is(&cluster, "Finished"));
    cluster.end_pod("work-1", "Succeeded");
    cluster.settle();
    assert!(is(&cluster, "Finished"), "{:?}", cluster.writes);
    for name in ["lead", "work-0", "work-1"] {
        assert_eq!(cluster.pod(name).unwrap()["metadata"]["finalizers"], json!([]), "{name}");
    }
}

#[test]
fn failed_pod_of_group_is_released_once_it_is_replaced() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[]));
    cluster.settle();
    cluster.end_pod("a", "Failed");
    cluster.settle();
    assert!(is(&cluster, "WaitingForReplacementPods") && !is(&cluster, "Finished"), "{:?}", group(&cluster));
    assert_eq!(cluster.pod("a").unwrap()["metadata"]["finalizers"], json!(["kueue.x-k8s.io/managed"]));
    cluster.put(Kind::Pod, member("c", "1", 2, &[]));
    cluster.settle();
    assert!(!gated(&cluster, "c") && !is(&cluster, "WaitingForReplacementPods"), "{:?}", cluster.writes);
    assert_eq!(cluster.pod("a").unwrap()["metadata"]["finalizers"], json!([]), "its place is taken");
    let owners = group(&cluster).unwrap()["metadata"]["ownerReferences"].as_array().unwrap().clone();
    assert!(owners.iter().any(|owner| owner["name"] == json!("c")), "{owners:?}");
    cluster.end_pod("b", "Succeeded");
    cluster.end_pod("c", "Succeeded");
    cluster.settle();
    assert!(is(&cluster, "Finished"));
}

/// A Workload that Kueue has made names its pod set by Kueue's hash of the pods (in this test, of one container that requests one cpu): recreated pods with the
/// same hash belong to the pod set, and other pods do not.
#[test]
fn recreated_pods_match_pod_set_of_workload_made_by_kueue() {
    for evicted in [false, true] {
        let mut cluster = pod_queue("2");
        let hash = "dc85db45";
        for name in ["a", "b"] {
            cluster.put(Kind::Pod, member(name, "1", 2, &[("role-hash", hash)]));
        }
        cluster.settle();
        assert_eq!(group(&cluster).unwrap()["spec"]["podSets"][0]["name"], json!(hash));
        if evicted {
            deactivate(&mut cluster, false);
            cluster.settle();
            deactivate(&mut cluster, true);
        } else {
            cluster.end_pod("a", "Failed");
        }
        cluster.settle();
        let anew: &[&str] = if evicted { &["c", "d"] } else { &["c"] };
        for name in anew {
            cluster.put(Kind::Pod, member(name, "1", 2, &[]));
        }
        cluster.pass(120);
        assert!(anew.iter().all(|name| !gated(&cluster, name)), "evicted {evicted}: {:?}", cluster.writes);
        assert!(!cluster.notices.iter().any(|notice| notice.reason == "RoleNotFound"), "{:?}", cluster.notices);
    }
}

#[test]
fn pods_beyond_group_size_are_deleted_newest_first() {
    let mut cluster = pod_queue("2");
    for name in ["a", "b", "c"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
        cluster.set_now(cluster.now().checked_add(jiff::SignedDuration::from_secs(1)).unwrap());
    }
    cluster.settle();
    assert_eq!(pods(&cluster), ["a", "b"], "before there is a Workload: {:?}", cluster.writes);
    assert!(is(&cluster, "Admitted"));
    cluster.put(Kind::Pod, member("d", "1", 2, &[]));
    cluster.settle();
    assert_eq!(pods(&cluster), ["a", "b"], "and after: {:?}", cluster.writes);
    assert!(cluster.notices.iter().any(|notice| notice.reason == "ExcessPodDeleted"));
    assert!(!gated(&cluster, "a") && !gated(&cluster, "b"));
}

#[test]
fn evicted_group_is_admitted_again_only_when_all_pods_return() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[]));
    cluster.settle();
    deactivate(&mut cluster, false);
    cluster.settle();
    assert!(!is(&cluster, "QuotaReserved") && is(&cluster, "WaitingForReplacementPods"), "{:?}", group(&cluster));
    // One pod of the deactivated group stays, because this pod is the only owner of the Workload, and the Workload keeps the group's place in the queue.
    assert_eq!(pods(&cluster), ["a"], "{:?}", cluster.writes);
    assert_eq!(cluster.pod("a").unwrap()["status"]["phase"], json!("Failed"));
    deactivate(&mut cluster, true);
    cluster.put(Kind::Pod, member("c", "1", 2, &[]));
    cluster.pass(10);
    assert_eq!(pods(&cluster), ["c"], "another one owns it now: {:?}", cluster.writes);
    assert!(gated(&cluster, "c") && !is(&cluster, "QuotaReserved"), "one is still missing: {:?}", group(&cluster));
    cluster.put(Kind::Pod, member("d", "1", 2, &[]));
    cluster.pass(10);
    assert_eq!(pods(&cluster), ["c", "d"], "{:?}", cluster.writes);
    assert!(!gated(&cluster, "c") && !gated(&cluster, "d"), "{:?}", cluster.writes);
    let owners = group(&cluster).unwrap()["metadata"]["ownerReferences"].as_array().unwrap().clone();
    assert!(["c", "d"].iter().all(|name| owners.iter().any(|owner| owner["name"] == json!(name))), "{owners:?}");
}

#[test]
fn group_with_unretriable_pod_fails_when_its_last_pod_ends() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[("retriable-in-group", "false")]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[]));
    cluster.settle();
    cluster.end_pod("a", "Failed");
    cluster.settle();
    assert!(!is(&cluster, "Finished"), "the other one goes on");
    cluster.end_pod("b", "Succeeded");
    cluster.settle();
    let conditions = group(&cluster).unwrap()["status"]["conditions"].as_array().unwrap().clone();
    let end = conditions.iter().find(|c| c["type"] == json!("Finished")).expect("finished");
    assert_eq!((&end["reason"], &end["message"]), (&json!("Failed"), &json!("Pods succeeded: 1/2.")));
    assert_eq!(cluster.pod("a").unwrap()["metadata"]["finalizers"], json!([]));
}

#[test]
fn group_with_fast_admission_is_admitted_with_its_first_pod() {
    let fast = [("pod-group-fast-admission", "true")];
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 3, &fast));
    cluster.settle();
    assert_eq!(group(&cluster).unwrap()["spec"]["podSets"][0]["count"], json!(3));
    assert!(gated(&cluster, "a"), "quota is for two");
    cluster.put(Kind::ClusterQueue, crate::stories::cluster::cluster_queue("cq", None, &[("default", "3")]));
    cluster.settle();
    assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
    cluster.put(Kind::Pod, member("b", "1", 3, &fast));
    cluster.put(Kind::Pod, member("c", "1", 3, &fast));
    cluster.settle();
    assert!(!gated(&cluster, "b") && !gated(&cluster, "c"), "{:?}", cluster.writes);
    assert_eq!(group(&cluster).unwrap()["metadata"]["ownerReferences"].as_array().unwrap().len(), 3);
    assert!(!is(&cluster, "WaitingForReplacementPods"));
}

#[test]
fn group_with_inconsistent_pods_or_taken_name_reports_the_conflict() {
    for (name, other, word) in [
        ("size", member("b", "1", 3, &[]), "sizes"),
        (
            "queue",
            {
                let mut pod = member("b", "1", 2, &[]);
                pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("other");
                pod
            },
            "queues",
        ),
    ] {
        let mut cluster = pod_queue("4");
        cluster.put(Kind::Pod, member("a", "1", 2, &[]));
        cluster.put(Kind::Pod, other);
        cluster.pass(5);
        assert!(group(&cluster).is_none(), "{name}");
        assert!(cluster.notices.iter().any(|notice| notice.message.contains(word)), "{name}: {:?}", cluster.notices);
    }
    // Berth leaves a Workload with the name of the group alone if the Workload belongs to another object.
    let mut cluster = pod_queue("4");
    let template = json!({"spec": {"containers": [{"name": "c"}]}});
    cluster.put(Kind::Workload, json!({"metadata": {"namespace": "team", "name": "g"},
        "spec": {"queueName": "absent", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]}}));
    cluster.put(Kind::Pod, member("a", "1", 1, &[]));
    cluster.pass(5);
    assert!(gated(&cluster, "a"));
    let events = cluster.notices.iter().filter(|notice| notice.reason == "WorkloadNameConflict");
    let events: Vec<_> = events.map(|notice| (notice.key.kind, &*notice.key.name, &*notice.message)).collect();
    let problem = "already exists but is not a pod group workload; this pod group cannot be admitted";
    let words = format!("A Workload named \"g\" {problem}");
    assert_eq!(events.first(), Some(&(Kind::Pod, "a", words.as_str())), "{:?}", cluster.notices);
    assert!(cluster.notices.iter().all(|notice| notice.reason != "ErrWorkloadCompose"));
    // After the deletion of the other object's Workload, the group gets its own Workload, although no pod of the group changes.
    cluster.delete(&Cluster::key(Kind::Workload, "team", "g"));
    cluster.settle();
    let own = group(&cluster).expect("the group's own Workload");
    assert_eq!(own["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], json!("true"));
    assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
}

#[test]
fn prebuilt_group_workload_keeps_its_own_gates_and_capacity_tiers() {
    let mut settings = crate::stories::cluster::settings();
    settings.job_kinds.insert(Kind::Pod);
    let mut cluster = crate::stories::tiers::tiered_cluster_on(Cluster::with(settings), "4");
    let (gates, tiers) = ("kueue.x-k8s.io/admission-gated-by", "berth.dev/capacity-tiers");
    let notes = json!({"kueue.x-k8s.io/is-group-workload": "true", gates: "a.io/one", tiers: "reserved"});
    let template = json!({"spec": {"containers": pod("x", "1")["spec"]["containers"]}});
    cluster.put(
        Kind::Workload,
        json!({"metadata": {"namespace": "team", "name": "g", "annotations": notes},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 2, "template": template}]}}),
    );
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[("role-hash", "main"), ("prebuilt-workload-name", "g")]));
    }
    cluster.pass(60);
    let message = &group(&cluster).unwrap()["metadata"]["annotations"];
    assert_eq!((&message[gates], &message[tiers]), (&json!("a.io/one"), &json!("reserved")), "{:?}", cluster.writes);
    assert!(gated(&cluster, "a"));
    cluster.edit(Kind::Workload, "team", "g", &json!({"metadata": {"annotations": {gates: null}}}));
    cluster.settle();
    assert!(!gated(&cluster, "a") && !gated(&cluster, "b"), "{:?}", cluster.writes);
    assert_eq!(cluster.pod("a").unwrap()["spec"]["nodeSelector"], json!({"tier": "reserved"}));
}

#[test]
fn group_whose_workload_is_deleted_loses_its_pods() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[]));
    cluster.settle();
    cluster.delete(&Cluster::key(Kind::Workload, "team", "g"));
    cluster.pass(5);
    assert!(pods(&cluster).is_empty() && group(&cluster).is_none(), "{:?}", cluster.writes);
    // The group is gone as well if clients delete the Workload and the last pod before Berth has removed the finalizer of the pod.
    cluster.put(Kind::Pod, member("a", "1", 1, &[]));
    cluster.settle();
    cluster.faults.push((Purpose::ReleasePod, WriteOutcome::Busy(2_000), false));
    cluster.end_pod("a", "Succeeded");
    cluster.settle();
    cluster.delete(&Cluster::key(Kind::Workload, "team", "g"));
    cluster.delete(&Cluster::key(Kind::Pod, "team", "a"));
    cluster.pass(10);
    assert!(pods(&cluster).is_empty() && group(&cluster).is_none(), "{:?}", cluster.writes);
    // The name of the group is free for the next group.
    cluster.put(Kind::Pod, member("a", "1", 1, &[]));
    cluster.settle();
    assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
}

#[test]
fn group_ends_the_same_despite_failed_or_lost_writes() {
    let purposes = [
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::StartJob,
        Purpose::SetPodsReady,
        Purpose::SetReclaimable,
        Purpose::SetWaitingForPods,
        Purpose::AddOwners,
        Purpose::FinishWorkload,
        Purpose::ReleasePod,
        Purpose::DeletePod,
        Purpose::LetFinishedGo,
    ];
    for restarts in [false, true] {
        with_every_fault(
            || pod_queue("2"),
            &purposes,
            |mut cluster, what| {
                for name in ["a", "b", "x"] {
                    cluster.put(Kind::Pod, member(name, "1", 2, &[]));
                }
                cluster.pass(120);
                if restarts {
                    cluster.restart();
                }
                let what = format!("{what} {restarts}");
                let running: Vec<String> =
                    pods(&cluster).into_iter().filter(|name| !gated(&cluster, name)).map(str::to_owned).collect();
                assert_eq!((running.len(), pods(&cluster).len()), (2, 2), "{what}: {:?}", cluster.writes);
                cluster.end_pod(&running[0], "Failed");
                cluster.pass(120);
                cluster.put(Kind::Pod, member("new", "1", 2, &[]));
                cluster.pass(120);
                assert!(!gated(&cluster, "new"), "{what}: {:?}", cluster.writes);
                cluster.end_pod("new", "Succeeded");
                cluster.pass(60);
                cluster.end_pod(&running[1], "Succeeded");
                cluster.pass(120);
                assert!(is(&cluster, "Finished"), "{what}: {:?}", cluster.writes);
                for name in pods(&cluster) {
                    assert_eq!(cluster.pod(name).unwrap()["metadata"]["finalizers"], json!([]), "{what}: {name}");
                }
                let before = cluster.writes.len();
                cluster.pass(300);
                assert_eq!(&cluster.writes[before..], &[], "{what}: quiet at rest");
            },
        );
    }
}

/// A StatefulSet as the webhook lets it be stored.
pub fn set(replicas: i32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"namespace": "team", "name": "web", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"},
                "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

pub fn set_workload(cluster: &Cluster) -> &Value {
    let mut all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    let (_, found) = all.next().expect("a Workload");
    assert!(all.next().is_none(), "one for all its pods");
    found
}

/// Creates a pod of the StatefulSet in the group of the StatefulSet's Workload, as the controller and the webhook make such a pod, with the finalizer that an
/// earlier version of Berth added.
pub fn replica(cluster: &mut Cluster, index: i32) {
    let name = set_workload(cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    replica_in(cluster, &name, index);
}

/// Creates a pod of the StatefulSet in the group of the given name, as the controller and the webhook make such a pod.
pub fn replica_in(cluster: &mut Cluster, name: &str, index: i32) {
    let mut made = pod(&format!("web-{index}"), "1");
    let notes = json!({"kueue.x-k8s.io/pod-group-name": name, "kueue.x-k8s.io/prebuilt-workload-name": name,
        "kueue.x-k8s.io/pod-group-serving": "true", "kueue.x-k8s.io/pod-group-fast-admission": "true",
        "kueue.x-k8s.io/role-hash": "main", "kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    let labels = json!({"kueue.x-k8s.io/pod-group-name": name});
    merge(&mut made, &json!({"metadata": {"labels": labels, "annotations": notes}}));
    cluster.put(Kind::Pod, made);
}

/// A StatefulSet with two running pods in a ClusterQueue of 5 cpus, and the name of the StatefulSet's Workload.
pub fn running_set() -> (Cluster, String) {
    let mut cluster = pod_queue("5");
    cluster.put(Kind::StatefulSet, set(2));
    cluster.settle();
    let name = set_workload(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    for index in [0, 1] {
        replica(&mut cluster, index);
        cluster.settle();
    }
    assert!(!gated(&cluster, "web-0") && !gated(&cluster, "web-1"), "{:?}", cluster.writes);
    (cluster, name)
}

#[test]
fn stateful_set_scaled_to_zero_and_back_requests_new_size() {
    let (mut cluster, name) = running_set();
    // The StatefulSet is scaled to zero and back before Berth takes a step.
    for index in [0, 1] {
        cluster.delete(&Cluster::key(Kind::Pod, "team", &format!("web-{index}")));
    }
    cluster.put(Kind::StatefulSet, set(0));
    cluster.put(Kind::StatefulSet, set(3));
    cluster.pass(10);
    for index in [0, 1, 2] {
        replica(&mut cluster, index);
        cluster.settle();
    }
    assert_eq!(set_workload(&cluster)["spec"]["podSets"][0]["count"], json!(3), "{:?}", cluster.writes);
    assert!(cluster.workload_is(&name, "Admitted"), "{:?}", set_workload(&cluster));
    for index in [0, 1, 2] {
        assert!(!gated(&cluster, &format!("web-{index}")), "{:?}", cluster.writes);
    }
}

#[test]
fn stateful_set_keeps_one_workload_through_updates_and_scaling() {
    let mut cluster = pod_queue("3");
    cluster.put(Kind::StatefulSet, set(2));
    cluster.settle();
    let name = set_workload(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("statefulset-web-"), "{name}");
    assert_eq!(set_workload(&cluster)["spec"]["podSets"][0]["count"], json!(2));
    assert!(cluster.workload_is(&name, "Admitted"), "before there is a pod");
    replica(&mut cluster, 0);
    cluster.settle();
    replica(&mut cluster, 1);
    cluster.settle();
    assert!(!gated(&cluster, "web-0") && !gated(&cluster, "web-1"), "{:?}", cluster.writes);
    assert!(cluster.workload_is(&name, "PodsReady"));
    // An update replaces a pod: the name of the old pod is free at once, and the new pod starts under the existing admission.
    cluster.delete(&Cluster::key(Kind::Pod, "team", "web-1"));
    cluster.settle();
    assert!(cluster.pod("web-1").is_none(), "{:?}", cluster.writes);
    replica(&mut cluster, 1);
    cluster.settle();
    assert!(!gated(&cluster, "web-1") && cluster.workload_is(&name, "Admitted"));
    // The StatefulSet is scaled without the webhook: the pod beyond the admission waits, with one event.
    replica(&mut cluster, 2);
    cluster.pass(10);
    assert!(gated(&cluster, "web-2") && !gated(&cluster, "web-1"), "{:?}", cluster.writes);
    let events_of = |name: &str| {
        cluster.notices.iter().filter(|events_of| events_of.reason == "ExcessPod" && events_of.key.name == name).count()
    };
    assert_eq!(["web-0", "web-1", "web-2"].map(events_of), [0, 0, 1], "{:?}", cluster.notices);
    cluster.delete(&Cluster::key(Kind::Pod, "team", "web-2"));
    cluster.pass(10);
    assert!(cluster.pod("web-2").is_none(), "{:?}", cluster.writes);
    // A StatefulSet with zero replicas holds no quota.
    cluster.put(Kind::StatefulSet, set(0));
    for index in [0, 1] {
        cluster.delete(&Cluster::key(Kind::Pod, "team", &format!("web-{index}")));
    }
    cluster.pass(60);
    assert!(!cluster.workload_is(&name, "QuotaReserved"), "{:?}", set_workload(&cluster));
    let held = set_workload(&cluster)["status"]["conditions"].as_array().unwrap().clone();
    let says = held.iter().find(|c| c["type"] == "QuotaReserved").map(|c| (&c["reason"], &c["message"]));
    let zero = "StatefulSet scaled to zero; workload on hold";
    assert_eq!(says, Some((&json!("OnHold"), &json!(zero))), "{held:?}");
    let queue = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")];
    assert_eq!(queue["status"]["pendingWorkloads"], json!(0), "it is in no queue");
    cluster.put(Kind::StatefulSet, set(3));
    cluster.pass(10);
    assert_eq!(set_workload(&cluster)["spec"]["podSets"][0]["count"], json!(3));
    assert!(cluster.workload_is(&name, "Admitted"), "{:?}", set_workload(&cluster));
    cluster.delete(&Cluster::key(Kind::StatefulSet, "team", "web"));
    cluster.pass(10);
    assert!(!cluster.objects().keys().any(|key| key.kind == Kind::Workload), "{:?}", cluster.writes);
}
