//! Checkpoints in stores: Berth lists, shows, keeps and deletes checkpoints, and starts a job with a checkpoint.

use std::collections::BTreeMap;

use berth_control::event::{Change, Observation};
use berth_control::write::{Checkpoint, Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::Cluster;
use crate::stories::training::{cluster, training};

fn declare(cluster: &mut Cluster, name: &str) {
    declare_in(cluster, name, "b");
}

/// Declares a CheckpointStore with the given bucket.
fn declare_in(cluster: &mut Cluster, name: &str, bucket: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {"s3": {"bucket": bucket}, "prefix": "all"}});
    let object = serde_json::from_value(object).unwrap();
    cluster.control.observe(Observation::CheckpointStore(Change::Apply(object)), cluster.now());
}

fn with_store() -> Cluster {
    let mut cluster = cluster("2");
    declare(&mut cluster, "main");
    cluster
}

fn saving(more: Value) -> Value {
    let mut checkpoint = json!({"store": "main", "interval": "20s"});
    crate::stories::cluster::merge(&mut checkpoint, &more);
    json!({ "checkpoint": checkpoint })
}

/// The pods of a job save a checkpoint in the bucket `b`.
fn save(cluster: &mut Cluster, job: &str, step: i64) {
    save_in(cluster, "b", job, step);
}

/// The pods of a job save a checkpoint in the given bucket.
fn save_in(cluster: &mut Cluster, bucket: &str, job: &str, step: i64) {
    let checkpoint = Checkpoint {
        id: format!("step-{step}"),
        at: cluster.now(),
        step,
        epoch: Some(step / 10),
        bytes: 7,
        metadata: BTreeMap::from([("loss".to_owned(), "0.5".to_owned())]),
    };
    cluster.saved.entry(format!("s3://{bucket}/all/team/{job}")).or_default().push(checkpoint);
}

fn kept(cluster: &Cluster, job: &str) -> Vec<String> {
    let all = cluster.saved.get(&format!("s3://b/all/team/{job}")).into_iter().flatten();
    all.map(|checkpoint| checkpoint.id.clone()).collect()
}

fn variable(cluster: &Cluster, name: &str, variable: &str) -> Option<String> {
    let all = cluster.job(name)["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let found = all.into_iter().find(|one| one["name"] == variable)?;
    found["value"].as_str().map(str::to_owned)
}

#[test]
fn training_job_resumes_from_latest_checkpoint_in_its_store() {
    let mut cluster = with_store();
    cluster.put(Kind::TrainingJob, training("a", saving(json!({}))));
    cluster.pass(5);
    assert_eq!(variable(&cluster, "a-worker", "BERTH_CHECKPOINT_URI").as_deref(), Some("s3://b/all/team/a"));
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_URI"), None);
    save(&mut cluster, "a", 30);
    cluster.pass(12);
    let shown = cluster.training("a")["status"]["checkpoint"].clone();
    assert_eq!(
        (&shown["count"], &shown["latest"]["step"], &shown["latest"]["epoch"]),
        (&json!(1), &json!(30), &json!(3))
    );
    assert_eq!(shown["latest"]["path"], "s3://b/all/team/a/step-30");
    assert_eq!((&shown["latest"]["sizeBytes"], &shown["latest"]["metadata"]["loss"]), (&json!(7), &json!("0.5")));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(3);
    assert!(cluster.has_job("a-worker"), "it may save once more");
    save(&mut cluster, "a", 31);
    cluster.pass(3);
    assert!(!cluster.has_job("a-worker"), "the store was looked into every second");
    // A checkpoint that a suspended job saves while its pods end counts as well.
    save(&mut cluster, "a", 32);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": false}}));
    cluster.pass(5);
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP").as_deref(), Some("32"));
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_URI").as_deref(), Some("s3://b/all/team/a/step-32"));
    assert_eq!(cluster.training("a")["status"]["checkpoint"]["resumedFrom"], "step-32");
}

#[test]
fn checkpoint_saved_just_before_suspension_does_not_end_its_grace() {
    // A store that records times in full seconds does not show whether the checkpoint or the request came first: its checkpoint counts.
    for (saved, counts) in [("2026-11-21T12:00:14.2Z", false), ("2026-11-21T12:00:14Z", true)] {
        let mut cluster = with_store();
        cluster.put(Kind::TrainingJob, training("a", saving(json!({}))));
        cluster.pass(13);
        let looks = cluster.looks;
        cluster.set_now(saved.parse().unwrap());
        save(&mut cluster, "a", 30);
        // The next regular listing of the store is due at 20 s, so that the earlier listing is made for the suspension.
        cluster.set_now("2026-11-21T12:00:14.7Z".parse().unwrap());
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
        cluster.pass(3);
        assert!(cluster.looks > looks, "it is known now");
        assert_eq!(cluster.annotated_pods.len(), 1);
        assert_eq!(cluster.has_job("a-worker"), !counts, "saved at {saved}");
        save(&mut cluster, "a", 31);
        cluster.pass(3);
        assert!(!cluster.has_job("a-worker"), "it has saved");
    }
}

#[test]
fn store_is_listed_every_second_while_scale_down_awaits_checkpoint() {
    let mut cluster = with_store();
    let mut elastic = saving(json!({"interval": "10m"}));
    elastic["resources"] = json!({"minReplicas": 1, "maxReplicas": 2});
    elastic["elasticConfig"] = json!({"enabled": true, "scalePolicy": {"scaleDownCooldown": "1s"}});
    cluster.put(Kind::TrainingJob, training("a", elastic));
    cluster.pass(10);
    let looks = cluster.looks;
    let lower = json!({"spec": {"elasticConfig": {"maxWorkers": 1}}});
    cluster.edit(Kind::TrainingJob, "team", "a", &lower);
    cluster.pass(5);
    assert_eq!(cluster.count(Purpose::AskToSave), 1, "{:?}", cluster.writes);
    assert!(cluster.looks >= looks + 3, "{} looks", cluster.looks - looks);
    assert_eq!(cluster.job("a-worker")["spec"]["completions"], 2);
    save(&mut cluster, "a", 30);
    cluster.pass(3);
    assert_eq!(cluster.job("a-worker")["spec"]["completions"], 1, "it has saved");
    let looks = cluster.looks;
    cluster.pass(20);
    assert_eq!(cluster.looks, looks, "back to its own pace");
}

#[test]
fn old_checkpoints_are_deleted_except_the_resumed_one() {
    let mut cluster = with_store();
    save(&mut cluster, "a", 1);
    cluster.set_now(cluster.now().checked_add(jiff::SignedDuration::from_secs(1)).unwrap());
    cluster.put(Kind::TrainingJob, training("a", saving(json!({"maxCheckpoints": 2}))));
    cluster.pass(5);
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP").as_deref(), Some("1"));
    for step in 2..6 {
        save(&mut cluster, "a", step);
        save(&mut cluster, "b", step);
        cluster.pass(12);
    }
    assert_eq!(kept(&cluster, "a"), ["step-1", "step-4", "step-5"], "a pod that fails begins there again");
    assert_eq!(kept(&cluster, "b").len(), 4, "another job's are left alone");
    cluster.restart();
    declare(&mut cluster, "main");
    cluster.pass(30);
    assert_eq!(kept(&cluster, "a"), ["step-1", "step-4", "step-5"], "that is remembered");
    let deletions = cluster.count(Purpose::DeleteCheckpoints);
    cluster.complete("a-worker");
    cluster.pass(120);
    assert_eq!(cluster.count(Purpose::DeleteCheckpoints), deletions);
    let looks = cluster.looks;
    cluster.pass(600);
    assert_eq!(cluster.looks, looks, "nothing is to be expected of a job that is over");
}

#[test]
fn checkpoint_overdue_condition_follows_missed_and_kept_intervals() {
    for store in [true, false] {
        let mut cluster = with_store();
        let mut more = saving(json!({}));
        if !store {
            more["checkpoint"].as_object_mut().unwrap().remove("store");
        }
        cluster.put(Kind::TrainingJob, training("a", more));
        let save = |cluster: &mut Cluster, step: i64| {
            let now = cluster.now().to_string();
            let annotations = json!({"berth.dev/last-checkpoint-time": now});
            match store {
                true => save(cluster, "a", step),
                false => {
                    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"metadata": {"annotations": annotations}}))
                }
            }
        };
        cluster.pass(15);
        assert_eq!(cluster.training_condition("a", "CheckpointOverdue"), Value::Null, "store {store}");
        cluster.pass(25);
        let condition = cluster.training_condition("a", "CheckpointOverdue");
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("True"), &json!("IntervalMissed")),
            "store {store}"
        );
        assert!(condition["message"].as_str().unwrap().contains("20s"), "{condition}");
        for step in 1..4 {
            save(&mut cluster, step);
            cluster.pass(15);
            let condition = cluster.training_condition("a", "CheckpointOverdue");
            assert_eq!(condition["reason"], "IntervalKept", "store {store}, step {step}");
        }
    }
}

#[test]
fn unavailable_store_delays_training_start_by_about_a_minute() {
    let mut cluster = with_store();
    save(&mut cluster, "a", 1);
    cluster.store_fault = Some("CheckpointStore main: connection refused".into());
    cluster.put(Kind::TrainingJob, training("a", saving(json!({}))));
    cluster.pass(50);
    assert!(!cluster.has_job("a-worker"), "it could lose what it had done");
    let condition = cluster.training_condition("a", "CheckpointStoreUnavailable");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("RequestFailed")));
    assert!(cluster.looks <= 12, "{} looks", cluster.looks);
    cluster.pass(15);
    assert_eq!(cluster.phase("a"), "Running", "its quota is not held for nothing");
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP"), None);
    cluster.store_fault = None;
    cluster.pass(30);
    assert_eq!(cluster.training_condition("a", "CheckpointStoreUnavailable")["status"], "False");
}

#[test]
fn failed_checkpoint_deletion_is_retried_later() {
    let mut cluster = with_store();
    cluster.put(Kind::TrainingJob, training("a", saving(json!({"maxCheckpoints": 1}))));
    cluster.pass(5);
    let fault = WriteOutcome::StoreFailed("access denied".into());
    cluster.faults.push((Purpose::DeleteCheckpoints, fault, false));
    save(&mut cluster, "a", 1);
    cluster.pass(1);
    save(&mut cluster, "a", 2);
    cluster.pass(60);
    assert_eq!(kept(&cluster, "a"), ["step-2"]);
    assert_eq!(cluster.count(Purpose::DeleteCheckpoints), 2);
}

#[test]
fn missing_store_stalls_training_job_and_names_existing_stores() {
    let mut cluster = cluster("2");
    declare(&mut cluster, "other");
    cluster.put(Kind::TrainingJob, training("a", saving(json!({}))));
    cluster.pass(5);
    assert!(!cluster.has_job("a-worker"));
    let condition = cluster.training_condition("a", "Stalled");
    assert_eq!(condition["reason"], "CheckpointStoreNotFound");
    let message = condition["message"].as_str().unwrap();
    for word in ["spec.checkpoint.store", "\"main\"", "other"] {
        assert!(message.contains(word), "{message}");
    }
    declare(&mut cluster, "main");
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Running");
    assert_eq!(cluster.training_condition("a", "Stalled"), Value::Null);
}

#[test]
fn victim_among_equals_is_the_one_with_latest_checkpoint() {
    let mut cluster = cluster("4");
    declare(&mut cluster, "main");
    let preemption = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preemption);
    cluster.set_class("high", 9);
    for name in ["first", "second"] {
        cluster.put(Kind::TrainingJob, training(name, saving(json!({}))));
        cluster.pass(30);
    }
    save(&mut cluster, "first", 1);
    cluster.pass(12);
    cluster.put(Kind::TrainingJob, training("urgent", json!({"schedulingConfig": {"priority": "high"}})));
    cluster.pass(3);
    assert_eq!((cluster.phase("first"), cluster.phase("second")), ("Queued", "Running"));
}

#[test]
fn checkpoints_of_former_store_are_neither_resumed_nor_deleted() {
    // The store gets another bucket, or the job names another store with another bucket.
    for renamed in [false, true] {
        let what = if renamed { "another store" } else { "another bucket" };
        let move_away = |cluster: &mut Cluster| match renamed {
            false => declare_in(cluster, "main", "c"),
            true => {
                declare_in(cluster, "other", "c");
                let store = json!({"spec": {"checkpoint": {"store": "other"}}});
                cluster.edit(Kind::TrainingJob, "team", "a", &store);
            }
        };
        let mut cluster = with_store();
        cluster.put(Kind::TrainingJob, training("a", saving(json!({"maxCheckpoints": 1}))));
        cluster.pass(5);
        save(&mut cluster, "a", 30);
        cluster.pass(12);
        assert_eq!(cluster.training("a")["status"]["checkpoint"]["latest"]["path"], "s3://b/all/team/a/step-30");
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
        cluster.pass(40);
        // The new bucket has two checkpoints: `step-30`, as the old bucket has, and `step-29`, which the old bucket lacks.
        for step in [29, 30] {
            save_in(&mut cluster, "c", "a", step);
        }
        let deletions = cluster.count(Purpose::DeleteCheckpoints);
        cluster.store_fault = Some("CheckpointStore: connection refused".into());
        move_away(&mut cluster);
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": false}}));
        cluster.pass(55);
        assert!(!cluster.has_job("a-worker"), "{what}: it has not answered");
        cluster.pass(15);
        assert_eq!(variable(&cluster, "a-worker", "BERTH_CHECKPOINT_URI").as_deref(), Some("s3://c/all/team/a"));
        assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_URI"), None, "{what}");
        let shown = cluster.training("a")["status"]["checkpoint"].clone();
        assert!(shown["latest"].is_null() && shown["checkpoints"].is_null(), "{what}: {shown}");
        assert_eq!(cluster.count(Purpose::DeleteCheckpoints), deletions, "{what}: nothing is known of it");
        cluster.store_fault = None;
        cluster.pass(30);
        let shown = cluster.training("a")["status"]["checkpoint"].clone();
        assert_eq!(shown["latest"]["path"], "s3://c/all/team/a/step-30", "{what}: {shown}");
        assert_eq!(kept(&cluster, "a"), ["step-30"], "{what}: nothing happens where it was");
    }
}

#[test]
fn store_listing_from_before_store_edit_is_ignored() {
    let mut cluster = with_store();
    cluster.put(Kind::TrainingJob, training("a", saving(json!({}))));
    cluster.pass(5);
    save(&mut cluster, "a", 30);
    // The CheckpointStore is edited while control lists the checkpoints in it.
    let looks = cluster.looks;
    loop {
        let step = cluster.control.step(cluster.now());
        let looked = step.tasks.iter().any(|write| write.purpose == Purpose::ListCheckpoints);
        if looked {
            declare_in(&mut cluster, "main", "c");
        }
        cluster.take(step);
        if looked {
            break;
        }
        cluster.set_now(cluster.now().checked_add(jiff::SignedDuration::from_secs(1)).unwrap());
    }
    cluster.pass(3);
    assert!(cluster.looks >= looks + 2, "the other place is looked into at once");
    let shown = cluster.training("a")["status"]["checkpoint"].clone();
    assert!(shown["latest"].is_null(), "{shown}");
}

#[test]
fn waiting_training_job_gets_no_quota_after_store_is_deleted() {
    let mut cluster = with_store();
    cluster.put(Kind::TrainingJob, training("first", json!({})));
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, training("a", saving(json!({}))));
    cluster.pass(3);
    let gone = json!({"metadata": {"name": "main"}, "spec": {"s3": {"bucket": "b"}, "prefix": "all"}});
    let gone = serde_json::from_value(gone).unwrap();
    cluster.control.observe(Observation::CheckpointStore(Change::Delete(gone)), cluster.now());
    cluster.complete("first-worker");
    cluster.pass(10);
    let conditions = cluster.workload_of_training("a").unwrap()["status"]["conditions"].clone();
    let waits = conditions.as_array().unwrap().iter().find(|one| one["type"] == "QuotaReserved").unwrap().clone();
    assert_eq!((&waits["status"], &waits["reason"]), (&json!("False"), &json!("Misconfigured")), "{waits}");
    let text = "spec.checkpoint.store: \"main\" is no CheckpointStore; those that exist: there is none";
    assert_eq!(waits["message"], json!(text));
    declare(&mut cluster, "main");
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Running", "{:?}", cluster.writes);
}
