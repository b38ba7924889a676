//! Scale-ups of elastic TrainingJobs that fail, because nodes are missing or come too late, or because a check or a setting forbids the scale-up.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::checks::rely_on_budget;
use crate::stories::cluster::{Cluster, flavor, merge};
use crate::stories::elastic::{Judged, cluster, elastic, other, with_priorities};
use crate::stories::policies::with_tiers;
use crate::stories::training_figures::found;

/// A TrainingJob that runs with two workers, because four of the six cpus are in use until the job `first` completes.
fn held_small(mut cluster: Cluster, more: Value) -> Cluster {
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    let mut job = elastic("a", json!({"scaleUpStep": 2}));
    merge(&mut job["spec"], &more);
    cluster.put(Kind::TrainingJob, job);
    cluster.pass_judged(15, "two");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"));
    cluster
}

fn short() -> Value {
    json!({"schedulingConfig": {"schedulingTimeout": "15s"}})
}

#[test]
fn worker_failing_long_after_scale_up_is_not_given_up() {
    let mut cluster = held_small(with_priorities(cluster()), short());
    cluster.complete("first");
    cluster.pass_judged(60, "grown");
    assert_eq!(cluster.workers("a"), 4);
    let scalings = cluster.count(Purpose::ScaleTraining);
    cluster.nodes = Some(3);
    let uid = cluster.job("a-worker")["metadata"]["uid"].clone();
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": {"ready": 3}}));
    cluster.pass_judged(120, "a worker has failed");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"));
    assert_eq!((cluster.count(Purpose::ScaleTraining), cluster.count(Purpose::Evict)), (scalings, 0));
    assert_eq!(cluster.job("a-worker")["metadata"]["uid"], uid);
    // The new leader does not know that all pods of the job were ready once, and gives the job the full time for its scale-up again.
    cluster.restart();
    cluster = with_priorities(cluster);
    cluster.pass_judged(12, "another leader");
    assert_eq!(cluster.workers("a"), 4);
    cluster.nodes = None;
    cluster.pass_judged(30, "replaced");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::ScaleTraining)), (4, scalings));
}

#[test]
fn scale_up_beyond_timeout_drops_unready_workers_and_is_retried() {
    let mut cluster = held_small(with_priorities(cluster()), short());
    cluster.nodes = Some(3);
    cluster.complete("first");
    cluster.pass_judged(12, "grows");
    assert_eq!(cluster.workers("a"), 4);
    cluster.pass_judged(10, "too late");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (3, 3), "the ready one stays");
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
    cluster.nodes = None;
    cluster.pass_judged(40, "again");
    assert_eq!(cluster.workers("a"), 4);
}

/// The ClusterQueue has a flavor of spot capacity, which may lack nodes for twenty seconds.
fn on_spot(more: Value) -> Cluster {
    let mut cluster = with_priorities(cluster());
    let mut spot = flavor("spot", json!({"cloud": "spot"}));
    spot["metadata"]["labels"] = json!({"berth.dev/capacity-tier": "spot"});
    cluster.put(Kind::ResourceFlavor, spot);
    let tiers = json!({"default": ["spot"], "patience": {"spot": "20s"}, "backoff": {"initial": "2m"}});
    cluster.put(Kind::QueuePolicy, with_tiers(tiers));
    held_small(cluster, more)
}

#[test]
fn scale_up_without_nodes_is_undone_as_stock_out() {
    // The time limit of the tier ends a scale-up of a gang and of a job that is no gang, because no other time limit applies.
    for more in [json!({}), json!({"schedulingConfig": {"gangScheduling": false}})] {
        let mut cluster = on_spot(more);
        cluster.nodes = Some(2);
        cluster.complete("first");
        cluster.pass_judged(15, "grows");
        assert_eq!(cluster.workers("a"), 4);
        cluster.pass_judged(20, "no nodes");
        assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2), "{:?}", cluster.writes);
        assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
        let counted = cluster.control.drain_measures();
        let left = ("cluster_queue=cq tier=spot reason=GrowthStockOut".to_owned(), 1);
        assert_eq!(found(&counted, "berth_tier_departures"), [left]);
        let lacked = ("cluster_queue=cq tier=spot".to_owned(), 20);
        assert_eq!(found(&counted, "berth_tier_stock_out_seconds"), [lacked]);
        let event = cluster.notices.iter().rfind(|notice| notice.reason == "ScalingDown").unwrap();
        let words = "from 4 to 2 workers: flavor spot (spot capacity) had no nodes for all 4 pods within 20s: 0/9";
        assert!(event.message.starts_with(words), "{}", event.message);
        // Control tries no scale-up during the stock-out of the spot flavor, and tries a scale-up after the stock-out.
        let slices = cluster.count(Purpose::CreateWorkload);
        cluster.pass_judged(60, "out of stock");
        assert_eq!((cluster.count(Purpose::CreateWorkload), cluster.workers("a")), (slices, 2));
        let shown = &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", "p")]["status"]["backoffs"][0];
        assert_eq!((&shown["pods"], &shown["failures"]), (&json!(4), &json!(1)), "{shown}");
        cluster.nodes = None;
        cluster.pass_judged(90, "in stock again");
        assert_eq!(cluster.workers("a"), 4);
        assert_eq!(cluster.count(Purpose::Evict), 0);
    }
}

#[test]
fn scale_up_refused_by_autoscaler_is_undone_early() {
    let mut cluster = on_spot(json!({}));
    cluster.nodes = Some(3);
    cluster.refused_nodes = Some("out of resources".into());
    cluster.complete("first");
    cluster.pass_judged(20, "refused");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (3, 3), "{:?}", cluster.writes);
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
}

#[test]
fn scale_up_without_nodes_evicts_job_left_below_its_minimum() {
    let mut cluster = on_spot(json!({}));
    cluster.nodes = Some(1);
    cluster.complete("first");
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": {"ready": 2}}));
    cluster.pass_judged(60, "no nodes, not even for those before");
    assert!(cluster.count(Purpose::Evict) > 0, "{:?}", cluster.writes);
}

#[test]
fn job_losing_node_after_completed_scale_up_is_evicted() {
    let mut cluster = on_spot(json!({}));
    cluster.complete("first");
    cluster.pass_judged(40, "grown");
    assert_eq!(cluster.workers("a"), 4);
    cluster.nodes = Some(3);
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": {"ready": 3}}));
    cluster.pass_judged(30, "a node was taken back");
    assert_eq!(cluster.count(Purpose::Evict), 1);
    assert!(cluster.notices.iter().any(|notice| notice.reason == "EvictedDueToCapacityReclaimed"));
}

/// Asserts that control tries no scale-up for a minute while the scale-up is forbidden, and that the job grows afterwards.
fn forbidden(mut cluster: Cluster, forbid: impl FnOnce(&mut Cluster), allow: impl FnOnce(&mut Cluster)) {
    forbid(&mut cluster);
    let slices = cluster.count(Purpose::CreateWorkload);
    cluster.complete("first");
    cluster.pass_judged(60, "forbidden");
    assert_eq!((cluster.count(Purpose::CreateWorkload), cluster.workers("a")), (slices, 2), "{:?}", cluster.writes);
    assert_eq!(cluster.phase("a"), "Running");
    allow(&mut cluster);
    cluster.pass_judged(30, "allowed");
    assert_eq!(cluster.workers("a"), 4, "{:?}", cluster.writes);
}

#[test]
fn elastic_job_that_may_not_be_admitted_does_not_grow() {
    for (kind, namespace, name) in [(Kind::ClusterQueue, "", "cq"), (Kind::LocalQueue, "team", "lq")] {
        let stop = |policy: &'static str| {
            move |cluster: &mut Cluster| cluster.edit(kind, namespace, name, &json!({"spec": {"stopPolicy": policy}}))
        };
        forbidden(held_small(with_priorities(cluster()), json!({})), stop("Hold"), stop("None"));
    }
    let gated = |by: Value| {
        let patch = json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": by}}});
        move |cluster: &mut Cluster| cluster.edit(Kind::TrainingJob, "team", "a", &patch)
    };
    forbidden(
        held_small(with_priorities(cluster()), json!({})),
        gated(json!("example.com/budget")),
        gated(json!(null)),
    );
    let queue = |queue: &'static str| {
        let patch = json!({"spec": {"schedulingConfig": {"queue": queue}}});
        move |cluster: &mut Cluster| cluster.edit(Kind::TrainingJob, "team", "a", &patch)
    };
    forbidden(held_small(with_priorities(cluster()), json!({})), queue("elsewhere"), queue("lq"));
    let checks_on = |flavor: &'static str| {
        move |cluster: &mut Cluster| rely_on_budget(cluster, &[("spot", "6"), ("elsewhere", "0")], json!([flavor]))
    };
    let mut with_two = with_priorities(cluster());
    with_two.put(Kind::ResourceFlavor, flavor("elsewhere", json!({})));
    forbidden(held_small(with_two, json!({})), checks_on("spot"), checks_on("elsewhere"));
}

/// A cluster in which the new workload slice of a TrainingJob is made, and has no quota yet.
fn growing() -> Cluster {
    let mut cluster = held_small(with_priorities(cluster()), json!({}));
    cluster.complete("first");
    for _ in 0..200 {
        if cluster.slices("a").len() < 2 {
            let step = cluster.control.step(cluster.now());
            cluster.take(step);
            cluster.set_now(cluster.now().checked_add(jiff::SignedDuration::from_millis(100)).unwrap());
        }
    }
    let mut held: Vec<i64> = cluster.slices("a").into_iter().map(|(_, cpus, _)| cpus).collect();
    held.sort_unstable();
    assert_eq!(held, [0, 2], "{:?}", cluster.writes);
    cluster
}

#[test]
fn workload_deleted_during_scale_up_keeps_quota_until_pods_end() {
    let mut cluster = growing();
    let stop = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &stop("Hold"));
    let (older, ..) = cluster.slices("a").into_iter().find(|(_, _, replaces)| replaces.is_none()).unwrap();
    let older = Cluster::key(Kind::Workload, "team", &older);
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.delete(&older);
    cluster.pass(5);
    assert!(cluster.objects().contains_key(&older) && !cluster.has_job("a-worker"), "{:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.pass(5);
    assert!(!cluster.objects().contains_key(&older), "{:?}", cluster.writes);
    cluster.edit(Kind::ClusterQueue, "", "cq", &stop("None"));
    cluster.pass(20);
    assert_eq!((cluster.phase("a"), cluster.workers("a"), cluster.slices("a").len()), ("Running", 4, 1));
}

#[test]
fn scale_up_waiting_for_late_admission_check_is_given_up() {
    let mut cluster = growing();
    let new = |cluster: &Cluster| cluster.slices("a").into_iter().find(|(_, _, replaces)| replaces.is_some());
    rely_on_budget(&mut cluster, &[("spot", "6")], json!([]));
    cluster.pass_judged(20, "the check says nothing");
    assert_eq!(new(&cluster).map(|(_, cpus, _)| cpus), Some(4), "it holds quota");
    cluster.pass_judged(20, "it has waited");
    assert_eq!((cluster.workers("a"), cluster.slices("a").len()), (2, 1), "{:?}", cluster.writes);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn elastic_job_does_not_grow_beyond_queue_policy_limit() {
    let limit = |gpus: i64| {
        let patch = json!({"spec": {"admission": {"maxGPUsPerJob": gpus}}});
        move |cluster: &mut Cluster| cluster.edit(Kind::QueuePolicy, "", "p", &patch)
    };
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::QueuePolicy, json!({"metadata": {"name": "p"}, "spec": {"clusterQueues": ["cq"]}}));
    cluster.edit(
        Kind::ClusterQueue,
        "",
        "cq",
        &json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [
            {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "6"},
                {"name": "nvidia.com/gpu", "nominalQuota": "8"}]}]}]}}),
    );
    let accelerators = json!({"resources": {"replicaResources": {"cpu": "1", "gpu": 1}}});
    forbidden(held_small(cluster, accelerators), limit(2), limit(4));
}

#[test]
fn elastic_job_unable_to_grow_does_not_block_others() {
    let quota = |cpus: &str| {
        let resources = json!([{"name": "cpu", "nominalQuota": cpus}]);
        let flavors = json!([{"name": "spot", "resources": resources}]);
        json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}})
    };
    let mut cluster = with_priorities(cluster());
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"preemption": {"withinClusterQueue": "Never"}}}));
    cluster.edit(Kind::ClusterQueue, "", "cq", &quota("2"));
    cluster.put(Kind::TrainingJob, elastic("a", json!({})));
    cluster.pass_judged(3, "alone");
    cluster.edit(Kind::ClusterQueue, "", "cq", &quota("4"));
    let mut before = elastic("b", json!({}));
    before["spec"]["schedulingConfig"]["priority"] = json!("p100");
    cluster.put(Kind::TrainingJob, before);
    cluster.pass_judged(5, "a half each");
    assert_eq!((cluster.workers("a"), cluster.workers("b")), (2, 2));
    let other_pods = json!({"spec": {"resources": {"replicaResources": {"cpu": "2"}}}});
    cluster.edit(Kind::TrainingJob, "team", "b", &other_pods);
    cluster.edit(Kind::ClusterQueue, "", "cq", &quota("6"));
    cluster.pass_judged(60, "the other one grows");
    assert_eq!((cluster.workers("a"), cluster.workers("b")), (4, 2));
}

#[test]
fn failed_scale_ups_are_retried_after_ever_longer_pauses() {
    let mut cluster = held_small(with_priorities(cluster()), short());
    cluster.nodes = Some(2);
    cluster.complete("first");
    cluster.pass_judged(600, "no nodes, and nobody says so");
    let ups = |cluster: &Cluster| cluster.notices.iter().filter(|notice| notice.reason == "ScaledUp").count();
    // Each scale-up of the job fails after 15 s; the pauses between the scale-ups are 10, 20, 40, 80, 160 and 320 s.
    assert_eq!((cluster.workers("a"), ups(&cluster)), (2, 6), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::Evict), 0);
    cluster.nodes = None;
    cluster.pass_judged(400, "nodes are there again");
    assert_eq!((cluster.workers("a"), ups(&cluster)), (4, 7));
}

/// The message of the condition `Elastic`, which says how the number of workers may change.
fn elasticity(cluster: &Cluster) -> String {
    let conditions = cluster.training("a")["status"]["conditions"].as_array().unwrap().clone();
    let found_condition = conditions.iter().find(|condition| condition["type"] == "Elastic").unwrap();
    found_condition["message"].as_str().unwrap().to_owned()
}

/// The pods of a PyTorchJob get the bounds of the number of workers in their environment.
#[test]
fn bounds_widened_during_run_take_effect_at_next_start() {
    let mut cluster = crate::stories::elastic::started();
    cluster.pass_judged(10, "runs");
    assert!(elasticity(&cluster).starts_with("2 to 4 workers; adds "), "{}", elasticity(&cluster));
    let wider = json!({"spec": {"resources": {"minReplicas": 1, "maxReplicas": 6}, "elasticConfig": {"minWorkers": 1, "maxWorkers": 6}}});
    cluster.edit(Kind::TrainingJob, "team", "a", &wider);
    cluster.pass_judged(60, "told");
    let words = "2 to 4 workers in this run, as its pods were told at its start; 1 to 6 from the next start; adds ";
    assert!(elasticity(&cluster).starts_with(words), "{}", elasticity(&cluster));
    assert_eq!(cluster.workers("a"), 4);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass_judged(20, "stopped");
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(60);
    assert!(elasticity(&cluster).starts_with("1 to 6 workers; adds "), "{}", elasticity(&cluster));
    assert_eq!(cluster.workers("a"), 6);
}
