//! Forged objects of a TrainingJob: any client may write an owner reference or a label that names the TrainingJob.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::elastic::Judged;
use crate::stories::training::{cluster, started, suspend, training};

/// A running Job of one cpu that names a TrainingJob as its controller.
fn forged(cluster: &Cluster, name: &str, training: &str) -> Value {
    let mut job = job(name, "lq", "1", false);
    job["metadata"]["ownerReferences"] = cluster.controlled_by(Kind::TrainingJob, training);
    job
}

#[test]
fn job_with_forged_training_job_owner_is_queued_like_others() {
    // The forged Job has the TrainingJob's name with an unknown role, with the role `ps` that the TrainingJob does not have, or an unrelated name.
    for name in ["a-more", "a-ps", "other"] {
        let mut cluster = started("2", json!({}));
        assert_eq!(cluster.phase("a"), "Running");
        let job = forged(&cluster, name, "a");
        cluster.put(Kind::JOB, job);
        cluster.pass(3);
        assert_eq!(cluster.job(name)["spec"]["suspend"], true, "{name}: {:?}", cluster.writes);
        assert!(!cluster.is(name, "Admitted"), "{name}: the quota is in use");
        assert_eq!((cluster.phase("a"), cluster.count(Purpose::StopTraining)), ("Running", 0), "{name}");
        cluster.complete("a-worker");
        cluster.pass(5);
        assert_eq!(cluster.phase("a"), "Succeeded", "{name}");
        // A Job with the name of a role is deleted as a part of the TrainingJob.
        assert!(!cluster.has_job(name) || cluster.is(name, "Admitted"), "{name}: its turn has come");
        assert_eq!(cluster.has_job(name), name != "a-ps");
    }
}

/// Completions and parallelism of a Job.
fn size(cluster: &Cluster, job: &str) -> (Value, Value) {
    let spec = &cluster.job(job)["spec"];
    (spec["completions"].clone(), spec["parallelism"].clone())
}

/// Message of the first event about a Job of a TrainingJob that Berth has stopped.
fn stopped(cluster: &Cluster) -> Option<&str> {
    cluster.notices.iter().find(|notice| notice.reason == "Stopped").map(|reported| reported.message.as_str())
}

#[test]
fn part_with_edited_pod_count_is_recreated_with_admitted_count() {
    // A client changes the TrainingJob's Job to more pods, or to fewer pods.
    for own in [50, 1] {
        let mut cluster = started("2", json!({"jobType": "JAXJob"}));
        let before = cluster.job("a-worker")["metadata"]["uid"].clone();
        let patch = json!({"spec": {"completions": own, "parallelism": own}});
        cluster.edit(Kind::JOB, "team", "a-worker", &patch);
        // Berth deletes the changed Job only when the Job is about ten seconds old, so the test waits twelve seconds.
        cluster.pass(12);
        assert_eq!(size(&cluster, "a-worker"), (json!(2), json!(2)), "{own}: {:?}", cluster.writes);
        assert_ne!(cluster.job("a-worker")["metadata"]["uid"], before, "{own}");
        assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (1, "Running"), "{own}");
        let words = format!("worker: it was changed, and wants {own} pods, where quota is held for 2");
        assert_eq!(stopped(&cluster), Some(&*words));
        assert_eq!(cluster.count(Purpose::Evict), 0, "{own}");
    }
}

#[test]
fn part_replaced_by_forged_job_evicts_training_job() {
    let mut cluster = started("2", json!({"jobType": "JAXJob"}));
    // The forged Job is not even an Indexed Job, as Berth makes the Jobs of a TrainingJob.
    let mut job = forged(&cluster, "a-worker", "a");
    job["spec"]["parallelism"] = json!(50);
    job["spec"].as_object_mut().unwrap().remove("completions");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-worker"));
    cluster.put(Kind::JOB, job);
    cluster.settle();
    assert!(!cluster.has_job("a-worker"), "{:?}", cluster.writes);
    assert_eq!((cluster.count(Purpose::StopTraining), cluster.evictions_of("a", "JobAltered")), (1, 1));
    cluster.pass(62);
    assert_eq!(size(&cluster, "a-worker"), (json!(2), json!(2)), "{:?}", cluster.writes);
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::StopTraining)), ("Running", 1));
}

/// A pod spec with one container of the given resources.
fn container(resources: &Value) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": resources}]})
}

#[test]
fn part_with_requests_beyond_its_quota_is_recreated() {
    let beside = json!({"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
    for (more, asked) in [
        (container(&json!({"requests": {"cpu": "50"}})), 50),
        (container(&json!({"limits": {"cpu": "50"}})), 50),
        (json!({"initContainers": [beside]}), 2),
        (json!({"overhead": {"cpu": "1"}}), 2),
        (json!({"resources": {"requests": {"cpu": "50"}}}), 50),
    ] {
        let mut cluster = started("2", json!({"jobType": "JAXJob"}));
        let before = cluster.job("a-worker")["metadata"]["uid"].clone();
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"template": {"spec": more}}}));
        // Berth deletes the changed Job only when the Job is about ten seconds old, so the test waits twelve seconds.
        cluster.pass(12);
        let job = cluster.job("a-worker");
        assert_ne!(job["metadata"]["uid"], before, "{more}: {:?}", cluster.writes);
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"cpu": "1"}), "{more}");
        assert!(pod["initContainers"].is_null() && pod["overhead"].is_null() && pod["resources"].is_null(), "{more}");
        assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (1, "Running"), "{more}");
        let why = format!("it was changed, and wants {asked} of cpu for each pod, where quota is held for 1");
        assert_eq!(stopped(&cluster), Some(&*format!("worker: {why}")), "{more}");
        assert_eq!(cluster.count(Purpose::Evict), 0, "{more}");
    }
}

#[test]
fn suspended_part_of_running_training_job_is_recreated() {
    for elastic in [false, true] {
        let mut cluster = crate::stories::elastic::with_priorities(crate::stories::elastic::cluster());
        let training_job =
            if elastic { crate::stories::elastic::elastic("a", json!({})) } else { training("a", json!({})) };
        cluster.put(Kind::TrainingJob, training_job);
        cluster.pass(3);
        let before = cluster.job("a-worker")["metadata"]["uid"].clone();
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"suspend": true}}));
        cluster.pass(12);
        let job = cluster.job("a-worker");
        assert_ne!(job["metadata"]["uid"], before, "{elastic}: {:?}", cluster.writes);
        assert_ne!(job["spec"]["suspend"], json!(true), "{elastic}");
        assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (1, "Running"), "{elastic}");
        let reported = stopped(&cluster).unwrap();
        assert!(reported.starts_with("worker: somebody has suspended it"), "{reported}");
        assert_eq!(cluster.count(Purpose::Evict), 0, "{elastic}");
    }
}

/// The repeated suspensions are like those of a controller that stops Jobs outside of working hours.
#[test]
fn part_suspended_again_and_again_is_recreated_ever_less_often() {
    let mut cluster = started("2", json!({}));
    for _ in 0..720 {
        if cluster.has_job("a-worker") {
            cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"suspend": true}}));
        }
        cluster.pass(10);
    }
    let answers = cluster.count(Purpose::StopTraining);
    assert!((5..90).contains(&answers), "{answers} times in two hours");
}

#[test]
fn suspended_part_does_not_delay_recreation_of_part_beyond_quota() {
    let mut cluster = cluster("3");
    let more = json!({"jobType": "TFJob", "roles": [{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]});
    cluster.put(Kind::TrainingJob, training("a", more));
    cluster.pass(60);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-ps"));
    cluster.pass(15);
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::StopTraining)), ("Running", 0));
    cluster.edit(Kind::JOB, "team", "a-ps", &json!({"spec": {"suspend": true}}));
    let spec = container(&json!({"requests": {"cpu": "50"}}));
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"template": {"spec": spec}}}));
    cluster.pass(5);
    let worker = cluster.job("a-worker");
    let asked = &worker["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!((asked, cluster.count(Purpose::StopTraining)), (&json!({"cpu": "1"}), 1), "{:?}", cluster.writes);
    // Berth makes a missing Job of the TrainingJob again while another Job, which a client has suspended, waits for its restart.
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-worker"));
    cluster.pass(5);
    assert!(
        cluster.has_job("a-worker") && cluster.job("a-ps")["spec"]["suspend"] == json!(true),
        "{:?}",
        cluster.writes
    );
    cluster.pass(60);
    assert_ne!(cluster.job("a-ps")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::StopTraining), 2);
}

#[test]
fn elastic_part_with_requests_beyond_its_quota_is_recreated() {
    let mut cluster = crate::stories::elastic::started();
    let before = cluster.job("a-worker")["metadata"]["uid"].clone();
    let more = container(&json!({"requests": {"cpu": "2"}}));
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"template": {"spec": more}}}));
    cluster.pass(12);
    let job = cluster.job("a-worker");
    assert_ne!(job["metadata"]["uid"], before, "{:?}", cluster.writes);
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
    assert_eq!((size(&cluster, "a-worker").0, cluster.count(Purpose::StopTraining)), (json!(4), 1));
}

#[test]
fn part_with_equal_or_lower_requests_is_left_alone() {
    // Resources to which the Job's pods are changed: the admitted request in another notation, with fields that the API server adds, a smaller request, and a
    // request for a resource that the queue does not count.
    for same in [
        json!({"requests": {"cpu": "1000m"}}),
        json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
        json!({"limits": {"cpu": "1"}}),
        json!({"requests": {"cpu": "500m"}}),
        json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
    ] {
        let mut cluster = started("2", json!({}));
        let before = cluster.job("a-worker")["metadata"]["uid"].clone();
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"template": {"spec": container(&same)}}}));
        cluster.pass(20);
        assert_eq!(cluster.job("a-worker")["metadata"]["uid"], before, "{same}: {:?}", cluster.writes);
        assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (0, "Running"), "{same}");
    }
}

#[test]
fn part_survives_change_of_runtime_class_and_limit_range() {
    let own = json!({"template": {"spec": {"runtimeClassName": "sandbox"}}});
    let class = |overhead: Value| {
        let class = json!({"metadata": {"name": "sandbox"}, "handler": "sandbox", "overhead": {"podFixed": overhead}});
        Observation::RuntimeClass(Change::Apply(serde_json::from_value(class).unwrap()))
    };
    let mut cluster = cluster("4");
    cluster.control.observe(class(json!({})), cluster.now());
    cluster.put(Kind::TrainingJob, training("a", own));
    cluster.pass(3);
    let before = cluster.job("a-worker")["metadata"]["uid"].clone();
    cluster.control.observe(class(json!({"cpu": "500m"})), cluster.now());
    let range = json!({"metadata": {"name": "l", "namespace": "team"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}]}});
    let range = serde_json::from_value(range).unwrap();
    cluster.control.observe(Observation::LimitRange(Change::Apply(range)), cluster.now());
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"annotations": {"seen": "again"}}}));
    cluster.pass(20);
    assert_eq!(cluster.job("a-worker")["metadata"]["uid"], before, "{:?}", cluster.writes);
    assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (0, "Running"));
}

#[test]
fn parts_are_compared_with_admitted_counts_role_by_role() {
    let mut cluster = cluster("3");
    let more = json!({"jobType": "TFJob", "resources": {"minReplicas": 1, "maxReplicas": 4},
        "roles": [{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]});
    cluster.put(Kind::TrainingJob, training("a", more));
    cluster.pass(60);
    assert_eq!((size(&cluster, "a-worker").0, size(&cluster, "a-ps").0), (json!(2), json!(1)), "admitted with fewer");
    assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (0, "Running"));
    let worker = cluster.job("a-worker")["metadata"]["uid"].clone();
    cluster.edit(Kind::JOB, "team", "a-ps", &json!({"spec": {"completions": 4, "parallelism": 4}}));
    cluster.pass(5);
    assert_eq!((size(&cluster, "a-worker").0, size(&cluster, "a-ps").0), (json!(2), json!(1)), "{:?}", cluster.writes);
    assert_eq!((cluster.count(Purpose::StopTraining), cluster.phase("a")), (1, "Running"));
    assert_eq!(cluster.job("a-worker")["metadata"]["uid"], worker, "it was left alone");
    // The Job of the workers is changed to the largest number of workers that the TrainingJob accepts, which is more than was admitted.
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"completions": 4, "parallelism": 4}}));
    cluster.pass(5);
    assert_eq!((size(&cluster, "a-worker").0, cluster.count(Purpose::StopTraining)), (json!(2), 2));
}

#[test]
fn elastic_part_is_rescaled_after_edit_and_recreated_after_forgery() {
    for own in [false, true] {
        let mut cluster = crate::stories::elastic::started();
        let before = cluster.job("a-worker")["metadata"]["uid"].clone();
        if own {
            let mut job = forged(&cluster, "a-worker", "a");
            job["metadata"]["annotations"] = json!({"berth.dev/elastic-workers": "2:4"});
            job["spec"]["parallelism"] = json!(50);
            job["spec"].as_object_mut().unwrap().remove("completions");
            cluster.delete(&Cluster::key(Kind::JOB, "team", "a-worker"));
            cluster.put(Kind::JOB, job);
        } else {
            cluster.edit(Kind::JOB, "team", "a-worker", &json!({"spec": {"completions": 50, "parallelism": 50}}));
        }
        // A forged Job in place of the worker's Job ends the run, and the TrainingJob starts again after a minute.
        cluster.pass(if own { 62 } else { 12 });
        assert_eq!(size(&cluster, "a-worker"), (json!(4), json!(4)), "{own}: {:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::StopTraining), usize::from(own), "{:?}", cluster.writes);
        let event = cluster.notices.iter().find(|notice| notice.message.ends_with("for which quota is reserved"));
        let event = event.map(|event| (event.reason.as_str(), event.message.as_str()));
        let words = ("ScalingDown", "from 50 to 4 workers, for which quota is reserved");
        assert_eq!(event, (!own).then_some(words));
        assert_eq!(cluster.job("a-worker")["metadata"]["uid"] == before, !own);
    }
}

#[test]
fn job_forged_after_training_end_never_runs_as_its_part() {
    let mut cluster = started("2", json!({}));
    cluster.complete("a-worker");
    cluster.pass(3);
    assert_eq!(cluster.phase("a"), "Succeeded");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-worker"));
    let job = forged(&cluster, "a-worker", "a");
    cluster.put(Kind::JOB, job.clone());
    cluster.settle();
    assert!(!cluster.has_job("a-worker"), "its Workload stands for nothing that may run");
    cluster.delete(&cluster.workload_key("a"));
    cluster.put(Kind::JOB, job);
    cluster.settle();
    assert!(cluster.is("a-worker", "QuotaReserved"), "{:?}", cluster.writes);
}

#[test]
fn forged_part_with_finalizer_does_not_delay_quota_release() {
    for deleted in [false, true] {
        let mut cluster = started("2", json!({}));
        let mut job = forged(&cluster, "a-more", "a");
        job["metadata"]["finalizers"] = json!(["example.com/never"]);
        cluster.put(Kind::JOB, job);
        cluster.pass(3);
        let workload = cluster.workload_key("a");
        if deleted {
            cluster.delete(&Cluster::key(Kind::TrainingJob, "team", "a"));
        } else {
            suspend(&mut cluster, true);
        }
        cluster.pass(10);
        let left = cluster.objects().get(&workload).map(|workload| &workload["status"]["admission"]);
        assert!(left.is_none_or(Value::is_null), "deleted: {deleted}: {left:?}");
    }
}

#[test]
fn part_kept_by_finalizer_is_stopped_and_frees_its_quota() {
    for end in ["suspended", "deleted"] {
        let mut cluster = started("2", json!({}));
        let finalizers = json!({"metadata": {"finalizers": ["example.com/never"]}});
        cluster.edit(Kind::JOB, "team", "a-worker", &finalizers);
        let workload = cluster.workload_key("a");
        if end == "deleted" {
            cluster.delete(&Cluster::key(Kind::TrainingJob, "team", "a"));
        } else {
            suspend(&mut cluster, true);
        }
        cluster.pass(10);
        let left = cluster.job("a-worker")["metadata"]["finalizers"].clone();
        assert_eq!(left, json!(["example.com/never"]), "{end}: {:?}", cluster.writes);
        let quota = cluster.objects().get(&workload).map(|workload| &workload["status"]["admission"]);
        assert!(quota.is_none_or(Value::is_null), "{end}: {quota:?}");
        assert_eq!(
            cluster.count(Purpose::StopTraining) + cluster.count(Purpose::DeleteChild),
            2 - usize::from(end == "deleted")
        );
    }
}

/// A client changes both Jobs of a TrainingJob while all pods of the TrainingJob are ready, and a finalizer keeps one of the Jobs.
#[test]
fn run_with_slowly_deleted_altered_part_is_not_evicted() {
    let more = json!({"jobType": "TFJob", "resources": {"maxReplicas": 1},
        "roles": [{"name": "chief", "replicas": 1, "replicaResources": {"cpu": "1"}}]});
    let mut cluster = started("2", more);
    assert_eq!(cluster.phase("a"), "Running");
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["example.com/late"]}}));
    for part in ["a-worker", "a-chief"] {
        cluster.edit(Kind::JOB, "team", part, &json!({"spec": {"completions": 50, "parallelism": 50}}));
    }
    cluster.pass(30);
    assert!(cluster.job("a-worker")["metadata"]["deletionTimestamp"].is_string(), "{:?}", cluster.writes);
    assert_eq!(cluster.training_condition("a", "Running")["reason"], "JobGone");
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": null}}));
    cluster.pass(30);
    for part in ["a-worker", "a-chief"] {
        assert_eq!(size(&cluster, part), (json!(1), json!(1)), "{part}: {:?}", cluster.writes);
    }
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
}

#[test]
fn restart_count_beyond_i32_is_reported_as_its_maximum() {
    let more = json!({"jobType": "TFJob", "resources": {"maxReplicas": 1},
        "roles": [{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]});
    let mut cluster = started("2", more);
    assert_eq!(cluster.phase("a"), "Running");
    for part in ["a-worker", "a-ps"] {
        cluster.edit(Kind::JOB, "team", part, &json!({"status": {"failed": i32::MAX}}));
    }
    cluster.pass(60);
    assert_eq!(cluster.training("a")["status"]["restarts"], i32::MAX);
}

#[test]
fn ended_training_job_keeps_quota_while_pods_of_part_run() {
    let more = json!({"jobType": "TFJob", "resources": {"maxReplicas": 1},
        "roles": [{"name": "chief", "replicas": 1, "replicaResources": {"cpu": "1"}}]});
    let mut cluster = started("2", more);
    assert_eq!(cluster.phase("a"), "Running");
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["example.com/never"]}}));
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.complete("a-chief");
    cluster.pass(10);
    let workload = cluster.workload_of_training("a").unwrap();
    let finished = |workload: &Value| {
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|one| one["type"] == "Finished" && one["status"] == "True")
    };
    assert!(!finished(&workload), "{:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.pass(10);
    assert!(finished(&cluster.workload_of_training("a").unwrap()), "{:?}", cluster.writes);
}

#[test]
fn resumed_training_job_waits_until_its_old_job_is_deleted() {
    let mut cluster = started("2", json!({}));
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["example.com/late"]}}));
    suspend(&mut cluster, true);
    cluster.pass(10);
    suspend(&mut cluster, false);
    cluster.pass(10);
    let conditions = cluster.workload_of_training("a").unwrap()["status"]["conditions"].clone();
    let waits = conditions.as_array().unwrap().iter().find(|one| one["type"] == "QuotaReserved").unwrap().clone();
    assert_eq!(waits["message"], json!("waits for Job team/a-worker of its last run, which is being deleted"));
    assert_eq!(waits["status"], json!("False"));
    let old = cluster.job("a-worker")["metadata"]["uid"].clone();
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": null}}));
    cluster.pass(20);
    assert_ne!(cluster.job("a-worker")["metadata"]["uid"], old, "{:?}", cluster.writes);
    assert_eq!(cluster.phase("a"), "Running");
}

/// Creates a pod that never ends with the label of a TrainingJob; `controller` is the kind and the uid of the pod's controller.
fn labelled(cluster: &mut Cluster, training: &str, controller: Option<(&str, &str)>) {
    let uid = cluster.training(training)["metadata"]["uid"].as_str().unwrap().to_owned();
    let owners: Vec<Value> = controller
        .iter()
        .map(|(kind, uid)| {
            let version = if *kind == "Job" { "batch/v1" } else { "apps/v1" };
            json!({"apiVersion": version, "kind": kind, "name": "x", "uid": uid, "controller": true})
        })
        .collect();
    cluster.labelled.push((uid, serde_json::from_value(json!({"ownerReferences": owners})).unwrap()));
}

/// Whether a suspended TrainingJob gives its quota back.
fn is_released(cluster: &mut Cluster) -> bool {
    suspend(cluster, true);
    cluster.pass(10);
    cluster.workload_of_training("a").unwrap()["status"]["admission"].is_null()
}

#[test]
fn foreign_pods_with_training_label_delay_no_quota_release() {
    for controller in [None, Some(("ReplicaSet", "r")), Some(("Job", "somebody-elses"))] {
        let mut cluster = started("2", json!({}));
        labelled(&mut cluster, "a", controller);
        assert!(is_released(&mut cluster), "{controller:?}: {:?}", cluster.writes);
        // A forged pod does not delay the suspension of a TrainingJob that had no quota and no pods.
        let mut cluster = started("0", json!({}));
        labelled(&mut cluster, "a", controller);
        assert!(is_released(&mut cluster));
    }
}

#[test]
fn quota_release_waits_for_own_pods_even_under_new_leader() {
    for restarts in [false, true] {
        let mut cluster = started("2", json!({}));
        let own = cluster.job("a-worker")["metadata"]["uid"].as_str().unwrap().to_owned();
        labelled(&mut cluster, "a", Some(("Job", &own)));
        assert!(!is_released(&mut cluster), "its Job is gone, and a pod of it is not");
        assert!(!cluster.has_job("a-worker"));
        if restarts {
            // The control of another process has never observed the deleted Job.
            cluster.restart();
            cluster.pass(10);
            assert!(cluster.workload_of_training("a").unwrap()["status"]["admission"].is_object());
        }
        cluster.labelled.clear();
        cluster.pass(10);
        assert!(cluster.workload_of_training("a").unwrap()["status"]["admission"].is_null());
    }
}

#[test]
fn scale_down_frees_quota_despite_foreign_pods_with_training_label() {
    let mut cluster = crate::stories::elastic::started();
    for _ in 0..5 {
        labelled(&mut cluster, "a", Some(("Job", "somebody-elses")));
    }
    cluster.put(Kind::JOB, crate::stories::elastic::other("urgent", "4", 100));
    cluster.pass_judged(10, "a newcomer");
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2));
}
