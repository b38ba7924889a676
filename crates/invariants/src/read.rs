//! The fields that the promises read in an object.

use serde_json::Value;

use super::asks;
use super::workload::Workload;
use crate::kinds::{self, condition, condition_object, items, text};
use crate::quota_tree::{Usage, charge};

/// Label with the LocalQueue of a job: a job that carries it is managed.
pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Kinds of owners whose pods Berth stops.
const KNOWN: [&str; 4] = ["Job", "JobSet", "TrainingJob", "Pod"];

/// A state of a Workload after an earlier one.
pub(super) fn workload(object: &Value, before: &Workload) -> Workload {
    let reserved = condition(object, "QuotaReserved") == "True";
    let owner = match text(object, "/metadata/annotations/kueue.x-k8s.io~1is-group-workload") {
        "true" => format!("group {}", kinds::key(object)),
        _ => controller(object),
    };
    let job_uid = label(object, "kueue.x-k8s.io/job-uid");
    let origin = [&owner, &before.origin, &job_uid].into_iter().find(|uid| !uid.is_empty()).cloned();
    let evicted = condition_object(object, "Evicted").filter(|evicted| text(evicted, "/status") == "True");
    Workload {
        key: kinds::key(object),
        origin: origin.unwrap_or_default(),
        of_known_kind: owner_kind(object).is_none_or(|kind| KNOWN.contains(&kind)),
        owner,
        replaces: text(object, "/metadata/annotations/kueue.x-k8s.io~1workload-slice-replacement-for").to_owned(),
        job_uid,
        pods: pods(object, false),
        left: pods(object, true),
        asks: asks::of_workload(object),
        active: object.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true),
        queue: text(object, "/spec/queueName").to_owned(),
        cluster_queue: text(object, "/status/admission/clusterQueue").to_owned(),
        charge: if reserved { charge(object) } else { Usage::new() },
        reserved,
        admitted: condition(object, "Admitted") == "True",
        evicted: evicted.is_some(),
        evicted_at: evicted.and_then(|evicted| text(evicted, "/lastTransitionTime").parse().ok()),
        finished: condition(object, "Finished") == "True",
        deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        deleting_since: None,
        held_back: held_back(object),
    }
}

/// Whether a gate or its job keeps it out of every queue while it holds no quota.
fn held_back(object: &Value) -> bool {
    let on_hold = |condition: &Value| {
        let is = |field: &str, expected: &str| text(condition, field) == expected;
        is("/type", "QuotaReserved") && is("/status", "False") && is("/reason", "OnHold")
    };
    !annotation(object, "kueue.x-k8s.io/admission-gated-by").is_empty()
        || condition(object, "WaitingForReplacementPods") == "True"
        || items(object, "/status/conditions").iter().any(on_hold)
}

/// Number of pods in the reservation of a Workload; with `without_over`, only of the pods that have not ended.
fn pods(object: &Value, without_over: bool) -> usize {
    let count = |list: &str, name: &str| {
        let found = items(object, list).iter().find(|entry| text(entry, "/name") == name);
        found.and_then(|entry| entry.get("count")?.as_u64())
    };
    let granted = |set: &Value| {
        let name = text(set, "/name");
        let over = count("/status/reclaimablePods", name).filter(|_| without_over).unwrap_or(0);
        let asked = count("/spec/podSets", name).map(|asked| asked.saturating_sub(over));
        let given = set.get("count").and_then(Value::as_u64);
        given.into_iter().chain(asked).min().unwrap_or(1)
    };
    let total: u64 = items(object, "/status/admission/podSetAssignments").iter().map(granted).sum();
    usize::try_from(total).unwrap_or(usize::MAX)
}

/// Owner of a managed pod's Workload: its group, or the pod itself.
pub(super) fn unit(pod: &Value) -> String {
    let key = "kueue.x-k8s.io/pod-group-name";
    let note = pod.pointer("/metadata/annotations").and_then(|notes| notes.get(key)).and_then(Value::as_str);
    let group = note.map_or_else(|| label(pod, key), str::to_owned);
    if group.is_empty() {
        text(pod, "/metadata/uid").to_owned()
    } else {
        format!("group {}/{group}", text(pod, "/metadata/namespace"))
    }
}

fn controlling(object: &Value) -> Option<&Value> {
    let owners = items(object, "/metadata/ownerReferences");
    owners.iter().find(|o| o.get("controller").and_then(Value::as_bool) == Some(true))
}

/// The uid of the controller of an object; empty if the object has no controller.
pub(super) fn controller(object: &Value) -> String {
    controlling(object).map(|o| text(o, "/uid").to_owned()).unwrap_or_default()
}

/// The kind of the controller of an object, if the object has a controller.
fn owner_kind(object: &Value) -> Option<&str> {
    controlling(object).map(|o| text(o, "/kind")).filter(|kind| !kind.is_empty())
}

/// The value of a label, empty where there is none.
pub(super) fn label(object: &Value, key: &str) -> String {
    entry(object, "labels", key)
}

/// The value of an annotation, empty where there is none.
pub(super) fn annotation(object: &Value, key: &str) -> String {
    entry(object, "annotations", key)
}

fn entry(object: &Value, field: &str, key: &str) -> String {
    let found = object.get("metadata").and_then(|metadata| metadata.get(field)?.get(key)?.as_str());
    found.unwrap_or_default().to_owned()
}

/// Whether a field manager is a user of a test.
pub(super) fn is_user(manager: &str) -> bool {
    manager == kinds::USER || manager.starts_with("kubectl")
}

/// Whether a field manager is Berth.
pub(super) fn is_berth(manager: &str) -> bool {
    manager == "kueue" || manager.starts_with("kueue-") || manager.starts_with("berth")
}

/// Whether a user or a controller of Kubernetes, and not Berth, wrote the present value of `spec.suspend`. The controller of JobSets resumes each Job that names
/// the JobSet as its controller, also a Job that a tenant has forged.
pub(super) fn others_own_suspend(job: &Value) -> bool {
    let entries = items(job, "/metadata/managedFields");
    entries.iter().any(|e| !is_berth(text(e, "/manager")) && e.pointer("/fieldsV1/f:spec/f:suspend").is_some())
}
