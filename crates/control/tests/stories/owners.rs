//! Workloads whose owner is of an unwatched kind, does not exist, or is deleted: such Workloads block no quota of other Workloads.

use berth_control::write::{EventType, Kind, ObjectKey, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue, made_before, settings};
use crate::stories::groups::member;
use crate::stories::pods::pod;
use crate::stories::{one_queue, pod_queue};

/// API version and name of a kind that Berth does not know.
const FOREIGN: (&str, &str) = ("example.com/v1", "Render");

/// A Workload `before` of one cpu with the given object as its controlling owner.
fn owned_by(api_version: &str, kind: &str, uid: &str) -> Value {
    let mut workload = made_before(&job("any", "lq", "1", true)["spec"]["template"]);
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid, "controller": true});
    workload["metadata"]["ownerReferences"] = json!([owner]);
    workload
}

fn reserved(cluster: &Cluster) -> Value {
    let conditions = &cluster.objects()[&Cluster::key(Kind::Workload, "team", "before")]["status"]["conditions"];
    let mut all = conditions.as_array().into_iter().flatten();
    all.find(|one| one["type"] == "QuotaReserved").cloned().unwrap_or_default()
}

/// Asserts that the next job gets the only cpu, and that the status of the job after that says why the job waits.
fn the_queue_goes_on(cluster: &mut Cluster) {
    for name in ["next", "later"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.pass(5);
    }
    assert!(cluster.is("next", "Admitted"), "{:?}", cluster.writes);
    let found_condition = cluster.condition("later", "QuotaReserved").map(|one| one["reason"].clone());
    assert_eq!(found_condition, Some(json!("WaitingForQuota")), "{:?}", cluster.writes);
}

/// A LeaderWorkerSet owns the Workload of its pods, and makes all these pods anew at once.
#[test]
fn group_workload_keeps_leader_worker_set_as_first_owner() {
    let mut cluster = pod_queue("2");
    let owner =
        json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "set", "uid": "set"});
    let template = json!({"spec": {"containers": pod("a", "1")["spec"]["containers"]}});
    cluster.put(
        Kind::Workload,
        json!({"metadata": {"namespace": "team", "name": "g", "ownerReferences": [owner.clone()],
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}},
            "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 2, "template": template}]}}),
    );
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[("role-hash", "main"), ("prebuilt-workload-name", "g")]));
    }
    cluster.settle();
    let owners = &cluster.objects()[&Cluster::key(Kind::Workload, "team", "g")]["metadata"]["ownerReferences"];
    let kinds: Vec<&str> = owners.as_array().unwrap().iter().filter_map(|owner| owner["kind"].as_str()).collect();
    assert_eq!((&owners[0], &*kinds), (&owner, &["LeaderWorkerSet", "Pod", "Pod"][..]), "{:?}", cluster.writes);
}

#[test]
fn workload_with_missing_owner_gets_no_quota() {
    for (api_version, kind) in [
        ("batch/v1", "Job"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("v1", "Pod"),
        ("berth.dev/v1alpha1", "TrainingJob"),
    ] {
        let mut cluster = crate::stories::pod_queue("1");
        cluster.put(Kind::Workload, owned_by(api_version, kind, "nobody"));
        cluster.pass(5);
        assert_eq!(cluster.count(Purpose::ReserveQuota), 0, "{kind}");
        the_queue_goes_on(&mut cluster);
    }
}

#[test]
fn workload_with_owner_of_unmanaged_kind_is_reported_misconfigured() {
    let mut settings = settings();
    settings.job_kinds = [Kind::JOB].into_iter().collect();
    for (api_version, kind) in [("jobset.x-k8s.io/v1alpha2", "JobSet"), ("v1", "Pod")] {
        let mut cluster = crate::stories::with_queue(Cluster::with(settings.clone()), "1");
        if kind == "JobSet" {
            // Berth watches JobSets even if their kind is not managed.
            cluster.put(
                Kind::JOB_SET,
                json!({"metadata": {"namespace": "team", "name": "owner"}, "spec": {"suspend": true}}),
            );
            let uid = cluster.objects()[&Cluster::key(Kind::JOB_SET, "team", "owner")]["metadata"]["uid"].clone();
            cluster.put(Kind::Workload, owned_by(api_version, kind, uid.as_str().unwrap()));
            cluster.pass(5);
            assert_eq!(reserved(&cluster)["reason"], json!("Misconfigured"), "{:?}", cluster.writes);
            the_queue_goes_on(&mut cluster);
            continue;
        }
        cluster.put(Kind::Workload, owned_by(api_version, kind, "unseen"));
        cluster.pass(5);
        let condition = reserved(&cluster);
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Misconfigured")), "{kind}");
        let text = format!(
            "its owner, {kind} \"owner\", is of a kind that is not managed: name it in integrations.frameworks"
        );
        assert_eq!(condition["message"], json!(text));
        the_queue_goes_on(&mut cluster);
    }
}

#[test]
fn workload_with_owner_of_foreign_kind_is_admitted() {
    for (api_version, kind) in [("batch.volcano.sh/v1alpha1", "Job"), FOREIGN] {
        let mut cluster = one_queue("1");
        cluster.put(Kind::Workload, owned_by(api_version, kind, "theirs"));
        cluster.pass(5);
        assert_eq!(reserved(&cluster)["status"], json!("True"), "{api_version}: {:?}", cluster.writes);
    }
}

/// Kueue would delete the job of a deactivated Workload after the retention time. Berth does not know the job that owns a Workload of a foreign kind, and keeps
/// the deactivated Workload for the job's own controller.
#[test]
fn deactivated_workload_without_known_job_is_not_deleted_after_retention() {
    let mut settings = settings();
    settings.retain_deactivated_ms = Some(60_000);
    let nobodys = made_before(&job("any", "lq", "1", true)["spec"]["template"]);
    for mut workload in [nobodys, owned_by(FOREIGN.0, FOREIGN.1, "theirs")] {
        let mut cluster = crate::stories::with_queue(Cluster::with(settings.clone()), "1");
        let target = json!({"type": "DeactivationTarget", "status": "True", "reason": "RequeuingLimitExceeded",
            "message": "exceeding the maximum number of re-queuing retries", "lastTransitionTime": cluster.now().to_string()});
        workload["spec"]["active"] = json!(false);
        workload["status"] = json!({"conditions": [target]});
        cluster.put(Kind::Workload, workload);
        cluster.pass(300);
        let left = cluster.objects().get(&Cluster::key(Kind::Workload, "team", "before")).expect("it is there still");
        let conditions = left["status"]["conditions"].as_array().unwrap();
        let evicted = conditions.iter().find(|condition| condition["type"] == "Evicted").unwrap();
        assert_eq!(evicted["reason"], json!("DeactivatedDueToRequeuingLimitExceeded"), "{left}");
        assert_eq!(cluster.count(Purpose::DeleteWorkload), 0, "{:?}", cluster.writes);
    }
}

/// A Workload with Kueue's finalizer that an object of a foreign kind controls.
fn of_a_foreign_kind() -> Value {
    let mut workload = owned_by(FOREIGN.0, FOREIGN.1, "theirs");
    workload["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
    workload
}

/// Events of the Workload `before` about its owner.
fn events_about_owner(cluster: &Cluster) -> Vec<(EventType, &str)> {
    let events = cluster.notices.iter().filter(|notice| notice.reason == "OwnerKindUnknown");
    events
        .inspect(|notice| assert_eq!(notice.key, Cluster::key(Kind::Workload, "team", "before")))
        .map(|notice| (notice.event_type, notice.message.as_str()))
        .collect()
}

#[test]
fn foreign_kind_workload_keeps_quota_until_finalizer_is_removed() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Workload, of_a_foreign_kind());
    cluster.pass(60);
    let holds = "its owner, Render \"owner\", is of a kind that Berth does not know: whoever made it starts and stops it, \
                 and it holds its quota until it is finished or gone";
    assert_eq!(events_about_owner(&cluster), [(EventType::Normal, holds)], "once");
    cluster.restart();
    cluster.pass(5);
    assert_eq!(events_about_owner(&cluster), [(EventType::Normal, holds); 2], "who takes over says it, too");
    cluster.delete(&Cluster::key(Kind::Workload, "team", "before"));
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.pass(60);
    let stays = "its owner, Render \"owner\", is of a kind that Berth does not know: it holds its quota until nothing of it \
                 runs and its finalizer kueue.x-k8s.io/resource-in-use is taken off";
    assert_eq!(events_about_owner(&cluster)[2..], [(EventType::Warning, stays)]);
    assert!(!cluster.is("next", "QuotaReserved"), "{:?}", cluster.writes);
    cluster.edit(Kind::Workload, "team", "before", &json!({"metadata": {"finalizers": null}}));
    cluster.pass(5);
    assert!(cluster.is("next", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn foreign_kind_workload_without_quota_is_deleted_at_once() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::Workload, of_a_foreign_kind());
    cluster.pass(5);
    assert_eq!(reserved(&cluster)["status"], json!("False"), "{:?}", cluster.writes);
    let before = Cluster::key(Kind::Workload, "team", "before");
    cluster.delete(&before);
    cluster.pass(5);
    assert!(!cluster.objects().contains_key(&before), "{:?}", cluster.writes);
    assert!(events_about_owner(&cluster).is_empty(), "it never had any: {:?}", cluster.notices);
}

#[test]
fn waiting_job_kept_in_deletion_by_finalizer_gets_no_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.settle();
    let mut going = job("going", "lq", "1", true);
    going["metadata"]["finalizers"] = json!(["example.com/never"]);
    cluster.put(Kind::JOB, going);
    cluster.pass(5);
    cluster.edit(Kind::JOB, "team", "going", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    cluster.complete("first");
    cluster.pass(5);
    assert!(!cluster.is("going", "QuotaReserved"), "{:?}", cluster.writes);
    the_queue_goes_on(&mut cluster);
}

#[test]
fn job_deleted_while_reservation_outcome_is_unknown_keeps_no_quota() {
    let mut cluster = one_queue("1");
    let mut going = job("going", "lq", "1", true);
    going["metadata"]["finalizers"] = json!(["example.com/never"]);
    cluster.loses.push(Purpose::ReserveQuota);
    cluster.put(Kind::JOB, going);
    for _ in 0..5 {
        if cluster.lost.is_empty() {
            let step = cluster.control.step(cluster.now());
            cluster.take(step);
        }
    }
    assert_eq!(cluster.lost.len(), 1, "{:?}", cluster.writes);
    cluster.edit(Kind::JOB, "team", "going", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    cluster.pass(60);
    the_queue_goes_on(&mut cluster);
    // The API server refuses the lost write of a reservation when the write arrives late, so that no quota is given to two Workloads.
    assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{:?}", cluster.writes);
}

/// A job of one cpu that is kept by a user's finalizer while it is being deleted.
fn kept(cluster: &mut Cluster, name: &str) {
    let mut going = job(name, "lq", "1", true);
    going["metadata"]["finalizers"] = json!(["example.com/never"]);
    cluster.put(Kind::JOB, going);
    cluster.pass(5);
    cluster.delete(&Cluster::key(Kind::JOB, "team", name));
}

/// Asserts that a job of a higher priority gets the only cpu from the job `going`, which is being deleted; `pods_stay` is true if the pods of `going` end
/// later.
fn is_driven_out(pods_stay: bool) {
    let mut cluster = one_queue("1");
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.set_class("high", 10);
    kept(&mut cluster, "going");
    assert!(cluster.is("going", "Admitted"), "{:?}", cluster.writes);
    cluster.pass(60);
    assert_eq!(cluster.job("going")["status"]["active"], 1, "nobody else wants it");
    if pods_stay {
        cluster.keep_pods_of(Kind::JOB, "going");
    }
    let mut urgent = job("urgent", "lq", "1", true);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, urgent);
    cluster.pass(60);
    assert_eq!(cluster.is("urgent", "Admitted"), !pods_stay, "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::DeleteChild), 1, "its pods go before it: {:?}", cluster.writes);
    cluster.pods_left.clear();
    // The job controller counts the pods of a job that is being deleted like those of any other job.
    cluster.edit(Kind::JOB, "team", "going", &json!({"status": {"active": 0}}));
    cluster.pass(60);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert!(!cluster.is("going", "QuotaReserved"), "{:?}", cluster.writes);
}

#[test]
fn running_job_kept_in_deletion_by_finalizer_can_be_preempted() {
    is_driven_out(false);
    is_driven_out(true);
}

#[test]
fn unstarted_job_kept_in_deletion_by_finalizer_frees_its_quota() {
    let mut cluster = one_queue("1");
    cluster.controller_sleeps = true;
    let mut going = job("going", "lq", "1", true);
    going["metadata"]["finalizers"] = json!(["example.com/never"]);
    cluster.faults.extend((0..20).map(|_| (Purpose::StartJob, WriteOutcome::Busy(500), false)));
    cluster.put(Kind::JOB, going);
    cluster.pass(2);
    assert!(cluster.is("going", "Admitted") && cluster.job("going")["spec"]["suspend"] == true, "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "going"));
    cluster.controller_sleeps = false;
    cluster.faults.clear();
    cluster.pass(60);
    assert!(!cluster.is("going", "QuotaReserved"), "{:?}", cluster.writes);
    the_queue_goes_on(&mut cluster);
}

/// A TrainingJob of two cpus that is being deleted and is kept by a user's finalizer, in a ClusterQueue without further quota.
fn kept_training(more: Value) -> Cluster {
    let mut cluster = crate::stories::training::cluster("2");
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.set_class("high", 10);
    let mut going = crate::stories::training::training("going", more);
    going["metadata"]["finalizers"] = json!(["example.com/never"]);
    cluster.put(Kind::TrainingJob, going);
    cluster.pass(5);
    assert_eq!(cluster.phase("going"), "Running", "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::TrainingJob, "team", "going"));
    cluster.pass(60);
    assert!(cluster.has_job("going-worker"), "nobody else wants its quota: {:?}", cluster.writes);
    cluster
}

/// Whether the job `next` gets the two cpus of the job that is being deleted.
fn next_has_its_turn(cluster: &mut Cluster) -> bool {
    if !cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", "next")) {
        let mut next = job("next", "lq", "2", true);
        next["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        cluster.put(Kind::JOB, next);
    }
    cluster.pass(60);
    cluster.is("next", "Admitted")
}

/// A condition of the Workload of the TrainingJob `going`, which is being deleted.
fn condition_of_leaving(cluster: &Cluster, kind: &str) -> Value {
    let conditions = cluster.workload_of_training("going").unwrap()["status"]["conditions"].clone();
    let mut all = conditions.as_array().into_iter().flatten();
    all.find(|one| one["type"] == kind).cloned().unwrap_or_default()
}

#[test]
fn training_job_kept_in_deletion_by_finalizer_can_be_preempted() {
    for pods_stay in [false, true] {
        let mut cluster = kept_training(json!({}));
        if pods_stay {
            cluster.keep_pods_of(Kind::TrainingJob, "going");
        }
        assert_eq!(next_has_its_turn(&mut cluster), !pods_stay, "{:?}", cluster.writes);
        assert!(!cluster.has_job("going-worker"), "{:?}", cluster.writes);
        cluster.pods_left.clear();
        assert!(next_has_its_turn(&mut cluster), "{:?}", cluster.writes);
        assert_eq!(condition_of_leaving(&cluster, "Requeued")["status"], "False", "it does not come back");
        assert_eq!((cluster.count(Purpose::StartTraining), cluster.count(Purpose::StopTraining)), (1, 1));
    }
}

#[test]
fn training_job_kept_in_deletion_frees_quota_of_deleted_workload() {
    let mut cluster = kept_training(json!({}));
    let owned = |key: &&ObjectKey| key.kind == Kind::Workload && key.name.starts_with("trainingjob-going");
    let workload = cluster.objects().keys().find(owned).unwrap().clone();
    cluster.delete(&workload);
    cluster.pass(10);
    assert!(!cluster.has_job("going-worker") && !cluster.objects().contains_key(&workload), "{:?}", cluster.writes);
    assert!(next_has_its_turn(&mut cluster), "{:?}", cluster.writes);
}

#[test]
fn training_job_kept_in_deletion_frees_quota_when_it_ends() {
    let mut cluster = kept_training(json!({}));
    cluster.complete("going-worker");
    cluster.pass(10);
    let end = condition_of_leaving(&cluster, "Finished");
    assert_eq!((&end["status"], &end["reason"]), (&json!("True"), &json!("Succeeded")), "{:?}", cluster.writes);
    assert!(cluster.has_job("going-worker"), "its logs stay");
    assert!(next_has_its_turn(&mut cluster), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::Evict), 0);
}

#[test]
fn training_job_kept_in_deletion_does_not_recreate_its_jobs() {
    let ps = json!([{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
    let mut cluster = kept_training(json!({"jobType": "TFJob", "resources": {"maxReplicas": 1}, "roles": ps}));
    cluster.keep_pods_of(Kind::TrainingJob, "going");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "going-worker"));
    cluster.pass(10);
    assert!(!cluster.has_job("going-worker") && !cluster.has_job("going-ps"), "{:?}", cluster.writes);
    assert_eq!(condition_of_leaving(&cluster, "QuotaReserved")["status"], "True", "its pods are still there");
    cluster.pods_left.clear();
    cluster.pass(10);
    let reported = condition_of_leaving(&cluster, "QuotaReserved");
    assert_eq!((&reported["status"], &reported["message"]), (&json!("False"), &json!("TrainingJob is being deleted")));
    assert!(next_has_its_turn(&mut cluster), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::StartTraining), 2, "{:?}", cluster.writes);
}

#[test]
fn job_moved_just_before_admission_gets_quota_of_new_queue() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("there", "other"));
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, job("moves", "lq", "1", true));
    cluster.pass(5);
    // Control observes the new quota and the new queue of the job before its next decision.
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "2")]));
    let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "there"}}});
    cluster.edit(Kind::JOB, "team", "moves", &moved);
    cluster.pass(5);
    let given = &cluster.workload_of("moves").unwrap()["status"]["admission"]["clusterQueue"];
    assert_eq!(given, &json!("other"), "{:?}", cluster.writes);
    the_queue_goes_on(&mut cluster);
}
