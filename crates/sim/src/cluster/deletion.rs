//! Deletion of objects in the simulated cluster: finalizers keep an object, and objects that it owns are deleted with their owner.

use berth_control::write::{Kind, LeftPod, ObjectKey};
use serde_json::{Value, json};

use super::Cluster;
use crate::api_server::{FOREGROUND, ORPHAN, is_deleting};

/// Labels in which pods name the uid of their job.
const UID_LABELS: [&str; 4] = [
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "jobset.sigs.k8s.io/jobset-uid",
    "berth.dev/training-job-uid",
];

impl Cluster {
    /// Deletes an object and leaves the objects that it owns behind, as `kubectl delete --cascade=orphan` does. One pod of each Job runs on.
    pub fn delete_orphaning(&mut self, key: &ObjectKey) {
        self.begin_orphaning(key);
        self.end_orphaning(key);
    }

    /// Begins to delete an object and to orphan the objects that it owns, and stops where the garbage collector cannot write Workloads: the collector has
    /// removed the owner references of all other objects, and its finalizer keeps the owner.
    pub fn begin_orphaning(&mut self, key: &ObjectKey) {
        let uid = self.objects()[key]["metadata"]["uid"].as_str().unwrap().to_owned();
        let mut going = self.objects()[key].clone();
        going["metadata"]["deletionTimestamp"] = json!(self.now().to_string());
        going["metadata"]["finalizers"] = json!([ORPHAN]);
        if key.kind == Kind::JOB {
            // The Job controller finds no pods of the Job any more.
            going["status"]["active"] = json!(0);
            going["status"]["ready"] = json!(0);
        }
        self.store(key, going);
        let left = self.api.owned_by(&json!(uid));
        let uid_of = |job: &ObjectKey| self.objects()[job]["metadata"]["uid"].as_str().unwrap().to_owned();
        let jobs = left
            .iter()
            .filter(|other| key.kind != Kind::JOB && other.kind == Kind::JOB)
            .map(|job| Some((job.name.clone(), uid_of(job))));
        let mut jobs: Vec<Option<(String, String)>> = jobs.collect();
        if jobs.is_empty() {
            jobs.push(None);
        }
        for other in left.into_iter().filter(|other| other.kind != Kind::Workload) {
            self.let_go(&other);
        }
        for job in jobs {
            let (name, own) = job.clone().unwrap_or_else(|| (key.name.clone(), uid.clone()));
            let pod = LeftPod { name: format!("{name}-left"), uid: format!("{own}-left"), deleting: false, job };
            self.left_behind.push((uid.clone(), pod));
        }
    }

    /// Ends the orphaning deletion that [`Self::begin_orphaning`] has begun, as the garbage collector does.
    pub fn end_orphaning(&mut self, key: &ObjectKey) {
        let uid = self.objects()[key]["metadata"]["uid"].as_str().unwrap().to_owned();
        for other in self.api.owned_by(&json!(uid)) {
            self.let_go(&other);
        }
        let mut going = self.objects()[key].clone();
        going["metadata"]["finalizers"] = json!([]);
        self.store(key, going);
    }

    fn let_go(&mut self, owned: &ObjectKey) {
        let mut metadata = json!({"ownerReferences": null});
        if owned.kind == Kind::JobPod {
            // The Job controller does not count the pod any more.
            metadata["finalizers"] = json!([]);
        }
        self.edit(owned.kind, &owned.namespace, &owned.name, &json!({"metadata": metadata}));
    }

    /// Pods that were left behind when their job was deleted, without the pods of stopped Jobs.
    pub(super) fn left_pods(&self, owner: &str) -> Vec<LeftPod> {
        let has_stopped = |(name, uid): &(String, String)| {
            let job = self.objects().get(&Self::key(Kind::JOB, "team", name));
            job.is_some_and(|job| job["metadata"]["uid"] == json!(uid) && job["status"]["active"] == json!(0))
        };
        let left =
            self.left_behind.iter().filter(|(of, pod)| of == owner && !pod.job.as_ref().is_some_and(has_stopped));
        let left = left.map(|(_, pod)| pod.clone());
        let named = |pod: &Value| UID_LABELS.iter().any(|label| pod["metadata"]["labels"][label] == json!(owner));
        let pods = self.objects().iter().filter(|(key, pod)| key.kind == Kind::JobPod && named(pod));
        let pods = pods.filter(|(_, pod)| pod["metadata"]["ownerReferences"].is_null());
        let of = |(key, pod): (&ObjectKey, &Value)| LeftPod {
            name: key.name.clone(),
            uid: pod["metadata"]["uid"].as_str().unwrap().to_owned(),
            deleting: is_deleting(pod),
            job: None,
        };
        left.chain(pods.map(of)).collect()
    }

    /// Deletes a pod of a Job by name and uid, if the pod is an object of the cluster; false if there is no such pod.
    pub(super) fn delete_job_pod(&mut self, key: &ObjectKey, uid: &str) -> bool {
        let pod = Self::key(Kind::JobPod, &key.namespace, &key.name);
        let is_it = key.kind == Kind::Pod
            && self.objects().get(&pod).is_some_and(|object| object["metadata"]["uid"] == json!(uid));
        if is_it {
            self.delete(&pod);
        }
        is_it
    }

    /// Ends pods that were left behind: the pod with the given uid, or the pods of the Job with the given uid.
    pub(super) fn end_left(&mut self, uid: &str) -> bool {
        let gone = |pod: &LeftPod| pod.uid == uid || pod.job.as_ref().is_some_and(|(_, job)| job == uid);
        let before = self.left_behind.len();
        self.left_behind.retain(|(_, pod)| !gone(pod));
        before != self.left_behind.len()
    }

    /// Deletes an object; objects that it owns are deleted after it.
    pub fn delete(&mut self, key: &ObjectKey) {
        self.delete_as(key, false);
    }

    /// Deletes an object; with `owned_first`, in the foreground.
    pub fn delete_as(&mut self, key: &ObjectKey, owned_first: bool) {
        let Some(mut object) = self.objects().get(key).cloned() else { return };
        let kept = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        object["metadata"]["deletionTimestamp"] = json!(self.now().to_string());
        if owned_first && kept {
            object["metadata"]["finalizers"].as_array_mut().unwrap().push(json!(FOREGROUND));
            self.store(key, object.clone());
            let left =
                object["metadata"]["uid"].as_str().is_some_and(|uid| self.pods_left.iter().any(|left| left == uid));
            if key.kind == Kind::JOB && !left && object["status"]["active"].is_number() {
                object["status"]["active"] = json!(0);
                object["status"]["ready"] = json!(0);
            }
            // The garbage collector removes its own finalizer when the pods are gone; finalizers of other clients stay.
            object["metadata"]["finalizers"].as_array_mut().unwrap().pop();
        }
        self.store(key, object);
    }
}
