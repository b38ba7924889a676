//! Simulated nodes and kubelets, which run and end the pods that users create themselves.

use berth_control::write::{Kind, ObjectKey, StuckPod};
use serde_json::{Value, json};

use super::job_controller::is_elastic;
use super::{Cluster, is_on, merge};
use crate::api_server::is_deleting;

impl Cluster {
    /// Binds pods that have no scheduling gate, runs the bound pods, and ends deleted pods.
    pub(super) fn kubelet(&mut self) -> bool {
        if self.controller_sleeps {
            return false;
        }
        let keys: Vec<ObjectKey> = self.objects().keys().filter(|key| key.kind == Kind::Pod).cloned().collect();
        let mut moved = false;
        for key in keys {
            let old = self.objects()[&key].clone();
            let mut new = old.clone();
            let gates = new["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
            let leaves = is_deleting(&new);
            let bound = new["spec"]["nodeName"].is_string();
            let phase = new["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
            let tier = &new["spec"]["nodeSelector"]["tier"];
            let lacks = self.without_nodes.iter().any(|without| tier == &json!(without));
            if lacks && !gates && !bound && !leaves {
                if new["status"]["conditions"].is_null() {
                    let stuck = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                        "message": "0/9 nodes are available"});
                    merge(&mut new, &json!({"status": {"conditions": [stuck]}}));
                }
            } else if !gates && !bound && !leaves {
                new["spec"]["nodeName"] = json!("node");
                let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": self.now().to_string()});
                merge(&mut new, &json!({"status": {"phase": "Running", "conditions": [ready]}}));
            } else if leaves && bound && phase == "Running" {
                new["status"]["phase"] = json!("Failed");
            }
            if new != old {
                moved = true;
                self.store(&key, new);
            }
        }
        moved
    }

    /// The pods that no node takes, for the job with a uid or for the Jobs of the TrainingJob with that uid.
    pub(super) fn stuck_pods(&self, uid: &str) -> Vec<StuckPod> {
        let stuck = self.objects().values().filter_map(|object| {
            let owner = &object["metadata"]["ownerReferences"][0];
            let pod_set = if object["metadata"]["uid"] == uid {
                "main"
            } else if owner["kind"] == "TrainingJob" && owner["uid"] == uid {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                name.strip_prefix(owner["name"].as_str()?)?.strip_prefix('-')?
            } else {
                return None;
            };
            let wanted = object["spec"]["parallelism"].as_i64().unwrap_or(1);
            let few = is_elastic(object) && self.nodes.is_some_and(|nodes| nodes < wanted);
            let lacks = few || self.lacks_nodes(object);
            let refused = self.refused_nodes.clone();
            lacks.then(|| StuckPod { pod_set: pod_set.into(), message: "0/9 nodes are available".into(), refused })
        });
        stuck.collect()
    }

    /// Whether no node takes the pods of a Job.
    pub(super) fn lacks_nodes(&self, job: &Value) -> bool {
        let keeps = self.keep_nodes.iter().any(|name| job["metadata"]["name"] == *name);
        !keeps && self.without_nodes.iter().any(|flavor| is_on(job, flavor))
    }

    /// The number of nodes on which the pods of a TrainingJob run.
    pub(super) fn nodes_of(&self, uid: &str) -> usize {
        let owned = self.objects().values().filter(|object| object["metadata"]["ownerReferences"][0]["uid"] == uid);
        let pods: i64 = owned.filter_map(|object| object["status"]["ready"].as_i64()).sum();
        usize::try_from(pods).unwrap().div_ceil(self.pods_per_node)
    }

    /// The answer of an autoscaler about pods that no node takes.
    pub(super) fn asked_pods(&self, pods: &[(String, StuckPod)]) -> Vec<StuckPod> {
        let refused = |pod: &StuckPod| StuckPod { refused: self.refused_nodes.clone(), ..pod.clone() };
        pods.iter().map(|(_, pod)| refused(pod)).collect()
    }

    /// Keeps the pods of a job alive after the job is gone, until `pods_left` is cleared.
    pub fn keep_pods_of(&mut self, kind: Kind, name: &str) {
        let uid = &self.objects()[&Self::key(kind, "team", name)]["metadata"]["uid"];
        self.pods_left.push(uid.as_str().unwrap().to_owned());
    }

    /// Ends a pod in the given phase.
    pub fn end_pod(&mut self, name: &str, phase: &str) {
        self.edit(Kind::Pod, "team", name, &json!({"status": {"phase": phase, "conditions": []}}));
    }

    /// A pod of namespace `team`.
    pub fn pod(&self, name: &str) -> Option<&Value> {
        self.objects().get(&Self::key(Kind::Pod, "team", name))
    }

    /// Whether a Workload's condition is true.
    pub fn workload_is(&self, name: &str, kind: &str) -> bool {
        self.objects().get(&Self::key(Kind::Workload, "team", name)).is_some_and(|workload| super::is(workload, kind))
    }
}
