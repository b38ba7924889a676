//! Workloads that lose their controlling owner, never had one, or are kept by a foreign finalizer: no such Workload holds quota that no pod uses, and no pod
//! runs outside of quota because of such a Workload.

use berth_control::write::{Kind, ObjectKey, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, made_before};
use crate::stories::groups::running_set;
use crate::stories::kept_quota::{contested, is, labels, name_of, running, urgent_has_its_turn, workload};
use crate::stories::names::job_set;
use crate::stories::one_queue;
use crate::stories::overruns::{both, counts, shown};
use crate::stories::pods::pod;
use crate::stories::training::training;

/// A client removes the owner reference from the Workload of a running job: Berth writes the removed owner reference again, and no pod runs outside of quota.
#[test]
fn workload_without_owner_reference_comes_back_to_its_job() {
    let mut cluster = contested("4");
    cluster.put(Kind::JOB, job("t", "lq", "1", true));
    cluster.put(Kind::Pod, pod("p", "1"));
    cluster.put(Kind::TrainingJob, training("r", json!({})));
    cluster.pass(5);
    for begins in ["job-t-", "pod-p-", "trainingjob-r-"] {
        let name = name_of(&cluster, begins);
        let before = workload(&cluster, begins).unwrap()["metadata"]["ownerReferences"].clone();
        cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"ownerReferences": null}}));
        cluster.pass(10);
        let after = workload(&cluster, begins).expect(begins);
        assert_eq!(after["metadata"]["ownerReferences"], before, "{begins}: {:?}", cluster.writes);
        assert!(cluster.workload_is(&name, "Admitted") && !cluster.workload_is(&name, "Finished"), "{begins}");
    }
    assert_eq!(cluster.job("t")["status"]["active"], 1, "{:?}", cluster.writes);
    assert!(cluster.pod("p").is_some() && cluster.has_job("r-worker"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::AdoptWorkload), 3);
}

/// A job without a queue gets the owner reference of its Workload back as well, because the Workload holds the job's quota.
#[test]
fn workload_without_owner_reference_comes_back_to_job_without_queue() {
    let mut cluster = running();
    cluster.edit(Kind::JOB, "team", "t", &labels("queue-name", Value::Null));
    let name = name_of(&cluster, "job-t-");
    cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"ownerReferences": null}}));
    cluster.pass(5);
    assert!(urgent_has_its_turn(&mut cluster, "1"), "{:?}", cluster.writes);
}

/// Another object's Workload has the name that the job's Workload needs: the job gets one event, and gets its Workload when the name is free.
#[test]
fn job_whose_workload_name_is_taken_reports_conflict_once() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("t", "lq", "1", true));
    cluster.pass(5);
    let name = name_of(&cluster, "job-t-");
    let mut taken = made_before(&job("t", "lq", "5", true)["spec"]["template"]);
    taken["metadata"]["name"] = json!(name);
    let own = Cluster::key(Kind::Workload, "team", &name);
    cluster.complete("t");
    cluster.pass(5);
    cluster.delete(&own);
    cluster.pass(5);
    let uid = cluster.job("t")["metadata"]["uid"].clone();
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.put(Kind::Workload, taken);
    let again = job("t", "lq", "1", true);
    cluster.put_as(Kind::JOB, again, uid.as_str());
    cluster.pass(60);
    let events: Vec<_> = cluster.notices.iter().filter(|one| one.reason == "WorkloadNameConflict").collect();
    let words = format!(
        "Workload team/{name} belongs to no job and has the name that the Workload of this job is to have: delete it"
    );
    assert_eq!(events.iter().map(|one| &one.message).collect::<Vec<_>>(), [&words], "{:?}", cluster.writes);
    cluster.delete(&own);
    cluster.pass(5);
    assert!(cluster.is("t", "Admitted"), "{:?}", cluster.writes);
}

/// A job or its Workload is deleted, and a foreign finalizer keeps the Workload: no pod of the job runs, and the Workload's quota is free.
#[test]
fn workload_kept_by_foreign_finalizer_holds_no_quota() {
    for (job_goes, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut cluster = running();
        let name = name_of(&cluster, "job-t-");
        let both = json!(["kueue.x-k8s.io/resource-in-use", "example.com/never"]);
        cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"finalizers": both}}));
        cluster.pass(2);
        if job_goes {
            cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
        } else {
            cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
        }
        if restarts {
            cluster.restart();
        }
        cluster.pass(20);
        let left = &cluster.objects()[&Cluster::key(Kind::Workload, "team", &name)];
        assert_eq!(left["metadata"]["finalizers"], json!(["example.com/never"]), "{:?}", cluster.writes);
        assert!(!cluster.workload_is(&name, "QuotaReserved"), "{job_goes} {restarts}: {:?}", cluster.writes);
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(5);
        assert!(cluster.is("next", "Admitted"), "{job_goes} {restarts}: {:?}", cluster.writes);
    }
}

/// A foreign finalizer keeps the Workload of a JobSet or TrainingJob after the deletion of the job or of the Workload.
#[test]
fn jobset_or_training_workload_with_foreign_finalizer_holds_no_quota() {
    let cases = [(true, false), (true, true), (false, false), (false, true)];
    for kind in [Kind::JOB_SET, Kind::TrainingJob] {
        for (job_goes, restarts) in cases {
            let (mut cluster, key, begins) = to_be_orphaned(kind);
            let name = name_of(&cluster, begins);
            let workload = Cluster::key(Kind::Workload, "team", &name);
            let both = json!(["kueue.x-k8s.io/resource-in-use", "example.com/never"]);
            cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"finalizers": both}}));
            cluster.pass(2);
            cluster.delete(if job_goes { &key } else { &workload });
            if restarts {
                cluster.restart();
            }
            cluster.pass(60);
            let story = format!("{kind:?} {job_goes} {restarts}: {:?}", cluster.writes);
            assert_eq!(cluster.objects()[&workload]["metadata"]["finalizers"], json!(["example.com/never"]), "{story}");
            assert!(!cluster.workload_is(&name, "QuotaReserved"), "{story}");
            cluster.put(Kind::JOB, job("next", "lq", "2", true));
            cluster.pass(5);
            assert!(cluster.is("next", "Admitted"), "{story}");
        }
    }
}

/// Berth has already removed its finalizer from a Workload, as after a restart just after that write: the quota of the Workload is free nevertheless.
#[test]
fn deleted_workload_without_own_finalizer_holds_no_quota() {
    let mut cluster = running();
    let name = name_of(&cluster, "job-t-");
    cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"finalizers": ["example.com/never"]}}));
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.pass(20);
    assert!(!cluster.workload_is(&name, "QuotaReserved"), "{:?}", cluster.writes);
}

/// A Workload without an owner has no job to stop: the Workload loses its quota at once when it is preempted, and gets quota again when there is room.
#[test]
fn workload_without_owner_frees_its_quota_when_evicted() {
    let group = json!({"kueue.x-k8s.io/is-group-workload": "true"});
    for annotations in [json!({}), group] {
        let mut cluster = contested("1");
        let mut nobodys = made_before(&job("any", "lq", "1", true)["spec"]["template"]);
        nobodys["metadata"]["annotations"] = annotations;
        let of_group = nobodys["metadata"]["annotations"].as_object().is_some_and(|all| !all.is_empty());
        if of_group {
            // The Workload of a pod group waits for its pods, and another client has written an admission into its status.
            let sets =
                json!([{"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}]);
            let yes = |kind: &str| {
                json!({"type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": cluster.now().to_string()})
            };
            nobodys["status"] = json!({"admission": {"clusterQueue": "cq", "podSetAssignments": sets},
                "conditions": [yes("QuotaReserved"), yes("Admitted")]});
        }
        cluster.put(Kind::Workload, nobodys);
        cluster.pass(5);
        assert!(cluster.workload_is("before", "Admitted"), "{:?}", cluster.writes);
        assert!(urgent_has_its_turn(&mut cluster, "1"), "{:?}", cluster.writes);
        cluster.complete("urgent");
        cluster.pass(30);
        assert_eq!(cluster.workload_is("before", "Admitted"), !of_group, "{:?}", cluster.writes);
    }
}

/// A ClusterQueue in which the job `t` of a kind runs, the key of `t`, and the beginning of the name of its Workload.
fn to_be_orphaned(kind: Kind) -> (Cluster, ObjectKey, &'static str) {
    let mut cluster = contested("2");
    let begins = match kind {
        Kind::TrainingJob => {
            cluster.put(kind, training("t", json!({})));
            "trainingjob-t-"
        }
        Kind::Job(_) if kind == Kind::JOB_SET => {
            cluster.job_sets_run = true;
            cluster.put(kind, job_set("t"));
            "jobset-t-"
        }
        _ => {
            cluster.put(kind, job("t", "lq", "2", true));
            "job-t-"
        }
    };
    cluster.pass(10);
    assert!(is(&cluster, begins, "Admitted"), "{:?}", cluster.writes);
    (cluster, Cluster::key(kind, "team", "t"), begins)
}

/// A job is deleted without its pods: the pods hold the quota of the job until they have ended, and then the Workload finishes and loses its finalizer.
#[test]
fn orphaned_pods_hold_their_quota_until_they_end() {
    for kind in [Kind::JOB, Kind::JOB_SET, Kind::TrainingJob] {
        for restarts in [false, true] {
            let (mut cluster, key, begins) = to_be_orphaned(kind);
            cluster.delete_orphaning(&key);
            if restarts {
                cluster.restart();
            }
            cluster.put(Kind::JOB, job("next", "lq", "2", true));
            cluster.pass(120);
            assert!(
                is(&cluster, begins, "Admitted") && !is(&cluster, begins, "Finished"),
                "{kind:?}: {:?}",
                cluster.writes
            );
            assert!(!cluster.is("next", "QuotaReserved"), "{kind:?}");
            assert!(cluster.count(Purpose::FindLeftPods) < 20, "{kind:?}: {:?}", cluster.writes);
            let events: Vec<_> = cluster.notices.iter().filter(|one| one.reason == "OwnerNotFound").collect();
            assert_eq!(events.len(), 1, "{events:?}");
            cluster.left_behind.clear();
            cluster.pass(15);
            assert!(
                is(&cluster, begins, "Finished") && cluster.is("next", "Admitted"),
                "{kind:?}: {:?}",
                cluster.writes
            );
            assert_eq!(workload(&cluster, begins).unwrap()["metadata"]["finalizers"], json!([]), "{kind:?}");
        }
    }
}

/// Another workload preempts the quota of orphaned pods: Berth stops the orphaned pods, and if a Job would make the pods again, Berth also stops the Job.
#[test]
fn evicted_workload_without_owner_stops_its_pods() {
    for kind in [Kind::JOB, Kind::JOB_SET, Kind::TrainingJob] {
        let (mut cluster, key, begins) = to_be_orphaned(kind);
        cluster.delete_orphaning(&key);
        cluster.pass(30);
        assert!(urgent_has_its_turn(&mut cluster, "2"), "{kind:?}: {:?}", cluster.writes);
        assert!(
            cluster.left_behind.is_empty() && !is(&cluster, begins, "QuotaReserved")
                || is(&cluster, begins, "Finished")
        );
        let purpose = if kind == Kind::JOB { Purpose::DeletePod } else { Purpose::DeleteChild };
        assert_eq!(cluster.count(purpose), 1, "{kind:?}: {:?}", cluster.writes);
    }
}

/// Other jobs name the Workload of a job that was deleted without its pods: the quota stays with the orphaned pods, and the other jobs get an event.
#[test]
fn orphaned_workload_is_not_given_to_another_job() {
    for (kind, cpu) in [(Kind::JOB, "2"), (Kind::JOB, "1"), (Kind::JOB_SET, "1"), (Kind::Pod, "2")] {
        let (mut cluster, key, begins) = to_be_orphaned(Kind::JOB);
        cluster.job_sets_run = true;
        cluster.delete_orphaning(&key);
        cluster.pass(5);
        let mut thief = match kind {
            Kind::Pod => pod("thief", cpu),
            Kind::Job(_) if kind == Kind::JOB_SET => job_set("thief"),
            _ => job("thief", "lq", cpu, true),
        };
        let name = name_of(&cluster, begins);
        thief["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!(name);
        cluster.put(kind, thief);
        cluster.pass(30);
        let story = format!("{kind:?} of {cpu}: {:?}", cluster.writes);
        assert!(is(&cluster, begins, "QuotaReserved") && !is(&cluster, begins, "Finished"), "{story}");
        assert_eq!(cluster.count(Purpose::AdoptWorkload), 0, "{story}");
        assert_eq!(cluster.left_behind.len(), 1, "{story}");
        let text = format!(
            "Workload team/{name} was left behind by another job and is the one that this job names as made beforehand: \
             name another one"
        );
        assert_eq!(cluster.notices.iter().filter(|one| one.message == text).count(), 1, "{story}");
    }
}

/// A Workload that MultiKueue copies from another cluster names the uid of the job in the other cluster.
#[test]
fn workload_copied_from_another_cluster_is_adopted() {
    let mut cluster = one_queue("2");
    let mut copy = made_before(&job("t", "lq", "1", true)["spec"]["template"]);
    copy["metadata"]["labels"] =
        json!({"kueue.x-k8s.io/multikueue-origin": "origin", "kueue.x-k8s.io/job-uid": "uid-of-the-job-over-there"});
    cluster.put(Kind::Workload, copy.clone());
    let mut copied = job("t", "lq", "1", true);
    copied["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = copy["metadata"]["name"].clone();
    cluster.put(Kind::JOB, copied);
    cluster.pass(10);
    assert_eq!(cluster.job("t")["spec"]["suspend"], false, "{:?}", cluster.writes);
}

/// The Workload of a deleted job of which no pod is left is gone when a user deletes the Workload.
#[test]
fn orphaned_workload_without_pods_finishes_and_can_be_deleted() {
    let (mut cluster, key, begins) = to_be_orphaned(Kind::JOB);
    cluster.delete_orphaning(&key);
    cluster.left_behind.clear();
    cluster.pass(10);
    let left = workload(&cluster, begins).unwrap();
    assert!(is(&cluster, begins, "Finished") && left["metadata"]["finalizers"] == json!([]), "{:?}", cluster.writes);
    cluster.restart();
    cluster.pass(10);
    let name = name_of(&cluster, begins);
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    assert!(workload(&cluster, begins).is_none());
}

/// A Job is deleted without its pods while the garbage collector cannot write the Job's Workload: the collector has orphaned the pods, and not yet the
/// Workload. The pods hold the quota of the Workload, and Berth stops the pods when another workload preempts the quota.
#[test]
fn pods_being_orphaned_hold_their_quota_until_preempted() {
    for kind in [Kind::JOB, Kind::JOB_SET, Kind::TrainingJob] {
        for restarts in [false, true] {
            let (mut cluster, key, begins) = to_be_orphaned(kind);
            cluster.begin_orphaning(&key);
            if restarts {
                cluster.restart();
            }
            cluster.pass(30);
            assert!(is(&cluster, begins, "QuotaReserved"), "{kind:?} {restarts}: {:?}", cluster.writes);
            assert_eq!(cluster.left_behind.len(), 1, "{kind:?} {restarts}: {:?}", cluster.writes);
            assert!(urgent_has_its_turn(&mut cluster, "2"), "{kind:?} {restarts}: {:?}", cluster.writes);
            assert!(cluster.left_behind.is_empty(), "{kind:?} {restarts}: {:?}", cluster.writes);
        }
    }
}

/// Pods of a StatefulSet that is deleted without its pods hold the quota of the StatefulSet, and are stopped when another workload preempts the quota.
#[test]
fn orphaned_pods_of_a_stateful_set_hold_their_quota() {
    for restarts in [false, true] {
        let (mut cluster, name) = running_set();
        cluster.delete_orphaning(&Cluster::key(Kind::StatefulSet, "team", "web"));
        cluster.left_behind.clear();
        if restarts {
            cluster.restart();
        }
        cluster.put(Kind::JOB, job("next", "lq", "4", true));
        cluster.pass(120);
        let run = |cluster: &Cluster| ["web-0", "web-1"].iter().filter(|name| cluster.pod(name).is_some()).count();
        assert_eq!(run(&cluster), 2, "restarts {restarts}: {:?}", cluster.writes);
        assert!(!cluster.is("next", "Admitted"), "restarts {restarts}: {:?}", cluster.writes);
        cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
        cluster.pass(30);
        assert_eq!(run(&cluster), 0, "restarts {restarts}: {:?}", cluster.writes);
        assert!(cluster.is("next", "Admitted"), "restarts {restarts}: {:?}", cluster.writes);
    }
}

/// A user starts a waiting job without quota and deletes the job without its pods: Berth stops the pods, which are charged to the queue until they have ended.
#[test]
fn pods_orphaned_without_quota_are_stopped_and_charged_until_then() {
    for restarts in [false, true] {
        let mut cluster = one_queue("2");
        cluster.put(Kind::JOB, job("t", "lq", "100", true));
        cluster.pass(7);
        cluster.controller_sleeps = true;
        counts(&mut cluster, "t", 0, 1);
        assert_eq!(shown(&cluster, "cq"), both("100"), "{:?}", cluster.writes);
        cluster.delete_orphaning(&Cluster::key(Kind::JOB, "team", "t"));
        if restarts {
            cluster.restart();
        }
        cluster.controller_sleeps = false;
        cluster.put(Kind::JOB, job("own", "lq", "1", true));
        cluster.pass(30);
        assert!(cluster.left_behind.is_empty(), "restarts {restarts}: {:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::DeletePod), 1, "restarts {restarts}: {:?}", cluster.writes);
        assert!(is(&cluster, "job-t-", "Finished") && cluster.is("own", "Admitted"), "restarts {restarts}");
        assert_eq!(shown(&cluster, "cq"), both("1"), "restarts {restarts}: {:?}", cluster.writes);
    }
}
