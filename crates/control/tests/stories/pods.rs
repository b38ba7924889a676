//! Single pods, each with a Workload of its own: Berth gates a pod until the pod is admitted, deletes the pod when it is evicted, and keeps the pod until its
//! end is recorded.

use berth_control::write::{Kind, Purpose, WriteOutcome};
pub use berth_sim::manifests::pod;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::faults::with_every_fault;
use crate::stories::groups::{gated, member};
use crate::stories::{one_queue, pod_queue};

fn workload_of(cluster: &Cluster, pod: &str) -> Option<Value> {
    let mut all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object);
    all.find(|object| object["metadata"]["ownerReferences"][0]["name"] == json!(pod)).cloned()
}

fn is(cluster: &Cluster, pod: &str, kind: &str) -> bool {
    let name = workload_of(cluster, pod).map(|object| object["metadata"]["name"].as_str().unwrap().to_owned());
    name.is_some_and(|name| cluster.workload_is(&name, kind))
}

#[test]
fn pod_of_foreign_job_kind_is_queued_by_itself() {
    // The Job of Volcano has the kind name of the batch/v1 Job, and Berth does not admit Volcano's Jobs.
    for (api_version, queued) in [("batch.volcano.sh/v1alpha1", true), ("batch/v1", false)] {
        let mut cluster = pod_queue("1");
        let mut theirs = pod("a", "1");
        theirs["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": "Job", "name": "j", "uid": "u", "controller": true}]);
        cluster.put(Kind::Pod, theirs);
        cluster.settle();
        assert_eq!(gated(&cluster, "a"), !queued, "{api_version}: {:?}", cluster.writes);
    }
}

#[test]
fn pod_waits_for_quota_runs_and_is_released_when_finished() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::Pod, pod("a", "1"));
    cluster.put(Kind::Pod, pod("b", "1"));
    cluster.settle();
    assert!(!gated(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
    let started = cluster.pod("a").unwrap();
    assert_eq!(started["spec"]["nodeSelector"], json!({"tier": "reserved"}));
    assert_eq!(started["metadata"]["labels"]["kueue.x-k8s.io/podset"], json!("main"));
    let workload = workload_of(&cluster, "a").expect("its Workload");
    let name = workload["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("pod-a-"), "{name}");
    assert_eq!(workload["metadata"]["ownerReferences"][0]["controller"], json!(true));
    assert_eq!(workload["spec"]["podSets"][0]["template"]["spec"].get("schedulingGates"), None);
    assert!(is(&cluster, "a", "PodsReady"));

    cluster.end_pod("a", "Succeeded");
    cluster.settle();
    assert!(is(&cluster, "a", "Finished") && !gated(&cluster, "b"), "{:?}", cluster.writes);
    assert_eq!(cluster.pod("a").unwrap()["metadata"]["finalizers"], json!([]));
    let workload = workload_of(&cluster, "a").unwrap();
    assert_eq!(workload["metadata"]["finalizers"], json!([]));
    let about = |(_, key): &&(Purpose, _)| {
        let key: &berth_control::write::ObjectKey = key;
        key.name == "a" || key.name.starts_with("pod-a-")
    };
    assert_eq!(cluster.writes.iter().filter(about).count(), 7, "{:?}", cluster.writes);
    cluster.end_pod("b", "Failed");
    cluster.settle();
    let conditions = workload_of(&cluster, "b").unwrap()["status"]["conditions"].clone();
    assert!(
        conditions.as_array().unwrap().iter().any(|c| c["type"] == json!("Finished") && c["reason"] == json!("Failed"))
    );
}

#[test]
fn evicted_pod_shows_reason_and_keeps_quota_until_it_ends() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::Pod, pod("a", "1"));
    cluster.settle();
    let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.controller_sleeps = true;
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.put(Kind::Pod, pod("b", "1"));
    cluster.settle();
    let condemned = cluster.pod("a").unwrap();
    let condition =
        condemned["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == json!("TerminationTarget"));
    assert_eq!(condition.expect("told")["reason"], json!("WorkloadEvictedDueToDeactivated"));
    assert!(condemned["metadata"]["deletionTimestamp"].is_string());
    assert!(cluster.workload_is(&name, "QuotaReserved") && gated(&cluster, "b"), "it still terminates");
    cluster.controller_sleeps = false;
    cluster.settle();
    assert!(cluster.pod("a").is_none(), "let go, and gone");
    assert!(!gated(&cluster, "b"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::CondemnPod), 1);
    assert!(workload_of(&cluster, "a").is_none(), "its Workload went with it");
}

#[test]
fn pod_that_may_not_run_is_deleted_with_reason() {
    let mut cluster = pod_queue("1");
    // A finalizer of another client keeps the pods, so that the reasons in their statuses can be read.
    let kept = |name: &str| {
        let mut kept = pod(name, "1");
        kept["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/managed", "example.com/keep"]);
        kept
    };
    cluster.put(Kind::Pod, kept("a"));
    cluster.put(Kind::Pod, kept("b"));
    cluster.settle();
    assert!(!gated(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
    cluster.controller_sleeps = true;
    // A client removes the gate of pod `b`, and pod `c` never had a gate.
    cluster.edit(Kind::Pod, "team", "b", &json!({"spec": {"schedulingGates": []}}));
    let mut stranger = kept("c");
    stranger["spec"]["schedulingGates"] = json!([]);
    // The annotation of a pod that a webhook has reviewed.
    stranger["metadata"]["annotations"] = json!({"kueue.x-k8s.io/role-hash": "main"});
    cluster.put(Kind::Pod, stranger);
    cluster.settle();
    let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.settle();
    for (name, reason) in [("a", "WorkloadDeleted"), ("b", "NotAdmitted"), ("c", "NoMatchingWorkload")] {
        let condemned = cluster.pod(name).unwrap();
        let mut conditions = condemned["status"]["conditions"].as_array().unwrap().iter();
        let condition = conditions.find(|c| c["type"] == json!("TerminationTarget")).expect("told");
        assert_eq!(condition["reason"], json!(reason), "{name}: {:?}", cluster.writes);
        assert!(condemned["metadata"]["deletionTimestamp"].is_string(), "{name}");
    }
}

/// As in Kueue, the pods of a Deployment have no finalizer of Berth: a deleted pod frees its Workload and its quota at once, even if another process becomes
/// the leader.
#[test]
fn pod_without_finalizer_frees_its_quota_when_gone() {
    for (evicted, restarts) in [(false, false), (false, true), (true, false)] {
        let mut cluster = pod_queue("1");
        for name in ["a", "b"] {
            let mut made = pod(name, "1");
            made["metadata"]["finalizers"] = json!([]);
            made["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "deployment"});
            cluster.put(Kind::Pod, made);
        }
        cluster.settle();
        assert!(!gated(&cluster, "a") && gated(&cluster, "b"), "{:?}", cluster.writes);
        let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        if evicted {
            cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
        } else {
            cluster.delete(&Cluster::key(Kind::Pod, "team", "a"));
        }
        if restarts {
            cluster.restart();
        }
        cluster.pass(10);
        assert!(cluster.pod("a").is_none() && workload_of(&cluster, "a").is_none(), "{:?}", cluster.writes);
        assert!(!gated(&cluster, "b"), "evicted: {evicted}: {:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::ReleasePod), 0, "{:?}", cluster.writes);
    }
}

#[test]
fn pod_failing_by_itself_during_eviction_finishes_its_workload() {
    // A pod that Berth stops fails as well; if Berth's reason for the stop is in the pod's status (`reported`), the Workload does not count as finished.
    for (reported, finished) in [(false, true), (true, false)] {
        let mut cluster = pod_queue("1");
        cluster.put(Kind::Pod, pod("a", "1"));
        cluster.settle();
        let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        let late = if reported { Purpose::DeletePod } else { Purpose::CondemnPod };
        cluster.faults.push((late, WriteOutcome::Busy(60_000), false));
        cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
        cluster.settle();
        assert!(cluster.workload_is(&name, "Evicted"), "{:?}", cluster.writes);
        // The conditions in the pod's status stay, among them the condition that Berth wrote when it stopped the pod.
        cluster.edit(Kind::Pod, "team", "a", &json!({"status": {"phase": "Failed"}}));
        cluster.put(Kind::Pod, pod("b", "1"));
        cluster.pass(120);
        assert_eq!(cluster.workload_is(&name, "Finished"), finished, "told: {reported}: {:?}", cluster.writes);
        assert!(!gated(&cluster, "b"), "its quota is free: {:?}", cluster.writes);
    }
}

#[test]
fn evicted_pod_that_never_started_is_tried_again() {
    let mut cluster = pod_queue("1");
    cluster.faults.push((Purpose::StartJob, WriteOutcome::Busy(60_000), false));
    cluster.put(Kind::Pod, pod("a", "1"));
    cluster.settle();
    let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(120);
    assert!(gated(&cluster, "a") && !cluster.workload_is(&name, "QuotaReserved"), "{:?}", cluster.writes);
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": true}}));
    cluster.pass(120);
    assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
}

#[test]
fn workload_deletion_deletes_its_pod() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::Pod, pod("a", "1"));
    cluster.settle();
    let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.settle();
    assert!(cluster.pod("a").is_none() && workload_of(&cluster, "a").is_none(), "{:?}", cluster.writes);
}

/// The garbage collector keeps the pod until its Workload is gone, and control keeps the Workload until the pod has ended.
#[test]
fn foreground_deletion_of_pod_does_not_block_on_its_workload() {
    let mut cluster = pod_queue("1");
    let mut made = pod("a", "1");
    made["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    made["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "deployment"});
    cluster.put(Kind::Pod, made);
    cluster.settle();
    let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.delete(&Cluster::key(Kind::Pod, "team", "a"));
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.end_pod("a", "Failed");
    cluster.pass(10);
    assert!(cluster.pod("a").is_some() && workload_of(&cluster, "a").is_none(), "{:?}", cluster.writes);
}

/// A client removes the queue's label from a waiting pod: the deletion of the pod must not wait for Berth's finalizer.
#[test]
fn waiting_pod_taken_out_of_its_queue_can_be_deleted() {
    for made in [pod("a", "2"), member("a", "1", 2, &[])] {
        let mut cluster = pod_queue("1");
        cluster.put(Kind::Pod, made);
        cluster.settle();
        cluster.edit(Kind::Pod, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}));
        cluster.pass(10);
        assert!(gated(&cluster, "a"));
        assert_eq!(cluster.count(Purpose::ReleasePod), 0, "as long as nobody deletes it");
        cluster.delete(&Cluster::key(Kind::Pod, "team", "a"));
        cluster.pass(10);
        assert!(cluster.pod("a").is_none() && workload_of(&cluster, "a").is_none(), "{:?}", cluster.writes);
    }
}

#[test]
fn job_pods_and_unmanaged_pods_are_left_alone() {
    // Berth does not change the pods of a Job, and no pods at all if pods are not managed.
    let mut cluster = pod_queue("4");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let mut child = pod("a-0", "1");
    child["metadata"]["ownerReferences"] = cluster.controlled_by(Kind::JOB, "a");
    cluster.put(Kind::Pod, child);
    cluster.pass(10);
    let about = cluster.writes.iter().filter(|(_, key)| key.kind == Kind::Pod || key.name.starts_with("pod-"));
    assert_eq!(about.count(), 0, "{:?}", cluster.writes);

    let mut cluster = one_queue("4");
    cluster.put(Kind::Pod, pod("b", "1"));
    cluster.pass(10);
    assert_eq!(cluster.count(Purpose::CreateWorkload), 0);
    assert!(gated(&cluster, "b"));
}

/// If the configuration no longer names pods, the finalizer that Berth added earlier keeps no pod.
#[test]
fn pod_can_be_deleted_after_pod_integration_is_disabled() {
    for made in [pod("a", "1"), member("a", "1", 2, &[])] {
        let mut cluster = one_queue("4");
        cluster.put(Kind::Pod, made);
        cluster.edit(Kind::Pod, "team", "a", &json!({"spec": {"schedulingGates": []}}));
        cluster.pass(10);
        assert!(cluster.writes.iter().all(|(_, key)| key.kind != Kind::Pod), "it runs on: {:?}", cluster.writes);
        cluster.delete(&Cluster::key(Kind::Pod, "team", "a"));
        cluster.pass(10);
        assert!(cluster.pod("a").is_none(), "{:?}", cluster.writes);
    }
}

#[test]
fn managed_pod_without_queue_name_waits_until_it_gets_one() {
    let mut settings = crate::stories::cluster::settings();
    settings.job_kinds.insert(Kind::Pod);
    settings.manage_jobs_without_queue_name = true;
    let mut cluster = crate::stories::with_queue(Cluster::with(settings), "1");
    let mut lone = pod("a", "1");
    lone["metadata"]["labels"] = json!({"kueue.x-k8s.io/managed": "true"});
    cluster.put(Kind::Pod, lone);
    cluster.pass(60);
    let made = workload_of(&cluster, "a").unwrap();
    assert!(gated(&cluster, "a") && made["spec"]["queueName"].is_null(), "{made}");
    cluster.edit(Kind::Pod, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}));
    cluster.settle();
    assert!(!gated(&cluster, "a") && is(&cluster, "a", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn pod_can_change_queue_and_use_prebuilt_workload() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::LocalQueue, crate::stories::cluster::local_queue("none", "absent"));
    let mut moved = pod("a", "1");
    moved["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("none");
    cluster.put(Kind::Pod, moved);
    cluster.settle();
    assert!(gated(&cluster, "a"));
    cluster.edit(Kind::Pod, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}));
    cluster.settle();
    assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
    cluster.end_pod("a", "Succeeded");

    let mut guest = pod("guest", "1");
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    let template = json!({"spec": {"containers": guest["spec"]["containers"]}});
    let sets = json!([{"name": "main", "count": 1, "template": template}]);
    let workload = json!({"metadata": {"namespace": "team", "name": "before"},
        "spec": {"queueName": "lq", "active": true, "podSets": sets}});
    cluster.put(Kind::Workload, workload);
    cluster.put(Kind::Pod, guest);
    cluster.settle();
    assert!(!gated(&cluster, "guest"), "{:?}", cluster.writes);
}

#[test]
fn waiting_pod_can_change_its_maximum_execution_time() {
    let labelled = |key: &str, value: Value| {
        let key = format!("kueue.x-k8s.io/{key}");
        json!({"metadata": {"labels": {key: value}}})
    };
    for mut made in [pod("a", "1"), member("a", "1", 1, &[])] {
        let mut cluster = pod_queue("1");
        cluster.put(Kind::LocalQueue, crate::stories::cluster::local_queue("none", "absent"));
        made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("none");
        cluster.put(Kind::Pod, made);
        cluster.settle();
        for (message, limit) in [(json!("10"), json!(10)), (Value::Null, Value::Null), (json!("20"), json!(20))] {
            cluster.edit(Kind::Pod, "team", "a", &labelled("max-exec-time-seconds", message));
            cluster.settle();
            let workload = workload_of(&cluster, "a").unwrap();
            assert_eq!(workload["spec"]["maximumExecutionTimeSeconds"], limit, "{:?}", cluster.writes);
        }
        cluster.edit(Kind::Pod, "team", "a", &labelled("queue-name", json!("lq")));
        cluster.pass(10);
        assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
        cluster.pass(30);
        assert!(cluster.count(Purpose::Deactivate) > 0, "{:?}", cluster.writes);
    }
}

/// A cluster in which pods are managed, and in which the reserved tier has no nodes.
fn without_reserved_nodes() -> Cluster {
    let mut settings = crate::stories::cluster::settings();
    settings.job_kinds.insert(Kind::Pod);
    let mut cluster = crate::stories::tiers::tiered_cluster_on(Cluster::with(settings), "1");
    cluster.without_nodes.push("reserved");
    cluster
}

fn accepting(name: &str) -> Value {
    let mut pod = pod(name, "1");
    pod["metadata"]["annotations"] = json!({"berth.dev/capacity-tiers": "reserved,spot"});
    pod
}

#[test]
fn pod_without_nodes_is_evicted_and_successor_gets_next_tier() {
    let mut cluster = without_reserved_nodes();
    cluster.put(Kind::Pod, accepting("a"));
    cluster.settle();
    assert_eq!(cluster.pod("a").unwrap()["spec"]["nodeSelector"], json!({"tier": "reserved"}));
    cluster.pass(610);
    assert!(cluster.pod("a").is_none(), "it has left: {:?}", cluster.writes);
    assert!(cluster.notices.iter().any(|n| n.reason == "EvictedDueToStockOut" && n.message.contains("0/9 nodes")));
    assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "its Workload is not tried again: {:?}", cluster.writes);
    // Pod `b` is made by the owner of the evicted pod in its place.
    cluster.put(Kind::Pod, accepting("b"));
    cluster.settle();
    assert_eq!(cluster.pod("b").unwrap()["spec"]["nodeSelector"], json!({"tier": "spot"}), "{:?}", cluster.writes);
}

#[test]
fn pod_is_evicted_early_when_autoscaler_reports_no_nodes() {
    let mut cluster = without_reserved_nodes();
    cluster.put(Kind::Pod, accepting("a"));
    cluster.pass(100);
    assert!(cluster.pod("a").is_some(), "nobody has said anything");
    let asked = cluster.count(Purpose::FindStuckPods);
    assert!((2..=5).contains(&asked), "every 30 seconds: {asked}");
    cluster.refused_nodes = Some("Node scale up failed: out of resources".into());
    cluster.pass(40);
    assert!(cluster.pod("a").is_none(), "it has left: {:?}", cluster.writes);
    let event = cluster.notices.iter().find(|notice| notice.reason == "EvictedDueToStockOut").unwrap();
    assert!(event.message.ends_with("s: Node scale up failed: out of resources"), "{}", event.message);
}

#[test]
fn pods_reach_same_end_after_failed_or_lost_writes() {
    let purposes = [
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::StartJob,
        Purpose::FinishWorkload,
        Purpose::ReleasePod,
        Purpose::LetFinishedGo,
        Purpose::Evict,
        Purpose::CondemnPod,
        Purpose::DeletePod,
        Purpose::ReleaseQuota,
    ];
    with_every_fault(
        || pod_queue("1"),
        &purposes,
        |mut cluster, what| {
            cluster.put(Kind::Pod, pod("a", "1"));
            cluster.pass(120);
            assert!(!gated(&cluster, "a"), "{what}: {:?}", cluster.writes);
            let name = workload_of(&cluster, "a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
            cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
            cluster.put(Kind::Pod, pod("b", "1"));
            cluster.pass(120);
            assert!(cluster.pod("a").is_none() && !gated(&cluster, "b"), "{what}: {:?}", cluster.writes);
            cluster.end_pod("b", "Succeeded");
            cluster.pass(120);
            assert!(is(&cluster, "b", "Finished"), "{what}: {:?}", cluster.writes);
            let before = cluster.writes.len();
            cluster.restart();
            cluster.pass(300);
            assert_eq!(&cluster.writes[before..], &[], "{what}: quiet at rest");
        },
    );
}

/// A pod of another controller names no queue at first: the webhook has added a scheduling gate to the pod because of the annotation `pod-suspending-parent`.
#[test]
fn pod_gated_for_its_parent_starts_once_queue_is_named() {
    let mut cluster = pod_queue("1");
    let mut held = pod("a", "1");
    held["metadata"]["labels"] = json!({"kueue.x-k8s.io/managed": "true"});
    held["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "OtherController"});
    held["metadata"]["finalizers"] = json!([]);
    cluster.put(Kind::Pod, held);
    cluster.pass(60);
    assert!(gated(&cluster, "a") && workload_of(&cluster, "a").is_none(), "{:?}", cluster.writes);
    cluster.edit(Kind::Pod, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}));
    cluster.settle();
    assert!(!gated(&cluster, "a") && is(&cluster, "a", "Admitted"), "{:?}", cluster.writes);
}
