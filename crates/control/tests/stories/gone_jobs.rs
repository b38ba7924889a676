//! Deleted Jobs of a running TrainingJob: Berth makes the deleted Jobs again, and a deleted Job that cannot be made again does not hold quota for ever.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, ObjectKey, Purpose, WriteOutcome};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::stories::cluster::Cluster;
use crate::stories::training::{cluster, suspend, training};

/// A cluster in which TrainingJob `a` has run for a thousand seconds; the job's `schedulingTimeout` is a minute.
fn running(more: Value) -> Cluster {
    let mut cluster = cluster("2");
    let store = json!({"metadata": {"name": "main"}, "spec": {"s3": {"bucket": "b"}}});
    let store = Change::Apply(serde_json::from_value(store).unwrap());
    cluster.control.observe(Observation::CheckpointStore(store), cluster.now());
    let mut spec = json!({"schedulingConfig": {"schedulingTimeout": "1m"}});
    crate::stories::cluster::merge(&mut spec, &more);
    cluster.put(Kind::TrainingJob, training("a", spec));
    cluster.pass(1_000);
    assert_eq!(cluster.phase("a"), "Running");
    cluster
}

fn refuse(cluster: &mut Cluster) {
    let refusal = (Purpose::StartTraining, WriteOutcome::Refused("exceeded quota".into()), false);
    cluster.faults.extend(vec![refusal; 200]);
}

fn delete(cluster: &mut Cluster, job: &str) {
    cluster.delete(&Cluster::key(Kind::JOB, "team", job));
}

/// Lets the Job of the workers of `a` end with the given condition.
fn end(cluster: &mut Cluster, how: &str) {
    end_of(cluster, "a-worker", how);
}

/// Lets a Job end with the given condition.
fn end_of(cluster: &mut Cluster, job: &str, how: &str) {
    let at = cluster.now().to_string();
    let end = json!({"type": how, "status": "True", "message": "words", "lastTransitionTime": at, "lastProbeTime": at});
    cluster.edit(Kind::JOB, "team", job, &json!({"status": {"active": 0, "ready": 0, "conditions": [end]}}));
}

/// Status, reason and message of the condition `Running` of TrainingJob `a`.
fn running_condition(cluster: &Cluster) -> [String; 3] {
    let condition = cluster.training_condition("a", "Running");
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
}

fn holds_quota(cluster: &Cluster) -> bool {
    cluster.workload_of_training("a").unwrap()["status"]["admission"].is_object()
}

#[test]
fn deleted_part_of_running_training_job_is_recreated() {
    let mut cluster = running(json!({}));
    delete(&mut cluster, "a-worker");
    cluster.pass(100);
    assert_eq!(running_condition(&cluster), ["True", "PodsReady", "All pods have been ready"]);
    assert_eq!(cluster.evictions_of("a", "SchedulingTimeout"), 0);
}

#[test]
fn recreated_part_gets_its_service_and_host_file_again() {
    // A PyTorchJob needs a Service, and an MPIJob needs a Service and a host file; a deletion by a label deletes all of these objects.
    for (framework, needs, job) in [("PyTorchJob", 1, "a-worker"), ("MPIJob", 2, "a-launcher")] {
        let launcher = json!([{"name": "launcher", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
        let more = json!({"jobType": "MPIJob", "resources": {"maxReplicas": 1}, "roles": launcher});
        let mut cluster = running(if framework == "MPIJob" { more } else { json!({}) });
        let needed = cluster.objects().keys().filter(|key| matches!(key.kind, Kind::Service | Kind::ConfigMap));
        let made: Vec<ObjectKey> = needed.cloned().collect();
        assert_eq!((made.len(), cluster.count(Purpose::PrepareTraining)), (needs, needs), "{made:?}");
        for key in &made {
            cluster.delete(key);
        }
        delete(&mut cluster, job);
        cluster.pass(100);
        assert!(made.iter().all(|key| cluster.objects().contains_key(key)), "{framework}: {:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::PrepareTraining), 2 * needs, "{framework}: once for the Job");
        assert_eq!(cluster.phase("a"), "Running");
    }
}

#[test]
fn part_not_recreated_in_time_evicts_its_training_job() {
    for restarts in [false, true] {
        let mut cluster = running(json!({}));
        refuse(&mut cluster);
        delete(&mut cluster, "a-worker");
        cluster.pass(20);
        let refused = "Job team/a-worker is gone: the API server refused Job a-worker: exceeded quota";
        assert_eq!(running_condition(&cluster), ["False", "JobGone", refused]);
        assert_eq!(cluster.phase("a"), "Pending");
        if restarts {
            cluster.restart();
        }
        cluster.pass(30);
        assert!(holds_quota(&cluster), "{restarts}: it has a minute from when its Job was gone");
        cluster.pass(20);
        assert!(!holds_quota(&cluster), "{restarts}: {:?}", cluster.writes);
        let late = cluster.training_condition("a", "SchedulingTimeout");
        let words = "not all pods had nodes 60s after a Job of it was gone; tried again after 60s";
        assert!(late["message"].as_str().unwrap().starts_with(words), "{late}");
        cluster.faults.clear();
        cluster.pass(100);
        assert_eq!(cluster.phase("a"), "Running", "{restarts}");
    }
}

#[test]
fn recreated_part_must_get_ready_pods_within_scheduling_timeout() {
    let mut cluster = running(json!({}));
    refuse(&mut cluster);
    delete(&mut cluster, "a-worker");
    cluster.pass(20);
    cluster.faults.clear();
    cluster.controller_sleeps = true;
    cluster.pass(20);
    assert!(cluster.has_job("a-worker"), "{:?}", cluster.writes);
    assert_eq!(running_condition(&cluster)[..2], ["False", "JobGone"], "its pods are not ready yet");
    cluster.pass(30);
    assert!(!holds_quota(&cluster), "no pods were made within its time");
}

#[test]
fn slowly_deleted_part_is_reported_and_bounded_by_scheduling_timeout() {
    for goes in [true, false] {
        let mut cluster = running(json!({}));
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["somebodys/finalizer"]}}));
        delete(&mut cluster, "a-worker");
        cluster.pass(40);
        let leaving = "Job team/a-worker is being deleted; it starts anew when that is gone";
        assert_eq!(running_condition(&cluster), ["False", "JobGone", leaving]);
        assert!(holds_quota(&cluster), "it was admitted long ago, but its Job goes only now");
        if goes {
            cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": []}}));
            cluster.pass(60);
            assert_eq!((cluster.phase("a"), cluster.evictions_of("a", "SchedulingTimeout")), ("Running", 0));
        } else {
            cluster.pass(40);
            assert_eq!(cluster.evictions_of("a", "SchedulingTimeout"), 1);
        }
    }
}

#[test]
fn run_without_checkpoint_store_frees_quota_after_part_is_lost() {
    let mut cluster = running(json!({"checkpoint": {"store": "main"}}));
    let gone = serde_json::from_value(json!({"metadata": {"name": "main"}, "spec": {"s3": {"bucket": "b"}}})).unwrap();
    cluster.control.observe(Observation::CheckpointStore(Change::Delete(gone)), cluster.now());
    cluster.pass(100);
    assert_eq!(cluster.phase("a"), "Running", "it has what it needs");
    delete(&mut cluster, "a-worker");
    cluster.pass(20);
    let [status, reason, message] = running_condition(&cluster);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "JobGone"));
    assert!(message.starts_with("Job team/a-worker is gone: spec.checkpoint.store: \"main\" is no"), "{message}");
    cluster.pass(60);
    assert!(!holds_quota(&cluster), "{:?}", cluster.writes);
}

#[test]
fn training_job_without_gang_keeps_quota_while_part_is_refused() {
    let mut cluster = running(json!({"schedulingConfig": {"gangScheduling": false}}));
    refuse(&mut cluster);
    delete(&mut cluster, "a-worker");
    cluster.pass(3_600);
    let refused = "Job team/a-worker is gone: the API server refused Job a-worker: exceeded quota";
    assert_eq!(running_condition(&cluster), ["False", "JobGone", refused]);
    assert!(holds_quota(&cluster));
    cluster.faults.clear();
    cluster.pass(100);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn result_of_part_under_deletion_does_not_end_training_job() {
    for (how, stopped) in [("Failed", true), ("Complete", true), ("Failed", false), ("Complete", false)] {
        let mut cluster = running(json!({"backoffLimit": 0}));
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["somebodys/finalizer"]}}));
        if stopped {
            suspend(&mut cluster, true);
        } else {
            delete(&mut cluster, "a-worker");
        }
        cluster.pass(5);
        end(&mut cluster, how);
        cluster.pass(5);
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": []}}));
        if stopped {
            suspend(&mut cluster, false);
        }
        cluster.pass(100);
        assert_eq!(cluster.phase("a"), "Running", "{how}, stopped: {stopped}: {:?}", cluster.writes);
    }
}

#[test]
fn part_result_seen_just_before_its_deletion_ends_training_job() {
    for (how, phase) in [("Complete", "Succeeded"), ("Failed", "Failed")] {
        let mut cluster = running(json!({"backoffLimit": 0}));
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["somebodys/finalizer"]}}));
        end(&mut cluster, how);
        delete(&mut cluster, "a-worker");
        cluster.pass(20);
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": []}}));
        cluster.pass(20);
        assert_eq!((cluster.phase("a"), cluster.count(Purpose::StartTraining)), (phase, 1), "{:?}", cluster.writes);
    }
}

#[test]
fn training_result_survives_deletion_of_part_that_reported_it() {
    for (job, other, how, phase) in
        [("a-launcher", "a-worker", "Complete", "Succeeded"), ("a-worker", "a-launcher", "Failed", "Failed")]
    {
        for restarts in [false, true] {
            let launcher = json!([{"name": "launcher", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
            let more =
                json!({"jobType": "MPIJob", "resources": {"maxReplicas": 1}, "roles": launcher, "backoffLimit": 0});
            let mut cluster = running(more);
            cluster.keep_pods_of(Kind::TrainingJob, "a");
            end_of(&mut cluster, job, how);
            cluster.pass(3);
            assert!(!cluster.has_job(other) && holds_quota(&cluster), "its pods are left: {:?}", cluster.writes);
            delete(&mut cluster, job);
            if restarts {
                cluster.restart();
            }
            cluster.pass(5);
            assert_eq!(cluster.phase("a"), "Running", "{how}, {restarts}: it ends");
            cluster.pods_left.clear();
            cluster.pass(100);
            assert_eq!(cluster.phase("a"), phase, "{how}, {restarts}: {:?}", cluster.writes);
            let role = job.strip_prefix("a-").unwrap();
            assert_eq!(cluster.training_condition("a", phase)["message"], json!(format!("{role}: words")));
            assert_eq!(cluster.count(Purpose::StartTraining), 2, "nothing is made again: {:?}", cluster.writes);
        }
    }
}

/// A running TrainingJob of a parameter server and one worker, which is not started again after a failure.
fn with_ps() -> Cluster {
    let ps = json!([{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
    running(json!({"jobType": "TFJob", "resources": {"maxReplicas": 1}, "roles": ps, "backoffLimit": 0}))
}

/// Makes steps until the parameter server is deleted and the worker is not yet deleted; the worker fails because the parameter server is missing.
fn fail_for_want_of_ps(cluster: &mut Cluster) {
    for _ in 0..100 {
        if cluster.has_job("a-ps") {
            let step = cluster.control.step(cluster.now());
            cluster.take(step);
        }
    }
    assert!(!cluster.has_job("a-ps") && cluster.has_job("a-worker"), "{:?}", cluster.writes);
    end(cluster, "Failed");
}

#[test]
fn part_failure_after_suspension_deleted_its_peer_is_ignored() {
    for restarts in [false, true] {
        let mut cluster = with_ps();
        suspend(&mut cluster, true);
        fail_for_want_of_ps(&mut cluster);
        if restarts {
            cluster.restart();
        }
        cluster.pass(5);
        assert_eq!(cluster.phase("a"), "Suspended", "{restarts}: {:?}", cluster.writes);
        suspend(&mut cluster, false);
        cluster.pass(100);
        assert_eq!(cluster.phase("a"), "Running", "{restarts}: {:?}", cluster.writes);
    }
}

#[test]
fn part_failure_during_suspension_stays_ignored_when_training_resumes() {
    let mut cluster = with_ps();
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["somebodys/finalizer"]}}));
    suspend(&mut cluster, true);
    fail_for_want_of_ps(&mut cluster);
    cluster.set_now(cluster.now().checked_add(SignedDuration::from_secs(3)).unwrap());
    cluster.pass(5);
    assert!(cluster.has_job("a-worker") && !holds_quota(&cluster), "{:?}", cluster.writes);
    assert_eq!(cluster.phase("a"), "Suspended");
    suspend(&mut cluster, false);
    cluster.pass(20);
    assert!(cluster.has_job("a-worker") && !holds_quota(&cluster), "{:?}", cluster.writes);
    assert_eq!(cluster.phase("a"), "Queued", "it waits for the Job of its last run");
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": []}}));
    cluster.pass(100);
    assert_eq!(cluster.phase("a"), "Running", "{:?}", cluster.writes);
}

#[test]
fn part_failure_after_workload_deletion_stopped_its_peer_is_ignored() {
    for restarts in [false, true] {
        let mut cluster = with_ps();
        let workload = cluster.workload_key("a");
        cluster.delete(&workload);
        fail_for_want_of_ps(&mut cluster);
        if restarts {
            cluster.restart();
        }
        cluster.pass(100);
        assert_eq!(cluster.phase("a"), "Running", "{restarts}: {:?}", cluster.writes);
    }
}

#[test]
fn training_job_that_failed_before_deactivation_ends_as_failed() {
    let mut cluster = with_ps();
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    end(&mut cluster, "Failed");
    cluster.pass(20);
    assert!(!cluster.has_job("a-ps") && holds_quota(&cluster), "its pods are left: {:?}", cluster.writes);
    let name = cluster.workload_key("a").name;
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(10);
    assert!(cluster.workload_is(&name, "Evicted"), "{:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Failed", "{:?}", cluster.writes);
}
