//! Edits of a TrainingJob that holds quota: each role runs with the pods that were admitted.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::Cluster;
use crate::stories::training::{cluster, training};

/// Cpus that the Workload of a TrainingJob requests for each pod.
fn charged(cluster: &Cluster, name: &str) -> Value {
    let workload = cluster.workload_of_training(name).unwrap();
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
}

/// Cpus that each pod of a Job requests.
fn runs_with(cluster: &Cluster, job: &str) -> Value {
    cluster.job(job)["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
}

fn wants(cpu: &str) -> Value {
    json!({"spec": {"resources": {"replicaResources": {"cpu": cpu}}}})
}

fn job_key(name: &str) -> berth_control::write::ObjectKey {
    Cluster::key(Kind::JOB, "team", name)
}

/// A TFJob of one worker and one ps with one cpu each.
fn with_ps(name: &str) -> Value {
    let more = json!({"jobType": "TFJob", "resources": {"maxReplicas": 1},
        "roles": [{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]});
    training(name, more)
}

/// Reasons of the evictions of a Workload.
fn evictions(cluster: &Cluster, name: &str) -> Value {
    cluster.workload_of_training(name).unwrap()["status"]["schedulingStats"]["evictions"].clone()
}

#[test]
fn edited_training_job_whose_job_is_deleted_is_admitted_anew() {
    let mut cluster = cluster("8");
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    cluster.edit(Kind::TrainingJob, "team", "a", &wants("4"));
    cluster.pass(5);
    assert_eq!(runs_with(&cluster, "a-worker"), "1", "an edit takes effect with the next start");
    assert_eq!(evictions(&cluster, "a"), Value::Null);
    cluster.delete(&job_key("a-worker"));
    cluster.pass(10);
    assert_eq!((runs_with(&cluster, "a-worker"), charged(&cluster, "a")), (json!("4"), json!("4")));
    assert_eq!(evictions(&cluster, "a")[0]["reason"], "SpecChanged");
    assert_eq!(cluster.training("a")["status"]["allocatedResources"]["cpu"], "8");
    assert_eq!(cluster.phase("a"), "Running");
    assert_eq!(cluster.notices.iter().filter(|notice| notice.reason == "SpecChanged").count(), 1);
}

#[test]
fn edit_between_reservation_and_start_waits_for_its_own_quota() {
    let mut cluster = held_up("2", training("a", json!({})));
    cluster.edit(Kind::TrainingJob, "team", "a", &wants("4"));
    cluster.delete(&job_key("a-worker"));
    cluster.pass(30);
    assert!(!cluster.has_job("a-worker"), "two cpus are not eight");
    assert_eq!((charged(&cluster, "a"), cluster.phase("a")), (json!("4"), "Queued"));
    cluster.edit(Kind::TrainingJob, "team", "a", &wants("1"));
    cluster.pass(10);
    assert_eq!((runs_with(&cluster, "a-worker"), cluster.phase("a")), (json!("1"), "Running"));
}

/// A ClusterQueue of the given number of cpus in which the start of a TrainingJob waits, because another object has the name of the job's Job.
fn held_up(quota: &str, job: Value) -> Cluster {
    let mut cluster = cluster(quota);
    let mut other = crate::stories::cluster::job("a-worker", "lq", "1", false);
    other["metadata"].as_object_mut().unwrap().remove("labels");
    cluster.put(Kind::JOB, other);
    cluster.put(Kind::TrainingJob, job);
    cluster.pass(5);
    assert!(cluster.workload_of_training("a").unwrap()["status"]["admission"].is_object());
    cluster
}

/// An edit of the fewest and most workers of an elastic job.
fn bounds(least: i64, most: i64) -> Value {
    json!({"spec": {"resources": {"minReplicas": least, "maxReplicas": most},
        "elasticConfig": {"enabled": true, "minWorkers": least, "maxWorkers": most}}})
}

#[test]
fn worker_count_edited_before_start_is_admitted_anew() {
    let mut cluster = held_up("8", training("a", json!({"resources": {"maxReplicas": 8}})));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"resources": {"maxReplicas": 2}}}));
    cluster.delete(&job_key("a-worker"));
    cluster.pass(30);
    assert_eq!(evictions(&cluster, "a")[0]["reason"], "SpecChanged", "{:?}", cluster.writes);
    assert_eq!((&cluster.job("a-worker")["spec"]["completions"], cluster.phase("a")), (&json!(2), "Running"));
    assert_eq!(cluster.training("a")["status"]["allocatedResources"]["cpu"], "2");
    // If the Job of a running TrainingJob is deleted, Berth makes the Job again with the number of workers with which the job was started.
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"resources": {"maxReplicas": 4}}}));
    cluster.delete(&job_key("a-worker"));
    cluster.pass(30);
    assert_eq!((&cluster.job("a-worker")["spec"]["completions"], cluster.phase("a")), (&json!(2), "Running"));
    assert_eq!(evictions(&cluster, "a")[0]["count"], 1);
}

#[test]
fn elastic_job_with_raised_minimum_does_not_start_below_it() {
    for (least, begins) in [(6, false), (3, true)] {
        let job = training("a", bounds(2, 8)["spec"].clone());
        let mut cluster = held_up("4", job);
        cluster.edit(Kind::TrainingJob, "team", "a", &bounds(least, 8));
        cluster.delete(&job_key("a-worker"));
        cluster.pass(30);
        assert_eq!(cluster.has_job("a-worker"), begins, "{least}: {:?}", cluster.writes);
        assert_eq!(cluster.phase("a"), if begins { "Running" } else { "Queued" }, "{least}");
        let reason = if begins { Value::Null } else { json!("SpecChanged") };
        assert_eq!(evictions(&cluster, "a")[0]["reason"], reason, "{least}");
    }
}

#[test]
fn training_job_with_invalid_edit_fails_after_its_pods_end() {
    let mut cluster = cluster("2");
    cluster.put(Kind::TrainingJob, with_ps("a"));
    cluster.pass(5);
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"jobType": "Nonsense"}}));
    cluster.delete(&job_key("a-worker"));
    cluster.pass(10);
    assert!(!cluster.has_job("a-ps"));
    assert_eq!(cluster.count(Purpose::FinishWorkload), 0, "its pods are still there");
    cluster.pods_left.clear();
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Failed");
}

#[test]
fn removed_role_runs_until_its_training_job_completes() {
    let mut cluster = cluster("2");
    cluster.put(Kind::TrainingJob, with_ps("a"));
    cluster.pass(5);
    assert!(cluster.has_job("a-worker") && cluster.has_job("a-ps"));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"roles": []}}));
    cluster.pass(5);
    assert!(cluster.has_job("a-ps"), "the change takes effect with the next start");
    assert_eq!(cluster.phase("a"), "Running");
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.complete("a-worker");
    cluster.pass(10);
    assert!(!cluster.has_job("a-ps"), "it goes with the workers");
    assert_eq!(cluster.count(Purpose::FinishWorkload), 0, "its quota is free when its pods are gone");
    cluster.pods_left.clear();
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Succeeded");
}

#[test]
fn added_role_starts_with_next_run_of_training_job() {
    let mut cluster = cluster("4");
    cluster.put(Kind::TrainingJob, training("a", json!({"jobType": "TFJob"})));
    cluster.pass(5);
    let roles = json!([{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"roles": roles}}));
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), cluster.has_job("a-ps")), ("Running", false));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), cluster.has_job("a-worker")), ("Suspended", false));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": false}}));
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), cluster.has_job("a-ps")), ("Running", true));
    assert_eq!(cluster.training("a")["status"]["allocatedResources"]["cpu"], "3");
}

#[test]
fn suspension_stops_job_of_role_that_same_edit_removes() {
    let mut cluster = cluster("2");
    cluster.put(Kind::TrainingJob, with_ps("a"));
    cluster.pass(5);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"roles": [], "suspend": true}}));
    cluster.pass(10);
    assert!(!cluster.has_job("a-ps") && !cluster.has_job("a-worker"));
    assert_eq!(cluster.phase("a"), "Suspended");
}

#[test]
fn missing_priority_class_in_edit_is_reported_once() {
    // The edit comes while the job runs (quota 2) or while the job waits (quota 0).
    for quota in ["2", "0"] {
        let mut cluster = cluster(quota);
        cluster.set_class("low", 3);
        cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"priority": "low"}})));
        cluster.pass(5);
        let events_of = |cluster: &Cluster| -> Vec<String> {
            let all = cluster.notices.iter().filter(|notice| notice.reason == "WorkloadPriorityClassNotFound");
            all.map(|notice| notice.message.clone()).collect()
        };
        let class = |cluster: &Cluster| {
            let spec = &cluster.workload_of_training("a").unwrap()["spec"];
            (spec["priority"].clone(), spec["priorityClassRef"]["name"].clone())
        };
        assert!(events_of(&cluster).is_empty());
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"schedulingConfig": {"priority": "hihg"}}}));
        cluster.pass(20);
        assert_eq!(events_of(&cluster), ["priority class \"hihg\" does not exist; create it or change the job"]);
        assert_eq!(class(&cluster), (json!(3), json!("low")), "{quota}: it keeps what it has");
        assert_eq!(cluster.phase("a"), if quota == "2" { "Running" } else { "Queued" });
        cluster.set_class("hihg", 9);
        cluster.pass(5);
        assert_eq!(class(&cluster), (json!(9), json!("hihg")), "{quota}");
        assert_eq!(events_of(&cluster).len(), 1);
        // A Workload keeps its priority class when the class is deleted.
        let gone = serde_json::from_value(json!({"metadata": {"name": "hihg"}, "value": 9})).unwrap();
        cluster.control.observe(Observation::WorkloadPriorityClass(Change::Delete(gone)), cluster.now());
        cluster.pass(20);
        assert_eq!((events_of(&cluster).len(), class(&cluster)), (1, (json!(9), json!("hihg"))), "{quota}");
    }
}
