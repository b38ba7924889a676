//! Pod groups and StatefulSets of the fixture, as JSON.

use std::collections::BTreeSet;

use berth_jobs::Priority;
use berth_jobs::pods::{group_of_stateful_set, group_workload, stateful_set_workload};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::objects::{changed, controlled_by, metadata, pod, started, template};

/// A pod of group `g`, which names a role and the number of the group's pods; the pod waits behind its scheduling gate.
pub(crate) fn member(name: &str, role: &str, total: i32) -> Value {
    let group = json!({
        "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/role-hash": role, "kueue.x-k8s.io/pod-group-total-count": total.to_string()},
    });
    changed(pod(name), json!({ "metadata": group }))
}

/// A pod of a group, started in its role by the quota of the Workload `g`.
pub(crate) fn started_member(pod: Value) -> Value {
    let role = pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].clone();
    let names = json!({"labels": {"kueue.x-k8s.io/podset": role}, "annotations": {"kueue.x-k8s.io/workload": "g"}});
    changed(started(pod), json!({ "metadata": names }))
}

/// A running pod of group `g` that no webhook has reviewed; its role is the hash of its spec.
pub(crate) fn let_in_member(name: &str, total: i32) -> Value {
    let bare = json!({
        "labels": {"kueue.x-k8s.io/podset": null},
        "annotations": {"kueue.x-k8s.io/role-hash": null, "kueue.x-k8s.io/workload": null},
        "finalizers": null,
    });
    changed(started_member(member(name, "main", total)), json!({ "metadata": bare }))
}

/// The Workload `g` of group `g`, as Berth creates it: pending, with a number of pods for each role, and with the named pods as owners.
pub(crate) fn workload_of_group(roles: &[(&str, i32)], members: &[&str]) -> Value {
    let roles = roles.iter().map(|(role, count)| (*role, super::read(member("p", role, 1)), *count));
    let roles: Vec<(&str, Pod, i32)> = roles.collect();
    let uids: Vec<String> = members.iter().map(|name| format!("{name}-uid")).collect();
    let members: Vec<(&str, &str)> = members.iter().zip(&uids).map(|(name, uid)| (*name, uid.as_str())).collect();
    let made = group_workload("g", &roles, &members, Priority::default(), &BTreeSet::new());
    stored(made.unwrap_or_else(|error| panic!("{error}: {members:?}")), "g")
}

/// The pod in another phase, such as `Failed`.
pub(crate) fn in_phase(pod: Value, phase: &str) -> Value {
    changed(pod, json!({"status": {"phase": phase}}))
}

/// The pod with the condition that has the reason for its deletion.
pub(crate) fn condemned(pod: Value) -> Value {
    let condition = json!({"type": "TerminationTarget", "status": "True", "reason": "R", "message": ""});
    changed(pod, json!({"status": {"conditions": [condition]}}))
}

/// The pod on a node: if such a pod is deleted, it runs until the kubelet has stopped it.
pub(crate) fn on_node(pod: Value) -> Value {
    changed(pod, json!({"spec": {"nodeName": "n"}}))
}

/// The pod with a ReplicaSet as its controller, which creates the pod again after its deletion.
pub(crate) fn of_replica_set(pod: Value) -> Value {
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "uid": "r-uid"}});
    changed(pod, json!({"metadata": controlled_by(&set)}))
}

/// The pod without Berth's finalizer.
pub(crate) fn without_finalizer(pod: Value) -> Value {
    changed(pod, json!({"metadata": {"finalizers": null}}))
}

/// The StatefulSet `s` with a number of replicas, in LocalQueue `lq`, as the API server stores it after the webhook.
pub(crate) fn stateful_set(replicas: i32) -> Value {
    let metadata = changed(metadata("s"), json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}}));
    let parent = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}}});
    let pods = changed(changed(template(), parent), json!({"spec": {"restartPolicy": "Always"}}));
    let spec = json!({"replicas": replicas, "serviceName": "s", "selector": {}, "template": pods});
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec})
}

/// Name of the pod group of StatefulSet `s`, and of the group's Workload.
pub(crate) fn group_of_set() -> String {
    group_of_stateful_set("s", "s-uid")
}

/// The Workload of StatefulSet `s`, as Berth creates it: pending, for the StatefulSet's number of replicas.
pub(crate) fn workload_of_set(set: &Value) -> Value {
    let replicas = set["spec"]["replicas"].as_i64().and_then(|count| i32::try_from(count).ok()).unwrap_or_default();
    let made = stateful_set_workload(&super::read(set.clone()), replicas, Priority::default(), &BTreeSet::new());
    stored(made.unwrap_or_else(|error| panic!("{error}: {set}")), &group_of_set())
}

/// A pod of StatefulSet `s`, which waits behind its scheduling gate and has no finalizer.
pub(crate) fn pod_of_set(name: &str) -> Value {
    let group = json!({
        "labels": {"kueue.x-k8s.io/pod-group-name": group_of_set()},
        "annotations": {"kueue.x-k8s.io/role-hash": "main", "kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
        "finalizers": null,
    });
    changed(changed(pod(name), json!({ "metadata": group })), json!({"metadata": controlled_by(&stateful_set(1))}))
}

/// A Workload as JSON, with the metadata of a stored object.
fn stored(made: berth_api::Workload, name: &str) -> Value {
    let made = serde_json::to_value(made).unwrap_or_else(|error| panic!("{error}: {name}"));
    changed(changed(made, json!({"kind": "Workload"})), json!({ "metadata": metadata(name) }))
}
