//! State that an elastic TrainingJob keeps at a scale-up: the TrainingJob gets a new Workload, and the job and its run go on.

use berth_control::measure::{TierMove, TierStep};
use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::elastic::{Judged, cluster, elastic, other, with_priorities};
use crate::stories::policies::with_tiers;
use crate::stories::tiers::tiered_cluster;

/// A cluster with four cpus in each of three capacity tiers, in which running jobs move back to better tiers.
fn promoting(promotion: Value) -> Cluster {
    let mut cluster = tiered_cluster("4");
    let seconds = json!({"reserved": "20s", "on-demand": "20s"});
    let backoff = json!({"initial": "20s", "max": "20s", "decay": "10s"});
    cluster
        .put(Kind::QueuePolicy, with_tiers(json!({"patience": seconds, "backoff": backoff, "climbBack": promotion})));
    cluster
}

/// An elastic TrainingJob that was started with two workers on demand: the Job `holder` holds the reserved tier, and the Job `beside` holds the rest of the
/// on-demand tier.
fn begun_small(promotion: Value) -> Cluster {
    let mut cluster = promoting(promotion);
    for (name, cpus, tier) in [("holder", "4", "reserved"), ("beside", "2", "on-demand")] {
        let mut stays = job(name, "lq", cpus, true);
        stays["metadata"]["annotations"] = json!({"berth.dev/capacity-tiers": tier});
        cluster.put(Kind::JOB, stays);
        cluster.settle();
    }
    cluster.put(Kind::TrainingJob, elastic("a", json!({"scaleUpStep": 2})));
    cluster.pass(5);
    assert_eq!((cluster.workers("a"), cluster.tier_of("a")), (2, "on-demand"));
    cluster
}

#[test]
fn scale_up_keeps_number_of_times_job_moved_back() {
    for restarts in [false, true] {
        let promotion = json!({"minStay": "1s", "hysteresis": "5s", "when": "Anytime", "maxTimes": 1});
        let mut cluster = begun_small(promotion);
        cluster.complete("holder");
        cluster.pass(30);
        assert_eq!((cluster.workers("a"), cluster.tier_of("a")), (4, "reserved"), "it climbs");
        // The reserved tier loses its nodes, so that the job starts with two workers on demand again.
        cluster.without_nodes = vec!["reserved"];
        cluster.pass(150);
        assert_eq!((cluster.workers("a"), cluster.tier_of("a")), (2, "on-demand"));
        assert_eq!((cluster.evictions_of("a", "ClimbedBack"), cluster.evictions_of("a", "CapacityReclaimed")), (1, 1));
        let before = cluster.workload_object("a")["metadata"]["uid"].clone();
        cluster.complete("beside");
        cluster.pass(30);
        assert_eq!((cluster.workers("a"), cluster.tier_of("a")), (4, "on-demand"), "it grows");
        assert_ne!(cluster.workload_object("a")["metadata"]["uid"], before);
        if restarts {
            cluster.restart();
        }
        cluster.without_nodes.clear();
        cluster.pass(600);
        assert_eq!((cluster.workers("a"), cluster.tier_of("a")), (4, "on-demand"), "once in its life: {restarts}");
        assert_eq!((cluster.evictions_of("a", "ClimbedBack"), cluster.evictions_of("a", "CapacityReclaimed")), (1, 1));
    }
}

#[test]
fn scale_up_does_not_restart_minimum_stay_in_tier() {
    for restarts in [false, true] {
        let mut cluster = begun_small(json!({"minStay": "100s", "hysteresis": "1s", "when": "Anytime"}));
        cluster.pass(35);
        cluster.complete("beside");
        cluster.pass(15);
        assert_eq!(cluster.workers("a"), 4, "it has grown");
        cluster.complete("holder");
        if restarts {
            cluster.restart();
        }
        cluster.pass(40);
        assert_eq!(cluster.tier_of("a"), "on-demand", "after 95 of 100 seconds");
        cluster.pass(25);
        assert_eq!(cluster.tier_of("a"), "reserved", "100 seconds after it grew are not over");
    }
}

#[test]
fn scale_up_does_not_renew_protected_running_time() {
    for restarts in [false, true] {
        let mut cluster = with_priorities(cluster());
        let bounds = json!({"protectedRunningTime": "1m"});
        let policy = json!({"metadata": {"name": "p"}, "spec": {"clusterQueues": ["cq"], "preemption": bounds}});
        cluster.put(Kind::QueuePolicy, policy);
        cluster.put(Kind::JOB, other("first", "4", 1));
        cluster.pass(3);
        cluster.put(Kind::TrainingJob, elastic("a", json!({"scaleUpStep": 2})));
        cluster.pass_judged(20, "small");
        cluster.complete("first");
        cluster.pass_judged(25, "grows");
        assert_eq!(cluster.workers("a"), 4);
        if restarts {
            cluster.restart();
            cluster = with_priorities(cluster);
        }
        cluster.put(Kind::JOB, other("urgent", "5", 100));
        cluster.pass_judged(12, "protected");
        assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
        cluster.pass_judged(10, "its time is over");
        assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Queued", 1), "{restarts}");
    }
}

#[test]
fn job_that_grew_keeps_queue_position_before_later_jobs() {
    let mut cluster = with_priorities(cluster());
    for (name, cpus) in [("first", "3"), ("filler", "1")] {
        cluster.put(Kind::JOB, job(name, "lq", cpus, true));
    }
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, elastic("a", json!({"scaleUpStep": 2})));
    cluster.pass_judged(3, "two");
    cluster.complete("filler");
    cluster.put(Kind::JOB, job("later", "lq", "1", true));
    cluster.pass_judged(3, "later");
    assert!(cluster.workers("a") == 2 && cluster.is("later", "Admitted"));
    cluster.complete("first");
    cluster.pass_judged(30, "grows");
    assert_eq!(cluster.workers("a"), 4);
    let quota = |policy: &str, cpus: &str| {
        let flavors = json!([{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": cpus}]}]);
        let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
        json!({"spec": {"stopPolicy": policy, "resourceGroups": groups}})
    };
    cluster.edit(Kind::ClusterQueue, "", "cq", &quota("HoldAndDrain", "6"));
    cluster.pass(5);
    assert!(cluster.workers("a") == 0 && !cluster.is("later", "QuotaReserved"));
    cluster.edit(Kind::ClusterQueue, "", "cq", &quota("None", "4"));
    cluster.pass(5);
    assert_eq!((cluster.workers("a"), cluster.is("later", "QuotaReserved")), (4, false), "it was there first");
}

#[test]
fn scale_up_does_not_extend_maximum_execution_time() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    let mut job = elastic("a", json!({"scaleUpStep": 2}));
    job["metadata"]["labels"] = json!({"kueue.x-k8s.io/max-exec-time-seconds": "60"});
    cluster.put(Kind::TrainingJob, job);
    cluster.pass_judged(20, "small");
    cluster.complete("first");
    cluster.pass_judged(36, "grows");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"));
    cluster.pass_judged(10, "a minute is over");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (0, "Suspended"));
    assert_eq!(cluster.workload_object("a")["spec"]["active"], json!(false));
}

#[test]
fn scale_up_is_not_logged_as_admission_to_tier() {
    let mut cluster = begun_small(json!({"minStay": "1s", "hysteresis": "5s", "when": "Anytime"}));
    let of_a = |cluster: &mut Cluster| -> Vec<TierMove> {
        let all = std::mem::take(&mut cluster.moves);
        all.into_iter().filter(|moved| moved.workload.starts_with("trainingjob-a")).collect()
    };
    let seen = of_a(&mut cluster);
    let [came] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(
        (came.tier.as_str(), came.flavors.as_str(), &came.what),
        ("on-demand", "on-demand", &TierStep::Admitted { waited: 0 })
    );
    assert_eq!((came.namespace.as_str(), came.cluster_queue.as_str()), ("team", "cq"));
    cluster.complete("beside");
    cluster.pass(35);
    assert_eq!(cluster.workers("a"), 4);
    assert!(of_a(&mut cluster).is_empty());
    cluster.complete("holder");
    cluster.pass(30);
    let seen = of_a(&mut cluster);
    let [left, came] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((left.tier.as_str(), came.tier.as_str()), ("on-demand", "reserved"));
    let TierStep::Left { reason, stayed } = &left.what else { panic!("{left:?}") };
    assert!(reason == "ClimbedBack" && (40..60).contains(stayed), "since it came, and not since it grew: {left:?}");
}
