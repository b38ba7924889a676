//! Mutating policies of the cluster that change Jobs at their creation: the quota of a TrainingJob does not cover the requests of a Job that was changed.

use berth_control::write::{EventType, Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::training::{cluster, training};

const ADVICE: &str =
    "Say in the TrainingJob what is added, or exempt Jobs with the label berth.dev/training-job from what changes them";

/// A pod spec with a sidecar of half a cpu.
fn with_sidecar() -> Value {
    let requests = json!({"requests": {"cpu": "500m"}});
    let sidecar = json!({"name": "s", "image": "i", "restartPolicy": "Always", "resources": requests});
    json!({"template": {"spec": {"initContainers": [sidecar]}}})
}

/// A ClusterQueue of the given number of cpus, a TrainingJob of two workers of one cpu each, and a mutating policy that adds fields to each new Job.
fn mutating(quota: &str, adds: Value, more: Value) -> Cluster {
    let mut cluster = cluster(quota);
    cluster.add_to_jobs(Some(adds));
    cluster.put(Kind::TrainingJob, training("a", more));
    cluster
}

fn is_active(cluster: &Cluster) -> bool {
    cluster.workload_object("a")["spec"]["active"] != json!(false)
}

/// How often Berth has made the Job of the TrainingJob.
fn tries(cluster: &Cluster) -> usize {
    cluster.count(Purpose::StartTraining)
}

#[test]
fn training_job_whose_job_is_altered_frees_quota_with_reason() {
    for (adds, words) in [
        (with_sidecar(), "1500m of cpu for each pod, where quota is held for 1"),
        (json!({"parallelism": 50, "completions": 50}), "50 pods, where quota is held for 2"),
    ] {
        let mut cluster = mutating("2", adds, json!({}));
        cluster.settle();
        assert!(!cluster.has_job("a-worker"), "{words}: {:?}", cluster.writes);
        assert_eq!((tries(&cluster), cluster.evictions_of("a", "JobAltered")), (1, 1), "{words}");
        assert!(cluster.workload_object("a")["status"]["admission"].is_null(), "{words}");
        cluster.pass(30);
        assert_eq!(cluster.phase("a"), "Queued", "{words}");
        let message =
            format!("Job a-worker was changed as it was made: it wants {words}. {ADVICE}. Tried again after 60s");
        let admitted = cluster.training_condition("a", "Admitted");
        assert_eq!((&admitted["reason"], &admitted["message"]), (&json!("JobAltered"), &json!(message)), "{words}");
        let of_job = cluster.notices.iter().find(|reported| reported.reason == "JobAltered").unwrap();
        assert_eq!((of_job.key.kind, of_job.event_type), (Kind::TrainingJob, EventType::Warning), "{words}");
        assert_eq!(of_job.message, message);
        // Other jobs can use the quota of the TrainingJob until the next try.
        cluster.put(Kind::JOB, job("b", "lq", "2", true));
        cluster.pass(5);
        assert!(cluster.is("b", "Admitted"), "{words}: {:?}", cluster.writes);
    }
}

#[test]
fn training_job_altered_in_each_of_five_tries_is_deactivated() {
    for restarts in [false, true] {
        let mut cluster = mutating("2", with_sidecar(), json!({}));
        for (seconds, made) in [(50, 1), (50, 2), (300, 3), (450, 4), (3_600, 5), (7_200, 5)] {
            cluster.pass(seconds);
            assert_eq!(tries(&cluster), made, "{restarts}: {:?}", cluster.writes);
            assert!(!cluster.has_job("a-worker"));
            if restarts {
                cluster.restart();
            }
        }
        assert_eq!((is_active(&cluster), cluster.phase("a")), (false, "Suspended"), "{restarts}");
        assert!(cluster.workload_object("a")["status"]["admission"].is_null());
        let condition = cluster.training_condition("a", "Suspended");
        assert_eq!(condition["reason"], "WorkloadDeactivated");
        let until =
            "until its TrainingJob asks for other pods, or was suspended and is resumed, or spec.active is true again";
        let words =
            "changes of Job a-worker as it is made: it wants 1500m of cpu for each pod, where quota is held for 1";
        let message = format!("The workload is deactivated due to {words}. {ADVICE}. Given up after 5 tries, {until}");
        assert_eq!(condition["message"], json!(message), "{restarts}");
    }
}

#[test]
fn deactivated_training_job_restarts_after_edit_reactivation_or_resume() {
    for way in ["edit", "activate", "resume"] {
        let mut cluster = mutating("3", with_sidecar(), json!({}));
        cluster.pass(1_000);
        assert_eq!((tries(&cluster), is_active(&cluster)), (5, false), "{way}: {:?}", cluster.writes);
        let edit = |cluster: &mut Cluster, spec: &Value| cluster.edit(Kind::TrainingJob, "team", "a", spec);
        edit(&mut cluster, &json!({"metadata": {"annotations": {"seen": "by me"}}}));
        cluster.pass(60);
        assert_eq!((tries(&cluster), is_active(&cluster)), (5, false), "{way}: nothing was done about it");
        if way == "edit" {
            // The edited TrainingJob itself requests the sidecar that the mutating policy adds.
            edit(&mut cluster, &json!({"spec": with_sidecar()}));
        } else {
            cluster.add_to_jobs(None);
            cluster.pass(60);
            assert!(!is_active(&cluster), "nobody sees what the policies of a cluster do");
        }
        match way {
            "activate" => {
                let workload = cluster.workload_object("a")["metadata"]["name"].as_str().unwrap().to_owned();
                cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": true}}));
            }
            "resume" => {
                edit(&mut cluster, &json!({"spec": {"suspend": true}}));
                cluster.pass(10);
                assert_eq!((is_active(&cluster), cluster.phase("a")), (false, "Suspended"));
                edit(&mut cluster, &json!({"spec": {"suspend": false}}));
            }
            _ => {}
        }
        cluster.pass(10);
        assert_eq!((tries(&cluster), is_active(&cluster)), (6, true), "{way}: {:?}", cluster.writes);
        assert_eq!(cluster.phase("a"), "Running", "{way}");
        let cpu = if way == "edit" { "3" } else { "2" };
        assert_eq!(cluster.training("a")["status"]["allocatedResources"]["cpu"], cpu, "{way}");
    }
}

#[test]
fn altered_training_job_gets_five_new_tries_after_reactivation() {
    let mut cluster = mutating("2", with_sidecar(), json!({}));
    cluster.pass(1_000);
    let workload = cluster.workload_object("a")["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": true}}));
    cluster.pass(30);
    assert_eq!((tries(&cluster), is_active(&cluster)), (6, true), "{:?}", cluster.writes);
    cluster.pass(3_600);
    assert_eq!((tries(&cluster), is_active(&cluster)), (10, false), "{:?}", cluster.writes);
}

#[test]
fn mutating_policy_affects_running_training_job_only_after_job_recreation() {
    let mut cluster = cluster("2");
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(60);
    assert_eq!(cluster.phase("a"), "Running");
    cluster.add_to_jobs(Some(with_sidecar()));
    cluster.pass(60);
    assert_eq!((cluster.phase("a"), tries(&cluster)), ("Running", 1), "what runs was made before");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-worker"));
    cluster.pass(2);
    assert_eq!((tries(&cluster), cluster.evictions_of("a", "JobAltered")), (2, 1), "{:?}", cluster.writes);
    assert!(!cluster.has_job("a-worker"));
    cluster.add_to_jobs(None);
    cluster.pass(70);
    assert_eq!((cluster.phase("a"), tries(&cluster)), ("Running", 3), "{:?}", cluster.writes);
    assert!(
        cluster.workload_object("a")["status"]["requeueState"].is_null(),
        "it has run: the next one is the first again"
    );
}

#[test]
fn altered_training_job_is_evicted_without_checkpoint_grace() {
    let mut cluster = mutating("2", with_sidecar(), json!({"checkpoint": {"interval": "10m"}}));
    cluster.settle();
    assert_eq!(cluster.evictions_of("a", "JobAltered"), 1, "{:?}", cluster.writes);
    assert!(!cluster.has_job("a-worker") && cluster.annotated_pods.is_empty(), "{:?}", cluster.writes);
}
