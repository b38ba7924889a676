//! Edits of a job while the job stops: its Workload stays, with its `spec.active` and its back-off, and requests the new size when its old quota is free.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, merge, settings};
use crate::stories::groups::{running_set, set_workload as workload};
use crate::stories::jobsets::{jobset, slices};
use crate::stories::training::started;
use crate::stories::{one_queue, with_queue};

const JOB: Kind = Kind::JOB;

/// Creates the Job `a` of two pods, and runs it.
fn running(mut cluster: Cluster) -> Cluster {
    let mut two = job("a", "lq", "1", true);
    merge(&mut two, &json!({"spec": {"parallelism": 2, "completions": 2}}));
    cluster.put(JOB, two);
    cluster.pass(5);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    cluster
}

fn name(cluster: &Cluster) -> String {
    workload(cluster)["metadata"]["name"].as_str().unwrap().to_owned()
}

fn deactivate(cluster: &mut Cluster) {
    let name = name(cluster);
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
}

fn uid(cluster: &Cluster) -> Value {
    workload(cluster)["metadata"]["uid"].clone()
}

fn reserved(cluster: &Cluster) -> bool {
    cluster.workload_is(&name(cluster), "QuotaReserved")
}

/// Asserts that the Workload is the same object, is inactive, and has no quota.
fn stays_deactivated(cluster: &Cluster, before: &Value) {
    let now = workload(cluster);
    let stands = (&now["metadata"]["uid"], &now["spec"]["active"]);
    assert_eq!(stands, (before, &json!(false)), "{:?}", cluster.writes);
    assert!(!reserved(cluster), "{:?}", cluster.writes);
}

/// Patches that change the size of the Job: to more pods, and to larger pods.
fn sizes() -> [Value; 2] {
    let larger = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]);
    [
        json!({"spec": {"parallelism": 3, "completions": 3}}),
        json!({"spec": {"template": {"spec": {"containers": larger}}}}),
    ]
}

/// Changes the suspended Job while its controller counts its pods as terminating, because the API server accepts changes at that time. The pods of the Job end
/// afterwards.
fn edited_while_pods_end(cluster: &mut Cluster, change: &Value) {
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    let ends = json!({"status": {"active": 0, "ready": 0, "terminating": 2, "startTime": null}});
    cluster.edit(JOB, "team", "a", &ends);
    cluster.edit(JOB, "team", "a", change);
    cluster.pass(5);
    assert!(reserved(cluster), "its pods are there: {:?}", cluster.writes);
    cluster.edit(JOB, "team", "a", &json!({"status": {"terminating": 0}}));
    cluster.controller_sleeps = false;
    cluster.pass(60);
}

/// Asserts that the Workload requests the current pods of the Job.
fn asks_for_its_size(cluster: &Cluster) {
    let set = &workload(cluster)["spec"]["podSets"][0];
    let job = &cluster.job("a")["spec"];
    assert_eq!(set["count"], job["parallelism"], "{:?}", cluster.writes);
    let requests = |template: &Value| template["spec"]["containers"][0]["resources"].clone();
    assert_eq!(requests(&set["template"]), requests(&job["template"]), "{:?}", cluster.writes);
}

/// An administrator has deactivated a Workload. An edit of the job's size must not activate the job's Workload again.
#[test]
fn deactivated_job_that_is_resized_while_it_stops_stays_deactivated() {
    for change in sizes() {
        let mut cluster = running(one_queue("9"));
        let before = uid(&cluster);
        cluster.controller_sleeps = true;
        deactivate(&mut cluster);
        cluster.pass(2);
        edited_while_pods_end(&mut cluster, &change);
        stays_deactivated(&cluster, &before);
        asks_for_its_size(&cluster);
        let template = &cluster.job("a")["spec"]["template"];
        assert_eq!(template["metadata"]["labels"], json!({"mine": "yes"}), "as its user wrote it: {template}");
        assert!(cluster.job("a")["metadata"]["annotations"].get("kueue.x-k8s.io/stopping").is_none());
        let name = name(&cluster);
        cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": true}}));
        cluster.pass(10);
        assert!(cluster.is("a", "Admitted"), "it runs with its new size: {:?}", cluster.writes);
    }
}

#[test]
fn job_resized_while_it_stops_keeps_its_backoff() {
    let mut settings = settings();
    let wait = settings.wait_for_pods_ready.as_mut().unwrap();
    wait.timeout_ms = 10_000;
    wait.backoff_base_seconds = 600;
    for change in sizes() {
        let mut cluster = with_queue(Cluster::with(settings.clone()), "9");
        cluster.pods_stay_unready = true;
        cluster = running(cluster);
        let before = uid(&cluster);
        cluster.controller_sleeps = true;
        cluster.pass(10);
        let state = workload(&cluster)["status"]["requeueState"].clone();
        assert_eq!(state["count"], json!(1), "{:?}", cluster.writes);
        edited_while_pods_end(&mut cluster, &change);
        assert_eq!((uid(&cluster), &workload(&cluster)["status"]["requeueState"]), (before, &state));
        assert!(!reserved(&cluster), "{:?}", cluster.writes);
        asks_for_its_size(&cluster);
        let starts = (0..600).any(|_| {
            cluster.pass(1);
            cluster.is("a", "Admitted")
        });
        assert!(starts, "after its back-off: {:?}", cluster.writes);
    }
}

/// The job is edited between the request to deactivate its Workload and the eviction of the Workload.
#[test]
fn job_that_is_resized_before_its_eviction_stays_deactivated() {
    for requested in [false, true] {
        let mut cluster = running(one_queue("9"));
        let before = uid(&cluster);
        for purpose in [Purpose::Evict, Purpose::Deactivate] {
            cluster.answers.push((purpose, "", WriteOutcome::Busy(1_000)));
        }
        if requested {
            let mut conditions = workload(&cluster)["status"]["conditions"].clone();
            let time = cluster.now().to_string();
            conditions.as_array_mut().unwrap().push(json!({"type": "DeactivationTarget", "status": "True",
                "reason": "AdmissionCheck", "message": "a check", "lastTransitionTime": time}));
            let name = name(&cluster);
            cluster.edit(Kind::Workload, "team", &name, &json!({"status": {"conditions": conditions}}));
        } else {
            deactivate(&mut cluster);
        }
        cluster.edit(JOB, "team", "a", &json!({"spec": {"parallelism": 1}}));
        cluster.pass(10);
        assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
        assert!(!cluster.workload_is(&name(&cluster), "Evicted"), "{:?}", cluster.writes);
        cluster.answers.clear();
        cluster.pass(60);
        stays_deactivated(&cluster, &before);
        asks_for_its_size(&cluster);
    }
}

/// A job with invalid parallelism has no size that its Workload could follow.
#[test]
fn deactivated_job_with_temporarily_invalid_parallelism_stays_deactivated() {
    let mut cluster = one_queue("9");
    let mut asks = job("a", "lq", "1", true);
    let least = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    merge(&mut asks, &json!({"metadata": {"annotations": least}, "spec": {"parallelism": 3, "completions": 3}}));
    cluster.put(JOB, asks);
    cluster.pass(5);
    let before = uid(&cluster);
    deactivate(&mut cluster);
    cluster.pass(20);
    stays_deactivated(&cluster, &before);
    cluster.edit(JOB, "team", "a", &json!({"spec": {"parallelism": 1}}));
    cluster.pass(20);
    let events = cluster.notices.iter().filter(|notice| notice.reason == "ErrWorkloadCompose");
    assert_eq!(events.count(), 1, "{:?}", cluster.notices);
    stays_deactivated(&cluster, &before);
    cluster.edit(JOB, "team", "a", &json!({"spec": {"parallelism": 2}}));
    cluster.pass(20);
    stays_deactivated(&cluster, &before);
    asks_for_its_size(&cluster);
}

#[test]
fn deactivated_jobset_that_is_resized_while_it_stops_stays_deactivated() {
    let mut cluster = one_queue("9");
    cluster.job_sets_run = true;
    let mut two = slices();
    two["spec"]["suspend"] = json!(true);
    cluster.put(Kind::JOB_SET, two);
    cluster.pass(5);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    let before = uid(&cluster);
    cluster.controller_sleeps = true;
    deactivate(&mut cluster);
    cluster.pass(2);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    let mut jobs = jobset(&cluster)["spec"]["replicatedJobs"].clone();
    jobs[0]["replicas"] = json!(3);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"spec": {"replicatedJobs": jobs}}));
    cluster.pass(5);
    assert!(reserved(&cluster), "its pods are there: {:?}", cluster.writes);
    cluster.controller_sleeps = false;
    cluster.pass(60);
    stays_deactivated(&cluster, &before);
    assert_eq!(workload(&cluster)["spec"]["podSets"][0]["count"], json!(6), "{:?}", cluster.writes);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    let pods = &jobset(&cluster)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    assert_eq!(pods["spec"].get("nodeSelector"), None, "as its user wrote it: {pods}");
}

#[test]
fn deactivated_training_that_is_resized_while_it_stops_stays_deactivated() {
    let mut cluster = started("9", json!({}));
    let before = uid(&cluster);
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    deactivate(&mut cluster);
    cluster.pass(3);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"resources": {"maxReplicas": 3}}}));
    cluster.pass(5);
    assert!(reserved(&cluster), "its pods are there: {:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.pass(60);
    stays_deactivated(&cluster, &before);
    assert_eq!(workload(&cluster)["spec"]["podSets"][0]["count"], json!(3), "{:?}", cluster.writes);
    assert!(!cluster.has_job("a-worker"), "{:?}", cluster.writes);
}

#[test]
fn deactivated_stateful_set_resized_while_it_stops_stays_deactivated() {
    let (mut cluster, _) = running_set();
    let before = uid(&cluster);
    deactivate(&mut cluster);
    cluster.edit(Kind::StatefulSet, "team", "web", &json!({"spec": {"replicas": 3}}));
    cluster.pass(60);
    stays_deactivated(&cluster, &before);
    assert_eq!(workload(&cluster)["spec"]["podSets"][0]["count"], json!(3), "{:?}", cluster.writes);
}
