//! Gangs of pods in several capacity tiers: each tier has a time limit of its own within which the pods must be ready.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, settings};
use crate::stories::tiers::{tiered_cluster, tiered_cluster_on};
use crate::stories::training::training;
use crate::stories::training_figures::measured;

fn stop(cluster: &mut Cluster, policy: &str) {
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
}

#[test]
fn gang_gets_scheduling_timeout_in_each_tier_and_reports_each() {
    let mut cluster = tiered_cluster("8");
    cluster.without_nodes = vec!["reserved", "on-demand"];
    let tiers =
        json!({"capacityTiers": ["reserved", "on-demand", "spot"], "schedulingConfig": {"schedulingTimeout": "1m"}});
    cluster.put(Kind::TrainingJob, training("a", tiers));
    cluster.pass(50);
    assert_eq!(cluster.training_condition("a", "SchedulingTimeout"), Value::Null);
    // The pods of the TrainingJob end slowly.
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.pass(15);
    let condition = cluster.training_condition("a", "SchedulingTimeout");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("PodsNotReady")), "{condition}");
    let words = "flavor reserved (reserved capacity) had no nodes for all 2 pods within 6";
    assert!(condition["message"].as_str().unwrap().starts_with(words), "{condition}");
    let left =
        "Stops: waits until the pods of Job a-worker are gone (kubectl get pods -n team -l berth.dev/training-job=a)";
    assert_eq!((cluster.phase("a"), &cluster.training_condition("a", "Queued")["message"]), ("Queued", &json!(left)));
    cluster.pods_left.clear();
    cluster.pass(10);
    assert_eq!((cluster.tier_of("a"), cluster.phase("a")), ("on-demand", "Pending"));
    let condition = cluster.training_condition("a", "SchedulingTimeout");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("AdmittedAgain")), "{condition}");
    assert!(condition["message"].as_str().unwrap().starts_with(&format!("Previously: {words}")), "{condition}");
    cluster.pass(70);
    assert_eq!((cluster.tier_of("a"), cluster.phase("a")), ("spot", "Running"));
    let events = cluster.training("a")["status"]["events"].as_array().unwrap().clone();
    let ends: Vec<&Value> = events.iter().filter(|event| event["reason"] == "SchedulingTimeout").collect();
    assert_eq!(ends.len(), 2, "{events:?}");
    let condition = cluster.notices.iter().filter(|notice| notice.reason == "SchedulingTimeout");
    assert_eq!(condition.count(), 2, "one event for each");
    // If the pods lose their nodes later, the job does not end for lack of ready pods.
    cluster.without_nodes = vec!["spot"];
    cluster.pass(700);
    assert_ne!(cluster.training_condition("a", "SchedulingTimeout")["reason"], "PodsNotReady");
    let workload = cluster.workload_of_training("a").unwrap();
    let reasons = workload["status"]["schedulingStats"]["evictions"].as_array().unwrap().clone();
    assert!(reasons.iter().any(|entry| entry["reason"] == "CapacityReclaimed"), "{reasons:?}");
}

#[test]
fn restarted_gang_is_counted_although_its_stop_was_never_reported() {
    let mut cluster = crate::stories::training::cluster("2");
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "1m"}})));
    cluster.pass(60);
    let success = || vec![("result=success timeout=false".to_owned(), 1)];
    assert_eq!(measured(&mut cluster, "training_gang_scheduling"), success());
    let before = cluster.training_condition("a", "Running")["lastTransitionTime"].clone();
    for _ in 0..20 {
        cluster.faults.push((Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false));
    }
    stop(&mut cluster, "HoldAndDrain");
    cluster.pass(5);
    assert!(!cluster.has_job("a-worker"));
    stop(&mut cluster, "None");
    cluster.pass(5);
    assert_eq!(cluster.training_condition("a", "Running")["lastTransitionTime"], before);
    cluster.faults.clear();
    cluster.restart();
    cluster.pass(30);
    let running = cluster.training_condition("a", "Running");
    assert!(running["status"] == "True" && running["lastTransitionTime"] != before, "{running}");
    assert_eq!(measured(&mut cluster, "training_gang_scheduling"), success());
}

#[test]
fn gang_is_counted_once_although_previous_leader_clock_was_ahead() {
    let mut cluster = crate::stories::training::cluster("2");
    cluster.pods_stay_unready = true;
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Pending");
    cluster.set_now(cluster.now().checked_sub(jiff::SignedDuration::from_secs(1_200)).unwrap());
    cluster.restart();
    cluster.pods_stay_unready = false;
    cluster.pass(30);
    let running = cluster.training_condition("a", "Running");
    let conditions = cluster.workload_of_training("a").unwrap()["status"]["conditions"].as_array().unwrap().clone();
    let admitted = conditions.into_iter().find(|condition| condition["type"] == "Admitted").unwrap();
    assert_eq!(running["status"], "True");
    assert_eq!(running["lastTransitionTime"], admitted["lastTransitionTime"]);
    let statuses = cluster.count(Purpose::TrainingStatus);
    cluster.pass(60);
    assert_eq!(cluster.count(Purpose::TrainingStatus), statuses, "everything is told");
    let success = ("result=success timeout=false".to_owned(), 1);
    assert_eq!(measured(&mut cluster, "training_gang_scheduling"), [success]);
}

fn time_outs(cluster: &Cluster) -> Value {
    cluster.workload_object("a")["status"]["requeueState"]["count"].clone()
}

#[test]
fn scheduling_timeouts_of_gang_are_reset_once_it_runs() {
    let mut cluster = tiered_cluster("2");
    cluster.without_nodes = vec!["spot"];
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "30s"}})));
    cluster.pass(130);
    assert_eq!((cluster.phase("a"), time_outs(&cluster)), ("Queued", json!(2)));
    cluster.without_nodes.clear();
    cluster.pass(130);
    assert_eq!((cluster.phase("a"), time_outs(&cluster)), ("Running", Value::Null));
    stop(&mut cluster, "HoldAndDrain");
    cluster.pass(5);
    cluster.without_nodes = vec!["spot"];
    stop(&mut cluster, "None");
    cluster.pass(40);
    assert_eq!((cluster.phase("a"), time_outs(&cluster)), ("Queued", json!(1)));
    let words = cluster.training_condition("a", "SchedulingTimeout")["message"].clone();
    assert!(words.as_str().unwrap().ends_with("tried again after 60s"), "{words}");
}

#[test]
fn pods_ready_timeouts_stay_counted_after_gang_runs() {
    let mut settings = settings();
    settings.wait_for_pods_ready.as_mut().unwrap().timeout_ms = 20_000;
    let mut cluster = tiered_cluster_on(Cluster::with(settings), "2");
    cluster.without_nodes = vec!["spot"];
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "30s"}})));
    cluster.pass(25);
    assert_eq!((cluster.evictions_of("a", "PodsReadyTimeout"), time_outs(&cluster)), (1, json!(1)));
    cluster.without_nodes.clear();
    cluster.pass(120);
    assert_eq!((cluster.phase("a"), time_outs(&cluster)), ("Running", json!(1)), "as in Kueue");
}

#[test]
fn gang_is_deactivated_by_pods_ready_but_not_scheduling_timeouts() {
    let mut settings = settings();
    let ready = settings.wait_for_pods_ready.as_mut().unwrap();
    (ready.timeout_ms, ready.backoff_limit_count) = (100_000, Some(1));
    let mut cluster = tiered_cluster_on(Cluster::with(settings), "2");
    cluster.without_nodes = vec!["spot"];
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "30s"}})));
    cluster.pass(130);
    assert_eq!((cluster.evictions_of("a", "SchedulingTimeout"), time_outs(&cluster)), (2, json!(2)));
    // The job has nodes, and its pods do not become ready in time.
    cluster.without_nodes.clear();
    cluster.pods_stay_unready = true;
    cluster.pass(225);
    assert_eq!((cluster.evictions_of("a", "PodsReadyTimeout"), time_outs(&cluster)), (1, json!(3)));
    assert_eq!(cluster.workload_object("a")["spec"]["active"], json!(true), "the first one of its own");
    cluster.pass(345);
    assert_eq!(cluster.workload_object("a")["spec"]["active"], json!(false), "the second one");
}

#[test]
fn gang_that_loses_its_nodes_is_evicted_after_scheduling_timeout() {
    let mut cluster = tiered_cluster("2");
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "1m"}})));
    cluster.pass(1_000);
    assert_eq!(cluster.phase("a"), "Running");
    // A pod of the job fails before the job lacks nodes.
    cluster.pods_stay_unready = true;
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": {"ready": 1, "failed": 1}}));
    cluster.pass(600);
    assert_eq!(cluster.phase("a"), "Running", "a pod that fails later is the backoff limit's matter");
    let asked = cluster.count(Purpose::FindStuckPods);
    assert!((10..=30).contains(&asked), "now and then its pods are asked about: {asked}");
    cluster.pods_stay_unready = false;
    cluster.pass(10);
    cluster.without_nodes = vec!["spot"];
    cluster.pass(50);
    assert_eq!((cluster.phase("a"), cluster.training_condition("a", "SchedulingTimeout")), ("Running", Value::Null));
    cluster.pass(20);
    assert_eq!((cluster.phase("a"), cluster.evictions_of("a", "SchedulingTimeout")), ("Queued", 1));
    let condition = cluster.training_condition("a", "SchedulingTimeout");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("PodsNotReady")), "{condition}");
    let words = "pods lost their nodes and had no others within 60s; tried again after 60s: 0/9 nodes are available";
    assert_eq!(condition["message"], words);
    assert!(cluster.workload_of_training("a").unwrap()["status"]["admission"].is_null(), "others may have its quota");
    cluster.without_nodes.clear();
    cluster.pass(70);
    assert_eq!(
        (cluster.phase("a"), &cluster.training_condition("a", "SchedulingTimeout")["status"]),
        ("Running", &json!("False"))
    );
}
