//! Quota of a job that no longer requests quota: Berth follows a job that holds quota by the job's uid until the quota is free, whatever the job requests now.

use berth_control::write::{EventType, Kind, Purpose};
use berth_engine::model::{Requirement, Selector, SelectorOp};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, made_before, settings};
use crate::stories::groups::{gated, member};
use crate::stories::pods::pod;
use crate::stories::training::training;
use crate::stories::with_queue;

/// A ClusterQueue in which jobs of a higher class preempt others; the label `team` of the namespace decides whether Berth manages the namespace.
pub fn contested(quota: &str) -> Cluster {
    let mut settings = settings();
    settings.job_kinds.extend([Kind::Pod, Kind::StatefulSet]);
    let values = vec!["a".to_owned()];
    settings.managed_namespaces = Selector(vec![Requirement { key: "team".to_owned(), op: SelectorOp::In, values }]);
    let mut cluster = with_queue(Cluster::with(settings), quota);
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.set_class("high", 10);
    cluster
}

/// Whether a job of a higher class that requests the whole quota gets the quota within half a minute.
pub fn urgent_has_its_turn(cluster: &mut Cluster, cpu: &str) -> bool {
    cluster.set_class("high", 10);
    let mut urgent = job("urgent", "lq", cpu, true);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, urgent);
    cluster.pass(30);
    cluster.is("urgent", "Admitted")
}

/// The Workload whose name begins with the given text.
pub fn workload<'c>(cluster: &'c Cluster, begins: &str) -> Option<&'c Value> {
    let mut all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    all.find(|(key, _)| key.name.starts_with(begins)).map(|(_, object)| object)
}

pub fn name_of(cluster: &Cluster, begins: &str) -> String {
    workload(cluster, begins).expect(begins)["metadata"]["name"].as_str().unwrap().to_owned()
}

pub fn is(cluster: &Cluster, begins: &str, kind: &str) -> bool {
    workload(cluster, begins).is_some_and(|found| crate::stories::cluster::is(found, kind))
}

pub fn labels(key: &str, value: Value) -> Value {
    json!({"metadata": {"labels": {format!("kueue.x-k8s.io/{key}"): value}}})
}

fn controlled_by(cluster: &Cluster, kind: Kind, name: &str) -> Value {
    json!({"metadata": {"ownerReferences": cluster.controlled_by(kind, name)}})
}

/// Edits that a tenant may make to a running Job if no webhook checks the edit.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Queue,
    Prebuilt,
    OwnController,
    OtherController,
    Namespace,
}

const EDITS: [Edit; 5] = [Edit::Queue, Edit::Prebuilt, Edit::OwnController, Edit::OtherController, Edit::Namespace];

fn make(cluster: &mut Cluster, edit: Edit, suspend: bool) {
    let mut patch = match edit {
        Edit::Queue => labels("queue-name", Value::Null),
        Edit::Prebuilt => labels("prebuilt-workload-name", json!("none")),
        Edit::OwnController => controlled_by(cluster, Kind::JOB, "t"),
        Edit::OtherController => controlled_by(cluster, Kind::JOB, "tiny"),
        Edit::Namespace => {
            cluster.label_namespace(&json!({"team": "b"}));
            json!({})
        }
    };
    if suspend {
        patch["spec"] = json!({"suspend": true});
    }
    cluster.edit(Kind::JOB, "team", "t", &patch);
}

/// A ClusterQueue with a running Job of one cpu, and a running Job that requests almost nothing.
pub fn running() -> Cluster {
    let mut cluster = contested("1010m");
    cluster.put(Kind::JOB, job("tiny", "lq", "10m", true));
    cluster.put(Kind::JOB, job("t", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("t", "Admitted") && cluster.job("t")["status"]["active"] == 1, "{:?}", cluster.writes);
    cluster
}

/// Whether the job `t` stops for a job of a higher class or, if the namespace is no longer managed, when a client deactivates the Workload of `t`.
fn gives_way(cluster: &mut Cluster, edit: Edit) -> bool {
    if !matches!(edit, Edit::Namespace) {
        return urgent_has_its_turn(cluster, "1");
    }
    let name = name_of(cluster, "job-t-");
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(30);
    !cluster.workload_is(&name, "QuotaReserved")
}

/// A running job that loses its queue, names another Workload, gets a controller or leaves management can still be preempted, even if another process becomes
/// the leader that has not observed the change.
#[test]
fn running_job_that_no_longer_requests_quota_can_be_preempted() {
    for edit in EDITS {
        for restarts in [None, Some(Kind::JOB), Some(Kind::Workload)] {
            let mut cluster = running();
            make(&mut cluster, edit, false);
            if restarts.is_some() {
                cluster.restart_hearing_last(restarts);
            }
            assert!(gives_way(&mut cluster, edit), "{edit:?} {restarts:?}: {:?}", cluster.writes);
            let job = cluster.job("t");
            assert_eq!((&job["spec"]["suspend"], &job["status"]["active"]), (&json!(true), &json!(0)), "{edit:?}");
            let template = &job["spec"]["template"];
            assert!(template["spec"]["nodeSelector"].as_object().is_none_or(serde_json::Map::is_empty), "{template}");
            cluster.pass(120);
            assert_eq!(cluster.job("t")["spec"]["suspend"], true, "it does not come back: {edit:?}");
        }
    }
}

/// A tenant stops a job in the write in which the job leaves its queue, so that the job keeps no pods: Berth frees the quota of such a stopped job without a
/// preemption.
#[test]
fn suspended_job_that_no_longer_requests_quota_gives_it_back() {
    for edit in [Edit::Queue, Edit::Prebuilt, Edit::Namespace] {
        for restarts in [false, true] {
            let mut cluster = running();
            make(&mut cluster, edit, true);
            if restarts {
                cluster.restart();
            }
            cluster.pass(20);
            assert!(!cluster.is("t", "QuotaReserved"), "{edit:?} {restarts}: {:?}", cluster.writes);
            assert_eq!(cluster.count(Purpose::Evict), 0, "{edit:?}");
            assert_eq!(cluster.job("t")["spec"]["suspend"], true, "{edit:?}");
        }
    }
}

/// A Job that runs on its own quota gets a JobSet with less quota as its controller: the Job keeps its own quota until another workload preempts it.
#[test]
fn running_job_given_to_job_set_can_be_preempted() {
    for restarts in [false, true] {
        let mut cluster = contested("1010m");
        let pods = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "10m"}}}]}});
        let parts = json!([{"name": "job", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1,
            "template": pods}}}]);
        let named = json!({"namespace": "team", "name": "s", "annotations": {"kueue.x-k8s.io/queue-name": "lq"}});
        let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": named,
            "spec": {"suspend": true, "replicatedJobs": parts}});
        cluster.put(Kind::JOB_SET, set);
        cluster.put(Kind::JOB, job("s-job-0", "lq", "1", true));
        cluster.pass(10);
        assert!(cluster.is("s-job-0", "Admitted"), "{:?}", cluster.writes);
        let owned = controlled_by(&cluster, Kind::JOB_SET, "s");
        cluster.edit(Kind::JOB, "team", "s-job-0", &owned);
        if restarts {
            cluster.restart();
        }
        cluster.pass(5);
        assert!(urgent_has_its_turn(&mut cluster, "1"), "{restarts}: {:?}", cluster.writes);
        assert_eq!(cluster.job("s-job-0")["spec"]["suspend"], true, "{restarts}: {:?}", cluster.writes);
    }
}

/// A JobSet names its queue in an annotation. Without the annotation, Berth follows the JobSet like a Job.
#[test]
fn job_set_that_no_longer_requests_quota_gives_it_back() {
    for (suspend, restarts) in [(false, false), (true, false), (true, true), (false, true)] {
        let mut cluster = contested("4");
        cluster.put(
            Kind::JOB_SET,
            json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
                "metadata": {"namespace": "team", "name": "t", "annotations": {"kueue.x-k8s.io/queue-name": "lq"}},
                "spec": {"suspend": true, "replicatedJobs": [{"name": "job", "replicas": 2, "template": {"spec": {
                    "parallelism": 2, "completions": 2, "template": {"spec": {"containers": [
                        {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}}}]}}),
        );
        let stopped = json!([{"type": "Suspended", "status": "True", "reason": "SuspendedJobs", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        cluster.edit(Kind::JOB_SET, "team", "t", &json!({"status": {"conditions": stopped}}));
        cluster.pass(10);
        let set = Cluster::key(Kind::JOB_SET, "team", "t");
        assert_eq!(cluster.objects()[&set]["spec"]["suspend"], false, "{:?}", cluster.writes);
        let mut patch = json!({"metadata": {"annotations": {"kueue.x-k8s.io/queue-name": null}}});
        if suspend {
            patch["spec"] = json!({"suspend": true});
        }
        cluster.edit(Kind::JOB_SET, "team", "t", &patch);
        if restarts {
            cluster.restart();
        }
        cluster.pass(20);
        assert_eq!(is(&cluster, "jobset-t-", "QuotaReserved"), !suspend, "{restarts}: {:?}", cluster.writes);
        assert!(urgent_has_its_turn(&mut cluster, "4"), "{suspend} {restarts}: {:?}", cluster.writes);
        let spec = &cluster.objects()[&set]["spec"];
        let placed = &spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"];
        assert_eq!((&spec["suspend"], placed), (&json!(true), &Value::Null), "{:?}", cluster.writes);
    }
}

/// When a job ends, its Workload finishes, whether the job still names its queue or not.
#[test]
fn job_that_no_longer_requests_quota_finishes_its_workload() {
    for edit in [Edit::Queue, Edit::OtherController, Edit::Namespace] {
        let mut cluster = running();
        make(&mut cluster, edit, false);
        cluster.pass(5);
        assert_eq!(cluster.job("t")["status"]["active"], 1, "it runs on: {:?}", cluster.writes);
        cluster.complete("t");
        cluster.pass(5);
        assert!(cluster.is("t", "Finished"), "{edit:?}: {:?}", cluster.writes);
        assert_eq!(cluster.workload_of("t").unwrap()["metadata"]["finalizers"], json!([]), "{edit:?}");
    }
}

/// An event of the Workload of a job that left its queue says that the Workload keeps its quota; after the Workload has lost the quota, a condition says why it
/// gets no quota.
#[test]
fn workload_whose_job_left_its_queue_reports_the_reason() {
    let mut cluster = running();
    make(&mut cluster, Edit::Queue, false);
    cluster.pass(5);
    let events: Vec<_> = cluster.notices.iter().filter(|notice| notice.reason == "NotManaged").collect();
    let words =
        "its job names no queue: what runs keeps its quota and runs on, and once it is evicted it does not come back";
    assert_eq!(
        events.iter().map(|one| (one.event_type, &*one.message)).collect::<Vec<_>>(),
        [(EventType::Warning, words)]
    );
    assert_eq!(events[0].key.kind, Kind::Workload);
    assert!(urgent_has_its_turn(&mut cluster, "1"));
    cluster.complete("urgent");
    cluster.pass(30);
    let reserved = cluster.condition("t", "QuotaReserved").unwrap();
    let text = (&reserved["status"], &reserved["reason"], &reserved["message"]);
    assert_eq!(text, (&json!("False"), &json!("Misconfigured"), &json!("its job names no queue")));
    // The job that has left its queue gets the queue's label again, and is admitted again.
    cluster.edit(Kind::JOB, "team", "t", &labels("queue-name", json!("lq")));
    cluster.pass(5);
    assert!(cluster.is("t", "Admitted") && cluster.job("t")["status"]["active"] == 1, "{:?}", cluster.writes);
}

/// A job names a Workload that does not exist. The user corrects the Workload's name in the job after the job has stopped, and the job waits with its previous
/// Workload.
#[test]
fn job_with_corrected_prebuilt_workload_name_regains_its_own_workload() {
    let mut cluster = running();
    let before = cluster.workload_of("t").unwrap()["metadata"]["uid"].clone();
    make(&mut cluster, Edit::Prebuilt, true);
    cluster.pass(20);
    let reserved = cluster.condition("t", "QuotaReserved").unwrap();
    assert_eq!(reserved["message"], "its job names Workload \"none\" in its place", "{:?}", cluster.writes);
    assert!(
        cluster.job("t")["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty),
        "it has stopped"
    );
    cluster.edit(Kind::JOB, "team", "t", &labels("prebuilt-workload-name", Value::Null));
    cluster.pass(20);
    assert!(cluster.is("t", "Admitted") && cluster.job("t")["status"]["active"] == 1, "{:?}", cluster.writes);
    assert_eq!(cluster.workload_of("t").unwrap()["metadata"]["uid"], before);
}

/// A job that names another Workload in place of its own gives its own quota back, and runs under the other Workload.
#[test]
fn job_naming_another_workload_switches_to_that_workload() {
    let mut cluster = running();
    let own = name_of(&cluster, "job-t-");
    let mut other = made_before(&job("t", "lq", "1", true)["spec"]["template"]);
    other["spec"]["priority"] = json!(1);
    cluster.put(Kind::Workload, other);
    cluster.edit(Kind::JOB, "team", "t", &labels("prebuilt-workload-name", json!("before")));
    cluster.pass(60);
    assert!(cluster.workload_is("before", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.job("t")["status"]["active"], 1, "{:?}", cluster.writes);
    assert!(!cluster.objects().contains_key(&Cluster::key(Kind::Workload, "team", &own)), "{:?}", cluster.writes);
}

/// A user's finalizer keeps a job that is being deleted, and the job's queue label is removed: other jobs can preempt the deleted job nevertheless.
#[test]
fn terminating_job_that_left_its_queue_can_be_preempted() {
    let mut cluster = running();
    cluster.edit(Kind::JOB, "team", "t", &json!({"metadata": {"finalizers": ["example.com/never"]}}));
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.edit(Kind::JOB, "team", "t", &labels("queue-name", Value::Null));
    cluster.pass(30);
    assert_eq!(cluster.job("t")["status"]["active"], 1, "nobody else wants its quota: {:?}", cluster.writes);
    assert!(urgent_has_its_turn(&mut cluster, "1"), "{:?}", cluster.writes);
}

/// A job that is being deleted is kept by a finalizer, and its Workload is deleted, too: Berth stops the pods of the deleted job, since no other controller
/// does, and frees the job's quota.
#[test]
fn terminating_job_with_deleted_workload_is_stopped_and_frees_quota() {
    let mut cluster = running();
    cluster.edit(Kind::JOB, "team", "t", &json!({"metadata": {"finalizers": ["example.com/never"]}}));
    cluster.keep_pods_of(Kind::JOB, "t");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    let own = name_of(&cluster, "job-t-");
    cluster.delete(&Cluster::key(Kind::Workload, "team", &own));
    cluster.pass(30);
    assert_eq!(
        (cluster.count(Purpose::SuspendJob), cluster.count(Purpose::DeleteChild)),
        (1, 1),
        "{:?}",
        cluster.writes
    );
    assert!(is(&cluster, "job-t-", "QuotaReserved"), "its pods are there still");
    cluster.pods_left.clear();
    cluster.pass(30);
    assert!(workload(&cluster, "job-t-").is_none(), "{:?}", cluster.writes);
}

/// A job that waits in a namespace that has left management gets no quota, because no client would start the job. Such a waiting job is admitted when Berth
/// manages the job's namespace again.
#[test]
fn waiting_workload_of_unmanaged_namespace_is_not_admitted() {
    for restarts in [false, true] {
        let mut cluster = contested("1");
        cluster.put(Kind::JOB, job("first", "lq", "1", true));
        cluster.settle();
        cluster.put(Kind::JOB, job("waits", "lq", "1", true));
        cluster.pass(5);
        cluster.label_namespace(&json!({}));
        if restarts {
            cluster.restart();
        }
        cluster.complete("first");
        cluster.pass(30);
        assert!(cluster.is("first", "Finished") && !cluster.is("waits", "QuotaReserved"), "{:?}", cluster.writes);
        let found_condition = cluster.condition("waits", "QuotaReserved").unwrap();
        assert_eq!(
            found_condition["message"], "its namespace is not managed (managedJobsNamespaceSelector)",
            "{found_condition}"
        );
        cluster.label_namespace(&json!({"team": "a"}));
        cluster.pass(30);
        assert!(cluster.is("waits", "Admitted"), "{:?}", cluster.writes);
    }
}

/// A job of a kind that the configuration no longer names is stopped when another workload preempts its quota.
#[test]
fn job_of_unmanaged_kind_is_preempted_after_a_restart() {
    let mut cluster = contested("2");
    cluster.put(Kind::JOB, job("t", "lq", "2", true));
    cluster.pass(5);
    let sets = workload(&cluster, "job-t-").unwrap()["spec"]["podSets"].clone();
    cluster.manage_only(&[Kind::Pod]);
    cluster.restart();
    let mut urgent = pod("urgent", "2");
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.set_class("high", 10);
    cluster.put(Kind::Pod, urgent);
    cluster.pass(30);
    assert!(!gated(&cluster, "urgent"), "{:?}", cluster.writes);
    assert_eq!(
        (&cluster.job("t")["spec"]["suspend"], &cluster.job("t")["status"]["active"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(workload(&cluster, "job-t-").unwrap()["spec"]["podSets"], sets);
}

/// Single pods, pod groups and TrainingJobs of a namespace that leaves management run on, end with their Workloads, and can be preempted.
#[test]
fn pods_and_training_jobs_of_unmanaged_namespace_follow_their_workloads() {
    for ends in [true, false] {
        let mut cluster = contested("2");
        cluster.put(Kind::Pod, pod("t", "2"));
        cluster.pass(5);
        cluster.label_namespace(&json!({}));
        cluster.pass(5);
        assert!(is(&cluster, "pod-t-", "Admitted") && cluster.pod("t").is_some(), "{:?}", cluster.writes);
        if ends {
            cluster.end_pod("t", "Succeeded");
            cluster.pass(5);
            assert!(is(&cluster, "pod-t-", "Finished"), "{:?}", cluster.writes);
        } else {
            let name = name_of(&cluster, "pod-t-");
            cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
            cluster.pass(30);
            assert!(cluster.pod("t").is_none(), "{:?}", cluster.writes);
        }
        assert!(!is(&cluster, "pod-t-", "QuotaReserved") || ends);

        let mut cluster = contested("2");
        for name in ["x", "y"] {
            cluster.put(Kind::Pod, member(name, "1", 2, &[]));
        }
        cluster.pass(5);
        cluster.label_namespace(&json!({}));
        cluster.pass(5);
        assert!(cluster.workload_is("g", "Admitted") && !gated(&cluster, "x"), "{:?}", cluster.writes);
        if ends {
            cluster.end_pod("x", "Succeeded");
            cluster.end_pod("y", "Succeeded");
            cluster.pass(5);
            assert!(cluster.workload_is("g", "Finished"), "{:?}", cluster.writes);
        } else {
            cluster.edit(Kind::Workload, "team", "g", &json!({"spec": {"active": false}}));
            cluster.pass(30);
            assert!(!cluster.workload_is("g", "QuotaReserved"), "{:?}", cluster.writes);
            let left = ["x", "y"].map(|name| cluster.pod(name).is_none_or(|pod| pod["status"]["phase"] == "Failed"));
            assert_eq!(left, [true; 2], "{:?}", cluster.writes);
        }

        let mut cluster = contested("2");
        cluster.put(Kind::TrainingJob, training("t", json!({})));
        cluster.pass(5);
        assert!(cluster.has_job("t-worker"), "{:?}", cluster.writes);
        cluster.label_namespace(&json!({}));
        cluster.pass(30);
        assert!(cluster.has_job("t-worker"), "it runs on: {:?}", cluster.writes);
        let own = name_of(&cluster, "trainingjob-t-");
        if ends {
            cluster.complete("t-worker");
            cluster.pass(30);
            assert!(cluster.workload_is(&own, "Finished") && cluster.phase("t") == "Succeeded", "{:?}", cluster.writes);
        } else {
            cluster.edit(Kind::Workload, "team", &own, &json!({"spec": {"active": false}}));
            cluster.pass(30);
            assert!(!cluster.has_job("t-worker"), "{:?}", cluster.writes);
            assert!(!cluster.workload_is(&own, "QuotaReserved"), "{:?}", cluster.writes);
        }
    }
}

/// A pod that has quota of its own gets the label of a pod group, before or after Berth has started the pod.
#[test]
fn pod_that_joins_a_group_keeps_its_own_workload() {
    for restarts in [None, Some(Kind::Workload), Some(Kind::Pod)] {
        let mut cluster = contested("2100m");
        cluster.put(Kind::Pod, pod("t", "2"));
        cluster.put(Kind::Pod, member("x", "100m", 1, &[]));
        cluster.pass(5);
        assert!(is(&cluster, "pod-t-", "Admitted") && cluster.workload_is("g", "Admitted"), "{:?}", cluster.writes);
        let joins = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "1"}}});
        cluster.edit(Kind::Pod, "team", "t", &joins);
        if restarts.is_some() {
            cluster.restart_hearing_last(restarts);
        }
        cluster.pass(10);
        assert!(cluster.pod("x").is_some() && cluster.pod("t").is_some(), "none is excess: {:?}", cluster.writes);
        assert!(urgent_has_its_turn(&mut cluster, "2"), "{restarts:?}: {:?}", cluster.writes);
        assert!(cluster.workload_is("g", "Admitted"), "{restarts:?}");
    }
}

/// If a pod with a Workload of its own joins a pod group, the end of the pod ends the pod's own Workload, and not the group's Workload.
#[test]
fn pod_with_own_workload_does_not_finish_its_pod_group() {
    for restarts in [None, Some(Kind::Workload), Some(Kind::Pod)] {
        let mut cluster = contested("2100m");
        cluster.put(Kind::Pod, pod("t", "2"));
        cluster.put(Kind::Pod, member("x", "100m", 1, &[]));
        cluster.pass(5);
        cluster.edit(Kind::Pod, "team", "t", &labels("pod-group-name", json!("g")));
        if restarts.is_some() {
            cluster.restart_hearing_last(restarts);
        }
        cluster.pass(5);
        cluster.end_pod("t", "Succeeded");
        cluster.pass(10);
        assert!(is(&cluster, "pod-t-", "Finished"), "{restarts:?}: {:?}", cluster.writes);
        assert!(!cluster.workload_is("g", "Finished"), "{restarts:?}: {:?}", cluster.writes);
    }
}

/// A job that leaves its queue while it waits gets no quota in that queue.
#[test]
fn waiting_job_that_leaves_its_queue_is_not_admitted() {
    let mut cluster = contested("1");
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, job("waits", "lq", "1", true));
    cluster.pass(5);
    cluster.edit(Kind::JOB, "team", "waits", &labels("queue-name", Value::Null));
    let larger = cluster_queue("cq", None, &[("default", "2")]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &larger);
    cluster.pass(30);
    assert!(!cluster.is("waits", "QuotaReserved"), "{:?}", cluster.writes);
    let found_condition = cluster.condition("waits", "QuotaReserved").unwrap();
    assert_eq!(
        (&found_condition["reason"], &found_condition["message"]),
        (&json!("Misconfigured"), &json!("its job names no queue"))
    );
}
