//! Pods that are managed by themselves or in groups, as a webhook lets them be stored, and as the watches show them.

use berth_control::write::{Kind, ObjectKey};
use berth_jobs::pods::role_hash;
use serde_json::{Value, json};

use super::Cluster;
use super::leaders::MANAGED;

/// Annotation that a review gives each pod that it makes wait.
const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";

/// Gives a pod with a gate what the review gives it that puts the gate in.
pub(super) fn reviewed(pod: &mut Value) {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let waits = gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == "kueue.x-k8s.io/admission"));
    if waits && pod["metadata"]["annotations"][ROLE_HASH].is_null() {
        let spec = serde_json::from_value(pod["spec"].clone()).unwrap();
        pod["metadata"]["annotations"][ROLE_HASH] = json!(role_hash(&spec));
    }
}

impl Cluster {
    /// A pod that gets the label of managed pods leaves one watch for another, and so does one that loses it. The watch that it leaves shows its last
    /// state there.
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

    /// Creates a pod that no review has gone over: without a gate, a finalizer and a mark.
    pub fn put_unreviewed(&mut self, mut pod: Value) {
        pod["metadata"].as_object_mut().unwrap().remove("finalizers");
        pod["metadata"]["labels"].as_object_mut().unwrap().remove(MANAGED);
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        self.put(Kind::Pod, pod);
    }
}
