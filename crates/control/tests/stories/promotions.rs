//! When a running job moves back to a better capacity tier, and when the job does not move yet.

use berth_control::write::{Kind, Purpose, Term, WriteOutcome};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job};
use crate::stories::policies::{evictions, with_tiers};
use crate::stories::tiers::{flavor_of, tiered_cluster};
use crate::stories::training::{suspend, training};

/// A cluster in which the job `second` runs on demand, because the job `first` holds the whole reserved tier.
fn second_on_demand(tiers: Value) -> Cluster {
    let mut cluster = tiered_cluster("1");
    cluster.put(Kind::QueuePolicy, with_tiers(tiers));
    for name in ["first", "second"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.settle();
    }
    assert_eq!(flavor_of(&cluster, "second"), json!("on-demand"));
    cluster
}

/// Checks that the job `second` is still in its tier after `not_yet` seconds, and in the better tier after `then` more seconds.
fn promoted_between(cluster: &mut Cluster, (not_yet, then): (i64, i64), why: &str) {
    cluster.pass(not_yet);
    assert_eq!(flavor_of(cluster, "second"), json!("on-demand"), "{why}");
    cluster.pass(then);
    assert_eq!(flavor_of(cluster, "second"), json!("reserved"), "{why}");
    assert_eq!(evictions(cluster, "second", "ClimbedBack"), 1);
}

#[test]
fn job_moves_back_only_after_its_minimum_stay() {
    let mut cluster = second_on_demand(json!({"climbBack": {"when": "Anytime", "minStay": "10m", "hysteresis": "1s"}}));
    cluster.pass(60);
    cluster.complete("first");
    // Control looks for jobs to move back every five seconds.
    promoted_between(&mut cluster, (539, 13), "a minute and 539 seconds are one short of ten minutes");
}

#[test]
fn job_moves_back_only_after_hysteresis_of_free_better_tier() {
    let mut cluster = second_on_demand(json!({"climbBack": {"when": "Anytime", "minStay": "10m", "hysteresis": "1m"}}));
    cluster.pass(700);
    cluster.complete("first");
    promoted_between(&mut cluster, (59, 13), "it has been free for 59 seconds");
}

#[test]
fn hysteresis_starts_anew_when_better_tier_is_taken_meanwhile() {
    let mut cluster = second_on_demand(json!({"climbBack": {"when": "Anytime", "minStay": "10m", "hysteresis": "1m"}}));
    cluster.pass(700);
    cluster.complete("first");
    cluster.pass(40);
    cluster.put(Kind::JOB, job("brief", "lq", "1", true));
    cluster.pass(10);
    assert_eq!(flavor_of(&cluster, "brief"), json!("reserved"));
    cluster.complete("brief");
    promoted_between(
        &mut cluster,
        (59, 13),
        "it flickered: 109 seconds after it was free first, and 59 after the last time",
    );
}

#[test]
fn reelected_leader_rechecks_better_tier_before_moving_job_back() {
    let mut cluster = second_on_demand(json!({"climbBack": {"when": "Anytime", "minStay": "10m", "hysteresis": "1m"}}));
    cluster.pass(700);
    cluster.complete("first");
    cluster.faults.push((Purpose::Evict, WriteOutcome::NotSent, false));
    for _ in 0..90 {
        if !cluster.faults.is_empty() {
            cluster.set_now(cluster.now().checked_add(SignedDuration::from_secs(1)).unwrap());
            cluster.settle();
        }
    }
    assert!(cluster.faults.is_empty(), "it was to climb");
    cluster.control.lead(None);
    let without = cluster_queue("cq", None, &[("spot", "1"), ("on-demand", "1"), ("reserved", "0")]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &without);
    cluster.set_now(cluster.now().checked_add(SignedDuration::from_secs(3_600)).unwrap());
    cluster.control.lead(Some(Term(3)));
    cluster.pass(30);
    assert_eq!((flavor_of(&cluster, "second"), evictions(&cluster, "second", "ClimbedBack")), (json!("on-demand"), 0));
}

#[test]
fn job_moves_back_only_after_flavor_stock_out_is_forgotten() {
    let mut cluster = tiered_cluster("1");
    let promotion = json!({"when": "Anytime", "minStay": "1s", "hysteresis": "1s"});
    let backoff = json!({"initial": "1m", "max": "1m", "decay": "10m"});
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"climbBack": promotion, "backoff": backoff})));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, job("second", "lq", "1", true));
    cluster.pass(75);
    assert_eq!(flavor_of(&cluster, "second"), json!("on-demand"));
    cluster.without_nodes.clear();
    let shown = &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", "p")]["status"]["backoffs"][0];
    let time = |field: &str| shown[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    let (until, forgotten) = (time("until"), time("forgottenAt"));
    assert_eq!(forgotten.as_second() - until.as_second(), 600);
    // A new leader remembers the stock-out from the status of the policy.
    cluster.restart();
    let left = forgotten.as_second() - cluster.now().as_second();
    promoted_between(&mut cluster, (left - 1, 13), "its back-off ended ten minutes ago");
}

#[test]
fn job_moving_back_avoids_remembered_stock_out_if_alternatives_exist() {
    for crowded in [false, true] {
        let mut cluster = tiered_cluster("1");
        let promotion = json!({"when": "Anytime", "minStay": "1s", "hysteresis": "1s"});
        let backoff = json!({"initial": "1m", "max": "1m", "decay": "10h"});
        let tiers = json!({"default": ["reserved", "on-demand", "spot"], "climbBack": promotion, "backoff": backoff});
        cluster.put(Kind::QueuePolicy, with_tiers(tiers));
        cluster.without_nodes = vec!["reserved"];
        cluster.put(Kind::JOB, job("early", "lq", "1", true));
        cluster.pass(75);
        assert_eq!(flavor_of(&cluster, "early"), json!("on-demand"));
        cluster.without_nodes.clear();
        cluster.complete("early");
        // The back-off of the reserved flavor is over, and its stock-out is still remembered.
        cluster.pass(75);
        for (name, tier) in [("first", "reserved"), ("filler", "on-demand"), ("second", "spot")] {
            cluster.put(Kind::JOB, job(name, "lq", "1", true));
            cluster.pass(3);
            assert_eq!(flavor_of(&cluster, name), json!(tier));
        }
        // The job `second` stops slowly, and the job `first` frees the reserved tier meanwhile.
        cluster.controller_sleeps = true;
        cluster.complete("filler");
        cluster.pass(30);
        assert_eq!((flavor_of(&cluster, "second"), evictions(&cluster, "second", "ClimbedBack")), (json!("spot"), 1));
        if crowded {
            cluster.put(Kind::JOB, job("third", "lq", "1", true));
            cluster.settle();
            assert_eq!(flavor_of(&cluster, "third"), json!("on-demand"));
            let without = cluster_queue("cq", None, &[("spot", "0"), ("on-demand", "1"), ("reserved", "1")]);
            cluster.edit(Kind::ClusterQueue, "", "cq", &without);
        }
        cluster.complete("first");
        cluster.settle();
        cluster.controller_sleeps = false;
        cluster.pass(30);
        let tier = if crowded { "reserved" } else { "on-demand" };
        assert_eq!(flavor_of(&cluster, "second"), json!(tier), "{:?}", cluster.writes);
        assert_eq!(evictions(&cluster, "second", "ClimbedBack"), 1);
    }
}

#[test]
fn stock_out_is_forgotten_sooner_after_flavor_provides_nodes() {
    let mut cluster = tiered_cluster("2");
    let promotion = json!({"when": "Anytime", "minStay": "1s", "hysteresis": "1s"});
    let backoff = json!({"initial": "2h", "max": "2h", "decay": "10m"});
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"climbBack": promotion, "backoff": backoff})));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, job("second", "lq", "1", true));
    cluster.pass(30);
    cluster.put(Kind::JOB, job("later", "lq", "1", true));
    cluster.pass(35);
    assert_eq!(flavor_of(&cluster, "second"), json!("on-demand"));
    assert_eq!(flavor_of(&cluster, "later"), json!("reserved"), "its own patience is not over");
    cluster.without_nodes.clear();
    cluster.pass(5);
    cluster.complete("later");
    promoted_between(&mut cluster, (590, 23), "the flavor was there ten minutes ago");
}

/// The name of a way to stop the job `a`, with the functions that stop and resume the job.
type Pause = (&'static str, fn(&mut Cluster), fn(&mut Cluster));

fn stop(cluster: &mut Cluster, policy: &str) {
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
}

#[test]
fn suspended_or_drained_job_starts_again_in_best_free_tier() {
    let pauses: [Pause; 2] = [
        ("suspended", |cluster| suspend(cluster, true), |cluster| suspend(cluster, false)),
        ("drained", |cluster| stop(cluster, "HoldAndDrain"), |cluster| stop(cluster, "None")),
    ];
    for (how, pause, resume) in pauses {
        let mut cluster = tiered_cluster("2");
        // The policy has no `climbBack`, so that no running job moves to a better tier.
        cluster.put(Kind::QueuePolicy, with_tiers(json!({})));
        cluster.put(Kind::JOB, job("first", "lq", "2", true));
        cluster.settle();
        cluster.put(Kind::TrainingJob, training("a", json!({})));
        cluster.pass(5);
        assert_eq!(cluster.tier_of("a"), "on-demand", "{how}");
        cluster.complete("first");
        cluster.pass(7_200);
        assert_eq!(cluster.tier_of("a"), "on-demand", "{how}: it runs, and the reservation is free");
        pause(&mut cluster);
        cluster.pass(10);
        assert!(!cluster.has_job("a-worker"), "{how}");
        resume(&mut cluster);
        cluster.pass(10);
        assert_eq!((cluster.tier_of("a"), cluster.phase("a")), ("reserved", "Running"), "{how}");
        assert_eq!(cluster.evictions_of("a", "ClimbedBack"), 0);
    }
}

#[test]
fn jobs_move_back_only_as_better_tier_has_room() {
    let mut cluster = tiered_cluster("4");
    let promotion = json!({"when": "Anytime", "minStay": "1s", "hysteresis": "1s", "maxTimes": 9});
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"climbBack": promotion})));
    for name in ["first", "filler"] {
        cluster.put(Kind::JOB, job(name, "lq", "2", true));
    }
    cluster.pass(3);
    for name in ["a", "b"] {
        cluster.put(Kind::TrainingJob, training(name, json!({})));
        cluster.pass(5);
        assert_eq!(cluster.tier_of(name), "on-demand");
        // The pods of the TrainingJobs `a` and `b`, of which only one can move back to the better tier, end slowly.
        cluster.keep_pods_of(Kind::TrainingJob, name);
    }
    cluster.complete("first");
    cluster.pass(40);
    let promotions =
        |cluster: &Cluster| cluster.evictions_of("a", "ClimbedBack") + cluster.evictions_of("b", "ClimbedBack");
    assert_eq!(promotions(&cluster), 1, "there is room for one of them");
    cluster.pods_left.clear();
    cluster.pass(60);
    let mut tiers = [cluster.tier_of("a"), cluster.tier_of("b")];
    tiers.sort_unstable();
    assert_eq!((tiers, promotions(&cluster)), (["on-demand", "reserved"], 1));
    cluster.complete("filler");
    cluster.pass(120);
    assert_eq!([cluster.tier_of("a"), cluster.tier_of("b")], ["reserved", "reserved"]);
    assert_eq!(promotions(&cluster), 2);
}
