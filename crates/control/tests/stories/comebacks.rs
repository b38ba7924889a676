//! Jobs that come back after they were stopped: with their time counted, reactivated, or edited meanwhile.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::cluster::{Cluster, job};
use crate::one_queue;

/// A job that may run for a minute.
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
fn the_time_that_a_job_may_run_is_counted_over_all_its_tries() {
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
    // Whoever reactivates it gives it the whole time again.
    reactivate(&mut cluster);
    cluster.pass(50);
    assert!(cluster.is("a", "Admitted") && !cluster.is("a", "Evicted"), "{:?}", cluster.writes);
    cluster.pass(20);
    assert!(!cluster.is("a", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn who_is_reactivated_before_its_pods_have_ended_comes_back() {
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
fn what_is_edited_after_an_eviction_counts_with_the_next_start() {
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
