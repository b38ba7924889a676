//! Capacity tiers: the order in which jobs get the tiers, and the effects of missing nodes.

use berth_control::write::{Kind, Notice};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::training::training;

const TIERS: &str = "berth.dev/capacity-tiers";
const TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// The field of a Workload's spec that follows the job's maximum execution time.
const LIMIT: &str = "maximumExecutionTimeSeconds";

/// A cluster with a ClusterQueue of three capacity tiers of `cpu` cpus each, with the worst tier first.
pub fn tiered_cluster(cpu: &str) -> Cluster {
    tiered_cluster_on(Cluster::new(), cpu)
}

/// Adds a ClusterQueue of three capacity tiers of `cpu` cpus each, with the worst tier first, to a cluster.
pub fn tiered_cluster_on(mut cluster: Cluster, cpu: &str) -> Cluster {
    for tier in ["spot", "on-demand", "reserved"] {
        let mut flavor = flavor(tier, json!({"tier": tier}));
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        cluster.put(Kind::ResourceFlavor, flavor);
    }
    let flavors = [("spot", cpu), ("on-demand", cpu), ("reserved", cpu)];
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &flavors));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster
}

pub fn accepting(name: &str, tiers: &str) -> Value {
    let mut job = job(name, "lq", "1", true);
    job["metadata"]["annotations"] = json!({(TIERS): tiers});
    job
}

pub fn flavor_of(cluster: &Cluster, job: &str) -> Value {
    cluster.workload_of(job).unwrap()["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"].clone()
}

#[test]
fn job_gets_first_accepted_tier_with_free_quota() {
    let mut cluster = tiered_cluster("1");
    for (name, tiers) in [("a", "reserved,on-demand"), ("b", "reserved,on-demand"), ("c", "reserved,on-demand")] {
        cluster.put(Kind::JOB, accepting(name, tiers));
        cluster.settle();
    }
    cluster.put(Kind::JOB, job("d", "lq", "1", true));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"));
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"));
    assert_eq!(cluster.condition("c", "QuotaReserved").unwrap()["reason"], json!("WaitingForQuota"));
    assert_eq!(flavor_of(&cluster, "d"), json!("spot"), "it says nothing: the queue's order");
    for (name, tier) in [("a", "reserved"), ("b", "on-demand"), ("d", "spot")] {
        let workload = cluster.workload_of(name).unwrap()["metadata"]["name"].as_str().unwrap();
        let reported_by = |notice: &&Notice| notice.reason == "QuotaReserved" && notice.key.name == workload;
        let message = &cluster.notices.iter().find(reported_by).unwrap().message;
        assert!(message.contains(&format!("was 0s; capacity tier {tier}")), "{message}");
    }
    assert_eq!(cluster.workload_of("a").unwrap()["metadata"]["annotations"][TIERS], json!("reserved,on-demand"));
}

#[test]
fn waiting_job_can_change_its_accepted_tiers() {
    let mut cluster = tiered_cluster("1");
    cluster.put(Kind::JOB, accepting("a", "reserved"));
    cluster.settle();
    cluster.put(Kind::JOB, accepting("b", "reserved"));
    cluster.settle();
    assert!(!cluster.is("b", "Admitted"));
    cluster.edit(Kind::JOB, "team", "b", &json!({"metadata": {"annotations": {(TIERS): "spot"}}}));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("spot"));
}

#[test]
fn training_job_tier_field_takes_precedence_over_annotation() {
    let tier = |field: Value, annotation: &str| {
        let mut cluster = tiered_cluster("2");
        let mut object = training("a", json!({"capacityTiers": field}));
        object["metadata"]["annotations"] = json!({(TIERS): annotation});
        cluster.put(Kind::TrainingJob, object);
        cluster.pass(5);
        cluster.tier_of("a").to_owned()
    };
    assert_eq!(tier(json!([]), "on-demand"), "on-demand");
    assert_eq!(tier(json!(["reserved"]), "on-demand"), "reserved");
}

#[test]
fn waiting_training_job_can_change_tiers_and_execution_time_limit() {
    let mut cluster = tiered_cluster("2");
    let mut full = job("full", "lq", "2", true);
    full["metadata"]["annotations"] = json!({(TIERS): "reserved"});
    cluster.put(Kind::JOB, full);
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "full"), json!("reserved"));
    let mut object = training("a", json!({}));
    object["metadata"]["annotations"] = json!({(TIERS): "reserved"});
    object["metadata"]["labels"] = json!({(TIME): "60"});
    cluster.put(Kind::TrainingJob, object);
    cluster.pass(5);
    let limit = |cluster: &Cluster| cluster.workload_of_training("a").unwrap()["spec"][LIMIT].clone();
    assert_eq!((cluster.phase("a"), limit(&cluster)), ("Queued", json!(60)));
    let change =
        |tiers: Value, time: Value| json!({"metadata": {"annotations": {(TIERS): tiers}, "labels": {(TIME): time}}});
    cluster.edit(Kind::TrainingJob, "team", "a", &change(json!("reserved"), Value::Null));
    cluster.pass(5);
    assert_eq!((cluster.phase("a"), limit(&cluster)), ("Queued", Value::Null));
    cluster.edit(Kind::TrainingJob, "team", "a", &change(json!("spot"), json!("90")));
    cluster.pass(5);
    assert_eq!((cluster.tier_of("a"), limit(&cluster)), ("spot", json!(90)));
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn unknown_tier_in_annotation_is_reported_misconfigured_and_not_admitted() {
    let mut cluster = tiered_cluster("1");
    cluster.put(Kind::JOB, accepting("a", "reserved,preemptible"));
    cluster.settle();
    let found_condition = cluster.condition("a", "QuotaReserved").unwrap();
    assert_eq!(found_condition["reason"], json!("Misconfigured"));
    let expected = "annotation berth.dev/capacity-tiers: \"preemptible\" is no capacity tier; allowed are reserved, on-demand and spot";
    assert_eq!(found_condition["message"], json!(expected));
    cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"annotations": {(TIERS): "reserved"}}}));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"));
}

#[test]
fn flavor_of_unknown_tier_is_skipped_with_event() {
    let mut cluster = tiered_cluster("1");
    let labels = json!({"metadata": {"labels": {"berth.dev/capacity-tier": "gold"}}});
    cluster.edit(Kind::ResourceFlavor, "", "spot", &labels);
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    let wrong = "label berth.dev/capacity-tier: \"gold\" is no capacity tier; allowed are reserved, on-demand and spot";
    assert!(cluster.notices.iter().any(|notice| notice.reason == "Misconfigured" && notice.message == wrong));
}

/// Reason and message of the condition `Evicted` of a job's Workload.
pub fn eviction(cluster: &Cluster, job: &str) -> (String, String) {
    let condition = cluster.condition(job, "Evicted").unwrap();
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

#[test]
fn tier_without_nodes_is_left_and_skipped_by_next_job() {
    let mut cluster = tiered_cluster("4");
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, accepting("a", "reserved,on-demand"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"));
    cluster.pass(599);
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"), "its patience is ten minutes");
    cluster.pass(30);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    let message = eviction(&cluster, "a").1;
    assert!(
        message.starts_with(
            "Previously: flavor reserved (reserved capacity) had no nodes for all 1 pods within 600s: 0/9"
        ),
        "{message}"
    );
    cluster.put(Kind::JOB, accepting("b", "reserved,on-demand"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"), "the next job is spared");
    cluster.put(Kind::JOB, accepting("c", "reserved"));
    cluster.settle();
    let found_condition = cluster.condition("c", "QuotaReserved").unwrap();
    assert_eq!(found_condition["reason"], json!("OutOfStock"));
    assert!(
        found_condition["message"].as_str().unwrap().contains("flavor reserved is out of stock until 2026-11-21T12:1"),
        "{found_condition}"
    );
    // Berth tries the flavor again when its stock-out is over, and the flavor has nodes now.
    cluster.without_nodes = vec![];
    cluster.pass(300);
    assert_eq!(flavor_of(&cluster, "c"), json!("reserved"));
}

#[test]
fn stock_out_from_unmatched_affinity_holds_only_for_equal_jobs() {
    let mut cluster = tiered_cluster("4");
    let policy = json!({"patience": {"reserved": "10m"}});
    cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(policy));
    let picky = |name: &str| {
        let mut job = accepting(name, "reserved,on-demand");
        let label = json!({"key": "no-such-label", "operator": "Exists"});
        job["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [label]}]}}});
        job
    };
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, picky("a"));
    cluster.pass(640);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    cluster.without_nodes = vec![];
    cluster.put(Kind::JOB, accepting("b", "reserved,on-demand"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("reserved"), "a job that any node will do for is not held up");
    // After a restart, control reads the stock-outs from the policy's status, and admits a job without the other job's node affinity at once.
    cluster.restart();
    cluster.put(Kind::JOB, accepting("c", "reserved,on-demand"));
    cluster.put(Kind::JOB, picky("d"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "c"), json!("reserved"));
    assert_eq!(flavor_of(&cluster, "d"), json!("on-demand"), "one that asks for the same is spared");
}

#[test]
fn stock_out_in_zone_holds_only_for_jobs_selecting_it() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(json!({})));
    let in_zone = |name: &str, zone: &str| {
        let mut job = accepting(name, "reserved,on-demand");
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": zone});
        job
    };
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, in_zone("first", "a"));
    cluster.pass(80);
    assert_eq!(flavor_of(&cluster, "first"), json!("on-demand"));
    cluster.without_nodes = vec![];
    for [there, gone] in [["b", "c"], ["d", "e"]] {
        cluster.put(Kind::JOB, in_zone(there, "b"));
        cluster.put(Kind::JOB, in_zone(gone, "a"));
        cluster.settle();
        assert_eq!(flavor_of(&cluster, there), json!("reserved"), "{there}: nobody has missed nodes of its zone");
        assert_eq!(flavor_of(&cluster, gone), json!("on-demand"), "{gone} is spared");
        // The next leader reads from the status of the QueuePolicy for which zone the flavor is out of stock.
        cluster.restart();
    }
}

#[test]
fn job_leaves_tier_early_when_autoscaler_reports_no_nodes() {
    let mut cluster = tiered_cluster("4");
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, accepting("a", "reserved,on-demand"));
    cluster.pass(100);
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"), "nobody has said anything");
    cluster.refused_nodes = Some("Node scale up failed: out of resources".into());
    cluster.pass(40);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    let message = eviction(&cluster, "a").1;
    assert!(message.ends_with("s: Node scale up failed: out of resources"), "{message}");
    cluster.put(Kind::JOB, accepting("b", "reserved,on-demand"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"), "the next job is spared");
}

#[test]
fn policy_decides_which_failures_count_as_stock_out() {
    let refused = || Some("out of resources".to_owned());
    let reported_by = |on: &[&str], words: Option<String>, seconds: i64| {
        let mut cluster = tiered_cluster("4");
        let policy = json!({"patience": {"reserved": "10m"}, "stockOutOn": on});
        cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(policy));
        cluster.without_nodes = vec!["reserved"];
        cluster.refused_nodes = words;
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(seconds);
        flavor_of(&cluster, "a").as_str().unwrap().to_owned()
    };
    for (on, words, seconds, flavor) in [
        (&["Unschedulable"][..], refused(), 590, "reserved"),
        (&["Unschedulable"], refused(), 640, "on-demand"),
        (&["ScaleUpFailed"], None, 3600, "reserved"),
        (&["ScaleUpFailed"], refused(), 40, "on-demand"),
        (&["ProvisioningRequestFailed"], refused(), 3600, "reserved"),
        (&["ProvisioningRequestFailed", "ScaleUpFailed"], refused(), 40, "on-demand"),
        (&[], refused(), 40, "on-demand"),
        (&[], None, 590, "reserved"),
    ] {
        assert_eq!(reported_by(on, words.clone(), seconds), flavor, "{on:?} {words:?} after {seconds} s");
    }
}

#[test]
fn job_with_single_tier_retries_it_with_growing_backoff() {
    let mut cluster = tiered_cluster("4");
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, accepting("a", "reserved"));
    cluster.pass(6 * 3600);
    let evictions = cluster.workload_of("a").unwrap()["status"]["schedulingStats"]["evictions"].clone();
    // Each of the job's seven tries in the tier takes ten minutes; the back-offs between the tries are 5, 10, 20, 40, 80 and 120 minutes.
    assert_eq!(evictions, json!([{"reason": "StockOut", "underlyingCause": "", "count": 7}]));
}

#[test]
fn scheduled_but_unready_pods_do_not_exhaust_tier_patience() {
    let mut cluster = tiered_cluster("4");
    cluster.pods_stay_unready = true;
    cluster.put(Kind::JOB, accepting("a", "reserved,on-demand"));
    cluster.pass(3600);
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"));
    assert!(!cluster.is("a", "Evicted"));
}

#[test]
fn job_without_tiers_is_never_checked_for_stuck_pods() {
    let mut cluster = tiered_cluster("4");
    cluster.without_nodes = vec!["spot"];
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(3600);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
    assert_eq!(cluster.count(berth_control::write::Purpose::FindStuckPods), 0);
}

#[test]
fn job_that_lost_its_nodes_goes_before_later_jobs() {
    let mut cluster = tiered_cluster("1");
    cluster.put(Kind::JOB, accepting("a", "spot"));
    cluster.pass(1000);
    cluster.put(Kind::JOB, accepting("b", "spot"));
    cluster.pass(10);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
    cluster.without_nodes = vec!["spot"];
    cluster.pass(700);
    assert_eq!(eviction(&cluster, "a").0, "CapacityReclaimed");
    assert!(!cluster.is("b", "QuotaReserved"), "spot is out of stock for its pods, too");
    cluster.without_nodes = vec![];
    cluster.pass(600);
    assert!(cluster.is("a", "Admitted") && !cluster.is("b", "QuotaReserved"), "it was there first");
}

#[test]
fn reclaimed_nodes_count_as_stock_out_of_their_tier() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::JOB, accepting("a", "spot,on-demand"));
    cluster.pass(1000);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
    cluster.without_nodes = vec!["spot"];
    cluster.pass(500);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"), "patience begins when the nodes go");
    cluster.pass(130);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    assert_eq!(
        cluster.workload_of("a").unwrap()["status"]["schedulingStats"]["evictions"][0]["reason"],
        json!("CapacityReclaimed")
    );
    cluster.put(Kind::JOB, accepting("b", "spot,on-demand"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"));
}

#[test]
fn earlier_stock_out_is_forgotten_when_tier_fails_hours_later() {
    let mut cluster = tiered_cluster("4");
    let backoff = json!({"initial": "1m", "max": "8h", "decay": "10m"});
    let policy = json!({"default": ["reserved", "on-demand"], "patience": {"reserved": "1m"}, "backoff": backoff});
    cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(policy));
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.pass(100);
    assert_eq!(flavor_of(&cluster, "runs"), json!("reserved"));
    cluster.keep_nodes = vec!["runs"];
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, job("late", "lq", "1", true));
    cluster.pass(100);
    assert_eq!(flavor_of(&cluster, "late"), json!("on-demand"));
    let failures = |cluster: &Cluster| {
        let shown = &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", "p")]["status"]["backoffs"][0];
        shown["failures"].clone()
    };
    assert_eq!(failures(&cluster), json!(1));
    cluster.pass(5 * 3_600);
    cluster.keep_nodes.clear();
    cluster.pass(120);
    assert_eq!(flavor_of(&cluster, "runs"), json!("on-demand"));
    assert_eq!(failures(&cluster), json!(1), "the outage of five hours ago is forgotten");
}
