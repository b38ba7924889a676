//! Patience belongs to a capacity tier: if the pods of one Workload are in two tiers, Berth waits for the nodes of each tier as long as the patience of that
//! tier.

use std::collections::BTreeSet;

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue};
use crate::stories::groups::member;
use crate::stories::policies::with_tiers;
use crate::stories::tiers::{accepting, flavor_of, tiered_cluster, tiered_cluster_on};
use crate::stories::training::training;

/// A QueuePolicy with a patience of ten minutes for the reserved tier, and of one minute for spot.
fn policy() -> Value {
    let patience = json!({"reserved": "10m", "spot": "1m"});
    with_tiers(json!({"default": ["reserved", "spot"], "patience": patience}))
}

/// Flavors that are out of stock according to the status of the QueuePolicy.
fn out_of_stock(cluster: &Cluster) -> BTreeSet<String> {
    let shown = &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", "p")]["status"]["backoffs"];
    let backoffs = shown.as_array().into_iter().flatten();
    backoffs.map(|backoff| backoff["flavor"].as_str().unwrap().to_owned()).collect()
}

/// A TrainingJob with a chief in the reserved tier and two workers on spot; the tiers `without` have no nodes.
fn chief_and_workers(without: &[&'static str]) -> Cluster {
    let mut cluster = tiered_cluster("2");
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("spot", "2"), ("reserved", "1")]));
    cluster.put(Kind::QueuePolicy, policy());
    cluster.without_nodes = without.to_vec();
    let chief = json!([{"name": "chief", "replicaResources": {"cpu": "1"}}]);
    let more = json!({"jobType": "TFJob", "roles": chief, "schedulingConfig": {"schedulingTimeout": "2h"}});
    cluster.put(Kind::TrainingJob, training("a", more));
    cluster.settle();
    let tier = |job: &str| cluster.job(job)["spec"]["template"]["spec"]["nodeSelector"]["tier"].clone();
    assert_eq!((tier("a-chief"), tier("a-worker")), (json!("reserved"), json!("spot")));
    cluster
}

/// A pod group of the pods `lead` and `work` in two tiers; the tiers `without` have no nodes.
fn lead_and_worker(without: &[&'static str]) -> Cluster {
    let mut settings = crate::stories::cluster::settings();
    settings.job_kinds.insert(Kind::Pod);
    let mut cluster = tiered_cluster_on(Cluster::with(settings), "2");
    cluster.put(Kind::QueuePolicy, policy());
    cluster.without_nodes = without.to_vec();
    // The pod sets of a group are ordered by the specs of their pods.
    cluster.put(Kind::Pod, member("lead", "900m", 2, &[("role-hash", "aaaaaaaa")]));
    cluster.put(Kind::Pod, member("work", "2", 2, &[("role-hash", "bbbbbbbb")]));
    cluster.settle();
    let tier = |pod: &str| cluster.pod(pod).unwrap()["spec"]["nodeSelector"]["tier"].clone();
    assert_eq!((tier("lead"), tier("work")), (json!("reserved"), json!("spot")));
    cluster
}

#[test]
fn patience_of_each_tier_applies_to_its_own_pods() {
    let mut cluster = chief_and_workers(&["reserved"]);
    cluster.pass(590);
    assert_eq!(cluster.evictions_of("a", "StockOut"), 0, "the workers have their nodes, and the chief ten minutes");
    cluster.pass(30);
    assert_eq!(cluster.evictions_of("a", "StockOut"), 1);
    assert_eq!(out_of_stock(&cluster), BTreeSet::from(["reserved".to_owned()]));

    let mut cluster = lead_and_worker(&["reserved"]);
    let left = |cluster: &Cluster| cluster.notices.iter().any(|notice| notice.reason == "EvictedDueToStockOut");
    cluster.pass(590);
    assert!(!left(&cluster), "{:?}", cluster.writes);
    cluster.pass(30);
    assert!(left(&cluster), "{:?}", cluster.writes);
    assert_eq!(out_of_stock(&cluster), BTreeSet::from(["reserved".to_owned()]));
}

#[test]
fn tier_within_its_patience_is_not_reported_out_of_stock() {
    for (what, mut cluster) in [
        ("a TrainingJob", chief_and_workers(&["reserved", "spot"])),
        ("a group of pods", lead_and_worker(&["reserved", "spot"])),
    ] {
        cluster.pass(75);
        assert_eq!(out_of_stock(&cluster), BTreeSet::from(["spot".to_owned()]), "{what}");
    }
}

#[test]
fn new_leader_knows_stock_outs_found_by_old_leader() {
    let mut cluster = chief_and_workers(&["spot"]);
    cluster.stand_by();
    cluster.pass(75);
    assert_eq!(out_of_stock(&cluster), BTreeSet::from(["spot".to_owned()]));
    cluster.fail_over();
    cluster.pass(10);
    assert_eq!(out_of_stock(&cluster), BTreeSet::from(["spot".to_owned()]), "the chief had its node");
    cluster.put(Kind::TrainingJob, training("b", json!({"resources": {"maxReplicas": 1}})));
    cluster.pass(10);
    assert_eq!(cluster.tier_of("b"), "reserved");
}

#[test]
fn new_leader_remembers_stock_outs_that_no_policy_shows() {
    let mut cluster = tiered_cluster("8");
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, accepting("a", "reserved,on-demand"));
    cluster.settle();
    cluster.stand_by();
    cluster.pass(640);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    cluster.fail_over();
    cluster.put(Kind::JOB, accepting("b", "reserved,on-demand"));
    cluster.pass(5);
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"), "it is spared ten minutes");
}
