//! Jobs with pods that have ended before the eviction: each Job starts once when it is admitted again, and holds quota for its remaining pods.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, merge};
use crate::stories::one_queue;

/// Completion mode of a Job, and the field of its status that changes when a pod ends: a pod succeeds, an index succeeds, or an index fails without a retry.
const ENDS: [(&str, &str); 3] =
    [("NonIndexed", "succeeded"), ("Indexed", "completedIndexes"), ("Indexed", "failedIndexes")];

/// A Job of four pods of one cpu each.
fn four(mode: &str) -> Value {
    let mut object = job("a", "lq", "1", true);
    merge(&mut object, &json!({"spec": {"parallelism": 4, "completions": 4, "completionMode": mode}}));
    object
}

/// One pod of the Job ends, and the other three pods run.
fn end_one(cluster: &mut Cluster, field: &str) {
    let mut status = json!({"active": 3, "ready": 3});
    status[field] = if field == "succeeded" { json!(1) } else { json!("0") };
    if field == "completedIndexes" {
        status["succeeded"] = json!(1);
    }
    cluster.edit(Kind::JOB, "team", "a", &json!({"status": status}));
    cluster.pass(10);
}

fn workload(cluster: &Cluster) -> &Value {
    let mut all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    let (_, found) = all.next().expect("a workload");
    assert!(all.next().is_none(), "one Workload");
    found
}

fn edit_workload(cluster: &mut Cluster, patch: &Value) {
    let name = workload(cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, patch);
}

/// The number of pods and the cpus that were assigned to each pod set.
fn given(cluster: &Cluster) -> Vec<(i64, &str)> {
    let sets = workload(cluster)["status"]["admission"]["podSetAssignments"].as_array().expect("admitted");
    sets.iter().map(|set| (set["count"].as_i64().unwrap(), set["resourceUsage"]["cpu"].as_str().unwrap())).collect()
}

/// Cpus that are reserved in the ClusterQueue.
fn reserved(cluster: &Cluster) -> &Value {
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    &status["flavorsReservation"][0]["resources"][0]["total"]
}

fn is_suspended(cluster: &Cluster, kind: Kind) -> bool {
    cluster.objects()[&Cluster::key(kind, "team", "a")]["spec"]["suspend"] == json!(true)
}

/// Asserts that the Job was started, stopped and started again, and now runs.
#[track_caller]
fn assert_started_again(cluster: &Cluster) {
    let found = (starts_and_stops(cluster), is_suspended(cluster, Kind::JOB));
    assert_eq!(found, ((2, 1), false), "{:?}", cluster.writes);
}

fn deactivate(cluster: &mut Cluster) {
    edit_workload(cluster, &json!({"spec": {"active": false}}));
    cluster.pass(20);
}

fn activate(cluster: &mut Cluster) {
    edit_workload(cluster, &json!({"spec": {"active": true}}));
    cluster.pass(60);
}

/// How often the Job was started, and how often the Job was stopped.
fn starts_and_stops(cluster: &Cluster) -> (usize, usize) {
    (cluster.count(Purpose::StartJob), cluster.count(Purpose::SuspendJob))
}

#[test]
fn job_with_an_ended_pod_starts_once_after_an_eviction() {
    for (mode, field) in ENDS {
        let mut cluster = one_queue("4");
        cluster.put(Kind::JOB, four(mode));
        cluster.pass(5);
        end_one(&mut cluster, field);
        assert_eq!(workload(&cluster)["status"]["reclaimablePods"], json!([{"name": "main", "count": 1}]), "{field}");
        deactivate(&mut cluster);
        assert!(is_suspended(&cluster, Kind::JOB), "{field}: {:?}", cluster.writes);
        activate(&mut cluster);
        assert!(!is_suspended(&cluster, Kind::JOB), "{field}: {:?}", cluster.writes);
        assert_eq!(starts_and_stops(&cluster), (2, 1), "{field}: {:?}", cluster.writes);
        assert_eq!(cluster.job("a")["spec"]["parallelism"], json!(4), "{field}: its own number");
        assert_eq!((given(&cluster), reserved(&cluster)), (vec![(3, "3")], &json!("3")), "{field}");
    }
}

#[test]
fn evicted_job_with_ended_pod_starts_once_under_new_leader() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB, four("Indexed"));
    cluster.pass(5);
    end_one(&mut cluster, "completedIndexes");
    deactivate(&mut cluster);
    cluster.restart();
    activate(&mut cluster);
    cluster.restart();
    cluster.pass(60);
    assert_started_again(&cluster);
}

#[test]
fn running_job_admitted_with_lower_or_missing_count_keeps_running() {
    // The Workload is admitted with fewer pods than the Job has, as Kueue leaves the Workload of a Job that was admitted again after one pod had succeeded.
    for count in [Some(3), None] {
        let mut cluster = one_queue("4");
        cluster.put(Kind::JOB, four("Indexed"));
        cluster.pass(5);
        end_one(&mut cluster, "completedIndexes");
        let mut sets = workload(&cluster)["status"]["admission"]["podSetAssignments"].clone();
        match count {
            Some(count) => merge(&mut sets[0], &json!({"count": count, "resourceUsage": {"cpu": "3"}})),
            None => drop(sets[0].as_object_mut().unwrap().remove("count")),
        }
        edit_workload(&mut cluster, &json!({"status": {"admission": {"podSetAssignments": sets}}}));
        cluster.restart();
        cluster.pass(60);
        assert_eq!(starts_and_stops(&cluster), (1, 0), "{count:?}: {:?}", cluster.writes);
        assert_eq!(reserved(&cluster), &json!("3"), "{count:?}");
    }
}

#[test]
fn job_with_prebuilt_workload_and_ended_pod_stays_in_sync() {
    let mut cluster = one_queue("4");
    let mut guest = four("Indexed");
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    let mut before = crate::stories::cluster::made_before(&guest["spec"]["template"]);
    before["spec"]["podSets"][0]["count"] = json!(4);
    cluster.put(Kind::Workload, before);
    cluster.put(Kind::JOB, guest);
    cluster.pass(5);
    end_one(&mut cluster, "completedIndexes");
    deactivate(&mut cluster);
    activate(&mut cluster);
    assert!(!cluster.is("a", "Finished"), "{:?}", cluster.condition("a", "Finished"));
    assert_started_again(&cluster);
}

#[test]
fn job_with_a_failed_index_is_not_evicted_for_recovery() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB, four("Indexed"));
    cluster.pass(5);
    assert!(cluster.is("a", "PodsReady"));
    end_one(&mut cluster, "failedIndexes");
    assert!(cluster.is("a", "PodsReady"), "{:?}", cluster.condition("a", "PodsReady"));
    cluster.pass(4_000);
    assert_eq!(starts_and_stops(&cluster), (1, 0), "{:?}", cluster.writes);
}

/// A JobSet of a loader and three trainers, each of which is a Job of one pod.
fn jobset() -> Value {
    let template = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}});
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": "a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "replicatedJobs": [
            {"name": "loader", "replicas": 1, "template": template},
            {"name": "trainer", "replicas": 3, "template": template}]}})
}

/// The controller of the JobSet reports its status: the JobSet is suspended as `spec.suspend` requests, and `over` Jobs of each of the two replicated jobs have
/// ended.
fn report(cluster: &mut Cluster, over: (i32, i32)) {
    let suspended = is_suspended(cluster, Kind::JOB_SET);
    let job = |name: &str, all: i32, over: i32| {
        let active = if suspended { 0 } else { all - over };
        json!({"name": name, "active": active, "ready": active, "succeeded": over, "failed": 0, "suspended": 0})
    };
    let condition = json!({"type": "Suspended", "status": if suspended { "True" } else { "False" }, "reason": "r",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let jobs = [job("loader", 1, over.0), job("trainer", 3, over.1)];
    let status = json!({"conditions": [condition], "replicatedJobsStatus": jobs});
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": status}));
    cluster.pass(10);
}

#[test]
fn job_set_with_ended_jobs_starts_once_after_an_eviction() {
    for (over, left) in [((1, 0), vec![(0, "0"), (3, "3")]), ((0, 1), vec![(1, "1"), (2, "2")])] {
        let mut cluster = one_queue("4");
        cluster.put(Kind::JOB_SET, jobset());
        cluster.pass(1);
        report(&mut cluster, (0, 0));
        report(&mut cluster, over);
        assert!(workload(&cluster)["status"]["reclaimablePods"].is_array(), "{over:?}: {:?}", cluster.writes);
        deactivate(&mut cluster);
        report(&mut cluster, over);
        activate(&mut cluster);
        report(&mut cluster, over);
        cluster.pass(60);
        assert_eq!(starts_and_stops(&cluster), (2, 1), "{over:?}: {:?}", cluster.writes);
        assert!(!is_suspended(&cluster, Kind::JOB_SET), "{over:?}: {:?}", cluster.writes);
        assert_eq!((given(&cluster), reserved(&cluster)), (left, &json!("3")), "{over:?}");
    }
}

#[test]
fn running_jobset_admitted_with_fewer_or_no_pods_goes_on() {
    for count in [Some(2), None] {
        let mut cluster = one_queue("4");
        cluster.put(Kind::JOB_SET, jobset());
        cluster.pass(1);
        report(&mut cluster, (0, 0));
        report(&mut cluster, (0, 1));
        let mut sets = workload(&cluster)["status"]["admission"]["podSetAssignments"].clone();
        match count {
            Some(count) => merge(&mut sets[1], &json!({"count": count, "resourceUsage": {"cpu": "2"}})),
            None => drop(sets[1].as_object_mut().unwrap().remove("count")),
        }
        edit_workload(&mut cluster, &json!({"status": {"admission": {"podSetAssignments": sets}}}));
        cluster.restart();
        report(&mut cluster, (0, 1));
        cluster.pass(60);
        assert_eq!(starts_and_stops(&cluster), (1, 0), "{count:?}: {:?}", cluster.writes);
        assert_eq!(reserved(&cluster), &json!("3"), "{count:?}");
    }
}

/// A Job of which a pod has ended waits for quota, and its user sets the parallelism to one: the Workload requests quota for the remaining pod, and not for
/// none.
#[test]
fn waiting_job_reduced_after_an_ended_pod_holds_its_quota() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB, four("NonIndexed"));
    cluster.pass(5);
    end_one(&mut cluster, "succeeded");
    deactivate(&mut cluster);
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [
        {"name": "cpu", "nominalQuota": "2"}]}]}]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": quota}}));
    activate(&mut cluster);
    assert!(is_suspended(&cluster, Kind::JOB), "three pods do not fit: {:?}", cluster.writes);
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"parallelism": 1}}));
    cluster.pass(60);
    assert_eq!(given(&cluster), vec![(1, "1")], "{:?}", cluster.writes);
    assert_eq!(starts_and_stops(&cluster), (2, 1), "{:?}", cluster.writes);
}
