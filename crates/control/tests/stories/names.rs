//! Foreign objects under a name that Berth needs for an object of its own: an event of the job or check that waits for the name says which object is in the
//! way.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::pod_queue;
use crate::stories::pods::pod;
use crate::stories::provisioning::asked_with;
use crate::stories::training::training;

const CONFLICT: &str = "WorkloadNameConflict";

pub fn job_set(name: &str) -> Value {
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "replicatedJobs": [{"name": "job", "replicas": 1, "template": {"spec": {
            "parallelism": 1, "completions": 1, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}}}]}})
}

fn jobs(name: &str) -> [(Kind, Value); 4] {
    [
        (Kind::JOB, job(name, "lq", "1", true)),
        (Kind::JOB_SET, job_set(name)),
        (Kind::Pod, pod(name, "1")),
        (Kind::TrainingJob, training(name, json!({}))),
    ]
}

/// Messages of the events about name conflicts of an object.
fn messages_of(cluster: &Cluster, kind: Kind, name: &str) -> Vec<String> {
    let about = cluster.notices.iter().filter(|notice| notice.key.kind == kind && notice.key.name == name);
    about.filter(|notice| notice.reason == CONFLICT).map(|notice| notice.message.clone()).collect()
}

fn workload_names(cluster: &Cluster) -> Vec<String> {
    cluster.objects().keys().filter(|key| key.kind == Kind::Workload).map(|key| key.name.clone()).collect()
}

fn stateful_set(name: &str) -> Value {
    let mut set = crate::stories::groups::set(1);
    set["metadata"]["name"] = json!(name);
    set
}

#[test]
fn job_with_taken_workload_name_waits_with_conflict_event() {
    for (kind, object) in jobs("x").into_iter().chain([(Kind::StatefulSet, stateful_set("x"))]) {
        let mut before = pod_queue("4");
        before.put(kind, object.clone());
        before.settle();
        let name = workload_names(&before).remove(0);
        // The simulated cluster assigns uids in order, so that the job gets the same uid again, and its Workload's name is taken.
        let mut cluster = pod_queue("4");
        cluster.put(kind, object);
        let stranger = json!({"metadata": {"namespace": "team", "name": name},
            "spec": {"queueName": "nowhere", "active": true, "podSets": [{"name": "main", "count": 1,
                "template": {"spec": {"containers": []}}}]}});
        cluster.put(Kind::Workload, stranger);
        cluster.pass(120);
        let expected = format!(
            "Workload team/{name} belongs to no job and has the name that the Workload of this job is to have: delete it"
        );
        assert_eq!(messages_of(&cluster, kind, "x"), [expected], "{kind:?}: once");
        assert_eq!(cluster.count(Purpose::CreateWorkload), 0, "{kind:?}");
        cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
        cluster.pass(5);
        assert!(cluster.workload_is(&name, "Admitted"), "{kind:?}: {:?}", cluster.writes);
    }
}

/// A job that names another job's Workload as its prebuilt Workload waits, and an event says which job the Workload belongs to.
#[test]
fn job_naming_another_jobs_prebuilt_workload_waits_with_conflict_event() {
    for (kind, mut object) in jobs("x").into_iter().filter(|(kind, _)| *kind != Kind::TrainingJob) {
        let mut cluster = pod_queue("4");
        cluster.put(Kind::JOB, job("owner", "lq", "1", true));
        cluster.settle();
        let name = workload_names(&cluster).remove(0);
        object["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!(name);
        cluster.put(kind, object);
        cluster.pass(120);
        let expected = format!(
            "Workload team/{name} belongs to Job team/owner and is the one that this job names as made beforehand: \
             name another one"
        );
        assert_eq!(messages_of(&cluster, kind, "x"), [expected], "{kind:?}: once");
        assert_ne!(cluster.objects()[&Cluster::key(kind, "team", "x")]["spec"]["suspend"], json!(false), "{kind:?}");
    }
}

/// A Workload that is being deleted with its job will be gone in a moment, so that the job gets no event.
#[test]
fn prebuilt_workload_being_deleted_causes_no_conflict_event() {
    let mut cluster = pod_queue("4");
    let mut owner = job("owner", "lq", "1", true);
    owner["metadata"]["finalizers"] = json!(["x/y"]);
    cluster.put(Kind::JOB, owner);
    cluster.settle();
    let name = workload_names(&cluster).remove(0);
    cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"finalizers": ["x/y"]}}));
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    let mut guest = job("x", "lq", "1", true);
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!(name);
    cluster.put(Kind::JOB, guest);
    cluster.pass(10);
    assert_eq!(messages_of(&cluster, Kind::JOB, "x"), Vec::<String>::new());
}

/// A tenant has made an object with the name that Berth needs for its request to an autoscaler: the admission check and the job name the object in their
/// messages.
#[test]
fn admission_check_names_object_that_blocks_its_provisioning_request() {
    for (purpose, kind) in
        [(Purpose::PreparePodTemplate, "PodTemplate"), (Purpose::RequestCapacity, "ProvisioningRequest")]
    {
        let mut cluster = asked_with(&json!({}), |cluster| {
            cluster.answers.push((purpose, "", WriteOutcome::AlreadyExists));
        });
        cluster.pass(60);
        let workload = cluster.workload_of("a").unwrap().clone();
        let check = &workload["status"]["admissionChecks"][0];
        let message = check["message"].as_str().unwrap_or_default();
        assert_eq!(check["state"], json!("Pending"));
        assert!(message.starts_with(&format!("{kind} team/")), "{kind}: {check} {:?}", cluster.writes);
        assert!(message.ends_with(" exists and is somebody else's: delete it"), "{message}");
        let of_job = cluster.notices.iter().filter(|notice| notice.key.kind == Kind::JOB);
        assert!(of_job.clone().any(|notice| notice.message.contains("is somebody else's")), "{:?}", cluster.notices);
        let answers = |cluster: &Cluster| cluster.count(Purpose::AnswerCheck);
        let before = answers(&cluster);
        cluster.pass(300);
        assert_eq!(answers(&cluster), before, "{kind}: once");
        // Berth has tried the creation of its object again and again, and succeeds when the name is free.
        cluster.answers.clear();
        cluster.pass(60);
        assert!(
            cluster.objects().keys().any(|key| key.kind == Kind::ProvisioningRequest),
            "{kind}: {:?}",
            cluster.writes
        );
    }
}

/// An object that Berth has created does not count as another client's object if the answer to its creation was lost.
#[test]
fn provisioning_request_with_lost_answer_is_not_reported_as_foreign() {
    for purpose in [Purpose::PreparePodTemplate, Purpose::RequestCapacity] {
        let mut cluster = asked_with(&json!({}), |cluster| {
            cluster.faults.push((purpose, WriteOutcome::Unknown("reset".into()), true));
        });
        cluster.pass(60);
        let workload = cluster.workload_of("a").unwrap();
        let message = workload["status"]["admissionChecks"][0]["message"].as_str().unwrap_or_default();
        assert_eq!(message, "", "{purpose:?}");
    }
}
