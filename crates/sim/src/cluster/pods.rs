//! Pods that Berth manages singly or in groups, in the form in which a webhook lets the API server store them, and as the watches show the pods.

use berth_control::write::{Kind, ObjectKey};
use berth_jobs::pods::role_hash;
use serde_json::{Value, json};

use super::Cluster;
use super::leaders::MANAGED;

/// The annotation that the webhook's review gives each pod that has to wait for quota.
const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";

/// Adds to a pod with a scheduling gate the annotation that the webhook adds together with the gate.
pub(super) fn reviewed(pod: &mut Value) {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let waits = gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == "kueue.x-k8s.io/admission"));
    if waits && pod["metadata"]["annotations"][ROLE_HASH].is_null() {
        let spec = serde_json::from_value(pod["spec"].clone()).unwrap();
        pod["metadata"]["annotations"][ROLE_HASH] = json!(role_hash(&spec));
    }
}

impl Cluster {
    /// Shows a changed pod. A pod that gets or loses the label of managed pods leaves one watch for another, and the watch that the pod leaves shows the last
    /// state that it matched.
    pub(super) fn show_pod(&mut self, key: &ObjectKey, old: &Value, new: &Value) {
        let is_marked = |pod: &Value| pod["metadata"]["labels"][MANAGED] == json!("true");
        let moves = is_marked(old) != is_marked(new);
        if moves && self.leaves_first {
            self.show(key, old, true);
        }
        self.show(key, new, false);
        if moves && !self.leaves_first {
            self.show(key, old, true);
        }
    }

    /// Creates a pod that no webhook has reviewed: without the scheduling gate, the finalizer and the label of managed pods.
    pub fn put_unreviewed(&mut self, mut pod: Value) {
        pod["metadata"].as_object_mut().unwrap().remove("finalizers");
        pod["metadata"]["labels"].as_object_mut().unwrap().remove(MANAGED);
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        self.put(Kind::Pod, pod);
    }
}
