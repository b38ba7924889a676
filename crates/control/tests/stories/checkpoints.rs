//! TrainingJobs that save checkpoints: Berth requests a checkpoint before it stops a job, and starts a job with the checkpoint from which the job continues.

use berth_control::write::{EventType, Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::training::{cluster, training};

/// A ClusterQueue of the given number of cpus with two priority classes, in which the higher class preempts.
pub(crate) fn preempting(quota: &str) -> Cluster {
    let mut cluster = cluster(quota);
    cluster.edit(
        Kind::ClusterQueue,
        "",
        "cq",
        &json!({"spec": {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}}),
    );
    for (name, value) in [("low", 1), ("high", 10)] {
        cluster.set_class(name, value);
    }
    cluster
}

pub(crate) fn of(class: &str, more: Value) -> Value {
    let mut spec = json!({"schedulingConfig": {"priority": class}});
    crate::stories::cluster::merge(&mut spec, &more);
    spec
}

pub(crate) fn saving() -> Value {
    of("low", json!({"checkpoint": {"interval": "10m"}}))
}

pub(crate) fn save(cluster: &mut Cluster, name: &str, step: u32) {
    let now = cluster.now().to_string();
    let annotations = json!({
        "berth.dev/last-checkpoint-time": now, "berth.dev/last-checkpoint-step": step.to_string(),
        "berth.dev/last-checkpoint-uri": format!("s3://b/{name}/{step}"),
    });
    cluster.edit(Kind::TrainingJob, "team", name, &json!({"metadata": {"annotations": annotations}}));
}

pub(crate) fn set_policy(cluster: &mut Cluster, preemption: Value) {
    let spec = json!({"clusterQueues": ["cq"], "preemption": preemption});
    cluster.put(Kind::QueuePolicy, json!({"metadata": {"name": "p"}, "spec": spec}));
}

fn variables(cluster: &Cluster, name: &str) -> Vec<(String, String)> {
    let all = cluster.job(name)["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let resume = |variable: &&Value| variable["name"].as_str().unwrap().starts_with("BERTH_RESUME");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.iter().filter(resume).map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect()
}

#[test]
fn victim_saves_checkpoint_before_stop_and_resumes_from_it() {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("victim", saving()));
    cluster.pass(5);
    assert_eq!(variables(&cluster, "victim-worker"), []);
    cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
    cluster.pass(10);
    assert!(cluster.has_job("victim-worker"), "its time is not over");
    let (uid, reported) = cluster.annotated_pods.first().cloned().unwrap();
    assert_eq!(json!(uid), cluster.training("victim")["metadata"]["uid"]);
    assert!(reported["berth.dev/stop-reason"].starts_with("Preempted: "), "{reported:?}");
    let asked = cluster.training_condition("victim", "CheckpointRequested");
    assert_eq!((&asked["status"], &asked["reason"]), (&json!("True"), &json!("Preempted")));
    assert!(asked["message"].as_str().unwrap().contains(&reported["berth.dev/stop-at"]), "{asked}");
    assert_eq!(cluster.phase("victim"), "Queued");
    save(&mut cluster, "victim", 700);
    cluster.pass(1);
    assert!(!cluster.has_job("victim-worker"), "it has saved");
    assert_eq!(cluster.annotated_pods.len(), 1, "told once");
    cluster.pass(5);
    assert_eq!(cluster.phase("urgent"), "Running");
    let asked = cluster.training_condition("victim", "CheckpointRequested");
    assert_eq!((&asked["status"], &asked["reason"]), (&json!("False"), &json!("CheckpointSaved")));
    let both = cluster.notices.iter().find(|notice| {
        notice.reason == "Preempted" && notice.key.kind == Kind::TrainingJob && notice.event_type == EventType::Normal
    });
    let message = &both.unwrap().message;
    assert!(
        message.contains("of ClusterQueue cq takes") && message.ends_with("ClusterQueue cq: InClusterQueue"),
        "{message}"
    );
    let stopped = cluster.notices.iter().find(|notice| notice.reason == "Stopped").unwrap();
    assert!(stopped.message.ends_with("; saved its checkpoint of step 700"), "{}", stopped.message);
    cluster.complete("urgent-worker");
    cluster.pass(5);
    let started = cluster.notices.iter().filter(|notice| notice.reason == "Started");
    let started: Vec<&str> = started.filter(|notice| notice.key.name == "victim").map(|n| n.message.as_str()).collect();
    let words = "Created Job victim-worker, admitted by clusterQueue cq: flavor spot (spot capacity)";
    assert_eq!(started, [words, &format!("{words}; it goes on from its checkpoint of step 700")]);
    let events = cluster.training("victim")["status"]["events"].as_array().unwrap();
    let admitted: Vec<&Value> = events.iter().filter(|event| event["reason"] == "Admitted").collect();
    let words = "Admitted by ClusterQueue cq: flavor spot (spot capacity)";
    assert!(admitted.len() == 2 && admitted.iter().all(|event| event["message"] == words), "{events:?}");
    let wanted = [("BERTH_RESUME_URI", "s3://b/victim/700"), ("BERTH_RESUME_STEP", "700")];
    assert_eq!(variables(&cluster, "victim-worker"), wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn checkpoint_in_second_of_request_counts_only_if_saved_afterwards() {
    for failover in [false, true] {
        let mut cluster = preempting("2");
        cluster.put(Kind::TrainingJob, training("victim", saving()));
        cluster.pass(5);
        save(&mut cluster, "victim", 700);
        cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
        // No time passes in the rest of the test.
        cluster.settle();
        assert_eq!(cluster.annotated_pods.len(), 1, "what it saved a moment before is no answer");
        assert!(cluster.has_job("victim-worker"), "it may save");
        if failover {
            // A replica that did not evict the job cannot know what the job had saved before, and must not wait for a checkpoint that never comes.
            cluster.restart();
        } else {
            save(&mut cluster, "victim", 701);
        }
        cluster.settle();
        assert!(!cluster.has_job("victim-worker"), "it has saved");
        cluster.pass(5);
        assert_eq!(cluster.phase("urgent"), "Running");
        let condition = cluster.training_condition("victim", "CheckpointRequested");
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("CheckpointSaved")));
    }
}

#[test]
fn checkpoint_request_appears_in_status_before_its_immediate_answer() {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("victim", saving()));
    cluster.pass(5);
    // Control writes the phase of the suspended job before it notifies the pods, and the notification does not change the phase.
    cluster.edit(Kind::TrainingJob, "team", "victim", &json!({"spec": {"suspend": true}}));
    cluster.settle();
    assert_eq!(cluster.training_condition("victim", "CheckpointRequested")["status"], "True");
    save(&mut cluster, "victim", 700);
    cluster.pass(5);
    assert_eq!(cluster.training_condition("victim", "CheckpointRequested")["reason"], "CheckpointSaved");
    let reasons = |cluster: &Cluster| -> Vec<String> {
        let events = cluster.training("victim")["status"]["events"].as_array().unwrap().clone();
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    };
    let reported = reasons(&cluster);
    let place = |reason: &str| reported.iter().position(|reported| reported == reason);
    assert!(place("CheckpointRequested").is_some(), "{reported:?}");
    assert!(place("CheckpointRequested") < place("CheckpointSaved"), "{reported:?}");
}

#[test]
fn checkpoint_saved_before_status_shows_request_is_still_reported() {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("victim", saving()));
    cluster.pass(5);
    cluster.keep_pods_of(Kind::TrainingJob, "victim");
    cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
    // Control notifies the pods, and the pods save a checkpoint before control does anything else.
    while cluster.annotated_pods.is_empty() {
        let step = cluster.control.step(cluster.now());
        assert!(!step.tasks.is_empty(), "{:?}", cluster.writes);
        cluster.take(step);
    }
    assert_eq!(cluster.training_condition("victim", "CheckpointRequested"), Value::Null);
    save(&mut cluster, "victim", 700);
    cluster.pass(3);
    assert!(!cluster.has_job("victim-worker"));
    // The status of the job shows the checkpoint when the last pod is gone, before the quota is free.
    cluster.pods_left.clear();
    cluster.pass(30);
    assert!(!cluster.is("victim", "QuotaReserved"));
    let condition = cluster.training_condition("victim", "CheckpointRequested");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("CheckpointSaved")));
}

#[test]
fn victim_without_new_checkpoint_stops_when_grace_period_ends() {
    // The grace period that a policy sets, the seconds after which the job still exists, and the seconds after which the job is gone.
    for (policy, there, gone) in [(None, 28, 33), (Some("5s"), 3, 8), (Some("0s"), 0, 1)] {
        let mut cluster = preempting("2");
        if let Some(period) = policy {
            set_policy(&mut cluster, json!({"gracePeriod": period}));
        }
        cluster.put(Kind::TrainingJob, training("victim", saving()));
        save(&mut cluster, "victim", 100);
        cluster.pass(5);
        cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
        cluster.pass(there);
        assert!(there == 0 || cluster.has_job("victim-worker"), "{policy:?}: what was saved before does not count");
        cluster.pass(gone - there);
        assert!(!cluster.has_job("victim-worker"), "{policy:?}");
        cluster.pass(5);
        let condition = cluster.training_condition("victim", "CheckpointRequested");
        let reason = if there == 0 { Value::Null } else { json!("NoCheckpointInTime") };
        assert_eq!(condition["reason"], reason, "{policy:?}");
    }
}

#[test]
fn victim_without_checkpoint_setting_or_ready_pods_stops_at_once() {
    for (saves, unready) in [(false, false), (true, true)] {
        let mut cluster = preempting("2");
        cluster.pods_stay_unready = unready;
        cluster.put(Kind::TrainingJob, training("victim", if saves { saving() } else { of("low", json!({})) }));
        cluster.pass(5);
        cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
        cluster.pass(2);
        assert!(!cluster.has_job("victim-worker"), "saves {saves}, unready {unready}");
        assert_eq!(cluster.count(Purpose::NotifyPods), 0);
    }
}

#[test]
fn victim_stops_in_time_despite_failed_notices_and_failover() {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("victim", saving()));
    cluster.pass(5);
    cluster.faults.push((Purpose::NotifyPods, WriteOutcome::Busy(1_000), false));
    cluster.faults.push((Purpose::NotifyPods, WriteOutcome::Refused("pods is forbidden".into()), false));
    cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
    cluster.pass(10);
    assert_eq!(cluster.count(Purpose::NotifyPods), 2, "tried again while it is busy, and not when it is refused");
    cluster.restart();
    cluster.pass(10);
    assert!(cluster.has_job("victim-worker") && cluster.annotated_pods.len() == 1, "whoever comes next tells them");
    cluster.pass(15);
    assert_eq!((cluster.phase("urgent"), cluster.phase("victim")), ("Running", "Queued"));
}

#[test]
fn suspension_of_training_job_waits_for_its_checkpoint() {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("a", saving()));
    cluster.pass(5);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(5);
    assert!(cluster.has_job("a-worker"));
    save(&mut cluster, "a", 5);
    cluster.pass(2);
    assert!(!cluster.has_job("a-worker"));
    assert_eq!(cluster.phase("a"), "Suspended");
}

#[test]
fn preemption_among_equal_jobs_evicts_job_with_newest_checkpoint() {
    let mut cluster = preempting("4");
    for name in ["first", "second"] {
        cluster.put(Kind::TrainingJob, training(name, saving()));
        cluster.pass(60);
    }
    save(&mut cluster, "first", 10);
    cluster.pass(5);
    cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({}))));
    cluster.pass(5);
    assert_eq!((cluster.phase("first"), cluster.phase("second")), ("Queued", "Running"));
}

#[test]
fn training_job_preempts_only_as_its_preemption_policy_allows() {
    for (policy, preempts_equal, preempts_lower) in [
        (None, true, true),
        (Some("PreemptAlways"), true, true),
        (Some("PreemptLower"), false, true),
        (Some("Never"), false, false),
    ] {
        for (class, preempts) in [("high", preempts_equal), ("low", preempts_lower)] {
            let mut cluster = preempting("2");
            let mut more = of("high", json!({"schedulingConfig": {"preemptionPolicy": policy}}));
            if policy.is_none() {
                more["schedulingConfig"].as_object_mut().unwrap().remove("preemptionPolicy");
            }
            // The job `asks` waits from the beginning, so that the job that holds quota is the newer job.
            more["suspend"] = json!(true);
            cluster.put(Kind::TrainingJob, training("asks", more));
            cluster.pass(5);
            cluster.put(Kind::TrainingJob, training("holds", of(class, json!({}))));
            cluster.pass(5);
            cluster.edit(Kind::TrainingJob, "team", "asks", &json!({"spec": {"suspend": false}}));
            cluster.pass(20);
            let got = cluster.phase("asks") == "Running";
            assert_eq!(got, preempts, "{policy:?} against {class}: {}", cluster.training("asks")["status"]);
        }
    }
}

#[test]
fn pending_training_job_preempts_after_its_preemption_policy_changes() {
    let mut cluster = preempting("2");
    cluster.put(Kind::TrainingJob, training("holds", of("low", json!({}))));
    cluster.pass(5);
    let never = json!({"schedulingConfig": {"preemptionPolicy": "Never"}});
    cluster.put(Kind::TrainingJob, training("asks", of("high", never)));
    cluster.pass(20);
    assert_eq!(cluster.phase("asks"), "Queued");
    let lower = json!({"spec": {"schedulingConfig": {"preemptionPolicy": "PreemptLower"}}});
    cluster.edit(Kind::TrainingJob, "team", "asks", &lower);
    cluster.pass(20);
    assert_eq!(cluster.phase("asks"), "Running");
}

#[test]
fn batch_job_gets_grace_period_only_with_queue_policy() {
    for (policy, waits) in [(false, false), (true, true)] {
        let mut cluster = preempting("1");
        if policy {
            set_policy(&mut cluster, json!({"gracePeriod": "20s"}));
        }
        let with = |name: &str, class: &str, cluster: &Cluster| {
            let mut job = job(name, "lq", "1", true);
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
            job["metadata"]["annotations"] = json!({"berth.dev/last-checkpoint-time": cluster.now().to_string()});
            job
        };
        let object = with("victim", "low", &cluster);
        cluster.put(Kind::JOB, object);
        cluster.pass(5);
        let object = with("urgent", "high", &cluster);
        cluster.put(Kind::JOB, object);
        cluster.pass(10);
        assert_eq!(cluster.job("victim")["spec"]["suspend"] != json!(true), waits, "policy {policy}");
        let saved = json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": cluster.now().to_string()}}});
        cluster.edit(Kind::JOB, "team", "victim", &saved);
        cluster.pass(3);
        assert_eq!(cluster.job("victim")["spec"]["suspend"], json!(true));
        assert!(cluster.is("urgent", "Admitted"));
    }
}
