//! JobSets: a JobSet has one Workload with a pod set for each replicated job, and its Jobs have no Workloads of their own.

use berth_control::write::{Kind, Purpose, WriteOutcome};
pub use berth_sim::manifests::job_set as slices;
use serde_json::{Value, json};

use crate::stories::checkpoints::{preempting, set_policy};
use crate::stories::cluster::{Cluster, job};
use crate::stories::faults::with_every_fault;
use crate::stories::kept_quota::{contested, urgent_has_its_turn};
use crate::stories::one_queue;

pub fn jobset(cluster: &Cluster) -> &Value {
    &cluster.objects()[&Cluster::key(Kind::JOB_SET, "team", "a")]
}

fn workload(cluster: &Cluster) -> Value {
    let mut all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    let (_, found) = all.next().expect("a workload");
    assert!(all.next().is_none(), "one Workload, none for the Jobs");
    found.clone()
}

fn condition(cluster: &Cluster, kind: &str) -> Value {
    let workload = workload(cluster);
    let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == json!(kind)).unwrap_or_default()
}

fn is(cluster: &Cluster, kind: &str) -> bool {
    condition(cluster, kind)["status"] == json!("True")
}

/// The user sets `spec.active` of the JobSet's Workload.
fn set_active(cluster: &mut Cluster, active: bool) {
    let name = workload(cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": active}}));
}

/// A change of a ResourceFlavor, after which pods with quota of the flavor avoid nodes with the given label.
fn forbidding(label: &str) -> Value {
    json!({"metadata": {"annotations": {"berth.dev/forbidden-node-labels": label}}})
}

/// Makes a Job from the template of the JobSet, as the JobSet controller makes it.
fn child(cluster: &mut Cluster) {
    part(cluster, "a-job-0");
}

pub fn part(cluster: &mut Cluster, name: &str) {
    let owner = jobset(cluster).clone();
    let of = &owner["spec"]["replicatedJobs"][0]["template"]["spec"];
    let spec = json!({"parallelism": 2, "suspend": owner["spec"]["suspend"], "template": of["template"]});
    cluster.put(
        Kind::JOB,
        json!({"metadata": {"namespace": "team", "name": name, "ownerReferences": [{"apiVersion":
            "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": owner["metadata"]["uid"],
            "controller": true}]}, "spec": spec}),
    );
}

/// The JobSet controller writes that the JobSet is suspended.
pub fn stopped(cluster: &mut Cluster) {
    let condition = json!([{"type": "Suspended", "status": "True", "reason": "SuspendedJobs", "message": "jobset is suspended",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"conditions": condition}}));
}

#[test]
fn job_set_has_one_workload_and_eviction_deletes_its_jobs() {
    let mut settings = crate::stories::cluster::settings();
    settings.manage_jobs_without_queue_name = true;
    let mut cluster = one_queue("4");
    let mut all = Cluster::with(settings);
    std::mem::swap(&mut cluster, &mut all);
    for (key, object) in all.objects() {
        cluster.put(key.kind, object.clone());
    }
    cluster.put(Kind::JOB_SET, slices());
    cluster.settle();
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "admitted, but its controller has not stopped it yet");
    assert!(is(&cluster, "Admitted"));
    stopped(&mut cluster);
    cluster.pass(4);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "suspended, admitted, started: {:?}", cluster.writes);
    let made = workload(&cluster);
    assert_eq!(made["spec"]["podSets"][0]["name"], json!("job"));
    assert_eq!(made["spec"]["podSets"][0]["count"], json!(4));
    assert_eq!(made["spec"]["queueName"], json!("lq"));
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("jobset-a-"), "{made}");
    let pods = |cluster: &Cluster| jobset(cluster)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].clone();
    assert_eq!(pods(&cluster)["spec"]["nodeSelector"], json!({"tier": "reserved"}));

    child(&mut cluster);
    cluster.settle();
    assert_eq!(workload(&cluster)["metadata"]["uid"], made["metadata"]["uid"], "its Job is not managed by itself");

    set_active(&mut cluster, false);
    cluster.settle();
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true));
    assert!(is(&cluster, "QuotaReserved"), "its pods have not been asked for yet");
    cluster.pass(4);
    assert!(cluster.count(Purpose::ProbePods) > 0 && !is(&cluster, "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::DeleteChild), 1, "it would run on with the old selectors");
    assert_eq!(pods(&cluster)["spec"].get("nodeSelector"), None);
    assert_eq!(jobset(&cluster)["metadata"]["annotations"]["kueue.x-k8s.io/queue-name"], json!("lq"));
}

#[test]
fn job_of_unadmitted_job_set_is_suspended_again() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB_SET, slices());
    cluster.settle();
    stopped(&mut cluster);
    child(&mut cluster);
    cluster.settle();
    assert!(!is(&cluster, "Admitted"));
    cluster.edit(Kind::JOB, "team", "a-job-0", &json!({"spec": {"suspend": false}}));
    cluster.settle();
    assert_eq!(cluster.job("a-job-0")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    let event = cluster.notices.iter().find(|notice| notice.reason == "Suspended").expect("told");
    assert_eq!(event.key, Cluster::key(Kind::JOB, "team", "a-job-0"));
    assert_eq!(event.message, "Kueue managed child job suspended");
}

#[test]
fn job_set_without_quota_is_suspended_before_its_jobs() {
    let mut cluster = one_queue("1");
    // The JobSet and its Job run before Berth observes them, and the queue has no room.
    cluster.put(Kind::JOB_SET, slices());
    child(&mut cluster);
    let stops = |cluster: &Cluster| {
        let stops = cluster.writes.iter().filter(|(purpose, _)| *purpose == Purpose::SuspendJob);
        stops.map(|(_, key)| key.kind).collect::<Vec<Kind>>()
    };
    cluster.pass(3);
    assert_eq!(stops(&cluster), [Kind::JOB_SET], "its controller would start its Job again: {:?}", cluster.writes);
    cluster.pass(4);
    assert_eq!(
        stops(&cluster),
        [Kind::JOB_SET, Kind::JOB],
        "without its controller it would go on: {:?}",
        cluster.writes
    );
}

/// The JobSet and Job controllers may report a stop before they have observed all pods: pods that the controllers do not count yet run, too.
#[test]
fn job_set_does_not_start_while_its_old_jobs_run() {
    for counted in [true, false] {
        let mut cluster = one_queue("4");
        cluster.controller_sleeps = !counted;
        cluster.put(Kind::JOB_SET, slices());
        part(&mut cluster, "a-job-0");
        part(&mut cluster, "a-job-1");
        cluster.pass(2);
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true));
        assert_eq!(cluster.job("a-job-1")["status"]["active"] == json!(2), counted);
        let stopped_by_berth = cluster.writes.iter().any(|(_, key)| key.kind == Kind::JOB);
        assert!(!stopped_by_berth, "that is for its controller: {:?}", cluster.writes);
        cluster.controller_sleeps = true;
        // The JobSet controller has stopped the only Job that it had observed.
        let stopped_job = json!({"spec": {"suspend": true}, "status": {"active": 0,
            "conditions": [{"type": "Suspended", "status": "True"}]}});
        cluster.edit(Kind::JOB, "team", "a-job-0", &stopped_job);
        stopped(&mut cluster);
        cluster.pass(10);
        assert_eq!(is(&cluster, "Admitted"), !counted, "pods that run are charged to its queue");
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "a-job-1 runs: {:?}", cluster.writes);
        assert_eq!(cluster.job("a-job-1")["spec"]["suspend"], json!(true), "nobody else may stop it");
        cluster.controller_sleeps = false;
        cluster.pass(2);
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    }
}

/// One failed Job makes the JobSet fail, and the JobSet controller stops the other Jobs afterwards.
#[test]
fn failed_job_set_frees_quota_when_its_last_job_stops() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB_SET, slices());
    cluster.settle();
    stopped(&mut cluster);
    cluster.pass(4);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false));
    part(&mut cluster, "a-job-0");
    part(&mut cluster, "a-job-1");
    cluster.pass(2);
    let over = json!({"status": {"active": 0, "conditions": [{"type": "Failed", "status": "True"}]}});
    cluster.edit(Kind::JOB, "team", "a-job-0", &over);
    let failed = json!([{"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed",
        "lastTransitionTime": cluster.now().to_string()}]);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"conditions": failed}}));
    cluster.pass(3);
    assert!(!is(&cluster, "Finished"), "a-job-1 runs: {:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-job-1"));
    cluster.pass(2);
    assert!(is(&cluster, "Finished"), "{:?}", cluster.writes);
    assert_eq!(condition(&cluster, "Finished")["reason"], json!("Failed"));
}

/// Berth stops a JobSet that it has never started: pods of the JobSet's Jobs have run since before Berth suspended the JobSet.
#[test]
fn job_set_never_started_keeps_quota_until_earlier_pods_end() {
    let mut cluster = one_queue("4");
    cluster.controller_sleeps = true;
    cluster.put(Kind::JOB_SET, slices());
    part(&mut cluster, "a-job-0");
    cluster.pass(2);
    assert!(is(&cluster, "Admitted"));
    set_active(&mut cluster, false);
    stopped(&mut cluster);
    cluster.pass(10);
    assert!(is(&cluster, "QuotaReserved"), "a-job-0 has pods: {:?}", cluster.writes);
    cluster.controller_sleeps = false;
    cluster.pass(10);
    assert!(!is(&cluster, "QuotaReserved"), "{:?}", cluster.writes);
}

#[test]
fn job_set_starts_when_its_jobs_exist_or_after_delay() {
    for late in [false, true] {
        let mut cluster = one_queue("4");
        let mut suspended = slices();
        suspended["spec"]["suspend"] = json!(true);
        cluster.put(Kind::JOB_SET, suspended);
        stopped(&mut cluster);
        part(&mut cluster, "a-job-0");
        cluster.settle();
        assert!(is(&cluster, "Admitted"));
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "it has two: {:?}", cluster.writes);
        if late {
            // After some seconds the JobSet starts without the missing Job, because a Job that depends on another Job may not exist yet.
            cluster.pass(4);
        } else {
            part(&mut cluster, "a-job-1");
            cluster.settle();
        }
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "late {late}: {:?}", cluster.writes);
    }
}

/// The current node selectors of the JobSet's Jobs.
fn selectors(cluster: &Cluster) -> Vec<Value> {
    let jobs = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::JOB);
    jobs.map(|(_, job)| job["spec"]["template"]["spec"]["nodeSelector"].clone()).collect()
}

#[test]
fn jobs_with_overridden_selectors_are_deleted_before_job_set_starts() {
    let begin = || {
        let mut cluster = crate::stories::tiers::tiered_cluster("4");
        let labels = json!({"spec": {"nodeLabels": {"cloud.google.com/reservation-name": "ours"}}});
        cluster.edit(Kind::ResourceFlavor, "", "reserved", &labels);
        let policy = json!({"selectors": "Override", "default": ["reserved", "on-demand", "spot"]});
        cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(policy));
        cluster
    };
    let purposes = [Purpose::PlaceTemplate, Purpose::DeleteChild, Purpose::StartJob, Purpose::RestoreTemplate];
    with_every_fault(begin, &purposes, |mut cluster, what| {
        let mut pinned = slices();
        let pods = &mut pinned["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        pods["spec"]["nodeSelector"] = json!({"cloud.google.com/gke-spot": "true", "accelerator": "v5e"});
        let written = pods["spec"]["nodeSelector"].clone();
        cluster.put(Kind::JOB_SET, pinned);
        child(&mut cluster);
        for round in 1..=2 {
            let what = format!("{what}, start {round}");
            cluster.settle();
            assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "{what}");
            assert_eq!(selectors(&cluster), std::slice::from_ref(&written), "{what}");
            stopped(&mut cluster);
            cluster.pass(120);
            assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "{what}: {:?}", cluster.writes);
            assert_eq!(selectors(&cluster), [Value::Null; 0], "{what}: it starts when none is left of the user's");
            child(&mut cluster);
            // Control looks at the pods of the Job from time to time, to see whether the pods get nodes; these reads do not count as writes.
            let wrote = |cluster: &Cluster| cluster.writes.len() - cluster.count(Purpose::FindStuckPods);
            let writes = wrote(&cluster);
            cluster.pass(10);
            assert_eq!(wrote(&cluster), writes, "{what}: {:?}", cluster.writes);
            assert_eq!(selectors(&cluster).len(), 1, "{what}");
            assert_eq!(selectors(&cluster)[0].get("cloud.google.com/gke-spot"), None, "{what}");
            assert_eq!(selectors(&cluster)[0]["accelerator"], json!("v5e"), "{what}");

            set_active(&mut cluster, false);
            cluster.pass(120);
            assert!(!is(&cluster, "QuotaReserved"), "{what}: {:?}", cluster.writes);
            assert_eq!(selectors(&cluster), [Value::Null; 0], "{what}");
            let pods = &jobset(&cluster)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
            assert_eq!(pods["spec"]["nodeSelector"], written, "{what}");
            // The JobSet controller makes the Jobs again at once, from the user's template, and then the JobSet's Workload is activated again.
            child(&mut cluster);
            cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"conditions": []}}));
            set_active(&mut cluster, true);
        }
    });
}

#[test]
fn flavor_that_needs_node_affinity_is_skipped_for_job_set() {
    // A suspended JobSet accepts no change of its node affinity, and Berth needs node affinity to keep pods off nodes.
    let mut cluster = one_queue("4");
    cluster.edit(Kind::ResourceFlavor, "", "default", &forbidding("cloud.google.com/gke-spot"));
    cluster.put(Kind::JOB_SET, slices());
    cluster.settle();
    stopped(&mut cluster);
    cluster.settle();
    let found_condition = condition(&cluster, "QuotaReserved");
    let message = found_condition["message"].as_str().unwrap();
    assert_eq!(found_condition["status"], json!("False"), "{found_condition}");
    let expected = "couldn't assign flavors to pod set job: flavor default forbids nodes with the label \
                 cloud.google.com/gke-spot, which takes a node affinity that this kind of job cannot be given: taint these \
                 nodes and take the annotation berth.dev/forbidden-node-labels off the flavor, or add a flavor without it to \
                 the ClusterQueue";
    assert_eq!(message, expected);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true));
    let clear = json!({"metadata": {"annotations": {"berth.dev/forbidden-node-labels": null}}});
    cluster.edit(Kind::ResourceFlavor, "", "default", &clear);
    cluster.pass(4);
    assert!(is(&cluster, "Admitted"), "{:?}", workload(&cluster));
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false));
}

#[test]
fn job_set_that_cannot_start_as_admitted_finishes_with_reason() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB_SET, slices());
    cluster.settle();
    assert!(is(&cluster, "Admitted"), "its controller has not stopped it yet");
    cluster.edit(Kind::ResourceFlavor, "", "default", &forbidding("cloud.google.com/gke-spot"));
    stopped(&mut cluster);
    cluster.pass(4);
    let finished = condition(&cluster, "Finished");
    assert_eq!((&finished["status"], &finished["reason"]), (&json!("True"), &json!("FailedToStart")));
    assert!(finished["message"].as_str().unwrap().contains("JobSet"), "{finished}");
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true));
    cluster.put(Kind::JOB, crate::stories::cluster::job("next", "lq", "4", true));
    cluster.settle();
    assert!(cluster.is("next", "Admitted"), "its quota is free");
}

/// The JobSet controller reports how many of the two Jobs run.
fn reports(cluster: &mut Cluster, running: i32) {
    let suspended = if running == 0 { "True" } else { "False" };
    let conditions = json!([{"type": "Suspended", "status": suspended, "reason": "Reported", "message": "reported",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let jobs = json!([{"name": "job", "ready": running, "active": running, "succeeded": 0}]);
    let status = json!({"conditions": conditions, "replicatedJobsStatus": jobs});
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": status}));
}

#[test]
fn job_set_gets_grace_period_only_with_queue_policy() {
    for (policy, waits) in [(false, false), (true, true)] {
        let mut cluster = preempting("4");
        if policy {
            set_policy(&mut cluster, json!({"gracePeriod": "20s"}));
        }
        let saved = |cluster: &Cluster| json!({"berth.dev/last-checkpoint-time": cluster.now().to_string()});
        let mut victim = slices();
        victim["spec"]["suspend"] = json!(true);
        victim["metadata"]["labels"] = json!({"kueue.x-k8s.io/priority-class": "low"});
        crate::stories::cluster::merge(&mut victim["metadata"]["annotations"], &saved(&cluster));
        cluster.put(Kind::JOB_SET, victim);
        reports(&mut cluster, 0);
        cluster.pass(5);
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
        reports(&mut cluster, 2);
        cluster.pass(5);
        let mut urgent = crate::stories::cluster::job("urgent", "lq", "1", true);
        urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        cluster.put(Kind::JOB, urgent);
        cluster.pass(10);
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(!waits), "policy {policy}: {:?}", cluster.writes);
        let pod_annotations: Vec<&str> = cluster
            .annotated_pods
            .iter()
            .map(|(_, pod_annotations)| pod_annotations["berth.dev/stop-reason"].as_str())
            .collect();
        assert_eq!(pod_annotations.len(), usize::from(waits), "policy {policy}: {pod_annotations:?}");
        assert!(pod_annotations.iter().all(|why| why.starts_with("Preempted: ")), "{pod_annotations:?}");
        let annotations = saved(&cluster);
        cluster.edit(Kind::JOB_SET, "team", "a", &json!({"metadata": {"annotations": annotations}}));
        cluster.pass(3);
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "policy {policy}: it has saved");
        reports(&mut cluster, 0);
        cluster.pass(10);
        assert!(cluster.is("urgent", "Admitted"), "policy {policy}: {:?}", cluster.writes);
    }
}

#[test]
fn lost_job_set_start_cannot_apply_after_quota_is_released() {
    let mut cluster = one_queue("4");
    cluster.loses.push(Purpose::StartJob);
    let mut suspended = slices();
    suspended["spec"]["suspend"] = json!(true);
    cluster.put(Kind::JOB_SET, suspended);
    stopped(&mut cluster);
    cluster.pass(4);
    assert!(is(&cluster, "Admitted") && cluster.lost.len() == 1, "{:?}", cluster.writes);
    set_active(&mut cluster, false);
    cluster.pass(5);
    assert!(!is(&cluster, "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{:?}", cluster.writes);
    let jobset = jobset(&cluster);
    assert_eq!(jobset["spec"]["suspend"], json!(true));
    assert_eq!(jobset["metadata"]["annotations"], json!({"kueue.x-k8s.io/queue-name": "lq"}));
}

/// A cluster with a running JobSet whose controller no longer reports changes, because of a foreign Job.
fn with_silent_controller() -> Cluster {
    let mut cluster = contested("4");
    cluster.put(Kind::JOB_SET, slices());
    cluster.pass(2);
    stopped(&mut cluster);
    cluster.pass(5);
    assert!(is(&cluster, "Admitted") && jobset(&cluster)["spec"]["suspend"] == json!(false), "{:?}", cluster.writes);
    part(&mut cluster, "a-job-0");
    part(&mut cluster, "a-job-1");
    let runs = json!({"replicatedJobsStatus": [{"name": "job", "active": 2, "ready": 2, "succeeded": 0, "failed": 0, "suspended": 0}],
        "conditions": [{"type": "Suspended", "status": "False", "reason": "ResumeJobs", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": runs}));
    cluster.pass(5);
    cluster
}

/// Berth stops the Jobs of an evicted JobSet although the JobSet controller is silent, and frees the quota when no pod of these Jobs is left.
#[test]
fn evicted_job_set_with_silent_controller_frees_its_quota() {
    let mut cluster = with_silent_controller();
    let uid = jobset(&cluster)["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.pods_left.push(uid);
    assert!(!urgent_has_its_turn(&mut cluster, "4"), "pods are left: {:?}", cluster.writes);
    assert_eq!(cluster.job("a-job-0")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.pass(10);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
}

/// The quota of a JobSet whose controller is silent is free within ten seconds, the bound of `SECURITY.md`.
#[test]
fn lender_waits_less_than_ten_seconds_for_silent_job_set() {
    let mut cluster = with_silent_controller();
    cluster.set_class("high", 10);
    let mut urgent = job("urgent", "lq", "4", true);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, urgent);
    cluster.pass(9);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
}
