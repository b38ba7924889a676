//! The waiting times of jobs: their limit, and their metrics.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::elastic::{other, with_priorities};
use crate::stories::one_queue;
use crate::stories::tiers::tiered_cluster;
use crate::stories::training::{self, training};
use crate::stories::training_figures::measured;

/// A TrainingJob that accepts three capacity tiers and has the given `maxWaitTime`.
fn patient(time: &str) -> Value {
    let scheduling = json!({"maxWaitTime": time, "schedulingTimeout": "1h"});
    training("a", json!({"capacityTiers": ["reserved", "on-demand", "spot"], "schedulingConfig": scheduling}))
}

fn assert_given_up(cluster: &Cluster, what: &str) {
    assert_eq!(cluster.phase("a"), "Failed", "{what}: {:?}", cluster.writes);
    assert_eq!(cluster.training_condition("a", "Failed")["reason"], "MaxWaitTimeExceeded", "{what}");
    assert!(!cluster.has_job("a-worker"), "{what}");
}

fn stop(cluster: &mut Cluster, policy: &str) {
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
}

#[test]
fn max_wait_time_runs_on_while_job_falls_through_tiers() {
    for restarts in [false, true] {
        let what = format!("restarts: {restarts}");
        let mut cluster = tiered_cluster("8");
        cluster.without_nodes = vec!["reserved", "on-demand", "spot"];
        cluster.put(Kind::TrainingJob, patient("25m"));
        cluster.pass(22 * 60);
        assert_eq!(cluster.phase("a"), "Pending", "{what}: it has fallen twice");
        if restarts {
            cluster.restart();
        }
        cluster.pass(5 * 60);
        assert_eq!(cluster.phase("a"), "Pending", "{what}: it may get its nodes yet");
        cluster.pass(7 * 60);
        assert_given_up(&cluster, &what);
    }
}

#[test]
fn max_wait_time_runs_on_across_repeated_gang_timeouts() {
    let mut cluster = tiered_cluster("2");
    cluster.without_nodes = vec!["spot"];
    let times = json!({"schedulingConfig": {"maxWaitTime": "5m", "schedulingTimeout": "30s"}});
    cluster.put(Kind::TrainingJob, training("a", times));
    cluster.pass(290);
    assert_eq!((cluster.phase("a"), cluster.evictions_of("a", "SchedulingTimeout")), ("Queued", 3));
    cluster.pass(15);
    assert_given_up(&cluster, "after five minutes, three tries included");
}

#[test]
fn max_wait_time_of_evicted_job_starts_at_its_eviction() {
    for restarts in [false, true] {
        let mut cluster = training::cluster("2");
        cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"maxWaitTime": "10m"}})));
        cluster.pass(3_600);
        assert_eq!(cluster.phase("a"), "Running");
        stop(&mut cluster, "HoldAndDrain");
        cluster.pass(580);
        if restarts {
            cluster.restart();
        }
        assert_eq!(cluster.phase("a"), "Queued");
        cluster.pass(30);
        assert_given_up(&cluster, &format!("restarts: {restarts}"));
    }
}

#[test]
fn job_that_ran_falls_through_tiers_until_max_wait_time() {
    let mut cluster = tiered_cluster("8");
    cluster.put(Kind::TrainingJob, patient("15m"));
    cluster.pass(3_600);
    assert_eq!((cluster.tier_of("a"), cluster.phase("a")), ("reserved", "Running"));
    cluster.without_nodes = vec!["reserved", "on-demand", "spot"];
    cluster.pass(28 * 60);
    // The job was evicted ten minutes after it lost its nodes, and would be evicted again after each further ten minutes.
    assert_eq!(cluster.phase("a"), "Pending");
    cluster.pass(4 * 60);
    assert_given_up(&cluster, "twenty minutes after it ran last");
}

#[test]
fn max_wait_time_starts_anew_when_job_is_resumed() {
    let mut cluster = tiered_cluster("2");
    cluster.without_nodes = vec!["spot"];
    let times = json!({"schedulingConfig": {"maxWaitTime": "2m", "schedulingTimeout": "100s"}});
    cluster.put(Kind::TrainingJob, training("a", times));
    cluster.pass(90);
    let suspend = |cluster: &mut Cluster, suspend: bool| {
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": suspend}}));
    };
    // The pods of the job end slowly, and the job is resumed before the pods have ended.
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    suspend(&mut cluster, true);
    cluster.pass(60);
    suspend(&mut cluster, false);
    cluster.pass(5);
    cluster.without_nodes.clear();
    cluster.pods_left.clear();
    cluster.pass(30);
    assert_eq!(cluster.phase("a"), "Running", "{:?}", cluster.writes);
}

#[test]
fn wait_time_metric_excludes_running_time_between_preemptions() {
    let mut cluster = with_priorities(one_queue("1"));
    cluster.edit(
        Kind::ClusterQueue,
        "",
        "cq",
        &json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}),
    );
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    for (name, ran) in [("b", 100), ("c", 36_000)] {
        cluster.pass(ran);
        assert!(cluster.is("a", "Admitted"));
        cluster.put(Kind::JOB, other(name, "1", 100));
        cluster.pass(5);
        assert!(cluster.is(name, "Admitted") && !cluster.is("a", "QuotaReserved"));
        let _ = measured(&mut cluster, "kueue_admission_wait_time_seconds");
        cluster.complete(name);
        cluster.pass(3);
        assert!(cluster.is("a", "Admitted"));
        let waited = measured(&mut cluster, "kueue_admission_wait_time_seconds");
        assert_eq!(waited, [("cluster_queue=cq priority_class=".to_owned(), 5)], "{name}");
    }
}
