//! JobSets that are restarted: the Jobs of a JobSet that had ended run again.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::jobsets::{jobset, part, slices, stopped};
use crate::stories::one_queue;

/// A JobSet of two Jobs of two pods that runs in a queue of four cpus.
fn running(policy: &Value) -> Cluster {
    let mut cluster = one_queue("4");
    let mut set = slices();
    set["spec"]["suspend"] = json!(true);
    if policy.is_object() {
        set["spec"]["failurePolicy"] = policy.clone();
    }
    cluster.put(Kind::JOB_SET, set);
    stopped(&mut cluster);
    cluster.pass(5);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    make_jobs(&mut cluster, Some("0"));
    cluster
}

/// The JobSet controller makes the Jobs of the JobSet `a` for an attempt.
fn make_jobs(cluster: &mut Cluster, attempt: Option<&str>) {
    for name in ["a-job-0", "a-job-1"] {
        cluster.delete(&Cluster::key(Kind::JOB, "team", name));
        part(cluster, name);
        let labels = json!({"jobset.sigs.k8s.io/restart-attempt": attempt});
        cluster.edit(Kind::JOB, "team", name, &json!({"metadata": {"labels": labels}}));
    }
    cluster.pass(2);
}

/// The JobSet controller writes to the JobSet's status how many Jobs have succeeded, and how often the JobSet was restarted.
fn says(cluster: &mut Cluster, succeeded: i32, restarts: i32) {
    let jobs = json!([{"name": "job", "ready": 0, "active": 2 - succeeded, "succeeded": succeeded}]);
    let status = json!({"conditions": [], "restarts": restarts, "restartsCountTowardsMax": restarts, "replicatedJobsStatus": jobs});
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": status}));
    cluster.pass(20);
}

/// Cpus that are charged to the ClusterQueue.
fn used(cluster: &Cluster) -> Value {
    cluster.control.recompute()["objects"]["ClusterQueue"]["cq"]["usage"]["default/cpu"].clone()
}

#[test]
fn job_set_at_last_restart_ignores_successes_of_previous_attempt() {
    let mut cluster = running(&json!({"maxRestarts": 1}));
    cluster.complete("a-job-0");
    says(&mut cluster, 1, 0);
    assert_eq!(used(&cluster), json!("4000 of 4000"), "it may be restarted");
    // The JobSet controller writes the new number of restarts together with the numbers of succeeded Jobs of the previous attempt.
    says(&mut cluster, 1, 1);
    assert_eq!(cluster.count(Purpose::SetReclaimable), 0, "{:?}", cluster.writes);
    make_jobs(&mut cluster, Some("1"));
    says(&mut cluster, 0, 1);
    assert_eq!(used(&cluster), json!("4000 of 4000"));
    cluster.complete("a-job-1");
    says(&mut cluster, 1, 1);
    assert_eq!(
        cluster.count(Purpose::SetReclaimable),
        1,
        "what succeeds in the last attempt is over: {:?}",
        cluster.writes
    );
    assert_eq!(used(&cluster), json!("2000 of 4000"));
}

#[test]
fn succeeded_job_without_matching_restart_attempt_keeps_its_quota() {
    for attempt in [None, Some("x"), Some("1")] {
        let mut cluster = running(&Value::Null);
        make_jobs(&mut cluster, attempt);
        cluster.complete("a-job-0");
        says(&mut cluster, 1, 0);
        assert_eq!(used(&cluster), json!("4000 of 4000"), "{attempt:?}: {:?}", cluster.writes);
    }
}

/// Without webhooks, the API server accepts a change of `failurePolicy` that allows restarts.
#[test]
fn job_set_made_restartable_is_charged_again_for_succeeded_jobs() {
    let mut cluster = running(&Value::Null);
    cluster.complete("a-job-0");
    says(&mut cluster, 1, 0);
    assert_eq!(used(&cluster), json!("2000 of 4000"), "{:?}", cluster.writes);
    cluster.put(Kind::JOB, job("other", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("other", "Admitted"), "{:?}", cluster.writes);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"spec": {"failurePolicy": {"maxRestarts": 1}}}));
    cluster.pass(2);
    assert_eq!(used(&cluster), json!("5000 of 4000"), "its failure would run both again");
    says(&mut cluster, 1, 1);
    make_jobs(&mut cluster, Some("1"));
    assert_eq!(used(&cluster), json!("5000 of 4000"), "they run");
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.pass(5);
    assert!(!cluster.is("next", "QuotaReserved"), "{:?}", cluster.writes);
    cluster.complete("a-job-0");
    says(&mut cluster, 1, 1);
    assert_eq!(used(&cluster), json!("4000 of 4000"), "over for good, and the next one runs: {:?}", cluster.writes);
    assert!(cluster.is("next", "Admitted"), "{:?}", cluster.writes);
}
