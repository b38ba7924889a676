//! Jobs that start again after a stop: with their running time counted, after a reactivation, or after an edit of the stopped job.

use berth_control::write::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue, settings};
use crate::stories::{one_queue, with_queue};

/// A job `a` that may run for a minute.
fn limited() -> Value {
    let mut limited = job("a", "lq", "1", true);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60");
    limited
}

/// The user sets `spec.active` of the Workload of `a` again.
fn reactivate(cluster: &mut Cluster) {
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": true}}));
}

#[test]
fn maximum_execution_time_counts_across_evictions_until_reactivation() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, limited());
    cluster.pass(20);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass(100);
    let past =
        |cluster: &Cluster| cluster.workload_of("a").unwrap()["status"]["accumulatedPastExecutionTimeSeconds"].clone();
    let first = past(&cluster).as_i64().unwrap();
    assert!((20..25).contains(&first), "{first}");
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(60 - first - 5);
    assert!(cluster.is("a", "Admitted"), "it has five seconds left");
    cluster.pass(10);
    assert_eq!(cluster.condition("a", "DeactivationTarget"), None, "done");
    let evicted = cluster.condition("a", "Evicted").unwrap();
    assert_eq!(evicted["reason"], json!("DeactivatedDueToMaximumExecutionTimeExceeded"), "{evicted}");
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["active"], json!(false));
    // After a reactivation, the job has its full maximum execution time again.
    reactivate(&mut cluster);
    cluster.pass(50);
    assert!(cluster.is("a", "Admitted") && !cluster.is("a", "Evicted"), "{:?}", cluster.writes);
    cluster.pass(20);
    assert!(!cluster.is("a", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn workload_reactivated_before_its_pods_end_is_admitted_again() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, limited());
    cluster.pass(5);
    cluster.controller_sleeps = true;
    cluster.pass(70);
    assert!(cluster.is("a", "Evicted") && cluster.is("a", "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(cluster.condition("a", "DeactivationTarget"), None);
    reactivate(&mut cluster);
    cluster.pass(5);
    cluster.controller_sleeps = false;
    cluster.pass(10);
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["active"], json!(true), "{:?}", cluster.writes);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn edit_of_evicted_job_takes_effect_with_next_start() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass(10);
    assert!(cluster.is("a", "Evicted"));
    let zone = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "z"}}}}});
    cluster.edit(Kind::JOB, "team", "a", &zone);
    cluster.pass(10);
    let asked = |cluster: &Cluster| cluster.workload_of("a").unwrap()["spec"]["podSets"][0].clone();
    assert_eq!(asked(&cluster)["template"]["spec"]["nodeSelector"], json!({"zone": "z"}), "{:?}", cluster.writes);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted"));
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass(10);
    assert_eq!(cluster.job("a")["spec"]["template"]["spec"]["nodeSelector"], json!({"zone": "z"}), "a stop keeps it");
}

#[test]
fn pods_ready_timeouts_back_off_longer_until_reactivation_resets_them() {
    let mut settings = settings();
    let wait = settings.wait_for_pods_ready.as_mut().unwrap();
    wait.timeout_ms = 10_000;
    wait.backoff_limit_count = Some(2);
    wait.backoff_base_seconds = 60;
    wait.backoff_max_seconds = 90;
    let mut cluster = with_queue(Cluster::with(settings), "1");
    cluster.pods_stay_unready = true;
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    let state = |cluster: &Cluster| cluster.workload_of("a").unwrap()["status"]["requeueState"].clone();
    let second = |time: &Value| time.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
    cluster.pass(15);
    for (count, delay) in [(1, 60), (2, 90)] {
        let evicted = cluster.condition("a", "Evicted").unwrap();
        assert_eq!((&evicted["status"], &evicted["reason"]), (&json!("True"), &json!("PodsReadyTimeout")), "{count}");
        let waits = state(&cluster);
        assert_eq!(waits["count"], json!(count), "{waits}");
        assert_eq!(second(&waits["requeueAt"]) - second(&evicted["lastTransitionTime"]), delay, "{waits}");
        cluster.pass(delay - 8);
        assert!(!cluster.is("a", "QuotaReserved"), "it waits still: {waits}");
        cluster.pass(6);
        assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
        let waits = state(&cluster);
        assert_eq!((&waits["count"], waits.get("requeueAt")), (&json!(count), None), "what was counted stays: {waits}");
        cluster.pass(12);
    }
    let evicted = cluster.condition("a", "Evicted").unwrap();
    assert_eq!(evicted["reason"], json!("DeactivatedDueToRequeuingLimitExceeded"), "{evicted}");
    assert_eq!(state(&cluster), Value::Null, "nothing is counted of who is out");
    reactivate(&mut cluster);
    cluster.pass(17);
    assert_eq!(state(&cluster)["count"], json!(1), "{:?}", cluster.workload_of("a"));
}

/// Kind, namespace and name of each queue that the test stops.
const STOPS: [(Kind, &str, &str); 2] = [(Kind::ClusterQueue, "", "cq"), (Kind::LocalQueue, "team", "lq")];

#[test]
fn drained_workload_is_admitted_before_later_ones_when_queue_resumes() {
    for (kind, namespace, name) in STOPS {
        let mut cluster = one_queue("1");
        cluster.put(Kind::JOB, job("first", "lq", "1", true));
        cluster.pass(3);
        cluster.put(Kind::JOB, job("behind", "lq", "1", true));
        cluster.pass(3);
        assert!(cluster.is("first", "Admitted") && !cluster.is("behind", "Admitted"));
        cluster.edit(kind, namespace, name, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
        cluster.pass(10);
        assert!(!cluster.is("first", "QuotaReserved"), "{:?}", cluster.writes);
        cluster.edit(kind, namespace, name, &json!({"spec": {"stopPolicy": "None"}}));
        cluster.pass(5);
        assert!(cluster.is("first", "Admitted"), "{name}: {:?}", cluster.writes);
        assert!(!cluster.is("behind", "QuotaReserved"), "{name}: {:?}", cluster.writes);
        let requeued = cluster.condition("first", "Requeued").unwrap();
        let restarted = format!("{}Restarted", if kind == Kind::LocalQueue { "LocalQueue" } else { "ClusterQueue" });
        assert_eq!((&requeued["status"], &requeued["reason"]), (&json!("True"), &json!(restarted)), "{requeued}");
    }
}

/// Quota is released at the moment at which the user sets `spec.active` of the older Workload to true again.
#[test]
fn reactivated_workload_is_admitted_before_newer_one_in_next_plan() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.pass(3);
    for name in ["a", "behind"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.pass(3);
    }
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(5);
    assert_eq!(cluster.condition("a", "Requeued").unwrap()["status"], json!("False"));
    reactivate(&mut cluster);
    let more = cluster_queue("cq", None, &[("default", "2")]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": more["spec"]}));
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted") && !cluster.is("behind", "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(cluster.condition("a", "Requeued").unwrap()["reason"], json!("Reactivated"));
}

#[test]
fn drained_workload_reports_recreated_local_queue_instead_of_queue_restart() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "0")]));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(3);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass(10);
    let message_of = |cluster: &Cluster| cluster.condition("a", "Requeued").unwrap()["message"].clone();
    cluster.delete(&Cluster::key(Kind::LocalQueue, "team", "lq"));
    cluster.put(Kind::LocalQueue, local_queue("lq", "other"));
    cluster.pass(5);
    assert_eq!(
        message_of(&cluster),
        json!("The LocalQueue of the workload was created anew, and leads to ClusterQueue other")
    );
}

#[test]
fn drained_workload_reports_that_its_local_queue_is_gone() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(3);
    cluster.edit(Kind::LocalQueue, "team", "lq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass(10);
    assert!(!cluster.is("a", "QuotaReserved"), "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::LocalQueue, "team", "lq"));
    cluster.pass(5);
    let found_condition = cluster.condition("a", "Requeued").unwrap();
    assert_eq!(
        found_condition["message"],
        json!("The LocalQueue of the workload does not exist any more"),
        "{found_condition}"
    );
}
