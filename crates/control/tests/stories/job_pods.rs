//! Pods that no Job counts any more, and pods that were enlarged: if Berth did not check such pods, they would use more than their Workload holds quota for.

use berth_control::write::{Kind, ObjectKey, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, is, job};
use crate::stories::jobsets::{jobset, part, slices, stopped};
use crate::stories::kept_quota::{contested, name_of, urgent_has_its_turn};
use crate::stories::training::training;

/// A ClusterQueue of one cpu in which the Job `t` runs, and the pod of `t`.
fn running() -> (Cluster, ObjectKey) {
    running_in("1")
}

/// A ClusterQueue of the given number of cpus in which the Job `t` runs, and the pod of `t`.
fn running_in(quota: &str) -> (Cluster, ObjectKey) {
    let mut cluster = contested(quota);
    cluster.put(Kind::JOB, job("t", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("t", "Admitted"), "{:?}", cluster.writes);
    let pod = cluster.put_job_pod("t-a", "t", "1");
    cluster.pass(5);
    (cluster, pod)
}

fn is_there(cluster: &Cluster, pod: &ObjectKey) -> bool {
    cluster.objects().contains_key(pod)
}

/// The numbers of Berth's reads of single pods, of its writes of a pod's status, and of its deletions of pods.
fn of_pods(cluster: &Cluster) -> [usize; 3] {
    [Purpose::ReadPod, Purpose::CondemnPod, Purpose::DeletePod].map(|purpose| cluster.count(purpose))
}

/// A client removes the labels by which a Job counts its pod, and the Job controller makes another pod: Berth writes the reason to the status of the pod
/// without labels, and deletes this pod.
#[test]
fn relabelled_pod_of_job_gets_reason_and_is_deleted() {
    let (mut cluster, pod) = running();
    assert_eq!(of_pods(&cluster), [0, 0, 0], "nothing is asked about pods that their Jobs answer for");
    cluster.release_pod(&pod);
    let other = cluster.put_job_pod("t-b", "t", "1");
    cluster.pass(4);
    assert!(!is_there(&cluster, &pod) && is_there(&cluster, &other), "{:?}", cluster.writes);
    assert_eq!(of_pods(&cluster), [1, 1, 1], "{:?}", cluster.writes);
    let event = cluster.notices.iter().find(|notice| notice.reason == "ExcessPod").expect("an event");
    assert!(event.key.name == "t" && event.message.contains("t-a"), "{event:?}");
    assert!(cluster.is("t", "Admitted") && !cluster.is("t", "Evicted"));
}

/// In one write, a client removes the labels by which a Job counts its pod and the label by which the watch selects the pod: the watch does not show the pod
/// any more, and Berth stops the pod nevertheless.
#[test]
fn pod_that_loses_all_its_labels_is_stopped() {
    let (mut cluster, pod) = running();
    cluster.mark_pod(&pod, &json!({"labels": null, "annotations": null, "ownerReferences": null, "finalizers": []}));
    cluster.pass(4);
    assert!(!is_there(&cluster, &pod), "{:?}", cluster.writes);
    cluster.complete("t");
    cluster.pass(10);
    assert!(cluster.is("t", "Finished"), "{:?}", cluster.writes);
}

/// Without the label `podset`, the Job still counts the pod, but Berth would not observe later changes of the pod.
#[test]
fn pod_that_loses_its_podset_label_is_stopped() {
    let (mut cluster, pod) = running();
    cluster.mark_pod(&pod, &json!({"labels": {"kueue.x-k8s.io/podset": null}, "finalizers": []}));
    cluster.pass(4);
    assert!(!is_there(&cluster, &pod), "{:?}", cluster.writes);
}

/// A client removed the labels of a Job's pod while no replica of Berth ran.
#[test]
fn pod_relabelled_before_control_started_is_stopped() {
    for annotated in [true, false] {
        let (mut cluster, pod) = running();
        cluster.release_pod(&pod);
        if !annotated {
            cluster.mark_pod(
                &pod,
                &json!({"annotations": null, "labels": {"controller-uid": cluster.job("t")["metadata"]["uid"]}}),
            );
        }
        cluster.restart();
        cluster.pass(5);
        assert!(!is_there(&cluster, &pod), "{annotated}: {:?}", cluster.writes);
    }
}

/// Berth releases the quota of a job only when no pod that was started under the quota runs any more, whether a Job counts the pod or not.
#[test]
fn quota_of_job_is_held_until_relabelled_pods_end() {
    for evicted in [false, true] {
        let (mut cluster, pod) = running();
        cluster.release_pod(&pod);
        // The pod ends slowly.
        cluster.mark_pod(&pod, &json!({"finalizers": ["example.com/slow"]}));
        if evicted {
            assert!(!urgent_has_its_turn(&mut cluster, "1"), "{:?}", cluster.writes);
        } else {
            cluster.complete("t");
            cluster.pass(30);
        }
        assert!(cluster.is("t", "QuotaReserved") && !cluster.is("t", "Finished"), "{evicted}: {:?}", cluster.writes);
        assert!(is_there(&cluster, &pod) && cluster.count(Purpose::ReadPod) < 5, "{:?}", cluster.writes);
        cluster.mark_pod(&pod, &json!({"finalizers": []}));
        cluster.pass(5);
        let ended = if evicted { cluster.is("urgent", "Admitted") } else { cluster.is("t", "Finished") };
        assert!(ended, "{evicted}: {:?}", cluster.writes);
    }
}

/// A pod that runs beyond the quota of its job is charged to the job's queue until the pod has ended, even if another process becomes the leader.
#[test]
fn relabelled_pod_is_charged_until_it_has_ended() {
    for restarts in [false, true] {
        let (mut cluster, pod) = running_in("2");
        cluster.release_pod(&pod);
        cluster.mark_pod(&pod, &json!({"finalizers": ["example.com/slow"]}));
        cluster.put_job_pod("t-b", "t", "1");
        cluster.pass(5);
        if restarts {
            cluster.restart();
        }
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(5);
        assert!(!cluster.is("next", "Admitted"), "{restarts}: {:?}", cluster.writes);
        cluster.mark_pod(&pod, &json!({"finalizers": []}));
        cluster.pass(7);
        assert!(cluster.is("next", "Admitted"), "{restarts}: {:?}", cluster.writes);
    }
}

/// A Job is deleted without its pods, a moment after one of the pods has lost its labels. Berth stops the pod without labels like any pod that no Job counts,
/// and the other pod runs on under the quota, even if another process becomes the leader before or after the deletion.
#[test]
fn relabelled_pod_of_orphaned_job_is_charged_and_stopped() {
    for (before, after) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut cluster, pod) = running_in("2");
        cluster.release_pod(&pod);
        cluster.mark_pod(&pod, &json!({"finalizers": ["example.com/slow"]}));
        cluster.settle();
        if before {
            cluster.restart();
            cluster.settle();
        }
        cluster.delete_orphaning(&Cluster::key(Kind::JOB, "team", "t"));
        if after {
            cluster.restart();
        }
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(5);
        let message = format!("before {before}, after {after}: {:?}", cluster.writes);
        assert!(!cluster.is("next", "Admitted"), "{message}");
        assert!(cluster.objects()[&pod]["metadata"]["deletionTimestamp"].is_string(), "{message}");
        cluster.mark_pod(&pod, &json!({"finalizers": []}));
        cluster.pass(35);
        assert!(cluster.is("next", "Admitted") && cluster.left_behind.len() == 1, "{message}");
        let workload = Cluster::key(Kind::Workload, "team", &name_of(&cluster, "job-t-"));
        assert!(
            is(&cluster.objects()[&workload], "Admitted") && !is(&cluster.objects()[&workload], "Finished"),
            "{message}"
        );
    }
}

/// The pods of a Job have an older and a newer label with the uid of the Job. If a Job is deleted without its pods, Berth also finds a pod that has kept only
/// the older label.
#[test]
fn orphaned_pod_with_only_the_old_label_holds_its_quota() {
    let (mut cluster, pod) = running();
    let label = "batch.kubernetes.io/controller-uid";
    cluster.mark_pod(&pod, &json!({"labels": {label: null}, "ownerReferences": null, "finalizers": []}));
    cluster.delete_orphaning(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.left_behind.clear();
    cluster.pass(30);
    let workload = name_of(&cluster, "job-t-");
    assert!(is_there(&cluster, &pod) && cluster.workload_is(&workload, "Admitted"), "{:?}", cluster.writes);
    assert!(!cluster.workload_is(&workload, "Finished"), "{:?}", cluster.writes);
    assert!(urgent_has_its_turn(&mut cluster, "1") && !is_there(&cluster, &pod), "{:?}", cluster.writes);
}

/// A Job's controller finds the pods of the Job by the Job's name as well as by its uid: a pod with another name in its label runs beside the pod that replaces
/// it.
#[test]
fn pod_that_names_its_job_by_another_name_is_stopped() {
    let (mut cluster, pod) = running();
    let mut owners = cluster.objects()[&pod]["metadata"]["ownerReferences"].clone();
    owners[0]["name"] = json!("other");
    cluster.mark_pod(
        &pod,
        &json!({"ownerReferences": owners, "labels": {"batch.kubernetes.io/job-name": "other", "job-name": "other"},
            "finalizers": []}),
    );
    cluster.pass(5);
    assert!(!is_there(&cluster, &pod), "{:?}", cluster.writes);
    assert_eq!(of_pods(&cluster), [1, 1, 1], "{:?}", cluster.writes);
}

/// A Job that is deleted without its pods is kept by a finalizer, and reaches its deadline while the pods run on: the pods hold the quota of the Job.
#[test]
fn job_that_ends_while_orphaned_pods_run_keeps_its_quota() {
    let (mut cluster, pod) = running();
    let key = Cluster::key(Kind::JOB, "team", "t");
    cluster.begin_orphaning(&key);
    cluster.edit(Kind::JOB, "team", "t", &json!({"metadata": {"finalizers": ["example.com/mine"]}}));
    cluster.complete("t");
    cluster.pass(30);
    assert!(cluster.is("t", "QuotaReserved") && !cluster.is("t", "Finished"), "{:?}", cluster.writes);
    assert!(is_there(&cluster, &pod), "{:?}", cluster.writes);
    cluster.left_behind.clear();
    cluster.delete(&pod);
    cluster.pass(15);
    assert!(cluster.is("t", "Finished"), "{:?}", cluster.writes);
}

/// A pod that has ended and is kept by a user's finalizer uses no quota.
#[test]
fn relabelled_pod_that_has_ended_does_not_delay_job_finish() {
    let (mut cluster, pod) = running();
    cluster.edit(Kind::JobPod, "team", "t-a", &json!({"status": {"phase": "Succeeded"}}));
    cluster.release_pod(&pod);
    cluster.complete("t");
    cluster.pass(10);
    assert!(cluster.is("t", "Finished") && is_there(&cluster, &pod), "{:?}", cluster.writes);
    assert_eq!(of_pods(&cluster), [1, 0, 0], "{:?}", cluster.writes);
}

/// A client creates a pod that looks like a pod of a job. This pod without a node is kept by a finalizer, and does not delay any other job.
#[test]
fn forged_pod_that_never_runs_does_not_delay_quota_release() {
    let (mut cluster, pod) = running();
    let mut forged = cluster.objects()[&pod].clone();
    forged["metadata"] = json!({"namespace": "team", "name": "forged", "labels": forged["metadata"]["labels"],
        "finalizers": ["example.com/mine"]});
    forged["status"] = json!({"phase": "Pending"});
    cluster.put(Kind::JobPod, forged);
    cluster.pass(5);
    let forged = Cluster::key(Kind::JobPod, "team", "forged");
    assert!(cluster.objects()[&forged]["metadata"]["deletionTimestamp"].is_string(), "{:?}", cluster.writes);
    // The API server gives a deleted pod without a node no grace period.
    cluster.mark_pod(&forged, &json!({"deletionGracePeriodSeconds": 0}));
    assert!(urgent_has_its_turn(&mut cluster, "1"), "{:?}", cluster.writes);
}

/// A Job adopts a pod again that has lost only its owner reference to the Job.
#[test]
fn pod_adopted_again_by_its_job_is_left_alone() {
    let (mut cluster, pod) = running();
    let owners = cluster.objects()[&pod]["metadata"]["ownerReferences"].clone();
    cluster.mark_pod(&pod, &json!({"ownerReferences": null}));
    cluster.pass(1);
    cluster.mark_pod(&pod, &json!({"ownerReferences": owners}));
    cluster.pass(10);
    assert!(is_there(&cluster, &pod), "{:?}", cluster.writes);
    assert_eq!(of_pods(&cluster), [0, 0, 0], "{:?}", cluster.writes);
}

/// Pods that another queue manager has started run on, and so do pods that were left behind by the deletion of their Job.
#[test]
fn pods_of_other_controllers_and_deleted_jobs_are_left_alone() {
    let (mut cluster, pod) = running();
    let mut of_ray = cluster.objects()[&pod].clone();
    of_ray["metadata"] = json!({"namespace": "team", "name": "ray", "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": of_ray["metadata"]["annotations"], "ownerReferences":
            [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "r", "uid": "r-1", "controller": true}]});
    cluster.put(Kind::JobPod, of_ray);
    let mut of_nobody = cluster.objects()[&pod].clone();
    of_nobody["metadata"] = json!({"namespace": "team", "name": "free", "labels": {"kueue.x-k8s.io/podset": "main"}});
    cluster.put(Kind::JobPod, of_nobody);
    cluster.pass(10);
    cluster.delete_orphaning(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.pass(30);
    for name in ["ray", "free", "t-a"] {
        assert!(is_there(&cluster, &Cluster::key(Kind::JobPod, "team", name)), "{name}: {:?}", cluster.writes);
    }
    assert_eq!(of_pods(&cluster), [0, 0, 0], "{:?}", cluster.writes);
}

/// A Job of a JobSet is deleted without its pods, and the JobSet's controller makes the Job again: Berth stops the orphaned pods of the deleted Job, because
/// the pods of the new Job use all quota of the JobSet.
#[test]
fn orphaned_pods_of_a_part_are_stopped() {
    let mut cluster = contested("4");
    cluster.put(Kind::JOB_SET, slices());
    cluster.pass(2);
    stopped(&mut cluster);
    cluster.pass(5);
    part(&mut cluster, "a-job-0");
    let set = jobset(&cluster)["metadata"]["uid"].clone();
    let workload = name_of(&cluster, "jobset-a-");
    let labels = json!({"jobset.sigs.k8s.io/jobset-uid": set});
    let pod = cluster.put_pod_of("a-job-0-0", ("a-job-0", &labels), &workload, "1");
    cluster.pass(2);
    cluster.delete_orphaning(&Cluster::key(Kind::JOB, "team", "a-job-0"));
    cluster.pass(5);
    assert!(!is_there(&cluster, &pod), "{:?}", cluster.writes);
    assert!(cluster.workload_is(&workload, "Admitted"), "{:?}", cluster.writes);
}

/// A running JobSet or TrainingJob, with a pod of one of its Jobs, and the name of its Workload.
fn running_part(kind: Kind) -> (Cluster, ObjectKey, String) {
    let mut cluster = contested("4");
    let (job, labels, workload) = if kind == Kind::TrainingJob {
        cluster.put(kind, training("a", json!({})));
        cluster.pass(5);
        let uid = cluster.training("a")["metadata"]["uid"].clone();
        let labels = json!({"berth.dev/training-job-uid": uid, "kueue.x-k8s.io/podset": "worker"});
        ("a-worker", labels, cluster.workload_key("a").name)
    } else {
        cluster.put(kind, slices());
        cluster.pass(2);
        stopped(&mut cluster);
        cluster.pass(5);
        part(&mut cluster, "a-job-0");
        let uid = jobset(&cluster)["metadata"]["uid"].clone();
        let labels = json!({"jobset.sigs.k8s.io/jobset-uid": uid, "kueue.x-k8s.io/podset": "job"});
        ("a-job-0", labels, name_of(&cluster, "jobset-a-"))
    };
    let pod = cluster.put_pod_of("a-pod", (job, &labels), &workload, "1");
    cluster.pass(2);
    assert!(cluster.workload_is(&workload, "Admitted") && is_there(&cluster, &pod), "{kind:?}: {:?}", cluster.writes);
    (cluster, pod, workload)
}

/// The JobSet or TrainingJob still exists, and its Job makes another pod.
#[test]
fn relabelled_pod_of_a_part_is_stopped() {
    for kind in [Kind::JOB_SET, Kind::TrainingJob] {
        let (mut cluster, pod, workload) = running_part(kind);
        cluster.release_pod(&pod);
        cluster.pass(5);
        assert!(!is_there(&cluster, &pod), "{kind:?}: {:?}", cluster.writes);
        let goes_on = cluster.workload_is(&workload, "Admitted") && !cluster.workload_is(&workload, "Evicted");
        assert!(goes_on, "{kind:?}: {:?}", cluster.writes);
    }
}

/// A pod of a JobSet or of a TrainingJob is made larger than its requests in the admission, and the queue has no room for the difference.
#[test]
fn resized_pod_of_a_part_leaves_like_a_victim() {
    for kind in [Kind::JOB_SET, Kind::TrainingJob] {
        let (mut cluster, _, workload) = running_part(kind);
        resize_pod(&mut cluster, "a-pod", "5");
        cluster.pass(2);
        let events: Vec<_> = cluster.notices.iter().filter(|one| one.reason == "EvictedDueToPodResized").collect();
        assert_eq!(events.len(), 1, "{kind:?}: {:?}", cluster.writes);
        assert!(events[0].message.starts_with("Pod a-pod asks for 5 of cpu"), "{events:?}");
        assert!(cluster.workload_is(&workload, "Evicted"), "{kind:?}: {:?}", cluster.writes);
    }
}

/// Changes the cpu request of a running pod.
fn resize_pod(cluster: &mut Cluster, name: &str, cpu: &str) {
    let requests = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    cluster.edit(Kind::JobPod, "team", name, &json!({"spec": {"containers": requests}}));
}

fn resize(cluster: &mut Cluster, cpu: &str) {
    resize_pod(cluster, "t-a", cpu);
}

/// A pod of a Job is made larger than its requests in the admission: Berth evicts the Workload of the Job, and tries to admit the Workload again with pods of
/// the old size.
#[test]
fn job_with_pod_resized_beyond_quota_is_evicted_and_retried() {
    let (mut cluster, pod) = running();
    resize(&mut cluster, "5");
    cluster.pass(2);
    let events: Vec<_> = cluster.notices.iter().filter(|one| one.reason == "EvictedDueToPodResized").collect();
    assert_eq!(events.len(), 1, "{:?}", cluster.writes);
    assert!(events[0].message.starts_with("Pod t-a asks for 5 of cpu, pod set \"main\""), "{events:?}");
    assert_eq!(cluster.count(Purpose::ReadPod), 1, "{:?}", cluster.writes);
    cluster.pass(10);
    assert!(!is_there(&cluster, &pod) && !cluster.is("t", "QuotaReserved"), "not at once: {:?}", cluster.writes);
    cluster.pass(120);
    assert!(cluster.is("t", "Admitted"), "{:?}", cluster.writes);
}

/// A pod of a Job is made larger, and the queue has room for the difference: the difference is charged to the queue, and the pod stays until another workload
/// needs the quota.
#[test]
fn resized_pod_of_job_is_charged_while_queue_has_room() {
    for restarts in [false, true] {
        let (mut cluster, _) = running_in("6");
        resize(&mut cluster, "5");
        cluster.pass(2);
        if restarts {
            cluster.restart();
        }
        cluster.put(Kind::JOB, job("next", "lq", "2", true));
        cluster.put(Kind::JOB, job("small", "lq", "1", true));
        cluster.pass(5);
        assert!(cluster.is("t", "Admitted") && !cluster.is("t", "Evicted"), "{restarts}: {:?}", cluster.writes);
        assert!(!cluster.is("next", "Admitted"), "5 of 6 are in use: {restarts}: {:?}", cluster.writes);
        assert!(cluster.is("small", "Admitted"), "{restarts}: {:?}", cluster.writes);
        cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "5")]));
        cluster.pass(5);
        let is_reported = cluster.notices.iter().any(|one| one.reason == "EvictedDueToPodResized");
        assert!(is_reported && !cluster.is("small", "Evicted"), "{restarts}: {:?}", cluster.writes);
    }
}

/// Berth reads a pod that requests no more than its place in the admission only once, however often the pod's metadata change.
#[test]
fn resized_pod_is_read_once_however_often_metadata_change() {
    let (mut cluster, pod) = running();
    resize(&mut cluster, "500m");
    for note in ["a", "b", "c"] {
        cluster.mark_pod(&pod, &json!({"annotations": {"note": note}}));
        cluster.pass(5);
    }
    assert_eq!(of_pods(&cluster), [1, 0, 0], "{:?}", cluster.writes);
    assert!(cluster.is("t", "Admitted") && !cluster.is("t", "Evicted"), "{:?}", cluster.writes);
    resize(&mut cluster, "1");
    cluster.pass(5);
    assert_eq!(of_pods(&cluster), [2, 0, 0], "{:?}", cluster.writes);
    cluster.mark_pod(&pod, &json!({"annotations": Value::Null}));
    cluster.restart();
    cluster.pass(5);
    assert!(!cluster.is("t", "Evicted"), "{:?}", cluster.writes);
}

/// A client removes the labels of a pod and deletes the pod's JobSet or TrainingJob in the same second. The deletion of the JobSet or TrainingJob does not
/// reach the pod without labels, because no object owns this pod any more.
#[test]
fn relabelled_pod_of_deleted_job_holds_quota_until_stopped() {
    let ways = [(Kind::JOB_SET, false), (Kind::JOB_SET, true), (Kind::TrainingJob, false), (Kind::TrainingJob, true)];
    for (kind, in_foreground) in ways {
        let (mut cluster, pod, workload) = running_part(kind);
        cluster.release_pod(&pod);
        cluster.delete_as(&Cluster::key(kind, "team", "a"), in_foreground);
        for _ in 0..10 {
            let holds = cluster.workload_is(&workload, "QuotaReserved");
            assert!(holds || !is_there(&cluster, &pod), "{kind:?}: {:?}", cluster.writes);
            cluster.pass(1);
        }
        assert!(!is_there(&cluster, &pod), "{kind:?}: {:?}", cluster.writes);
        assert!(!cluster.workload_is(&workload, "QuotaReserved"), "{kind:?}: {:?}", cluster.writes);
    }
}
