//! Pods of Jobs as objects, for stories about such pods: the watch shows only their metadata, and only pods with the label of a pod set.

use berth_control::write::{Kind, ObjectKey, PodsOf};
use serde_json::{Value, json};

use super::Cluster;
use crate::watch::POD_SET;

impl Cluster {
    /// Stores a pod as the controller of a Job of the namespace `team` makes its pods.
    pub fn put_job_pod(&mut self, name: &str, job: &str, cpu: &str) -> ObjectKey {
        let workload = self.workload_of(job).expect("a Workload")["metadata"]["name"].clone();
        let workload = workload.as_str().unwrap().to_owned();
        self.put_pod_of(name, (job, &json!({})), &workload, cpu)
    }

    /// Stores a pod of a Job that has no Workload of its own, with the given labels beside the labels of the Job.
    pub fn put_pod_of(&mut self, name: &str, (job, labels): (&str, &Value), workload: &str, cpu: &str) -> ObjectKey {
        let uid = self.job(job)["metadata"]["uid"].clone();
        self.put(
            Kind::JobPod,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "team", "name": name, "finalizers": ["batch.kubernetes.io/job-tracking"],
                    "labels": {POD_SET: "main", "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
                        "batch.kubernetes.io/job-name": job, "job-name": job},
                    "annotations": {"kueue.x-k8s.io/workload": workload},
                    "ownerReferences":
                        [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}]},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
                "status": {"phase": "Running"},
            }),
        );
        let pod = Self::key(Kind::JobPod, "team", name);
        self.mark_pod(&pod, &json!({"labels": labels}));
        pod
    }

    /// Changes the metadata of a pod.
    pub fn mark_pod(&mut self, pod: &ObjectKey, metadata: &Value) {
        self.edit(pod.kind, &pod.namespace, &pod.name, &json!({"metadata": metadata}));
    }

    /// Changes a pod's labels as a client may do, so that the pod's Job does not count the pod: the job controller then removes the pod's owner reference and
    /// finalizer.
    pub fn release_pod(&mut self, pod: &ObjectKey) {
        self.mark_pod(
            pod,
            &json!({"labels": {"batch.kubernetes.io/controller-uid": null, "controller-uid": null,
                "batch.kubernetes.io/job-name": null, "job-name": null}}),
        );
        self.mark_pod(pod, &json!({"ownerReferences": null, "finalizers": []}));
    }

    /// Whether any pod of a Job is among the pods that a query selects.
    pub(super) fn has_job_pods(&self, pods: &PodsOf) -> bool {
        let mut all =
            self.objects().iter().filter(|(key, _)| key.kind == Kind::JobPod).map(|(_, pod)| &pod["metadata"]);
        all.any(|pod| {
            pod["labels"][pods.label] == json!(pods.uid) && pods.has(&serde_json::from_value(pod.clone()).unwrap())
        })
    }

    /// Deletes the pods of suspended Jobs.
    pub(super) fn stop_job_pods(&mut self) -> bool {
        let suspended = |owner: &Value| {
            let mut jobs = self.objects().iter().filter(|(key, _)| key.kind == Kind::JOB).map(|(_, job)| job);
            jobs.any(|job| job["metadata"]["uid"] == owner["uid"] && job["spec"]["suspend"] == json!(true))
        };
        let goes = |pod: &Value| {
            suspended(&pod["metadata"]["ownerReferences"][0]) && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let pods = self.objects().iter().filter(|(key, pod)| key.kind == Kind::JobPod && goes(pod));
        let pods: Vec<ObjectKey> = pods.map(|(key, _)| key.clone()).collect();
        for pod in &pods {
            self.mark_pod(pod, &json!({"finalizers": []}));
            self.delete(pod);
        }
        !pods.is_empty()
    }
}
