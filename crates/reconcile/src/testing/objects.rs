//! Objects of the fixture, as JSON. A test changes the relevant fields with [`changed`].

use std::collections::BTreeSet;

use berth_jobs::training::{Accelerators, training_workload};
use berth_jobs::{JobType, Priority, SharedJob};
use serde_json::{Map, Value, json};

use super::{NAMESPACE, at};

/// The resourceVersion of an object that a test does not change.
pub(crate) const VERSION: &str = "7";

/// An object after an RFC 7386 merge patch.
pub(crate) fn changed(mut object: Value, patch: Value) -> Value {
    merge(&mut object, patch);
    object
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn cluster_wide(name: &str) -> Value {
    json!({"name": name, "uid": format!("{name}-uid"), "resourceVersion": VERSION, "generation": 1})
}

/// Metadata of an object in the fixture's namespace: the uid is the name with `-uid`, and the object is ten minutes old.
pub(crate) fn metadata(name: &str) -> Value {
    changed(cluster_wide(name), json!({"namespace": NAMESPACE, "creationTimestamp": at(-600)}))
}

/// The namespace of all objects of the fixture.
pub(crate) fn namespace() -> Value {
    json!({"kind": "Namespace", "metadata": {"name": NAMESPACE, "uid": "namespace-uid"}})
}

/// A ResourceFlavor without node labels.
pub(crate) fn flavor(name: &str) -> Value {
    json!({"kind": "ResourceFlavor", "metadata": cluster_wide(name), "spec": {}})
}

/// A ResourceFlavor of a capacity tier.
pub(crate) fn flavor_of_tier(name: &str, tier: &str) -> Value {
    changed(flavor(name), json!({"metadata": {"labels": {"berth.dev/capacity-tier": tier}}}))
}

/// A ClusterQueue with a number of cpus of each flavor, open to all namespaces.
pub(crate) fn cluster_queue(name: &str, flavors: &[(&str, i64)]) -> Value {
    let flavors = flavors.iter().map(
        |(flavor, cpus)| json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpus.to_string()}]}),
    );
    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors.collect::<Vec<_>>()}]);
    json!({"kind": "ClusterQueue", "metadata": cluster_wide(name), "spec": {"resourceGroups": groups, "namespaceSelector": {}}})
}

/// A LocalQueue of a ClusterQueue.
pub(crate) fn local_queue(name: &str, cluster_queue: &str) -> Value {
    json!({"kind": "LocalQueue", "metadata": metadata(name), "spec": {"clusterQueue": cluster_queue}})
}

/// A pod template with one container that requests one cpu.
pub(crate) fn template() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}})
}

/// A suspended Job with two pods in LocalQueue `lq`.
pub(crate) fn job(name: &str) -> Value {
    let metadata = changed(metadata(name), json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}}));
    let spec = json!({"suspend": true, "parallelism": 2, "completions": 2, "template": template()});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": {}})
}

/// A suspended JobSet in LocalQueue `lq` with a part `main` that consists of `replicas` Jobs of one pod each.
pub(crate) fn job_set(name: &str, replicas: i32) -> Value {
    let metadata = changed(metadata(name), json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}}));
    let part = json!({"parallelism": 1, "completions": 1, "template": template()});
    let parts = json!([{"name": "main", "replicas": replicas, "template": {"spec": part}}]);
    let spec = json!({"suspend": true, "replicatedJobs": parts});
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec, "status": {}})
}

/// The owner reference to an object that controls another object.
pub(crate) fn controlled_by(owner: &Value) -> Value {
    json!({"ownerReferences": [{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]})
}

/// A TrainingJob of two workers with one cpu each, in LocalQueue `lq`.
pub(crate) fn training_job(name: &str) -> Value {
    let pods = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({
        "jobType": "PyTorchJob",
        "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
        "schedulingConfig": {"queue": "lq"},
        "template": pods,
    });
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata(name), "spec": spec})
}

/// A QueuePolicy of ClusterQueue `cq`.
pub(crate) fn policy(name: &str, spec: Value) -> Value {
    let spec = changed(json!({"clusterQueues": ["cq"]}), spec);
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": cluster_wide(name), "spec": spec})
}

/// The Workload `w` of a job or TrainingJob, as Berth creates it: pending, with Berth's finalizer.
pub(crate) fn workload_of(job: &Value) -> Value {
    let made = if job["kind"] == "TrainingJob" { of_training_job(job) } else { of_job(job) };
    let made = serde_json::to_value(made).unwrap_or_else(|error| panic!("{error}: {job}"));
    changed(changed(made, json!({"kind": "Workload"})), json!({ "metadata": metadata("w") }))
}

fn of_job(job: &Value) -> berth_api::Workload {
    let kind = berth_jobs::KINDS.into_iter().find(|kind: &JobType| kind.info().kind == job["kind"]);
    let kind = kind.unwrap_or_else(|| panic!("no job: {job}"));
    let read = SharedJob::from(kind.read(job).unwrap_or_else(|error| panic!("{error}: {job}")));
    let sets = read.pod_sets().unwrap_or_else(|error| panic!("{error}: {job}"));
    read.workload(sets, Priority::default(), &BTreeSet::new())
}

fn of_training_job(job: &Value) -> berth_api::Workload {
    let made =
        training_workload(&super::read(job.clone()), &Accelerators::default(), Priority::default(), &BTreeSet::new());
    made.unwrap_or_else(|faults| panic!("{faults:?}: {job}"))
}

/// A Workload without an owner: two pods of one cpu each in the pod set `main`.
pub(crate) fn workload(name: &str) -> Value {
    let metadata = changed(metadata(name), json!({"finalizers": ["kueue.x-k8s.io/resource-in-use"]}));
    let sets = json!([{"name": "main", "count": 2, "template": template()}]);
    let spec = json!({"queueName": "lq", "active": true, "priority": 0, "podSets": sets});
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, "status": {}})
}

/// A condition whose status has not changed for a minute.
pub(crate) fn condition(kind: &str, is_true: bool, reason: &str) -> Value {
    condition_since(kind, is_true, reason, -60)
}

/// A condition whose status has not changed since a second relative to the time of decisions.
pub(crate) fn condition_since(kind: &str, is_true: bool, reason: &str, since: i64) -> Value {
    let status = if is_true { "True" } else { "False" };
    let message = format!("{reason}, in words");
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(since)})
}

/// A Workload or job with one more condition.
pub(crate) fn with_condition(mut object: Value, condition: Value) -> Value {
    let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|other| other["type"] != condition["type"]);
    all.push(condition);
    object["status"]["conditions"] = Value::Array(all);
    object
}

/// A Workload that has had quota of ClusterQueue `cq` for all its pods, in flavor `f`, for a minute.
pub(crate) fn reserved(workload: Value) -> Value {
    let sets = workload["spec"]["podSets"].as_array().cloned().unwrap_or_default();
    let given = sets.iter().map(|set| {
        let (name, count) = (&set["name"], set["count"].as_i64().unwrap_or(1));
        json!({"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": count.to_string()}})
    });
    let admission = json!({"clusterQueue": "cq", "podSetAssignments": given.collect::<Vec<_>>()});
    let workload = changed(workload, json!({"status": {"admission": admission}}));
    with_condition(workload, condition("QuotaReserved", true, "QuotaReserved"))
}

/// An admitted Workload, with the quota that [`reserved`] gives.
pub(crate) fn admitted(workload: Value) -> Value {
    with_condition(reserved(workload), condition("Admitted", true, "Admitted"))
}

/// A Workload that is evicted for a reason, and still holds its quota if the Workload had quota.
pub(crate) fn evicted(workload: Value, reason: &str) -> Value {
    with_condition(workload, condition("Evicted", true, reason))
}

/// A Workload that has finished.
pub(crate) fn finished(workload: Value) -> Value {
    with_condition(workload, condition("Finished", true, "Succeeded"))
}

/// The object with the mark that it is being deleted.
pub(crate) fn deleting(object: Value) -> Value {
    changed(object, json!({"metadata": {"deletionTimestamp": at(-10)}}))
}

/// A pod in LocalQueue `lq` that waits behind its scheduling gate, as the API server stores the pod after the webhook.
pub(crate) fn pod(name: &str) -> Value {
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true"});
    let held = json!({"labels": labels, "finalizers": ["kueue.x-k8s.io/managed"], "annotations": {"kueue.x-k8s.io/role-hash": "r"}});
    let spec = changed(template()["spec"].clone(), json!({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": changed(metadata(name), held), "spec": spec, "status": {"phase": "Pending"}})
}

/// A pod that was started by the quota of Workload `w`.
pub(crate) fn started(pod: Value) -> Value {
    let metadata =
        json!({"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": "w"}});
    changed(pod, json!({"metadata": metadata, "spec": {"schedulingGates": null}, "status": {"phase": "Running"}}))
}

/// The Workload `w` of a single pod, as Berth creates it: pending, with Berth's finalizer.
pub(crate) fn workload_of_pod(pod: &Value) -> Value {
    let made = berth_jobs::pods::pod_workload(&super::read(pod.clone()), Priority::default(), &BTreeSet::new());
    let made = made.unwrap_or_else(|error| panic!("{error}: {pod}"));
    let made = serde_json::to_value(made).unwrap_or_else(|error| panic!("{error}: {pod}"));
    changed(changed(made, json!({"kind": "Workload"})), json!({ "metadata": metadata("w") }))
}
