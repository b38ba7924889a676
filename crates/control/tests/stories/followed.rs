//! Berth follows a job that holds quota by the job's uid. A followed job's quota becomes free and its pods end if the job's Workload is deleted, its job kind
//! is no longer managed, the job gets a controller, or the job itself is deleted.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::kept_quota::{contested, is, labels, name_of, running, urgent_has_its_turn, workload};
use crate::stories::names::job_set;
use crate::stories::training::training;

/// Changes after which a running job no longer requests quota.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Queue,
    Namespace,
}

/// A user deletes the Workload of a running job that no longer requests quota: the job stops, and the Workload is gone after its pods.
#[test]
fn job_no_longer_requesting_quota_stops_when_workload_is_deleted() {
    for leave in [Leave::Queue, Leave::Namespace] {
        let mut cluster = running();
        match leave {
            Leave::Queue => cluster.edit(Kind::JOB, "team", "t", &labels("queue-name", Value::Null)),
            Leave::Namespace => cluster.label_namespace(&json!({"team": "b"})),
        }
        cluster.pass(5);
        assert_eq!(cluster.job("t")["status"]["active"], 1, "it runs on: {leave:?}: {:?}", cluster.writes);
        let own = name_of(&cluster, "job-t-");
        let uid = workload(&cluster, "job-t-").unwrap()["metadata"]["uid"].clone();
        cluster.delete(&Cluster::key(Kind::Workload, "team", &own));
        cluster.pass(30);
        let left = workload(&cluster, "job-t-").map(|found| &found["metadata"]["uid"]);
        assert_ne!(left, Some(&uid), "{leave:?}: {:?}", cluster.writes);
        let job = cluster.job("t");
        assert_eq!((&job["spec"]["suspend"], &job["status"]["active"]), (&json!(true), &json!(0)), "{leave:?}");
        assert!(!is(&cluster, "job-t-", "QuotaReserved"), "{leave:?}: {:?}", cluster.writes);
    }
}

/// A JobSet or a TrainingJob runs on if the configuration no longer names its job kind, ends with its Workload, and can be preempted.
#[test]
fn job_of_unmanaged_kind_is_followed_until_it_ends() {
    for (kind, begins, child) in
        [(Kind::JOB_SET, "jobset-t-", "t-job-0"), (Kind::TrainingJob, "trainingjob-t-", "t-worker")]
    {
        for ends in [true, false] {
            let mut cluster = contested("2");
            cluster.job_sets_run = true;
            let made = if kind == Kind::JOB_SET { job_set("t") } else { training("t", json!({})) };
            cluster.put(kind, made);
            cluster.pass(10);
            let own = name_of(&cluster, begins);
            assert!(cluster.workload_is(&own, "Admitted") && cluster.has_job(child), "{kind:?}: {:?}", cluster.writes);
            cluster.manage_only(&[Kind::JOB]);
            cluster.restart();
            cluster.pass(30);
            assert_ne!(cluster.job(child)["spec"]["suspend"], true, "{kind:?}: {:?}", cluster.writes);
            if ends {
                cluster.complete(child);
                cluster.pass(30);
                assert!(cluster.workload_is(&own, "Finished"), "{kind:?}: {:?}", cluster.writes);
            } else {
                assert!(urgent_has_its_turn(&mut cluster, "2"), "{kind:?}: {:?}", cluster.writes);
                let runs = cluster.has_job(child) && cluster.job(child)["status"]["active"].as_i64().unwrap_or(0) > 0;
                assert!(!runs, "{kind:?}: {:?}", cluster.writes);
            }
        }
    }
}

/// Two running jobs name each other as controllers: both can be preempted by a job of a higher class.
#[test]
fn running_jobs_that_own_each_other_are_preempted() {
    for restarts in [false, true] {
        let mut cluster = contested("2");
        for name in ["a", "b"] {
            cluster.put(Kind::JOB, job(name, "lq", "1", true));
        }
        cluster.pass(5);
        for (name, owner) in [("a", "b"), ("b", "a")] {
            let owners = cluster.controlled_by(Kind::JOB, owner);
            cluster.edit(Kind::JOB, "team", name, &json!({"metadata": {"ownerReferences": owners}}));
        }
        if restarts {
            cluster.restart();
        }
        cluster.pass(5);
        assert!(urgent_has_its_turn(&mut cluster, "2"), "restarts {restarts}: {:?}", cluster.writes);
        for name in ["a", "b"] {
            let job = cluster.job(name);
            assert_eq!((&job["spec"]["suspend"], &job["status"]["active"]), (&json!(true), &json!(0)), "{name}");
        }
    }
}

/// A JobSet that is being deleted is kept by a finalizer, and its queue loses the quota: the JobSet is preempted nevertheless.
#[test]
fn leaving_job_set_without_queue_is_preempted() {
    for restarts in [false, true] {
        let mut cluster = contested("1");
        cluster.job_sets_run = true;
        cluster.put(Kind::JOB_SET, job_set("t"));
        cluster.pass(10);
        assert!(is(&cluster, "jobset-t-", "Admitted"), "{:?}", cluster.writes);
        cluster.edit(Kind::JOB_SET, "team", "t", &json!({"metadata": {"finalizers": ["example.com/never"]}}));
        cluster.delete(&Cluster::key(Kind::JOB_SET, "team", "t"));
        cluster.edit(Kind::JOB_SET, "team", "t", &labels("queue-name", Value::Null));
        if restarts {
            cluster.restart();
        }
        cluster.pass(30);
        assert_eq!(cluster.job("t-job-0")["status"]["active"], 1, "nobody else wants its quota: {:?}", cluster.writes);
        assert!(urgent_has_its_turn(&mut cluster, "1"), "restarts {restarts}: {:?}", cluster.writes);
        let runs = cluster.has_job("t-job-0") && cluster.job("t-job-0")["status"]["active"] == 1;
        assert!(!runs, "restarts {restarts}: {:?}", cluster.writes);
    }
}

/// A tenant resumes a waiting JobSet again and again: the JobSet gets no quota that way, and Berth stops the Jobs of the JobSet.
#[test]
fn waiting_job_set_that_is_resumed_again_is_stopped() {
    let mut cluster = contested("1");
    cluster.job_sets_run = true;
    let mut large = job_set("t");
    for field in ["parallelism", "completions"] {
        large["spec"]["replicatedJobs"][0]["template"]["spec"][field] = json!(5);
    }
    cluster.put(Kind::JOB_SET, large);
    cluster.pass(5);
    for _ in 0..5 {
        cluster.edit(Kind::JOB_SET, "team", "t", &json!({"spec": {"suspend": false}}));
        cluster.pass(1);
    }
    cluster.pass(5);
    assert!(!is(&cluster, "jobset-t-", "QuotaReserved"), "{:?}", cluster.writes);
    let job = cluster.job("t-job-0");
    let runs = job["status"]["active"].as_i64().unwrap_or(0);
    assert_eq!((&job["spec"]["suspend"], runs), (&json!(true), 0), "{:?}", cluster.writes);
    assert!(urgent_has_its_turn(&mut cluster, "1"), "{:?}", cluster.writes);
}
