//! The simulated job controller, with a pod for each active index: pods are created, counted and deleted as by Kubernetes' job controller.
//!
//! A pod keeps the job controller's finalizer until the kubelet has ended the pod and its Job has counted the pod.

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, is_deleting, merge};

/// Finalizer of the pods of Jobs.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Labels of a pod with the uid of its Job.
const UIDS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// Labels of a pod with the name of its Job.
const NAMES: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
/// Label of a pod with the uid of the JobSet of which the pod's Job is a part.
const JOB_SET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";

/// Grace period of the deletion of a pod, in seconds.
const GRACE: i64 = 2;

/// The job controller, with the API server that it writes to.
#[derive(Debug)]
pub struct JobController<'a>(pub &'a mut ApiServer);

/// Whether a pod has ended.
#[must_use]
pub fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a Job has a condition that ends it, `Complete` or `Failed`.
#[must_use]
pub fn is_over(job: &Value) -> bool {
    let all = job["status"]["conditions"].as_array();
    let ends = |one: &Value| matches!(one["type"].as_str(), Some("Complete" | "Failed")) && one["status"] == "True";
    all.into_iter().flatten().any(ends)
}

fn count(job: &Value, field: &str) -> i64 {
    job["status"][field].as_i64().unwrap_or(0)
}

/// The uid of the controlling owner of an object.
fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == json!(true))?;
    Some(&owner["uid"])
}

impl JobController<'_> {
    /// Runs the job controller once for each Job that has changed or whose pods have changed, and for the pods that no Job counts; true if the controller
    /// wrote.
    pub fn look(&mut self) -> bool {
        let jobs = self.0.take_touched_jobs();
        let moved = jobs.into_iter().fold(false, |moved, key| self.look_at(&key) | moved);
        self.release_orphans() | moved
    }

    /// Pods that a Job controls and counts.
    fn pods_of(&self, job: &Value) -> Vec<ObjectKey> {
        let uid = &job["metadata"]["uid"];
        let mut pods = self.0.owned_by(uid);
        pods.retain(|key| key.kind == Kind::JobPod && controller(&self.0.objects()[key]) == Some(uid));
        pods
    }

    fn look_at(&mut self, key: &ObjectKey) -> bool {
        let old = self.0.objects()[key].clone();
        // The job controller neither starts nor stops a Job that is being deleted, but counts the Job's pods and writes their end.
        let goes = is_deleting(&old);
        let mut job = old.clone();
        if !job["status"].is_object() {
            job["status"] = json!({});
        }
        let mut moved = false;
        let (mut succeeded, mut failed) = (count(&job, "succeeded"), count(&job, "failed"));
        let mut active = Vec::new();
        let mut terminating = 0;
        for pod in self.pods_of(&job) {
            let object = &self.0.objects()[&pod];
            let (deleting, tracked) = (is_deleting(object), is_tracked(object));
            match object["status"]["phase"].as_str() {
                Some("Succeeded") if tracked => succeeded += 1,
                Some("Failed") if tracked && !deleting => failed += 1,
                Some("Succeeded" | "Failed") => {}
                _ if deleting => terminating += 1,
                _ => active.push(pod.clone()),
            }
            moved |= self.untrack(&pod);
        }
        let over = is_over(&job);
        let suspended = job["spec"]["suspend"] == json!(true);
        let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
        let completions = job["spec"]["completions"].as_i64();
        let left = completions.map_or(parallelism, |all| (all - succeeded).max(0));
        let limit = job["spec"]["backoffLimit"].as_i64().unwrap_or(6);
        let fails = !over && failed > limit;
        let completes = !over && !suspended && completions.is_some_and(|all| succeeded >= all);
        let wanted = if over || suspended || fails || completes { 0 } else { parallelism.min(left).max(0) };
        let wanted = usize::try_from(wanted).unwrap_or(0);
        let wanted = if goes && !(fails || completes) { active.len() } else { wanted };
        for pod in active.split_off(active.len().min(wanted)) {
            self.0.delete(&pod);
            terminating += 1;
            moved = true;
        }
        if !over && !suspended && !goes && job["status"]["startTime"].is_null() {
            job["status"]["startTime"] = json!(self.0.now().to_string());
        }
        for _ in active.len()..wanted {
            active.push(self.make_pod(key, &job));
            moved = true;
        }
        let is_ready = |pod: &&ObjectKey| self.0.objects()[*pod]["status"]["phase"] == json!("Running");
        let ready = active.iter().filter(is_ready).count();
        let figures = json!({"active": active.len(), "ready": ready, "succeeded": succeeded, "failed": failed,
            "terminating": terminating});
        merge(&mut job["status"], &figures);
        if active.is_empty() && terminating == 0 && (completes || fails) {
            let at = self.0.now().to_string();
            let end = if completes { "Complete" } else { "Failed" };
            job["status"]["conditions"] =
                json!([{"type": end, "status": "True", "lastTransitionTime": at, "lastProbeTime": at}]);
        } else if !over && !goes && (suspended || job["status"]["conditions"].is_array()) {
            let status = if suspended { "True" } else { "False" };
            job["status"]["conditions"] = json!([{"type": "Suspended", "status": status}]);
        }
        if job["status"] != old["status"] {
            self.0.store(key, job);
            moved = true;
        }
        moved
    }

    /// Removes the job controller's finalizer from a pod that has ended.
    fn untrack(&mut self, pod: &ObjectKey) -> bool {
        let object = &self.0.objects()[pod];
        if !has_ended(object) || !is_tracked(object) {
            return false;
        }
        let mut object = object.clone();
        if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
            list.retain(|finalizer| finalizer != TRACKING);
        }
        self.0.store(pod, object);
        true
    }

    /// Removes the job controller's finalizer from ended pods that no Job controls any more.
    fn release_orphans(&mut self) -> bool {
        let mut pods = self.0.take_touched_job_pods();
        pods.retain(|pod| !controller(&self.0.objects()[pod]).is_some_and(|uid| self.0.has_uid(uid)));
        pods.into_iter().fold(false, |moved, pod| self.untrack(&pod) | moved)
    }

    fn make_pod(&mut self, key: &ObjectKey, job: &Value) -> ObjectKey {
        let name = format!("{}-{}", key.name, self.0.version() + 1);
        let (uid, template) = (&job["metadata"]["uid"], &job["spec"]["template"]);
        let mut labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        labels.extend(UIDS.map(|label| (label.to_owned(), uid.clone())));
        labels.extend(NAMES.map(|label| (label.to_owned(), json!(key.name))));
        let owner = &job["metadata"]["ownerReferences"][0];
        if owner["kind"] == "JobSet" && owner["controller"] == json!(true) {
            labels.insert(JOB_SET_UID.to_owned(), owner["uid"].clone());
        }
        let mut spec = template["spec"].clone();
        if spec["terminationGracePeriodSeconds"].is_null() {
            spec["terminationGracePeriodSeconds"] = json!(GRACE);
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": key.namespace, "name": name, "labels": labels, "finalizers": [TRACKING],
                "annotations": template["metadata"]["annotations"].as_object().cloned().unwrap_or_default(),
                "ownerReferences":
                    [{"apiVersion": "batch/v1", "kind": "Job", "name": key.name, "uid": uid, "controller": true,
                    "blockOwnerDeletion": true}]},
            "spec": spec,
            "status": {"phase": "Pending"},
        });
        self.0.put(Kind::JobPod, pod);
        ApiServer::key(Kind::JobPod, &key.namespace, &name)
    }
}

fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|one| one == TRACKING))
}
