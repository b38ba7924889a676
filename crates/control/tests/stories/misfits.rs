//! Admissions that another client has written and that do not fit their Workload: no job starts with such an admission, and Berth removes the admission.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, merge};
use crate::stories::groups::member;
use crate::stories::pod_queue;
use crate::stories::pods::pod;
use crate::stories::training::training;

/// Kinds of jobs of two cpus in all, and the number of writes that start all pods of the job.
const KINDS: [(&str, usize); 4] = [("Job", 1), ("JobSet", 1), ("Pod", 1), ("group", 2)];

/// A JobSet that the JobSet controller has stopped. Each replicated job has the given number of pods of one cpu.
fn jobset(pods: &[(&str, i32)]) -> Value {
    let jobs = pods.iter().map(|(name, pods)| {
        let spec = json!({"parallelism": pods, "completions": pods, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}});
        json!({"name": name, "replicas": 1, "template": {"spec": spec}})
    });
    let stopped = json!({"type": "Suspended", "status": "True", "reason": "r", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": "a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "replicatedJobs": jobs.collect::<Vec<_>>()}, "status": {"conditions": [stopped]}})
}

/// A cluster with a job of two cpus that waits because another job has the quota; the second value is the name of the waiting job's Workload.
fn waits(kind: &str) -> (Cluster, String) {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::JOB, job("holder", "lq", "2", true));
    cluster.pass(5);
    match kind {
        "Job" => {
            let mut wide = job("a", "lq", "1", true);
            merge(&mut wide, &json!({"spec": {"parallelism": 2, "completions": 2}}));
            cluster.put(Kind::JOB, wide);
        }
        "JobSet" => cluster.put(Kind::JOB_SET, jobset(&[("main", 2)])),
        "Pod" => cluster.put(Kind::Pod, pod("a", "2")),
        _ => {
            for name in ["p", "q"] {
                cluster.put(Kind::Pod, member(name, "1", 2, &[("role-hash", "main")]));
            }
        }
    }
    cluster.pass(5);
    let waiting = waiting(&cluster);
    (cluster, waiting)
}

/// The name of the only Workload that has no quota.
fn waiting(cluster: &Cluster) -> String {
    let workloads = cluster.objects().keys().filter(|key| key.kind == Kind::Workload);
    let mut waiting = workloads.filter(|key| !cluster.workload_is(&key.name, "QuotaReserved"));
    let found = waiting.next().expect("a Workload that waits").name.clone();
    assert!(waiting.next().is_none());
    found
}

/// Another client admits the Workload with the given number of pods for each pod set.
fn admit(cluster: &mut Cluster, workload: &str, given: &[(&str, i32)], conditions: &[&str]) {
    let sets = given.iter().map(|(name, count)| {
        json!({"name": name, "count": count, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": count.to_string()}})
    });
    let conditions = conditions.iter().map(|kind| {
        json!({"type": kind, "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-11-21T12:00:00Z"})
    });
    let sets: Vec<Value> = sets.collect();
    let status = json!({"admission": {"clusterQueue": "cq", "podSetAssignments": sets},
        "conditions": conditions.collect::<Vec<_>>()});
    cluster.edit(Kind::Workload, "team", workload, &json!({"status": status}));
    cluster.pass(20);
}

const BOTH: [&str; 2] = ["QuotaReserved", "Admitted"];

/// The number of Berth's writes that start jobs, without the start of the job that was created first.
fn starts(cluster: &Cluster) -> usize {
    cluster.count(Purpose::StartJob) - 1
}

/// The reasons for which Workloads were evicted.
fn evictions(cluster: &Cluster) -> Vec<&str> {
    let events = cluster.notices.iter().filter(|notice| notice.key.kind == Kind::Workload);
    events.filter_map(|notice| notice.reason.strip_prefix("EvictedDueTo")).collect()
}

/// Asserts that the Workload waits for quota again, and that the job starts with all pods when there is room.
fn queues_again(cluster: &mut Cluster, kind: &str, all: usize) {
    assert_eq!(starts(cluster), 0, "{kind}: {:?}", cluster.writes);
    let workload = waiting(cluster);
    assert!(!cluster.workload_is(&workload, "Admitted"), "{kind}");
    cluster.complete("holder");
    cluster.pass(20);
    assert!(cluster.workload_is(&workload, "Admitted"), "{kind}: {:?}", cluster.writes);
    assert_eq!(starts(cluster), all, "{kind}: {:?}", cluster.writes);
}

#[test]
fn workload_admitted_with_wrong_pod_count_is_evicted() {
    for (kind, all) in KINDS {
        let pods = if kind == "Pod" { 1 } else { 2 };
        for count in [0, pods - 1, pods + 1] {
            let (mut cluster, workload) = waits(kind);
            admit(&mut cluster, &workload, &[("main", count)], &BOTH);
            assert_eq!(evictions(&cluster), ["InvalidAdmission"], "{kind} {count}: {:?}", cluster.writes);
            let event = cluster.notices.iter().find(|notice| notice.reason == "EvictedDueToInvalidAdmission").unwrap();
            assert!(event.message.contains("status.admission.podSetAssignments[0].count"), "{}", event.message);
            queues_again(&mut cluster, kind, all);
        }
    }
}

#[test]
fn workload_admitted_without_one_pod_set_is_evicted() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::JOB, job("holder", "lq", "2", true));
    cluster.pass(5);
    cluster.put(Kind::JOB_SET, jobset(&[("one", 1), ("two", 1)]));
    cluster.pass(5);
    let workload = waiting(&cluster);
    admit(&mut cluster, &workload, &[("one", 1)], &BOTH);
    assert_eq!(evictions(&cluster), ["InvalidAdmission"], "{:?}", cluster.writes);
    queues_again(&mut cluster, "JobSet", 1);
    assert!(!cluster.workload_is(&workload, "Finished"));
}

#[test]
fn reservation_with_wrong_pod_count_is_released_without_eviction() {
    for (kind, all) in KINDS {
        let (mut cluster, workload) = waits(kind);
        admit(&mut cluster, &workload, &[("main", 7)], &["QuotaReserved"]);
        assert_eq!((evictions(&cluster).len(), cluster.count(Purpose::ReleaseQuota)), (0, 1), "{kind}");
        queues_again(&mut cluster, kind, all);
    }
}

#[test]
fn admitted_condition_without_reservation_is_cleared_and_starts_nothing() {
    for (kind, all) in KINDS {
        let (mut cluster, workload) = waits(kind);
        admit(&mut cluster, &workload, &[("main", 2)], &["Admitted"]);
        queues_again(&mut cluster, kind, all);
    }
}

#[test]
fn job_with_changed_admission_is_evicted_and_restarts_in_full() {
    let (mut cluster, workload) = waits("Job");
    cluster.complete("holder");
    cluster.pass(10);
    assert_eq!(starts(&cluster), 1);
    admit(&mut cluster, &workload, &[("main", 1)], &BOTH);
    cluster.pass(60);
    assert_eq!(evictions(&cluster), ["InvalidAdmission"], "{:?}", cluster.writes);
    assert_eq!((starts(&cluster), cluster.count(Purpose::SuspendJob)), (2, 1), "{:?}", cluster.writes);
    let given = &cluster.workload_of("a").unwrap()["status"]["admission"]["podSetAssignments"][0];
    assert_eq!(given["count"], json!(2), "its place is its own again");
}

#[test]
fn training_job_creates_no_job_for_admission_with_missing_workers() {
    let mut cluster = crate::stories::training::cluster("2");
    cluster.put(Kind::JOB, job("holder", "lq", "2", true));
    cluster.pass(5);
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    let workload = waiting(&cluster);
    admit(&mut cluster, &workload, &[("worker", 1)], &BOTH);
    assert!(!cluster.has_job("a-worker"), "{:?}", cluster.writes);
    assert_eq!(evictions(&cluster), ["InvalidAdmission"], "{:?}", cluster.writes);
    cluster.complete("holder");
    cluster.pass(20);
    assert!(cluster.has_job("a-worker"), "{:?}", cluster.writes);
}
