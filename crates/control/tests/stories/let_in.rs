//! Pods that were let in: pods that run without a webhook's review, because Berth did not answer when the pods were created. A pod that was let in is charged
//! to its queue at once. Berth admits a pod that was let in if the queue has room, and deletes the pod within ten seconds if the queue has no room.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, merge};
use crate::stories::faults::with_every_fault;
use crate::stories::groups::{gated, member, running_set, set, set_workload};
use crate::stories::pod_queue;
use crate::stories::pods::pod;

const MANAGED: &str = "kueue.x-k8s.io/managed";

/// The used quota in the status of the ClusterQueue.
fn charged(cluster: &Cluster) -> Value {
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    status["flavorsUsage"][0]["resources"][0]["total"].clone()
}

fn runs(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.pod(name);
    pod.is_some_and(|pod| pod["status"]["phase"] == json!("Running") && pod["metadata"]["deletionTimestamp"].is_null())
}

fn workload_of(cluster: &Cluster, pod: &str) -> Option<Value> {
    let mut all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object);
    all.find(|object| object["metadata"]["ownerReferences"][0]["name"] == json!(pod)).cloned()
}

fn is(cluster: &Cluster, pod: &str, kind: &str) -> bool {
    let name = workload_of(cluster, pod).map(|object| object["metadata"]["name"].as_str().unwrap().to_owned());
    name.is_some_and(|name| cluster.workload_is(&name, kind))
}

/// A ClusterQueue of `quota` cpus, of which a job uses `by_job` cpus.
fn used(quota: &str, by_job: &str) -> Cluster {
    let mut cluster = pod_queue(quota);
    cluster.put(Kind::JOB, job("own", "lq", by_job, true));
    cluster.pass(7);
    assert!(cluster.is("own", "Admitted"), "{:?}", cluster.writes);
    cluster
}

/// A pod of a ReplicaSet whose template has the mark of a reviewed Deployment.
fn of_deployment(name: &str, cpu: &str) -> Value {
    let mut made = pod(name, cpu);
    made["metadata"].as_object_mut().unwrap().remove("finalizers");
    made["spec"].as_object_mut().unwrap().remove("schedulingGates");
    let maker = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]);
    let parent = json!({"kueue.x-k8s.io/pod-suspending-parent": "deployment"});
    merge(&mut made, &json!({"metadata": {"annotations": parent, "ownerReferences": maker}}));
    made
}

#[test]
fn let_in_pod_with_room_is_admitted_where_it_runs() {
    for (leaves_first, restarts) in [(false, false), (true, false), (false, true)] {
        let mut cluster = pod_queue("2");
        cluster.leaves_first = leaves_first;
        cluster.put_unreviewed(pod("a", "2"));
        if restarts {
            cluster.restart();
        }
        cluster.pass(7);
        let a = cluster.pod("a").expect("it stays").clone();
        assert_eq!(a["metadata"]["labels"][MANAGED], json!("true"), "{:?}", cluster.writes);
        assert_eq!(a["metadata"]["labels"]["kueue.x-k8s.io/podset"], json!("main"), "{:?}", cluster.writes);
        assert_eq!(a["metadata"]["finalizers"], json!([MANAGED]));
        assert!(a["spec"].get("nodeSelector").is_none(), "its node stays");
        let workload = workload_of(&cluster, "a").expect("a Workload");
        assert!(is(&cluster, "a", "Admitted") && charged(&cluster) == json!("2"), "{:?}", cluster.writes);
        assert!(workload["spec"]["podSets"][0]["template"]["spec"].get("nodeName").is_none(), "{workload}");
        let before = cluster.writes.len();
        cluster.pass(60);
        assert!(runs(&cluster, "a"), "{:?}", cluster.writes);
        assert_eq!(&cluster.writes[before..], &[], "quiet at rest");
        // The pod that was let in ends like any other pod.
        cluster.end_pod("a", "Succeeded");
        cluster.pass(7);
        assert!(is(&cluster, "a", "Finished"), "{:?}", cluster.writes);
        assert_eq!(cluster.pod("a").unwrap()["metadata"]["finalizers"], json!([]));
        assert_eq!(charged(&cluster), json!("0"));
    }
}

#[test]
fn let_in_pod_without_room_is_deleted_within_ten_seconds() {
    for restarts in [false, true] {
        let mut cluster = used("2", "1");
        cluster.put_unreviewed(pod("a", "2"));
        if restarts {
            cluster.restart();
        }
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(3);
        assert!(runs(&cluster, "a") && charged(&cluster) == json!("3"), "{:?}", cluster.writes);
        assert!(!cluster.is("next", "Admitted"), "what runs is charged: {:?}", cluster.writes);
        cluster.pass(7);
        assert!(cluster.pod("a").is_none() && cluster.is("next", "Admitted"), "{:?}", cluster.writes);
        assert!(!cluster.is("own", "Evicted"), "{:?}", cluster.writes);
        for (reason, words) in [("NotReviewed", "did not answer"), ("Stopped", "had no quota for it")] {
            let event = cluster.notices.iter().find(|notice| notice.key.name == "a" && notice.reason == reason);
            assert!(event.is_some_and(|event| event.message.contains(words)), "{reason}: {:?}", cluster.notices);
        }
        assert_eq!((cluster.count(Purpose::CondemnPod), cluster.count(Purpose::DeletePod)), (1, 1));
    }
}

/// A new leader observes a waiting job and a running pod that need the same quota: the pod has the quota already.
#[test]
fn let_in_pod_gets_quota_before_waiting_job_after_restart() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::JOB, job("next", "lq", "2", true));
    cluster.set_now(cluster.now().checked_add(SignedDuration::from_secs(1)).unwrap());
    cluster.put_unreviewed(pod("a", "2"));
    cluster.restart();
    cluster.pass(30);
    assert!(runs(&cluster, "a") && is(&cluster, "a", "Admitted"), "{:?}", cluster.writes);
    assert!(!cluster.is("next", "Admitted"), "{:?}", cluster.writes);
}

/// A pod that was let in preempts no workload, because it may be deleted before its victims are gone.
#[test]
fn let_in_pod_preempts_nobody() {
    let mut cluster = used("2", "2");
    cluster.edit(
        Kind::ClusterQueue,
        "",
        "cq",
        &json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}),
    );
    cluster.set_class("high", 100);
    let mut high = pod("a", "2");
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put_unreviewed(high);
    cluster.pass(10);
    assert!(cluster.pod("a").is_none() && !cluster.is("own", "Evicted"), "{:?}", cluster.writes);
}

#[test]
fn let_in_pod_older_than_pod_counting_is_left_alone() {
    for since in [Some(1), None] {
        let mut cluster = pod_queue("2");
        let since = since.map(|seconds| cluster.now().checked_add(SignedDuration::from_secs(seconds)).unwrap());
        cluster.pods_counted_since = since;
        cluster.control.count_pods_since(since);
        cluster.put_unreviewed(pod("a", "5"));
        for _ in 0..2 {
            cluster.pass(30);
            assert!(runs(&cluster, "a") && cluster.count(Purpose::MarkPod) == 0, "{:?}", cluster.writes);
            assert!(workload_of(&cluster, "a").is_none() && charged(&cluster) != json!("5"));
            cluster.restart();
        }
    }
}

#[test]
fn unreviewed_job_pods_mirror_pods_and_ended_pods_stay_untouched() {
    let mut cluster = pod_queue("2");
    let owned = |version: &str, kind: &str| {
        json!({"metadata": {"ownerReferences":
            [{"apiVersion": version, "kind": kind, "name": "j", "uid": "u", "controller": true}]}})
    };
    let shown = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    let ended = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}});
    let others = [
        owned("batch/v1", "Job"),
        owned("jobset.x-k8s.io/v1alpha2", "JobSet"),
        owned("berth.dev/v1alpha1", "TrainingJob"),
    ];
    for (index, more) in others.into_iter().chain([shown, ended]).enumerate() {
        let mut left = pod(&format!("p-{index}"), "5");
        merge(&mut left, &more);
        cluster.put_unreviewed(left);
    }
    cluster.pass(30);
    let touched = cluster.writes.iter().filter(|(_, key)| key.name.contains("p-"));
    assert_eq!(touched.count(), 0, "{:?}", cluster.writes);
    assert_ne!(charged(&cluster), json!("5"));
}

#[test]
fn let_in_pod_is_left_alone_if_pods_are_unmanaged() {
    let mut cluster = used("2", "2");
    cluster.manage_only(&[Kind::JOB]);
    cluster.restart();
    cluster.put_unreviewed(pod("a", "5"));
    cluster.pass(30);
    assert!(runs(&cluster, "a") && cluster.count(Purpose::MarkPod) == 0, "{:?}", cluster.writes);
}

#[test]
fn let_in_pod_group_is_admitted_or_deleted_together() {
    for (quota, leaves_first) in [("2", false), ("2", true), ("1", false)] {
        let mut cluster = pod_queue(quota);
        cluster.leaves_first = leaves_first;
        for name in ["a", "b"] {
            cluster.put_unreviewed(member(name, "1", 2, &[]));
        }
        cluster.pass(3);
        assert_eq!(charged(&cluster), json!("2"), "{:?}", cluster.writes);
        cluster.pass(7);
        let stays = quota == "2";
        assert_eq!((runs(&cluster, "a"), runs(&cluster, "b")), (stays, stays), "{quota}: {:?}", cluster.writes);
        assert_eq!(cluster.workload_is("g", "Admitted"), stays, "{quota}: {:?}", cluster.writes);
        if stays {
            let before = cluster.writes.len();
            cluster.pass(60);
            assert_eq!(&cluster.writes[before..], &[], "quiet at rest");
        }
    }
}

/// One pod of a group was created with a gate and waits, and starts together with the pod that was let in.
#[test]
fn let_in_member_starts_its_group_with_the_gated_pods() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[]));
    cluster.pass(3);
    assert!(gated(&cluster, "a"), "{:?}", cluster.writes);
    cluster.put_unreviewed(member("b", "1", 2, &[]));
    cluster.pass(10);
    assert!(runs(&cluster, "a") && runs(&cluster, "b"), "{:?}", cluster.writes);
}

#[test]
fn let_in_member_of_incomplete_pod_group_is_deleted() {
    for (quota, stays) in [("9", 50), ("1", 0)] {
        let mut cluster = pod_queue(quota);
        cluster.put_unreviewed(member("a", "2", 2, &[]));
        cluster.pass(3);
        assert!(runs(&cluster, "a") && charged(&cluster) == json!("2"), "{quota}: {:?}", cluster.writes);
        cluster.pass(stays);
        assert!(runs(&cluster, "a"), "{quota}: {:?}", cluster.writes);
        cluster.pass(10);
        assert!(cluster.pod("a").is_none(), "{quota}: {:?}", cluster.writes);
    }
}

/// If the API server is busy after an outage, Berth does not stop a pod that was let in only because the pod's admission is slow.
#[test]
fn let_in_pod_with_room_stays_despite_refused_writes() {
    for purpose in [Purpose::MarkPod, Purpose::CreateWorkload, Purpose::ReserveQuota] {
        for room_goes in [false, true] {
            let mut cluster = pod_queue("2");
            for _ in 0..3 {
                cluster.faults.push((purpose, WriteOutcome::Busy(6_000), false));
            }
            cluster.put_unreviewed(pod("a", "2"));
            cluster.pass(12);
            let what = format!("{purpose:?}, {room_goes}: {:?}", cluster.writes);
            assert!(runs(&cluster, "a") && !is(&cluster, "a", "Admitted"), "{what}");
            if room_goes {
                cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "1")]));
            }
            cluster.pass(18);
            let what = format!("{purpose:?}, {room_goes}: {:?}", cluster.writes);
            assert_eq!((runs(&cluster, "a"), is(&cluster, "a", "Admitted")), (!room_goes, !room_goes), "{what}");
        }
    }
}

/// A pod that was let in and exceeds the size of its group is stopped, like any excess pod without a gate.
#[test]
fn let_in_member_beyond_group_size_is_deleted_at_once() {
    let mut cluster = pod_queue("9");
    cluster.put(Kind::Pod, member("a", "1", 1, &[]));
    cluster.pass(5);
    assert!(runs(&cluster, "a"), "{:?}", cluster.writes);
    cluster.put_unreviewed(member("b", "1", 1, &[]));
    cluster.pass(2);
    assert!(runs(&cluster, "a") && cluster.pod("b").is_none(), "{:?}", cluster.writes);
}

#[test]
fn let_in_pod_of_deployment_is_admitted_or_deleted() {
    for quota in ["2", "1"] {
        let mut cluster = pod_queue(quota);
        cluster.put(Kind::Pod, of_deployment("web-a", "2"));
        cluster.pass(3);
        assert_eq!(charged(&cluster), json!("2"), "{:?}", cluster.writes);
        cluster.pass(7);
        assert_eq!(cluster.pod("web-a").is_some(), quota == "2", "{quota}: {:?}", cluster.writes);
        assert_eq!(is(&cluster, "web-a", "Admitted"), quota == "2", "{quota}: {:?}", cluster.writes);
        if let Some(pod) = cluster.pod("web-a") {
            assert!(pod["metadata"].get("finalizers").is_none(), "its Deployment makes another one: {pod}");
        }
    }
}

/// Pods of a StatefulSet name no queue: the StatefulSet names the queue for its pods, and the pods run under the StatefulSet's Workload.
#[test]
fn let_in_pods_of_stateful_set_run_under_its_workload() {
    for quota in ["2", "1"] {
        let mut cluster = pod_queue(quota);
        cluster.put(Kind::StatefulSet, set(2));
        cluster.pass(3);
        for index in [0, 1] {
            of_set(&mut cluster, index);
        }
        cluster.pass(3);
        let name = set_workload(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
        let stays = quota == "2";
        if !stays {
            assert_eq!(charged(&cluster), json!("2"), "{:?}", cluster.writes);
        }
        cluster.pass(7);
        assert_eq!(cluster.workload_is(&name, "Admitted"), stays, "{quota}: {:?}", cluster.writes);
        assert_eq!((runs(&cluster, "web-0"), runs(&cluster, "web-1")), (stays, stays), "{quota}: {:?}", cluster.writes);
    }
    // A recreated pod of the StatefulSet gets the place of the deleted pod.
    let (mut cluster, _) = running_set();
    cluster.delete(&Cluster::key(Kind::Pod, "team", "web-1"));
    cluster.pass(1);
    of_set(&mut cluster, 1);
    cluster.pass(10);
    assert!(runs(&cluster, "web-0") && runs(&cluster, "web-1"), "{:?}", cluster.writes);
}

/// Creates a pod as the controller of StatefulSet `web` makes it.
fn of_set(cluster: &mut Cluster, index: i32) {
    let uid = cluster.objects()[&Cluster::key(Kind::StatefulSet, "team", "web")]["metadata"]["uid"].clone();
    let maker =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": true}]);
    let mut made = pod(&format!("web-{index}"), "1");
    made["metadata"]["labels"].as_object_mut().unwrap().remove("kueue.x-k8s.io/queue-name");
    let parent = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    merge(&mut made, &json!({"metadata": {"annotations": parent, "ownerReferences": maker}}));
    cluster.put_unreviewed(made);
}

/// A tenant removes the label of managed pods from a pod that was let in, which is possible without webhooks: the trial of the pod does not begin again.
#[test]
fn removed_managed_label_prolongs_no_trial_of_let_in_pod() {
    let mut cluster = used("2", "2");
    cluster.put_unreviewed(pod("a", "2"));
    for _ in 0..4 {
        cluster.pass(2);
        if cluster.pod("a").is_some() {
            cluster.edit(Kind::Pod, "team", "a", &json!({"metadata": {"labels": {MANAGED: null}}}));
        }
    }
    cluster.pass(2);
    assert!(
        cluster.pod("a").is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
        "{:?}",
        cluster.writes
    );
}

/// A reviewed pod does not count as let in, whoever removes the pod's gate, and whatever else is changed in the pod.
#[test]
fn reviewed_pod_without_its_gate_is_deleted_without_trial() {
    let mut cluster = used("2", "2");
    cluster.put(Kind::Pod, pod("a", "1"));
    cluster.settle();
    assert!(gated(&cluster, "a"));
    cluster.edit(
        Kind::Pod,
        "team",
        "a",
        &json!({"spec": {"schedulingGates": []}, "metadata": {"labels": {MANAGED: null}}}),
    );
    cluster.settle();
    assert!(
        cluster.pod("a").is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
        "{:?}",
        cluster.writes
    );
    // A pod with a forged mark of a review gets no trial either.
    let mut forged = pod("b", "1");
    forged["metadata"]["annotations"] = json!({"kueue.x-k8s.io/role-hash": "main"});
    cluster.put_unreviewed(forged);
    cluster.settle();
    assert!(
        cluster.pod("b").is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
        "{:?}",
        cluster.writes
    );
}

#[test]
fn let_in_pods_end_alike_despite_failed_or_lost_writes() {
    let purposes = [
        Purpose::MarkPod,
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::CondemnPod,
        Purpose::DeletePod,
        Purpose::ReleasePod,
    ];
    for restarts in [false, true] {
        with_every_fault(
            || used("3", "1"),
            &purposes,
            |mut cluster, what| {
                let what = format!("{what} {restarts}");
                cluster.put_unreviewed(pod("fits", "2"));
                cluster.put_unreviewed(pod("large", "5"));
                cluster.settle();
                if restarts {
                    cluster.restart();
                }
                cluster.pass(60);
                assert!(runs(&cluster, "fits") && is(&cluster, "fits", "Admitted"), "{what}: {:?}", cluster.writes);
                assert!(cluster.pod("large").is_none(), "{what}: {:?}", cluster.writes);
                let before = cluster.writes.len();
                cluster.pass(300);
                assert_eq!(&cluster.writes[before..], &[], "{what}: quiet at rest");
            },
        );
    }
}
