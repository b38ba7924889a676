//! Job kinds that cannot be listed: a Workload of such a job keeps the quota that it holds, the status of a waiting Workload says that the kind cannot be
//! listed, and all other Workloads are processed as usual.

use berth_control::write::{Kind, ObjectKey, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::leaders::FORBIDDEN;
use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue, settings};
use crate::stories::groups::running_set;
use crate::stories::names::job_set;
use crate::stories::pods::pod;
use crate::stories::random::{Dice, seeds};
use crate::stories::training::training;
use crate::stories::{pod_queue, with_queue};

fn kinds() -> [(Kind, Value); 3] {
    [
        (Kind::JOB_SET, job_set("x")),
        (Kind::Pod, pod("x", "1")),
        (Kind::TrainingJob, training("x", json!({"resources": {"maxReplicas": 1}}))),
    ]
}

/// A cluster in which a job of the given kind holds the only quota of its queue, and another queue is free.
fn running(kind: Kind, object: Value) -> (Cluster, String) {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("other", "other"));
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.put(kind, object);
    cluster.pass(5);
    let key = cluster.objects().keys().find(|key| key.kind == Kind::Workload).expect("a Workload").clone();
    assert!(cluster.workload_is(&key.name, "Admitted"), "{kind:?}: {:?}", cluster.writes);
    (cluster, key.name)
}

/// Creates a job that may preempt the job `x`, and a job in the other queue.
fn rivals(cluster: &mut Cluster) {
    cluster.set_class("high", 10);
    let mut high = job("high", "lq", "1", true);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, high);
    cluster.put(Kind::JOB, job("beside", "other", "1", true));
}

/// Berth's writes to objects of the given name since the write number `before`.
fn about(cluster: &Cluster, before: usize, name: &str) -> Vec<(Purpose, ObjectKey)> {
    cluster.writes[before..].iter().filter(|(_, key)| key.name == name).cloned().collect()
}

fn reason(cluster: &Cluster, workload: &ObjectKey) -> (String, String) {
    let conditions = cluster.objects()[workload]["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|one| one["type"] == json!("QuotaReserved")).unwrap_or_default();
    let word = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (word("reason"), word("message"))
}

#[test]
fn workload_of_unlisted_kind_keeps_quota_while_others_are_admitted() {
    for (kind, object) in kinds() {
        for again in [false, true] {
            let (mut cluster, workload) = running(kind, object.clone());
            let before = cluster.writes.len();
            if again {
                cluster.claim_without(kind)
            } else {
                cluster.restart_without(kind)
            }
            rivals(&mut cluster);
            cluster.pass(120);
            assert!(cluster.workload_is(&workload, "Admitted"), "{kind:?}: {:?}", &cluster.writes[before..]);
            assert!(cluster.is("beside", "Admitted") && !cluster.is("high", "QuotaReserved"), "{kind:?}");
            assert_eq!(about(&cluster, before, &workload), [], "{kind:?}");
            let waits = cluster.condition("high", "QuotaReserved").expect("a reason");
            assert!(!waits["message"].as_str().unwrap_or_default().contains("Pending the preemption"), "{waits}");
            // When the job's kind can be listed again, Berth evicts the job like any other job.
            cluster.list_again();
            cluster.pass(60);
            assert!(cluster.is("high", "Admitted"), "{kind:?}: {:?}", &cluster.writes[before..]);
        }
    }
}

#[test]
fn waiting_workload_says_that_its_kind_is_unlisted() {
    for (kind, mut object) in kinds() {
        let (mut cluster, holder) = running(kind, object.clone());
        object["metadata"]["name"] = json!("waits");
        cluster.put(kind, object);
        cluster.pass(5);
        let waiting = |key: &&ObjectKey| key.kind == Kind::Workload && key.name != holder;
        let waiting = cluster.objects().keys().find(waiting).expect("another Workload").clone();
        cluster.restart_without(kind);
        cluster.put(Kind::JOB, job("behind", "lq", "1", true));
        cluster.pass(10);
        let resource = format!("{}s", kind.name().to_lowercase());
        let expected = format!("Berth cannot list {resource}, and waits until it can: {FORBIDDEN}");
        assert_eq!(reason(&cluster, &waiting), ("Misconfigured".to_owned(), expected), "{kind:?}");
        assert!(cluster.condition("behind", "QuotaReserved").is_some(), "{kind:?}: it is told what it waits for");
        cluster.list_again();
        cluster.pass(90);
        assert!(!reason(&cluster, &waiting).1.contains("cannot list"), "{kind:?}: {:?}", reason(&cluster, &waiting));
    }
}

/// The garbage collector or a user deletes the Workload: Berth keeps the quota of the deleted Workload charged until it observes the end of the Workload's job.
#[test]
fn deleted_workload_of_unlisted_kind_keeps_its_quota() {
    for (kind, object) in kinds() {
        let (mut cluster, workload) = running(kind, object);
        cluster.restart_without(kind);
        let key = Cluster::key(Kind::Workload, "team", &workload);
        cluster.delete(&key);
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(60);
        assert!(cluster.objects().contains_key(&key), "{kind:?}: {:?}", cluster.writes);
        assert!(!cluster.is("next", "QuotaReserved"), "{kind:?}");
        assert_eq!(cluster.count(Purpose::ProbePods), 0, "{kind:?}");
    }
}

/// A job is deleted while its kind cannot be listed: Berth frees the quota of the deleted job when the job's kind can be listed again.
#[test]
fn job_deleted_while_kind_is_unlisted_frees_quota_once_listed() {
    for (kind, object) in kinds() {
        let (mut cluster, workload) = running(kind, object);
        cluster.restart_without(kind);
        let before = cluster.writes.len();
        let gone = Cluster::key(kind, "team", "x");
        cluster.edit(kind, "team", "x", &json!({"metadata": {"finalizers": null}}));
        cluster.delete(&gone);
        // The garbage collector deletes the Workload, which the deleted job owned.
        let owned = Cluster::key(Kind::Workload, "team", &workload);
        if cluster.objects()[&owned]["metadata"]["deletionTimestamp"].is_null() {
            cluster.delete(&owned);
        }
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(60);
        assert_eq!(about(&cluster, before, &workload), [], "{kind:?}");
        assert!(!cluster.is("next", "QuotaReserved"), "{kind:?}");
        cluster.list_again();
        cluster.pass(120);
        assert!(cluster.is("next", "Admitted"), "{kind:?}: {:?}", &cluster.writes[before..]);
    }
}

/// A client removes the owner reference of a Workload: the owner is unknown then, so Berth neither finishes the Workload nor frees its quota.
#[test]
fn workload_without_owner_is_left_alone_while_kind_is_unlisted() {
    for (kind, object) in kinds() {
        let (mut cluster, workload) = running(kind, object);
        cluster.restart_without(kind);
        let before = cluster.writes.len();
        cluster.edit(Kind::Workload, "team", &workload, &json!({"metadata": {"ownerReferences": null}}));
        rivals(&mut cluster);
        cluster.pass(60);
        assert_eq!(about(&cluster, before, &workload), [], "{kind:?}");
        assert!(cluster.is("beside", "Admitted") && !cluster.is("high", "QuotaReserved"), "{kind:?}");
        cluster.list_again();
        cluster.pass(120);
        assert!(cluster.is("high", "Admitted"), "{kind:?}: {:?}", &cluster.writes[before..]);
    }
}

/// The Jobs of a JobSet that cannot be listed run on unchanged, even if Berth manages every Job.
#[test]
fn jobs_of_unlisted_job_set_are_left_alone() {
    let mut settings = settings();
    settings.manage_jobs_without_queue_name = true;
    let mut cluster = with_queue(Cluster::with(settings), "4");
    cluster.job_sets_run = true;
    cluster.put(Kind::JOB_SET, job_set("a"));
    cluster.pass(30);
    assert_eq!(cluster.job("a-job-0")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    cluster.restart_without(Kind::JOB_SET);
    cluster.pass(60);
    assert_eq!(cluster.job("a-job-0")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
}

/// The group of a StatefulSet depends on the list of StatefulSets, and other groups of pods do not.
#[test]
fn group_of_unlisted_stateful_set_keeps_its_quota() {
    let (mut cluster, workload) = running_set();
    cluster.restart_without(Kind::StatefulSet);
    let before = cluster.writes.len();
    for pod in ["web-0", "web-1"] {
        cluster.edit(Kind::Pod, "team", pod, &json!({"metadata": {"finalizers": null}}));
        cluster.delete(&Cluster::key(Kind::Pod, "team", pod));
    }
    cluster.put(Kind::Pod, pod("beside", "1"));
    cluster.pass(60);
    assert!(cluster.workload_is(&workload, "Admitted"), "{:?}", &cluster.writes[before..]);
    assert_eq!(about(&cluster, before, &workload), []);
    let beside = cluster.pod("beside").expect("it is there");
    assert!(beside["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty), "{beside}");
}

/// A Workload that held quota when its kind became unlisted holds it until the kind is listed again, whatever comes and goes meanwhile.
#[test]
fn quota_of_unlisted_kinds_is_kept_under_random_changes() {
    for seed in seeds(30) {
        let mut dice = Dice::new(seed);
        let mut cluster = pod_queue("3");
        let (mut made, mut unseen): (Vec<ObjectKey>, Vec<String>) = (Vec::new(), Vec::new());
        let mut is_blind = false;
        for event in 0..20 {
            let (kind, mut object) = kinds().into_iter().nth(dice.below(3)).expect("three kinds");
            match dice.below(5) {
                0 | 1 => {
                    object["metadata"]["name"] = json!(format!("o{event}"));
                    cluster.put(kind, object);
                    made.push(Cluster::key(kind, "team", &format!("o{event}")));
                }
                2 if !made.is_empty() => {
                    let gone = made.remove(dice.below(made.len()));
                    if cluster.objects().contains_key(&gone) {
                        cluster.edit(gone.kind, "team", &gone.name, &json!({"metadata": {"finalizers": null}}));
                        cluster.delete(&gone);
                    }
                }
                3 if !is_blind => {
                    cluster.restart_without(kind);
                    let begins = format!("{}-", kind.name().to_lowercase());
                    let all = cluster.objects().keys().filter(|key| key.kind == Kind::Workload);
                    let held = all.filter(|key| key.name.starts_with(&begins));
                    let held = held.filter(|key| cluster.workload_is(&key.name, "QuotaReserved"));
                    unseen = held.map(|key| key.name.clone()).collect();
                    is_blind = true;
                }
                _ => {
                    cluster.list_again();
                    unseen.clear();
                    is_blind = false;
                }
            }
            cluster.pass(dice.seconds(1, 40));
            for name in &unseen {
                let holds = cluster.workload_is(name, "QuotaReserved");
                assert!(holds, "seed {seed}, event {event}: {name}: {:?}", cluster.writes);
            }
        }
        assert!(berth_engine::check(cluster.control.world()).is_empty(), "seed {seed}");
    }
}
