//! Writes of a tenant that once let the tenant's jobs use more than their quota, or keep quota that other queues had lent. The law of the module `attacks` has
//! found each of the writes in this file.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::jobsets::slices;
use crate::stories::one_queue;
use crate::stories::training::training;

/// A finalizer that the tenant adds to a job.
const HOLD: &str = "example.com/hold";

/// A cluster in which the tenant's queue `lq` has no quota, and borrows two cpus of queue `lender`, which can reclaim them.
fn borrowing() -> Cluster {
    let mut cluster = one_queue("0");
    cluster.jobs_are_resized = true;
    cluster.job_sets_run = true;
    cluster.pool([("cq", "lq", 0), ("lender", "lender", 2)]);
    cluster
}

/// A cluster in which TrainingJob `a` runs with quota of `lender`.
fn training_runs() -> Cluster {
    let mut cluster = borrowing();
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(15);
    cluster
}

fn keeps_finalizer(cluster: &mut Cluster, name: &str) {
    cluster.edit(Kind::JOB, "team", name, &json!({"metadata": {"finalizers": [HOLD]}}));
}

/// Asserts that the lender gets the quota that the tenant has borrowed within a minute.
fn comes_back(cluster: &mut Cluster) {
    cluster.put(Kind::JOB, job("mine", "lender", "2", true));
    cluster.pass(60);
    assert!(cluster.is("mine", "Admitted"), "{:?}", cluster.writes);
}

fn active(cluster: &Cluster, job: &str) -> Value {
    cluster.job(job)["status"]["active"].clone()
}

#[test]
fn job_of_training_job_naming_another_controller_is_remade() {
    let mut cluster = training_runs();
    for owners in [json!(null), cluster.controlled_by(Kind::JOB, "a-worker")] {
        let before = cluster.job("a-worker")["metadata"]["uid"].clone();
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"ownerReferences": owners}}));
        cluster.pass(15);
        assert_ne!(cluster.job("a-worker")["metadata"]["uid"], before, "{:?}", cluster.writes);
        assert_eq!(active(&cluster, "a-worker"), json!(2), "{:?}", cluster.writes);
    }
}

#[test]
fn evicted_training_job_frees_quota_though_job_names_another_controller() {
    let mut cluster = training_runs();
    let itself = cluster.controlled_by(Kind::JOB, "a-worker");
    cluster.put(Kind::JOB, job("mine", "lender", "2", true));
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"ownerReferences": itself}}));
    cluster.pass(30);
    assert!(cluster.is("mine", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn evicted_job_set_stops_pods_of_job_kept_in_deletion() {
    let mut cluster = borrowing();
    let mut set = slices();
    set["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = json!(1);
    cluster.put(Kind::JOB_SET, set);
    cluster.pass(5);
    assert_eq!(active(&cluster, "a-job-0"), json!(1), "{:?}", cluster.writes);
    keeps_finalizer(&mut cluster, "a-job-0");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-job-0"));
    comes_back(&mut cluster);
    assert_eq!(active(&cluster, "a-job-0"), json!(0), "{:?}", cluster.writes);
}

#[test]
fn running_job_with_invalid_annotation_is_suspended_only_if_enlarged() {
    for grows in [false, true] {
        let mut cluster = one_queue("1");
        cluster.jobs_are_resized = true;
        let mut made = job("a", "lq", "1", true);
        made["spec"]["completions"] = json!(9);
        cluster.put(Kind::JOB, made);
        cluster.pass(5);
        assert_eq!(active(&cluster, "a"), json!(1), "{:?}", cluster.writes);
        let wrong = json!({"annotations": {"kueue.x-k8s.io/job-min-parallelism": "high"}});
        let pods = if grows { 9 } else { 1 };
        cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": wrong, "spec": {"parallelism": pods}}));
        cluster.pass(30);
        assert_eq!(cluster.job("a")["spec"]["suspend"], json!(grows), "{:?}", cluster.writes);
        assert_eq!(active(&cluster, "a"), json!(i32::from(!grows)), "{:?}", cluster.writes);
    }
}

/// Berth probes the pods of a job that is being deleted, kept by a finalizer and suspended by its user again and again: these probes do not delay an eviction
/// of the job by the lender of its quota.
#[test]
fn eviction_of_deleted_job_does_not_wait_for_pod_probe() {
    let mut cluster = borrowing();
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.pass(5);
    keeps_finalizer(&mut cluster, "a");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(30);
    assert!(cluster.count(Purpose::ProbePods) > 5, "{:?}", cluster.writes);
    comes_back(&mut cluster);
    assert_eq!(active(&cluster, "a"), json!(0), "{:?}", cluster.writes);
}
