//! The life of a TrainingJob: its creation, start, stop, and end, and its status.

use berth_control::settings::Settings;
use berth_control::write::{Kind, ObjectKey, Purpose, WriteOutcome};
use berth_sim::manifests::training_job;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, local_queue};
use crate::stories::tiers::tiered_cluster;

/// A TrainingJob of two workers of one cpu each; `more` is merged into the spec.
pub fn training(name: &str, more: Value) -> Value {
    training_job(name, &more)
}

pub fn cluster(quota: &str) -> Cluster {
    prepared(Cluster::new(), quota)
}

/// A cluster in which the TrainingJob `a` was started, if the quota is sufficient.
pub fn started(quota: &str, more: Value) -> Cluster {
    let mut cluster = cluster(quota);
    cluster.put(Kind::TrainingJob, training("a", more));
    cluster.pass(3);
    cluster
}

/// The user suspends or resumes TrainingJob `a`.
pub fn suspend(cluster: &mut Cluster, suspend: bool) {
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": suspend}}));
}

fn prepared(mut cluster: Cluster, quota: &str) -> Cluster {
    let mut spot = flavor("spot", json!({"cloud": "spot"}));
    spot["metadata"]["labels"] = json!({"berth.dev/capacity-tier": "spot"});
    cluster.put(Kind::ResourceFlavor, spot);
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("spot", quota)]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster
}

fn key(kind: Kind, name: &str) -> ObjectKey {
    Cluster::key(kind, "team", name)
}

#[test]
fn training_job_is_queued_started_and_succeeds() {
    let mut cluster = started("2", json!({}));
    let job = cluster.job("a-worker");
    assert_eq!(job["spec"]["completions"], 2);
    assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], json!({"cloud": "spot"}));
    assert_eq!(cluster.count(Purpose::PrepareTraining), 1, "a Service");
    let status = cluster.training("a")["status"].clone();
    assert_eq!((&status["phase"], &status["workers"]), (&json!("Running"), &json!("2/2")));
    assert_eq!((&status["capacityTier"], &status["flavors"]), (&json!("spot"), &json!("spot")));
    assert_eq!(status["allocatedResources"], json!({"gpus": 0, "cpu": "2", "memory": "0", "nodes": 2}));
    assert_eq!(status["replicaStatuses"]["worker"]["running"], 2);
    assert_eq!(status["observedGeneration"], 1);
    cluster.complete("a-worker");
    cluster.pass(3);
    assert_eq!(cluster.phase("a"), "Succeeded");
    assert_eq!(cluster.training_condition("a", "Succeeded")["reason"], "Succeeded");
    assert_eq!(cluster.training_condition("a", "Running")["status"], "False");
    assert!(cluster.has_job("a-worker"), "its logs stay");
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!(workload["metadata"]["finalizers"], json!([]));
    let reasons: Vec<&str> = cluster.training("a")["status"]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["reason"].as_str().unwrap())
        .collect();
    assert!(reasons.contains(&"Running") && reasons.last() == Some(&"Succeeded"), "{reasons:?}");
}

#[test]
fn training_job_waiting_with_reason_fails_after_max_wait_time() {
    let mut cluster = cluster("1");
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"maxWaitTime": "1m"}})));
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Queued");
    let queued = cluster.training_condition("a", "Queued");
    assert_eq!(queued["status"], "True");
    assert!(queued["message"].as_str().unwrap().contains("cpu"), "{queued}");
    assert!(!cluster.has_job("a-worker"));
    cluster.pass(60);
    assert_eq!(cluster.phase("a"), "Failed");
    assert_eq!(cluster.training_condition("a", "Failed")["reason"], "MaxWaitTimeExceeded");
    assert!(!cluster.has_job("a-worker"));
}

#[test]
fn scheduled_gang_with_unready_pods_does_not_time_out() {
    let mut cluster = tiered_cluster("2");
    cluster.pods_stay_unready = true;
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "30s"}})));
    cluster.pass(600);
    assert_eq!(cluster.phase("a"), "Pending");
    let asked = cluster.count(Purpose::FindStuckPods);
    assert!((10..=30).contains(&asked), "now and then its pods are asked about: {asked}");
    cluster.pods_stay_unready = false;
    cluster.without_nodes = vec!["spot"];
    cluster.pass(60);
    assert_eq!(
        cluster.training_condition("a", "SchedulingTimeout")["status"],
        "True",
        "one that loses its nodes meanwhile"
    );
}

#[test]
fn gang_without_nodes_in_time_is_evicted_and_retried() {
    let mut cluster = tiered_cluster("2");
    cluster.without_nodes = vec!["spot"];
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "30s"}})));
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Pending");
    assert_eq!(cluster.training_condition("a", "Running")["message"], "0 of 2 pods are ready");
    cluster.pass(25);
    assert_eq!(cluster.phase("a"), "Queued");
    assert_eq!(cluster.training_condition("a", "SchedulingTimeout")["status"], "True");
    assert!(!cluster.has_job("a-worker"));
    let workload = cluster.workload_of_training("a").unwrap();
    assert!(workload["status"]["admission"].is_null());
    assert_eq!(workload["status"]["requeueState"]["count"], 1);
    // The TrainingJob is admitted again after the delay, and now there are nodes.
    cluster.without_nodes.clear();
    cluster.pass(70);
    assert_eq!(cluster.phase("a"), "Running");
    assert_eq!(cluster.training_condition("a", "SchedulingTimeout")["status"], "False");
}

#[test]
fn pod_failing_after_start_causes_no_scheduling_timeout() {
    let mut cluster = cluster("2");
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "30s"}})));
    cluster.pass(5);
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": {"ready": 1, "failed": 1}}));
    cluster.pods_stay_unready = true;
    cluster.pass(60);
    assert_eq!(cluster.phase("a"), "Running");
    assert_eq!(cluster.training("a")["status"]["restarts"], 1);
}

#[test]
fn suspended_training_job_frees_its_quota_and_resumes() {
    let mut cluster = started("2", json!({}));
    let before = cluster.workload_of_training("a").unwrap()["metadata"]["uid"].clone();
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    suspend(&mut cluster, true);
    cluster.pass(5);
    assert!(!cluster.has_job("a-worker"));
    let workload = cluster.workload_of_training("a").unwrap();
    assert!(workload["status"]["admission"].is_object(), "pods are left: the quota is in use");
    cluster.pods_left.clear();
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Suspended");
    let workload = cluster.workload_of_training("a").unwrap();
    assert!(workload["status"]["admission"].is_null());
    suspend(&mut cluster, false);
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Running");
    assert_eq!(cluster.training_condition("a", "Suspended")["status"], "False");
    assert_eq!(cluster.workload_of_training("a").unwrap()["metadata"]["uid"], before, "one Workload throughout");
    assert_eq!(cluster.training("a")["status"]["observedGeneration"], 3, "it was edited twice");
}

#[test]
fn refused_status_write_does_not_delay_training_start() {
    let mut cluster = cluster("2");
    for _ in 0..20 {
        cluster.faults.push((Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false));
    }
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(2);
    assert!(cluster.has_job("a-worker"));
}

#[test]
fn training_job_suspended_and_resumed_at_once_runs() {
    let mut cluster = started("2", json!({}));
    for suspend in [true, false, true, false] {
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": suspend}}));
        cluster.settle();
    }
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn workload_deactivated_by_user_keeps_training_job_suspended() {
    let mut cluster = started("2", json!({}));
    let name = cluster.workload_key("a").name;
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Suspended");
    assert_eq!(cluster.training_condition("a", "Suspended")["reason"], "WorkloadDeactivated");
    assert!(!cluster.has_job("a-worker"));
}

#[test]
fn training_job_succeeds_with_launcher_after_workers_are_stopped() {
    let mut cluster = cluster("3");
    let launcher = json!([{"name": "launcher", "replicaResources": {"cpu": "1"}}]);
    cluster.put(Kind::TrainingJob, training("a", json!({"jobType": "MPIJob", "roles": launcher})));
    cluster.pass(3);
    assert!(cluster.has_job("a-launcher") && cluster.has_job("a-worker"));
    assert_eq!(cluster.count(Purpose::PrepareTraining), 2, "a Service and a host file");
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.complete("a-launcher");
    cluster.pass(3);
    assert!(!cluster.has_job("a-worker"));
    assert_ne!(cluster.phase("a"), "Succeeded", "pods of workers are left");
    cluster.pods_left.clear();
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Succeeded");
}

#[test]
fn invalid_training_job_is_stalled_and_others_go_on() {
    let mut cluster = cluster("2");
    cluster.put(Kind::TrainingJob, training("bad", json!({"resources": {"minReplicas": 5}})));
    cluster.put(Kind::TrainingJob, training("good", json!({})));
    cluster.pass(3);
    let stalled = cluster.training_condition("bad", "Stalled");
    assert_eq!(stalled["status"], "True");
    assert!(stalled["message"].as_str().unwrap().contains("spec.resources.minReplicas"), "{stalled}");
    assert_eq!(cluster.phase("good"), "Running");
    cluster.edit(Kind::TrainingJob, "team", "bad", &json!({"spec": {"resources": {"minReplicas": 1}}}));
    cluster.pass(3);
    assert_eq!(cluster.training_condition("bad", "Stalled"), Value::Null);
    assert_eq!(cluster.phase("bad"), "Queued");
}

#[test]
fn training_job_with_taken_job_name_waits_and_reports_it() {
    let mut cluster = cluster("2");
    let mut other = crate::stories::cluster::job("a-worker", "lq", "1", false);
    other["metadata"].as_object_mut().unwrap().remove("labels");
    cluster.put(Kind::JOB, other);
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    assert_eq!(cluster.training_condition("a", "Running")["reason"], "NameTaken");
    assert!(cluster.has_job("a-worker"));
    cluster.delete(&key(Kind::JOB, "a-worker"));
    cluster.pass(15);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn unknown_write_outcome_creates_no_training_object_twice() {
    for purpose in [Purpose::PrepareTraining, Purpose::StartTraining, Purpose::TrainingStatus, Purpose::CreateWorkload]
    {
        for happened in [false, true] {
            let mut cluster = cluster("2");
            cluster.faults.push((purpose, WriteOutcome::Unknown("late".into()), happened));
            cluster.put(Kind::TrainingJob, training("a", json!({})));
            cluster.pass(10);
            assert_eq!(cluster.phase("a"), "Running", "{purpose:?} {happened}");
            let jobs = cluster.objects().keys().filter(|key| key.kind == Kind::JOB).count();
            assert_eq!(jobs, 1);
        }
    }
}

#[test]
fn training_job_nodes_are_counted_once_for_the_same_pods() {
    let mut cluster = cluster("4");
    cluster.pods_per_node = 2;
    cluster.pods_stay_unready = true;
    cluster.put(Kind::TrainingJob, training("a", json!({"resources": {"maxReplicas": 4}})));
    cluster.pass(5);
    let nodes = |cluster: &Cluster| cluster.training("a")["status"]["allocatedResources"]["nodes"].clone();
    assert_eq!((nodes(&cluster), cluster.count(Purpose::CountNodes)), (Value::Null, 0), "nobody knows where they are");
    cluster.pods_stay_unready = false;
    let running = |pods: i64, failed: i64| json!({"status": {"ready": pods, "active": pods, "failed": failed}});
    cluster.edit(Kind::JOB, "team", "a-worker", &running(4, 0));
    cluster.pass(30);
    assert_eq!((nodes(&cluster), cluster.count(Purpose::CountNodes)), (json!(2), 1), "two on each");
    cluster.restart();
    cluster.pass(30);
    assert_eq!((nodes(&cluster), cluster.count(Purpose::CountNodes)), (json!(2), 1), "the status remembers");
    // One pod of the TrainingJob fails and is made again on another node.
    cluster.pods_stay_unready = true;
    cluster.edit(Kind::JOB, "team", "a-worker", &running(3, 1));
    cluster.pass(10);
    assert_eq!((nodes(&cluster), cluster.count(Purpose::CountNodes)), (Value::Null, 1), "not known until it is ready");
    cluster.pods_per_node = 1;
    cluster.faults.push((Purpose::CountNodes, WriteOutcome::Busy(1_000), false));
    cluster.edit(Kind::JOB, "team", "a-worker", &running(4, 1));
    cluster.pass(10);
    assert_eq!((nodes(&cluster), cluster.count(Purpose::CountNodes)), (json!(4), 3), "and asked again when busy");
    // The pods of the next run may be on other nodes, although their number is the same.
    cluster.pods_stay_unready = false;
    cluster.pods_per_node = 4;
    suspend(&mut cluster, true);
    cluster.pass(5);
    assert_eq!(cluster.training("a")["status"]["allocatedResources"], Value::Null);
    suspend(&mut cluster, false);
    cluster.pass(10);
    assert_eq!((nodes(&cluster), cluster.count(Purpose::CountNodes)), (json!(1), 4));
}

#[test]
fn training_status_is_not_written_for_each_ready_pod() {
    let mut cluster = cluster("100");
    let job = training("a", json!({"resources": {"maxReplicas": 100}}));
    cluster.pods_stay_unready = true;
    cluster.put(Kind::TrainingJob, job);
    cluster.pass(5);
    let before = cluster.count(Purpose::TrainingStatus);
    for ready in 1..=100 {
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": {"ready": ready}}));
        cluster.settle();
    }
    cluster.pass(6);
    assert_eq!(cluster.phase("a"), "Running");
    let written = cluster.count(Purpose::TrainingStatus) - before;
    assert!(written <= 2, "{written} statuses for 100 pods");
}

#[test]
fn jobs_of_training_job_are_not_queued_by_themselves() {
    let settings = Settings { manage_jobs_without_queue_name: true, ..crate::stories::cluster::settings() };
    let mut cluster = prepared(Cluster::with(settings), "2");
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Running");
    assert!(cluster.job("a-worker")["spec"]["suspend"].is_null());
    assert_eq!(cluster.objects().keys().filter(|key| key.kind == Kind::Workload).count(), 1);
    // A Job whose owner reference names a TrainingJob falsely is queued like any other Job.
    let mut liar = crate::stories::cluster::job("liar", "lq", "1", false);
    liar["metadata"]["ownerReferences"] = json!([{"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "name": "a", "uid": "another", "controller": true}]);
    cluster.put(Kind::JOB, liar);
    cluster.pass(3);
    assert_eq!(cluster.job("liar")["spec"]["suspend"], json!(true));
}

#[test]
fn deleted_training_job_leaves_no_job_or_workload() {
    let mut cluster = started("2", json!({}));
    cluster.delete(&key(Kind::TrainingJob, "a"));
    cluster.pass(5);
    let left: Vec<&ObjectKey> =
        cluster.objects().keys().filter(|key| matches!(key.kind, Kind::Job(_) | Kind::Workload)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn training_job_leaves_tier_without_nodes_and_next_skips_it() {
    let mut cluster = tiered_cluster("8");
    cluster.without_nodes = vec!["reserved"];
    let tiers = json!({"capacityTiers": ["reserved", "on-demand"], "schedulingConfig": {"schedulingTimeout": "1h"}});
    cluster.put(Kind::TrainingJob, training("a", tiers.clone()));
    cluster.pass(590);
    assert_eq!(cluster.training("a")["status"]["capacityTier"], "reserved", "its patience is ten minutes");
    cluster.pass(60);
    let status = &cluster.training("a")["status"];
    assert_eq!((&status["capacityTier"], &status["phase"]), (&json!("on-demand"), &json!("Running")), "{status}");
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "StockOut");
    cluster.put(Kind::TrainingJob, training("b", tiers));
    cluster.pass(3);
    assert_eq!(cluster.training("b")["status"]["capacityTier"], "on-demand", "the next one is spared");
}

#[test]
fn training_job_moves_to_next_tier_when_nodes_are_reclaimed() {
    let mut cluster = tiered_cluster("8");
    let tiers = json!({"capacityTiers": ["spot", "on-demand"]});
    cluster.put(Kind::TrainingJob, training("a", tiers));
    cluster.pass(1_000);
    assert_eq!(cluster.training("a")["status"]["capacityTier"], "spot");
    cluster.without_nodes = vec!["spot"];
    cluster.pass(590);
    assert_eq!(cluster.training("a")["status"]["capacityTier"], "spot", "patience begins when the nodes go");
    cluster.pass(60);
    let status = &cluster.training("a")["status"];
    assert_eq!((&status["capacityTier"], &status["phase"]), (&json!("on-demand"), &json!("Running")), "{status}");
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "CapacityReclaimed");
}

#[test]
fn scheduling_timeout_moves_training_job_to_next_tier() {
    let mut cluster = tiered_cluster("8");
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::TrainingJob, training("a", json!({"capacityTiers": ["reserved", "on-demand"]})));
    cluster.pass(660);
    let status = &cluster.training("a")["status"];
    assert_eq!((&status["capacityTier"], &status["phase"]), (&json!("on-demand"), &json!("Running")), "{status}");
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "StockOut");
    let condition = cluster.training_condition("a", "SchedulingTimeout");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("PodsReady")),
        "all pods are ready now"
    );
    let events: Vec<&str> = cluster
        .notices
        .iter()
        .filter(|notice| notice.reason == "SchedulingTimeout" && notice.key.kind == Kind::TrainingJob)
        .map(|notice| notice.message.as_str())
        .collect();
    let words = "flavor reserved (reserved capacity) had no nodes for all 2 pods within 600s";
    assert!(matches!(events.as_slice(), [event] if event.starts_with(words)), "{events:?}");
}

#[test]
fn training_job_with_refused_job_creation_is_evicted_after_timeout() {
    let mut cluster = cluster("2");
    for _ in 0..100 {
        cluster.faults.push((Purpose::StartTraining, WriteOutcome::Refused("exceeded quota".into()), false));
    }
    cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"schedulingTimeout": "5m"}})));
    cluster.pass(100);
    let running = cluster.training_condition("a", "Running");
    assert_eq!(running["reason"], "FailedCreate", "{running}");
    assert!(running["message"].as_str().unwrap().contains("a-worker: exceeded quota"), "{running}");
    let reported_by = |notice: &&berth_control::write::Notice| notice.key.kind == Kind::TrainingJob;
    assert!(cluster.notices.iter().filter(reported_by).any(|notice| notice.reason == "FailedCreate"));
    cluster.pass(220);
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "SchedulingTimeout");
    assert!(
        cluster.training_condition("a", "SchedulingTimeout")["message"].as_str().unwrap().contains("exceeded quota")
    );
    cluster.faults.clear();
    cluster.pass(200);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn suspended_time_does_not_count_towards_max_wait_time() {
    let mut cluster = cluster("1");
    let limits = json!({"schedulingConfig": {"maxWaitTime": "1m"}, "suspend": true});
    cluster.put(Kind::TrainingJob, training("a", limits));
    cluster.pass(120);
    assert_eq!(cluster.phase("a"), "Suspended");
    suspend(&mut cluster, false);
    cluster.pass(50);
    assert_eq!(cluster.phase("a"), "Queued");
    cluster.pass(20);
    assert_eq!(cluster.phase("a"), "Failed");
}

#[test]
fn training_job_keeps_quota_while_lost_job_creation_may_apply() {
    for is_applied in [true, false] {
        let mut cluster = cluster("2");
        cluster.loses.push(Purpose::StartTraining);
        cluster.put(Kind::TrainingJob, training("a", json!({})));
        cluster.settle();
        assert_eq!(cluster.lost.len(), 1, "{:?}", cluster.writes);
        let name = cluster.workload_of_training("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
        cluster.pass(10);
        assert!(cluster.workload_is(&name, "QuotaReserved"), "{:?}", cluster.writes);
        if is_applied {
            let _ = cluster.apply_writes();
            cluster.pass(2);
            assert_eq!(cluster.count(Purpose::StopTraining), 1, "{:?}", cluster.writes);
        } else {
            cluster.pass(15);
        }
        assert!(!cluster.workload_is(&name, "QuotaReserved"), "{is_applied}: {:?}", cluster.writes);
        assert!(!cluster.has_job("a-worker"));
    }
}
