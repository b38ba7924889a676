//! Scale-ups of elastic TrainingJobs whose pods read the number of workers only when they start: all pods start again, so that Berth waits for a checkpoint
//! before the scale-up.

use berth_control::write::{Kind, Purpose};
use serde_json::json;

use crate::stories::checkpoints::save;
use crate::stories::cluster::Cluster;
use crate::stories::elastic::{Judged, cluster, elastic, other, with_priorities};
use crate::stories::restarts::{held_small, message_of, restarted_on_scale, saving, uid, variable};

#[test]
fn elastic_job_grows_by_restart_once_it_has_saved() {
    let mut cluster = held_small(saving("a"));
    let condition = cluster.training_condition("a", "Elastic");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("ScalePolicy")), "{condition}");
    cluster.complete("first");
    let slices = cluster.count(Purpose::CreateWorkload);
    cluster.pass_judged(60, "it has saved nothing");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::CreateWorkload)), (2, slices), "{:?}", cluster.writes);
    let before = uid(&cluster, "a-worker");
    save(&mut cluster, "a", 700);
    cluster.pass_judged(10, "it has saved");
    assert_eq!((cluster.workers("a"), cluster.slices("a").len()), (4, 1), "{:?}", cluster.writes);
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
    assert_ne!(uid(&cluster, "a-worker"), before);
    assert_eq!(variable(&cluster, "a-worker", "NUM_PROCESSES"), "4");
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP"), "700");
    assert!(message_of(&cluster, "ScalingUp").starts_with("from 2 to 4 workers, for which quota is reserved"));
    let (before, starts) = (uid(&cluster, "a-worker"), cluster.count(Purpose::StartTraining));
    cluster.pass_judged(120, "at its most");
    assert_eq!((uid(&cluster, "a-worker"), cluster.count(Purpose::StartTraining)), (before, starts));
    cluster.complete("a-worker");
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Succeeded");
    assert!(cluster.slices("a").is_empty());
}

#[test]
fn scale_up_restart_waits_for_checkpoint_newer_than_idle_quota() {
    let mut cluster = held_small(saving("a"));
    save(&mut cluster, "a", 700);
    cluster.pass_judged(70, "what it saved is old");
    cluster.complete("first");
    let (before, slices) = (uid(&cluster, "a-worker"), cluster.count(Purpose::CreateWorkload));
    cluster.pass_judged(120, "it would lose what it did since");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::CreateWorkload)), (2, slices), "{:?}", cluster.writes);
    assert_eq!(uid(&cluster, "a-worker"), before);
    save(&mut cluster, "a", 900);
    cluster.pass_judged(10, "it has saved");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{:?}", cluster.writes);
    assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP"), "900");
    assert!(cluster.annotated_pods.is_empty(), "it need not save again: {:?}", cluster.annotated_pods);
}

#[test]
fn job_waiting_for_checkpoint_does_not_block_growth_of_others() {
    let mut cluster = with_priorities(cluster());
    for name in ["first", "second"] {
        cluster.put(Kind::JOB, other(name, "2", 1));
    }
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, saving("a"));
    cluster.pass_judged(12, "two");
    save(&mut cluster, "a", 700);
    cluster.put(Kind::TrainingJob, elastic("b", json!({})));
    cluster.complete("second");
    cluster.pass_judged(12, "two each");
    assert_eq!((cluster.workers("a"), cluster.workers("b")), (2, 2), "{:?}", cluster.writes);
    cluster.complete("first");
    cluster.pass_judged(40, "idle");
    assert_eq!((cluster.workers("a"), cluster.workers("b")), (2, 4), "{:?}", cluster.writes);
}

/// Two cpus of a ClusterQueue have been idle for a while. TrainingJob `a` waits for a checkpoint before it grows into these idle cpus, and TrainingJob `b` may
/// grow by one worker soon afterwards.
fn two_that_could_grow() -> Cluster {
    let mut cluster = with_priorities(cluster());
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"preemption": {"withinClusterQueue": "Never"}}}));
    for name in ["first", "second"] {
        cluster.put(Kind::JOB, other(name, "2", 1));
    }
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, restarted_on_scale("a", &json!({"checkpoint": {"interval": "10m"}})));
    cluster.pass_judged(12, "a has two");
    cluster.complete("second");
    cluster.pass_judged(8, "room for b");
    let mut before = elastic("b", json!({"scaleUpCooldown": "25s"}));
    before["metadata"]["labels"] = json!({"kueue.x-k8s.io/priority-class": "p100"});
    before["spec"]["resources"]["maxReplicas"] = json!(3);
    before["spec"]["elasticConfig"]["maxWorkers"] = json!(3);
    cluster.put(Kind::TrainingJob, before);
    cluster.pass_judged(5, "b has two");
    cluster.complete("first");
    cluster
}

#[test]
fn checkpoint_stays_valid_for_scale_up_while_another_job_grows() {
    // One checkpoint is enough for `a`, whether `a` saves before, during or after the step in which `b` grows.
    for second in 12..30 {
        let mut cluster = two_that_could_grow();
        cluster.pass_judged(second, "idle");
        assert_eq!(cluster.workers("a"), 2, "{second}: {:?}", cluster.writes);
        save(&mut cluster, "a", 700);
        cluster.pass_judged(45, "both grow");
        assert_eq!((cluster.workers("a"), cluster.workers("b")), (3, 3), "{second}: {:?}", cluster.writes);
    }
}

#[test]
fn idle_quota_from_before_elasticity_was_reenabled_is_not_remembered() {
    let mut cluster = held_small(saving("a"));
    cluster.complete("first");
    cluster.pass_judged(20, "idle");
    let elastic = |enabled: bool| json!({"spec": {"elasticConfig": {"enabled": enabled}}});
    cluster.edit(Kind::TrainingJob, "team", "a", &elastic(false));
    cluster.pass_judged(20, "not elastic");
    save(&mut cluster, "a", 700);
    cluster.pass_judged(300, "its checkpoint becomes old");
    cluster.edit(Kind::TrainingJob, "team", "a", &elastic(true));
    let before = uid(&cluster, "a-worker");
    cluster.pass_judged(60, "it would lose what it did since");
    assert_eq!((cluster.workers("a"), uid(&cluster, "a-worker")), (2, before), "{:?}", cluster.writes);
    save(&mut cluster, "a", 900);
    cluster.pass_judged(20, "it has saved");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{:?}", cluster.writes);
}

/// A cluster in which the new workload slice is admitted, and the job is asked to save before its restart, because the last checkpoint was some time old when
/// the checkpoint was reported.
fn asked_to_grow() -> Cluster {
    let mut cluster = held_small(saving("a"));
    cluster.complete("first");
    cluster.pass_judged(90, "it has saved nothing");
    let begun = cluster.now().checked_sub(jiff::SignedDuration::from_secs(70)).unwrap();
    let reported = json!({
        "berth.dev/last-checkpoint-time": begun.to_string(), "berth.dev/last-checkpoint-step": "700",
    });
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"metadata": {"annotations": reported}}));
    cluster.pass_judged(8, "asked");
    let (_, reported) = cluster.annotated_pods.first().cloned().expect("its pods were told");
    assert!(reported["berth.dev/save-reason"].starts_with("ScalingUp: from 2 to 4 workers"), "{reported:?}");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 4), "{:?}", cluster.writes);
    cluster
}

#[test]
fn elastic_job_gets_time_to_save_before_scale_up_restart() {
    for saves in [true, false] {
        let mut cluster = asked_to_grow();
        let asked = cluster.training_condition("a", "CheckpointRequested");
        assert_eq!((&asked["status"], &asked["reason"]), (&json!("True"), &json!("ScalingUp")));
        if saves {
            save(&mut cluster, "a", 900);
        }
        cluster.pass_judged(if saves { 5 } else { 40 }, "it restarts");
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{saves}: {:?}", cluster.writes);
        let from = if saves { "900" } else { "700" };
        assert_eq!(variable(&cluster, "a-worker", "BERTH_RESUME_STEP"), from);
        assert_eq!(cluster.annotated_pods.len(), 1, "told once");
    }
}

#[test]
fn workers_not_yet_started_are_given_up_without_restart() {
    let mut cluster = asked_to_grow();
    let before = uid(&cluster, "a-worker");
    let up = cluster.training_condition("a", "Running");
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(5, "a newcomer");
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2));
    assert_eq!((uid(&cluster, "a-worker"), cluster.phase("a")), (before.clone(), "Running"));
    let reported = message_of(&cluster, "ScalingDown");
    assert!(
        reported.starts_with("from 4 to 2 workers: ") && reported.ends_with(')'),
        "nothing starts again: {reported}"
    );
    cluster.pass_judged(60, "and stays so");
    assert_eq!((uid(&cluster, "a-worker"), cluster.count(Purpose::Evict)), (before.clone(), 0));
    assert_eq!(
        (cluster.training_condition("a", "Running"), cluster.count(Purpose::ScaleTraining)),
        (up, 0),
        "it is the same run"
    );
    // A job whose scale-up Berth has given up may grow later, like any job that saves checkpoints.
    cluster.complete("urgent");
    cluster.pass_judged(20, "idle again");
    save(&mut cluster, "a", 900);
    cluster.pass_judged(20, "it has saved");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "{:?}", cluster.writes);
    assert_ne!(uid(&cluster, "a-worker"), before);
}

#[test]
fn running_job_without_checkpoints_does_not_grow_and_reports_it() {
    let mut cluster = held_small(restarted_on_scale("a", &json!({})));
    cluster.complete("first");
    let slices = cluster.count(Purpose::CreateWorkload);
    cluster.pass_judged(120, "idle");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::CreateWorkload)), (2, slices), "{:?}", cluster.writes);
    let condition = cluster.training_condition("a", "Elastic");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("ShrinksOnly")), "{condition}");
    assert!(condition["message"].as_str().unwrap().contains("all pods of a JAXJob start again"), "{condition}");
}
