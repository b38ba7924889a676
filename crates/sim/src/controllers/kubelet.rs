//! Simulated nodes and kubelets: pods without a scheduling gate get a node and run, and deleted pods end after their grace period.

use berth_control::write::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::jobs::has_ended;
use crate::api_server::{ApiServer, is_deleting, merge};

/// The scheduler and all kubelets, with the API server that they write to.
#[derive(Debug)]
pub struct Kubelets<'a>(pub &'a mut ApiServer);

impl Kubelets<'_> {
    /// Runs the scheduler and the kubelets once for each pod that has changed, or for which a kubelet waits; true if a pod was written, or waits for the end of
    /// its grace period.
    pub fn look(&mut self) -> bool {
        let mut moved = false;
        for key in self.0.take_touched_pods() {
            if self.look_at(&key) {
                moved = true;
                self.0.touch_pod(key);
            }
        }
        moved
    }

    fn look_at(&mut self, key: &ObjectKey) -> bool {
        let pod = &self.0.objects()[key];
        if has_ended(pod) {
            return false;
        }
        let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        let bound = pod["spec"]["nodeName"].is_string();
        let mut new = pod.clone();
        if is_deleting(pod) {
            if bound && self.0.now() < end_of_grace(pod) {
                return true;
            }
            new["status"]["phase"] = json!("Failed");
        } else if gated {
            return false;
        } else if !bound {
            new["spec"]["nodeName"] = json!(format!("node-{}", self.0.version() % 4));
        } else if pod["status"]["phase"] != json!("Running") {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": self.0.now().to_string()});
            merge(&mut new, &json!({"status": {"phase": "Running", "conditions": [ready]}}));
        } else {
            return false;
        }
        self.0.store(key, new);
        true
    }
}

/// The time at which the grace period of a deleted pod is over.
fn end_of_grace(pod: &Value) -> Timestamp {
    let begun = pod["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(2);
    let begun = begun.unwrap_or(Timestamp::MIN);
    begun.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX)
}
