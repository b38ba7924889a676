//! Elastic TrainingJobs whose pods read the number of workers only when they start: all pods start again for another number of workers, and the job holds quota
//! without a gap.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::checkpoints::save;
use crate::stories::cluster::{Cluster, merge};
use crate::stories::elastic::{Judged, cluster, elastic, other, with_priorities};
use crate::stories::faults::every_fault;

/// A TrainingJob for JAX with two to four workers of one cpu each; `more` is merged into the spec.
pub fn restarted_on_scale(name: &str, more: &Value) -> Value {
    let mut job = elastic(name, json!({}));
    job["spec"]["jobType"] = json!("JAXJob");
    merge(&mut job["spec"], more);
    job
}

/// A TrainingJob that saves checkpoints and adds two workers at once.
pub fn saving(name: &str) -> Value {
    let scaling = json!({"scalePolicy": {"scaleUpStep": 2}});
    restarted_on_scale(name, &json!({"checkpoint": {"interval": "10m"}, "elasticConfig": scaling}))
}

/// A cluster in which the given TrainingJob runs with four workers.
pub fn started(job: Value) -> Cluster {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::TrainingJob, job);
    cluster.pass_judged(3, "starts");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{:?}", cluster.writes);
    cluster
}

/// A cluster in which the given TrainingJob runs with two workers, because four of the six cpus are in use until the Job `first` completes.
pub fn held_small(job: Value) -> Cluster {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, job);
    cluster.pass_judged(12, "two");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    cluster
}

/// An environment variable of the pods of a Job.
pub fn variable(cluster: &Cluster, job: &str, name: &str) -> String {
    let all = cluster.job(job)["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let found = all.iter().find(|variable| variable["name"] == name);
    found.and_then(|variable| variable["value"].as_str()).unwrap_or_default().to_owned()
}

pub fn uid(cluster: &Cluster, job: &str) -> Value {
    cluster.job(job)["metadata"]["uid"].clone()
}

pub fn message_of(cluster: &Cluster, reason: &str) -> String {
    let event = cluster.notices.iter().rfind(|notice| notice.reason == reason && notice.key.kind == Kind::TrainingJob);
    event.map(|notice| notice.message.clone()).unwrap_or_default()
}

#[test]
fn scale_down_restarts_all_roles_with_fewer_workers() {
    let mut job =
        restarted_on_scale("a", &json!({"roles": [{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]}));
    job["spec"]["jobType"] = json!("TFJob");
    let mut cluster = started(job);
    let before = ["a-worker", "a-ps"].map(|job| uid(&cluster, job));
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.put(Kind::JOB, other("urgent", "3", 100));
    cluster.pass_judged(10, "pods are left");
    assert!(!cluster.has_job("a-worker") && !cluster.has_job("a-ps"), "{:?}", cluster.writes);
    assert_eq!((cluster.slices("a")[0].1, cluster.count(Purpose::LowerCount)), (4, 0), "their quota is in use");
    assert!(!cluster.is("urgent", "Admitted"));
    assert!(message_of(&cluster, "ScalingDown").ends_with("; all its pods start again with that number"));
    let left = "Restarts with 2 workers: waits until the pods of Jobs a-worker, a-ps are gone \
        (kubectl get pods -n team -l berth.dev/training-job=a)";
    assert_eq!(cluster.training_condition("a", "Running")["message"], left);
    // Another process becomes the leader in the middle of the restart.
    cluster.restart();
    cluster = with_priorities(cluster);
    cluster.pass_judged(10, "another leader");
    assert!(!cluster.has_job("a-worker") && !cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.training_condition("a", "Running")["message"], left);
    cluster.pods_left.clear();
    cluster.pass_judged(10, "pods are gone");
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1, cluster.phase("a")), (2, 2, "Running"));
    for (job, before) in ["a-worker", "a-ps"].into_iter().zip(before) {
        assert_ne!(uid(&cluster, job), before, "{job}");
        let reported = variable(&cluster, job, "TF_CONFIG");
        assert!(reported.contains("a-worker-1.") && !reported.contains("a-worker-2."), "{job}: {reported}");
    }
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
    let status = &cluster.training("a")["status"];
    assert_eq!((&status["workers"], &status["restarts"]), (&json!("2/2"), &Value::Null), "it costs no tries");
    assert_eq!(status["allocatedResources"]["cpu"], "3");
    assert_eq!(cluster.training_condition("a", "Running")["reason"], "PodsReady");
}

#[test]
fn training_job_saves_checkpoint_before_scale_down_restart() {
    let mut cluster = started(saving("a"));
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(5, "asked");
    let before = uid(&cluster, "a-worker");
    let (_, reported) = cluster.annotated_pods.first().cloned().expect("its pods were told");
    assert!(reported["berth.dev/save-reason"].starts_with("ScalingDown: from 4 to 2 workers"), "{reported:?}");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"));
    save(&mut cluster, "a", 700);
    cluster.pass_judged(5, "it has saved");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    assert_ne!(uid(&cluster, "a-worker"), before);
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP"), "700");
    assert_eq!(variable(&cluster, "a-worker", "NUM_PROCESSES"), "2");
    assert!(cluster.is("urgent", "Admitted"));
    assert_eq!(cluster.count(Purpose::Evict), 0);
    // A job that gave up workers does not add workers at once, and not before the job has saved another checkpoint.
    let before = uid(&cluster, "a-worker");
    cluster.complete("urgent");
    cluster.pass_judged(60, "idle again");
    assert_eq!((cluster.workers("a"), uid(&cluster, "a-worker") == before), (2, true), "{:?}", cluster.writes);
    save(&mut cluster, "a", 900);
    cluster.pass_judged(20, "it has saved again");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{:?}", cluster.writes);
}

/// The Job `first` completes, so that its quota is idle, and then the TrainingJob saves a checkpoint.
pub fn saves_when_idle(cluster: &mut Cluster) {
    cluster.complete("first");
    cluster.pass_judged(8, "idle");
    save(cluster, "a", 700);
}

#[test]
fn new_leader_at_any_step_completes_scaling_restart() {
    for (moment, grows) in (1..60).flat_map(|moment| [(moment, false), (moment, true)]) {
        let what = format!("moment {moment}, grows: {grows}");
        let mut cluster = if grows { held_small(saving("a")) } else { started(saving("a")) };
        if grows {
            saves_when_idle(&mut cluster);
        } else {
            save(&mut cluster, "a", 700);
            cluster.put(Kind::JOB, other("urgent", "4", 100));
        }
        // Another process becomes the leader after `moment` steps of control.
        for _ in 0..moment {
            let step = cluster.control.step(cluster.now());
            let (wake, quiet) = (step.wake_at, step.tasks.is_empty());
            cluster.take(step);
            if quiet {
                let next = wake.unwrap_or(cluster.now()).max(cluster.now());
                cluster.set_now(next.checked_add(jiff::SignedDuration::from_millis(50)).unwrap());
            }
        }
        cluster.judge(&what);
        cluster.restart();
        cluster = with_priorities(cluster);
        for step in [800, 900, 1_000] {
            cluster.pass_judged(30, &what);
            if grows {
                // The new leader waits again until the quota has been idle for a while, so that the job saves once more.
                save(&mut cluster, "a", step);
            }
        }
        cluster.pass_judged(30, &what);
        let workers = if grows { 4 } else { 2 };
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (workers, "Running"), "{what}: {:?}", cluster.writes);
        assert_eq!(variable(&cluster, "a-worker", "NUM_PROCESSES"), workers.to_string(), "{what}");
        assert_eq!((cluster.slices("a").len(), cluster.count(Purpose::Evict)), (1, 0), "{what}: {:?}", cluster.writes);
        assert!(grows || cluster.is("urgent", "Admitted"), "{what}");
    }
}

#[test]
fn scaling_restarts_reach_same_end_after_failed_or_lost_writes() {
    let purposes = [
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::FinishWorkload,
        Purpose::AskToSave,
        Purpose::ScaleTraining,
        Purpose::StopTraining,
        Purpose::ProbeSurplus,
        Purpose::LowerCount,
        Purpose::PrepareTraining,
        Purpose::StartTraining,
        Purpose::TrainingStatus,
    ];
    for (fault, what) in every_fault(&purposes) {
        let mut cluster = held_small(saving("a"));
        // Each faulty outcome of a write occurs during a scale-up, and again during a scale-down.
        cluster.faults.push(fault.clone());
        cluster.complete("first");
        for step in [700, 800, 900, 1_000] {
            cluster.pass_judged(25, &what);
            save(&mut cluster, "a", step);
        }
        cluster.pass_judged(90, &what);
        assert_eq!(cluster.workers("a"), 4, "{what}: {:?}", cluster.writes);
        cluster.faults.push(fault.clone());
        cluster.put(Kind::JOB, other("urgent", "4", 100));
        cluster.pass_judged(90, &what);
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{what}: {:?}", cluster.writes);
        assert!(cluster.is("urgent", "Admitted"), "{what}: {:?}", cluster.writes);
        assert_eq!((cluster.slices("a").len(), cluster.count(Purpose::Evict)), (1, 0), "{what}: {:?}", cluster.writes);
    }
}

/// A spec for a TrainingJob whose pods have fifteen seconds to get nodes.
fn short() -> Value {
    json!({"schedulingConfig": {"schedulingTimeout": "15s"}})
}

#[test]
fn scheduling_timeout_starts_anew_after_scaling_restart() {
    let mut cluster = started(restarted_on_scale("a", &short()));
    cluster.pass_judged(60, "long after its start");
    cluster.nodes = Some(1);
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(12, "it restarts");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Pending"), "{:?}", cluster.writes);
    let condition = cluster.training_condition("a", "Running");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Rescaling")), "{condition}");
    assert_eq!(condition["message"], "Restarts with 2 workers: 1 of 2 pods are ready");
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
    assert!(cluster.workload_object("a")["status"]["requeueState"].is_null());
    cluster.pass_judged(8, "no nodes in time");
    assert_eq!(cluster.evictions_of("a", "SchedulingTimeout"), 1, "{:?}", cluster.writes);
    let condition = cluster.training_condition("a", "SchedulingTimeout");
    let words = "not all pods had nodes 15s after it restarted with another number of workers";
    assert!(condition["message"].as_str().unwrap().starts_with(words), "{condition}");
}

#[test]
fn added_workers_without_nodes_are_given_up_by_restart() {
    let mut job = saving("a");
    merge(&mut job["spec"], &short());
    let mut cluster = held_small(job);
    cluster.nodes = Some(3);
    saves_when_idle(&mut cluster);
    cluster.pass_judged(12, "grows");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Pending"), "{:?}", cluster.writes);
    cluster.pass_judged(15, "too late");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (3, 3), "{:?}", cluster.writes);
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
    assert_eq!(variable(&cluster, "a-worker", "NUM_PROCESSES"), "3");
    assert!(message_of(&cluster, "ScalingDown").contains("the others were not ready within 15s"));
}

#[test]
fn training_job_that_cannot_restart_gives_up_more_workers() {
    let mut cluster = started(restarted_on_scale("a", &json!({})));
    for _ in 0..100 {
        cluster.faults.push((Purpose::StartTraining, WriteOutcome::Refused("no more Jobs".into()), false));
    }
    cluster.put(Kind::JOB, other("one", "3", 100));
    cluster.pass_judged(10, "one goes");
    assert!(cluster.is("one", "Admitted") && !cluster.has_job("a-worker"), "{:?}", cluster.writes);
    cluster.put(Kind::JOB, other("two", "1", 100));
    cluster.pass_judged(20, "another goes");
    assert!(cluster.is("two", "Admitted"), "{:?}", cluster.writes);
    assert_eq!((cluster.slices("a")[0].1, cluster.count(Purpose::Evict)), (2, 0), "{:?}", cluster.writes);
    cluster.faults.clear();
    cluster.pass_judged(70, "it may start");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
}

#[test]
fn lowered_max_workers_are_followed_by_one_restart() {
    let mut cluster = started(restarted_on_scale("a", &json!({})));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"elasticConfig": {"maxWorkers": 2}}}));
    cluster.pass_judged(60, "lowered");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2), "{:?}", cluster.writes);
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
    let restarts = (cluster.count(Purpose::ScaleTraining), cluster.count(Purpose::StopTraining));
    assert_eq!(restarts, (1, 1), "a step is one worker: {:?}", cluster.writes);
    assert!(message_of(&cluster, "ScalingDown").starts_with("from 4 to 2 workers: at most 2 are asked for"));
}

#[test]
fn shrunk_training_job_is_evicted_and_returns_at_full_size() {
    let mut cluster = started(restarted_on_scale("a", &json!({})));
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(10, "two go");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::Evict)), (2, 0), "{:?}", cluster.writes);
    cluster.complete("urgent");
    cluster.put(Kind::JOB, other("all", "6", 100));
    cluster.pass_judged(10, "all go");
    assert_eq!((cluster.workers("a"), cluster.phase("a"), cluster.count(Purpose::Evict)), (0, "Queued", 1));
    cluster.complete("all");
    cluster.pass_judged(10, "back");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{:?}", cluster.writes);
    let before = uid(&cluster, "a-worker");
    cluster.pass_judged(60, "and stays");
    assert_eq!((cluster.workers("a"), uid(&cluster, "a-worker")), (4, before), "{:?}", cluster.writes);
}

#[test]
fn edited_training_job_is_evicted_instead_of_scaled_down() {
    let mut cluster = started(restarted_on_scale("a", &json!({})));
    cluster.edit(
        Kind::TrainingJob,
        "team",
        "a",
        &json!({"spec": {"resources": {"replicaResources": {"cpu": "500m"}}}}),
    );
    cluster.pass_judged(5, "an edit holds from the next start");
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass(10);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert_eq!((cluster.count(Purpose::Evict), cluster.count(Purpose::ScaleTraining)), (1, 0), "{:?}", cluster.writes);
}

#[test]
fn pods_from_before_scaling_restart_do_not_count_as_new() {
    let mut job = saving("a");
    merge(&mut job["spec"], &short());
    let mut cluster = held_small(job);
    cluster.nodes = Some(3);
    // The Jobs of the TrainingJob are not deleted for a while after the TrainingJob's status shows the restart.
    cluster.faults.push((Purpose::StopTraining, WriteOutcome::Busy(8_000), false));
    saves_when_idle(&mut cluster);
    for _ in 0..20 {
        if cluster.count(Purpose::ScaleTraining) == 0 {
            cluster.pass_judged(1, "it grows");
        }
    }
    cluster.pass_judged(5, "its Jobs do not go yet");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Pending"), "{:?}", cluster.writes);
    let condition = cluster.training_condition("a", "Running");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Rescaling")), "{condition}");
    // Berth does not count the old pods as ready pods of the new run: otherwise Berth would take the added workers for workers that had nodes before.
    cluster.pass_judged(40, "too few nodes");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (3, "Running"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
}

#[test]
fn old_pods_ending_slowly_cost_new_pods_no_scheduling_time() {
    for fails_over in [false, true] {
        let mut cluster = started(restarted_on_scale("a", &short()));
        cluster.keep_pods_of(Kind::TrainingJob, "a");
        cluster.put(Kind::JOB, other("urgent", "4", 100));
        cluster.pass_judged(30, "pods are left");
        assert!(!cluster.has_job("a-worker"), "{:?}", cluster.writes);
        cluster.controller_sleeps = true;
        cluster.pods_left.clear();
        cluster.pass_judged(2, "they are gone");
        assert!(cluster.has_job("a-worker"), "{:?}", cluster.writes);
        if fails_over {
            cluster.restart();
            cluster = with_priorities(cluster);
        }
        cluster.pass_judged(8, "others take a moment");
        cluster.controller_sleeps = false;
        cluster.pass_judged(5, "they come");
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::Evict), 0, "{fails_over}: {:?}", cluster.writes);
    }
}

#[test]
fn job_suspended_by_user_after_scaling_restart_is_remade_soon() {
    let mut cluster = started(restarted_on_scale("a", &json!({})));
    cluster.pass(1_000);
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(10, "it restarts");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    let before = uid(&cluster, "a-worker");
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"suspend": true}}));
    cluster.pass_judged(30, "it is suspended for the first time");
    assert_ne!(uid(&cluster, "a-worker"), before, "{:?}", cluster.writes);
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
}

#[test]
fn new_leader_bounds_slow_deletion_of_job_after_scaling_restart() {
    let mut cluster = started(restarted_on_scale("a", &short()));
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(10, "it restarts");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    cluster.restart();
    cluster = with_priorities(cluster);
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["somebodys/finalizer"]}}));
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-worker"));
    cluster.pass(10);
    let condition = cluster.training_condition("a", "Running");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("JobGone")), "{condition}");
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
    cluster.pass(10);
    assert_eq!(cluster.evictions_of("a", "SchedulingTimeout"), 1, "{:?}", cluster.writes);
}
