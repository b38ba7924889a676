//! Requests to save a checkpoint that fail, are lost or take long: the request reaches the pods once, and no job gets more time because of a failed request.

use berth_control::write::{Kind, Purpose, Task, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::checkpoints::{of, preempting, save, saving, set_policy};
use crate::stories::cluster::{Cluster, job};
use crate::stories::elastic;
use crate::stories::elastic::Judged;
use crate::stories::faults::every_fault;
use crate::stories::training::training;

/// A TrainingJob that saves checkpoints runs, and no other job fits into its queue.
fn victim() -> Cluster {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("victim", saving()));
    cluster.pass(5);
    cluster
}

fn urgent() -> Value {
    training("urgent", of("high", json!({})))
}

/// An elastic TrainingJob that saves checkpoints has run with four workers for long enough to be able to give up workers at once.
fn four_workers() -> Cluster {
    let mut cluster = elastic::with_priorities(elastic::cluster());
    cluster.put(Kind::TrainingJob, elastic::saving("a"));
    cluster.pass(12);
    cluster
}

/// Edits the TrainingJob so that one worker has to go.
fn shrink(cluster: &mut Cluster) {
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"elasticConfig": {"maxWorkers": 3}}}));
}

/// Outcomes of the successive tries of a request to save a checkpoint; the last outcome asks for a pause that is longer than any grace period.
fn lasting() -> [WriteOutcome; 4] {
    [
        WriteOutcome::Conflict,
        WriteOutcome::Unknown("reset".into()),
        WriteOutcome::Busy(1_000),
        WriteOutcome::Busy(120_000),
    ]
}

/// Makes steps until control makes a write of the given purpose, and returns the write without performing it.
fn held_back(cluster: &mut Cluster, purpose: Purpose) -> Task {
    for _ in 0..1_000 {
        let mut step = cluster.control.step(cluster.now());
        let found = step.tasks.iter().position(|write| write.purpose == purpose);
        let found = found.map(|index| step.tasks.remove(index));
        cluster.take(step);
        if let Some(write) = found {
            return write;
        }
    }
    panic!("no write of {purpose:?}: {:?}", cluster.writes);
}

/// The reasons of the events in the status of a TrainingJob, in the order of the events.
fn events(cluster: &Cluster, name: &str) -> Vec<String> {
    let events = cluster.training(name)["status"]["events"].as_array().unwrap().clone();
    events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

/// Asserts that the status of the TrainingJob showed the request to save a checkpoint before it showed the result of the request.
fn assert_reported_in_order(cluster: &Cluster, name: &str, answer: &str) {
    let reported = events(cluster, name);
    let place = |reason: &str| reported.iter().position(|reported| reported == reason);
    assert!(place("CheckpointRequested").is_some(), "{reported:?}");
    assert!(place("CheckpointRequested") < place(answer), "{reported:?}");
    let last = cluster.training_condition(name, "CheckpointRequested");
    assert_eq!((&last["status"], &last["reason"]), (&json!("False"), &json!(answer)));
}

#[test]
fn victim_is_asked_to_save_despite_failed_or_lost_requests() {
    for ((purpose, outcome, happens), what) in every_fault(&[Purpose::NotifyPods]) {
        let mut cluster = victim();
        cluster.faults.extend([(purpose, outcome.clone(), happens), (purpose, outcome, false)]);
        cluster.put(Kind::TrainingJob, urgent());
        cluster.pass(10);
        let times = 1 + usize::from(happens);
        assert_eq!((cluster.count(purpose), cluster.annotated_pods.len()), (3, times), "{what}: {:?}", cluster.writes);
        assert!(
            cluster.annotated_pods.iter().all(|reported| *reported == cluster.annotated_pods[0]),
            "{what}: the same words"
        );
        assert!(cluster.has_job("victim-worker"), "{what}: its time is not over");
        assert_eq!(cluster.training_condition("victim", "CheckpointRequested")["status"], "True", "{what}");
        save(&mut cluster, "victim", 700);
        cluster.pass(5);
        assert_eq!((cluster.phase("urgent"), cluster.phase("victim")), ("Running", "Queued"), "{what}");
        assert_reported_in_order(&cluster, "victim", "CheckpointSaved");
    }
}

#[test]
fn scale_down_asks_to_save_despite_failed_or_lost_requests() {
    for ((purpose, outcome, happens), what) in every_fault(&[Purpose::AskToSave]) {
        let mut cluster = four_workers();
        cluster.faults.extend([(purpose, outcome.clone(), happens), (purpose, outcome, false)]);
        shrink(&mut cluster);
        cluster.pass_judged(10, &what);
        let times = 1 + usize::from(happens);
        assert_eq!((cluster.count(purpose), cluster.annotated_pods.len()), (3, times), "{what}: {:?}", cluster.writes);
        assert!(
            cluster.annotated_pods.iter().all(|reported| *reported == cluster.annotated_pods[0]),
            "{what}: the same words"
        );
        assert!(cluster.annotated_pods[0].1["berth.dev/save-reason"].starts_with("ScalingDown: from 4 to 3"), "{what}");
        assert_eq!(cluster.workers("a"), 4, "{what}: its time is not over");
        save(&mut cluster, "a", 700);
        cluster.pass_judged(5, &what);
        assert_eq!(cluster.workers("a"), 3, "{what}: it has saved");
        assert_reported_in_order(&cluster, "a", "CheckpointSaved");
    }
}

#[test]
fn batch_job_is_asked_to_save_again_after_failed_request() {
    let mut cluster = preempting("1");
    set_policy(&mut cluster, json!({"gracePeriod": "20s"}));
    let with = |name: &str, class: &str, now: String| {
        let mut job = job(name, "lq", "1", true);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        job["metadata"]["annotations"] = json!({"berth.dev/last-checkpoint-time": now});
        job
    };
    let now = cluster.now().to_string();
    cluster.put(Kind::JOB, with("victim", "low", now));
    cluster.pass(5);
    cluster.faults.push((Purpose::NotifyPods, WriteOutcome::Conflict, false));
    let now = cluster.now().to_string();
    cluster.put(Kind::JOB, with("urgent", "high", now));
    cluster.pass(10);
    assert_eq!((cluster.count(Purpose::NotifyPods), cluster.annotated_pods.len()), (2, 1), "{:?}", cluster.writes);
    assert_ne!(cluster.job("victim")["spec"]["suspend"], json!(true));
    cluster.pass(15);
    assert_eq!(cluster.job("victim")["spec"]["suspend"], json!(true));
    assert!(cluster.is("urgent", "Admitted"));
}

#[test]
fn save_requests_that_never_succeed_extend_no_grace_period() {
    for outcome in lasting() {
        let mut cluster = victim();
        for _ in 0..300 {
            cluster.faults.push((Purpose::NotifyPods, outcome.clone(), false));
        }
        cluster.put(Kind::TrainingJob, urgent());
        cluster.pass(28);
        assert!(cluster.has_job("victim-worker"), "{outcome:?}: nor less");
        assert!(cluster.annotated_pods.is_empty() && cluster.count(Purpose::NotifyPods) < 40, "{:?}", cluster.writes);
        cluster.pass(5);
        assert!(!cluster.has_job("victim-worker"), "{outcome:?}");
        cluster.pass(5);
        assert_eq!((cluster.phase("urgent"), cluster.phase("victim")), ("Running", "Queued"), "{outcome:?}");
    }
}

#[test]
fn save_requests_that_never_succeed_do_not_delay_scale_down() {
    for outcome in lasting() {
        let mut cluster = four_workers();
        for _ in 0..300 {
            cluster.faults.push((Purpose::AskToSave, outcome.clone(), false));
        }
        shrink(&mut cluster);
        let what = format!("{outcome:?}");
        cluster.pass_judged(25, &what);
        assert_eq!(cluster.workers("a"), 4, "{what}: nor shorter");
        cluster.pass_judged(10, &what);
        assert_eq!(cluster.workers("a"), 3, "{what}: {:?}", cluster.writes);
        assert_eq!(cluster.slices("a")[0].1, 3, "{what}: their quota is free");
    }
}

#[test]
fn save_request_hanging_beyond_grace_period_delays_nothing() {
    let mut cluster = victim();
    cluster.put(Kind::TrainingJob, urgent());
    let write = held_back(&mut cluster, Purpose::NotifyPods);
    cluster.pass(28);
    assert!(cluster.has_job("victim-worker"));
    cluster.pass(5);
    assert!(!cluster.has_job("victim-worker"), "its time is over");
    cluster.control.outcome(write.id, WriteOutcome::Busy(60_000), cluster.now());
    cluster.pass(5);
    assert_eq!((cluster.phase("urgent"), cluster.phase("victim")), ("Running", "Queued"));
    let mut cluster = four_workers();
    shrink(&mut cluster);
    let write = held_back(&mut cluster, Purpose::AskToSave);
    cluster.pass(35);
    assert_eq!(cluster.workers("a"), 3, "the while began with the request, not with its outcome");
    cluster.control.outcome(write.id, WriteOutcome::Busy(60_000), cluster.now());
    cluster.pass_judged(5, "answered late");
    assert_eq!(cluster.slices("a")[0].1, 3);
}

#[test]
fn save_request_is_reported_before_checkpoint_that_outpaces_its_outcome() {
    // The pods have read the request to save, and the job has saved a checkpoint, before control gets the outcome of the write of the request.
    for outcome in [WriteOutcome::Applied { resource_version: String::new() }, WriteOutcome::Unknown("reset".into())] {
        let mut cluster = victim();
        cluster.put(Kind::TrainingJob, urgent());
        let write = held_back(&mut cluster, Purpose::NotifyPods);
        save(&mut cluster, "victim", 700);
        cluster.settle();
        assert!(!cluster.has_job("victim-worker"), "{outcome:?}: it has saved");
        cluster.control.outcome(write.id, outcome.clone(), cluster.now());
        cluster.pass(5);
        assert_eq!((cluster.phase("urgent"), cluster.phase("victim")), ("Running", "Queued"), "{outcome:?}");
        assert_reported_in_order(&cluster, "victim", "CheckpointSaved");
        let stopped = cluster.notices.iter().find(|notice| notice.reason == "Stopped").unwrap();
        assert!(stopped.message.ends_with("; saved its checkpoint of step 700"), "{outcome:?}: {}", stopped.message);
        let mut cluster = four_workers();
        shrink(&mut cluster);
        let write = held_back(&mut cluster, Purpose::AskToSave);
        save(&mut cluster, "a", 700);
        cluster.settle();
        assert_eq!(cluster.workers("a"), 3, "{outcome:?}: it has saved");
        cluster.control.outcome(write.id, outcome.clone(), cluster.now());
        cluster.pass_judged(10, "told");
        assert_reported_in_order(&cluster, "a", "CheckpointSaved");
        assert_eq!(cluster.count(Purpose::AskToSave), 0, "{outcome:?}: it is not asked for again");
    }
}

#[test]
fn new_leader_reports_neither_save_request_nor_checkpoint_twice() {
    let mut cluster = victim();
    cluster.put(Kind::TrainingJob, urgent());
    cluster.pass(5);
    assert_eq!(cluster.training_condition("victim", "CheckpointRequested")["status"], "True");
    cluster.restart();
    cluster.pass(3);
    save(&mut cluster, "victim", 700);
    cluster.pass(10);
    assert_reported_in_order(&cluster, "victim", "CheckpointSaved");
    let reported = events(&cluster, "victim");
    for reason in ["CheckpointRequested", "CheckpointSaved"] {
        assert_eq!(reported.iter().filter(|reported| *reported == reason).count(), 1, "{reported:?}");
    }
}

#[test]
fn refused_training_job_status_does_not_block_preemptor() {
    let mut cluster = victim();
    let refused = (Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false);
    cluster.faults.extend(std::iter::repeat_n(refused, 1_000));
    cluster.put(Kind::TrainingJob, urgent());
    cluster.pass(10);
    save(&mut cluster, "victim", 700);
    cluster.pass(30);
    assert!(cluster.has_job("urgent-worker") && !cluster.has_job("victim-worker"), "{:?}", cluster.writes);
}

#[test]
fn refused_training_job_status_does_not_delay_suspension() {
    let mut cluster = crate::stories::training::cluster("2");
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    let refused = (Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false);
    cluster.faults.extend(std::iter::repeat_n(refused, 1_000));
    let suspend = |suspend: bool| json!({"spec": {"suspend": suspend}});
    cluster.edit(Kind::TrainingJob, "team", "a", &suspend(true));
    cluster.pass(30);
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!((&workload["spec"]["active"], &workload["status"]["admission"]), (&json!(false), &Value::Null));
    assert!(!cluster.has_job("a-worker"), "{:?}", cluster.writes);
    // The status of the TrainingJob shows later why the job was deactivated.
    cluster.faults.clear();
    cluster.pass(70);
    assert_eq!(
        (cluster.phase("a"), &cluster.training_condition("a", "Suspended")["reason"]),
        ("Suspended", &json!("Requested"))
    );
    cluster.edit(Kind::TrainingJob, "team", "a", &suspend(false));
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn training_job_resumed_before_its_status_is_written_keeps_running() {
    let mut cluster = crate::stories::training::cluster("2");
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    // Another client has written the TrainingJob in the meantime, so that the write of the status is refused.
    cluster.faults.push((Purpose::TrainingStatus, WriteOutcome::Conflict, false));
    for suspend in [true, false] {
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": suspend}}));
        cluster.settle();
    }
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Running");
}
