//! Pods that are managed by themselves or in groups.

use berth_control::write::Kind;
use serde_json::Value;

use super::Cluster;
use crate::watch::MANAGED;

impl Cluster {
    /// Creates a pod that no webhook has reviewed: without the scheduling gate, the finalizer and the label of managed pods.
    pub fn put_unreviewed(&mut self, mut pod: Value) {
        pod["metadata"].as_object_mut().unwrap().remove("finalizers");
        pod["metadata"]["labels"].as_object_mut().unwrap().remove(MANAGED);
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        self.put(Kind::Pod, pod);
    }
}
