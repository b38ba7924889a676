//! Pods that the Job controller creates, which have no Workload of their own. A Job counts its pods by their metadata, and control finds the running pods of a
//! job by this metadata.

use super::governing::is_admitted_with_owner;
use super::rules::has_ended;
use crate::admission::{annotation_path, label_path};
use crate::kinds::KINDS;
use crate::metadata::{annotation, controller};
use crate::pod_set::BATCH_CONTROLLER_LABELS;
use berth_api::labels;
use berth_api::validation::FieldError;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Finalizer of the Job controller on pods that the controller still has to count.
pub const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation of a pod with the name of its Workload.
pub const COUNTED_ANNOTATION: &str = labels::WORKLOAD;

const UNTIL_ENDED: &str = "must stay until the pod has ended: the pod is counted by it";

/// The labels in which a pod has the uid of a job.
pub fn uid_labels() -> impl Iterator<Item = &'static str> {
    let kinds = KINDS.into_iter().map(|kind| kind.info().uid_label);
    kinds.chain([labels::TRAINING_JOB_UID, OLD_CONTROLLER_UID])
}

/// The older name of the label with the Job's uid on the Job's pods.
const OLD_CONTROLLER_UID: &str = "controller-uid";

/// The labels by which the Job and Berth count a pod of a job.
#[must_use]
pub fn counted_labels() -> Vec<&'static str> {
    let mut all = vec![labels::POD_SET, labels::MANAGED];
    for label in BATCH_CONTROLLER_LABELS.into_iter().chain(uid_labels()) {
        if !all.contains(&label) {
            all.push(label);
        }
    }
    all
}

/// Faults of a change of a started job's pod by a client other than Kubernetes' controllers: until the pod has ended, the fields by which it is counted must
/// stay. If a change hid a running pod from its Job, the Job would create a replacement, and both pods would run.
#[must_use]
pub fn validate_pod_of_job(old: &Pod, new: &Pod) -> Vec<FieldError> {
    let (before, after) = (&old.metadata, &new.metadata);
    if has_ended(old) || !is_of_started_job(before) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for key in counted_labels() {
        let [was, is] = [before, after].map(|metadata| raw_label(metadata, key));
        if was != is {
            errors.push(FieldError::new(label_path(key), is, UNTIL_ENDED));
        }
    }
    let [was, is] = [before, after].map(|metadata| annotation(metadata, COUNTED_ANNOTATION).unwrap_or_default());
    if was != is {
        errors.push(FieldError::new(annotation_path(COUNTED_ANNOTATION), is, UNTIL_ENDED));
    }
    // The Job controller finds its pods by kind, name and uid of the owner reference.
    let named = |owner: &'_ OwnerReference| (owner.kind.clone(), owner.name.clone(), owner.uid.clone());
    let [was, is] = [before, after].map(|metadata| controller(metadata).map(named));
    if was != is {
        let message = "the controller must stay until the pod has ended: the pod is counted by it";
        let uid = is.map(|(_, _, uid)| uid).unwrap_or_default();
        errors.push(FieldError::new("metadata.ownerReferences", uid.as_str(), message));
    }
    let tracked = |metadata: &ObjectMeta| metadata.finalizers.iter().flatten().any(|name| name == JOB_TRACKING);
    if tracked(before) && !tracked(after) {
        errors.push(FieldError::new("metadata.finalizers", "", format!("{JOB_TRACKING} {UNTIL_ENDED}")));
    }
    errors
}

/// Whether a pod was created for a job that was admitted together with its pods.
fn is_of_started_job(metadata: &ObjectMeta) -> bool {
    let names = |key: &str| !raw_label(metadata, key).is_empty();
    names(labels::POD_SET) && (uid_labels().any(names) || is_admitted_with_owner(metadata))
}

fn raw_label<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    metadata.labels.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Value {
        json!({
            "metadata": {"name": "j-abcde", "labels": {"kueue.x-k8s.io/podset": "main", "controller-uid": "u", "job-name": "j",
                    "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j", "app": "mine"},
                "annotations": {"kueue.x-k8s.io/workload": "job-j-12345"}, "finalizers": [JOB_TRACKING],
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running"},
        })
    }

    fn refused(old: &Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut new = old.clone();
        change(&mut new);
        let read = |pod: &Value| serde_json::from_value(pod.clone()).expect("a pod");
        validate_pod_of_job(&read(old), &read(&new)).into_iter().map(|error| error.field).collect()
    }

    /// The labels, owner references and finalizer by which the Job and Berth find a pod must stay until the pod has ended.
    #[test]
    fn pod_of_job_may_not_lose_labels_owner_or_finalizer() {
        for key in ["kueue.x-k8s.io/podset", "batch.kubernetes.io/controller-uid", "controller-uid", "job-name"] {
            let field = [format!("metadata.labels[{key}]")];
            for value in [Value::Null, json!("other")] {
                let change = |pod: &mut Value| match value.clone() {
                    Value::Null => drop(pod["metadata"]["labels"].as_object_mut().expect("labels").remove(key)),
                    value => pod["metadata"]["labels"][key] = value,
                };
                assert_eq!(refused(&pod(), change), field);
            }
        }
        let managed = |pod: &mut Value| pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("true");
        assert_eq!(refused(&pod(), managed), ["metadata.labels[kueue.x-k8s.io/managed]"]);
        let other = |pod: &mut Value| pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = json!("other");
        assert_eq!(refused(&pod(), other), ["metadata.annotations[kueue.x-k8s.io/workload]"]);
        let orphaned = |pod: &mut Value| pod["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(refused(&pod(), orphaned), ["metadata.ownerReferences"]);
        let not_controlled = |pod: &mut Value| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        assert_eq!(refused(&pod(), not_controlled), ["metadata.ownerReferences"]);
        for (field, value) in [("name", "other"), ("kind", "ReplicaSet")] {
            let renamed = |pod: &mut Value| pod["metadata"]["ownerReferences"][0][field] = json!(value);
            assert_eq!(refused(&pod(), renamed), ["metadata.ownerReferences"], "{field}");
        }
        let untracked = |pod: &mut Value| pod["metadata"]["finalizers"] = json!([]);
        assert_eq!(refused(&pod(), untracked), ["metadata.finalizers"]);
    }

    #[test]
    fn other_fields_and_pods_without_managed_job_may_change() {
        let own = |pod: &mut Value| {
            pod["metadata"]["labels"]["app"] = json!("other");
            pod["metadata"]["annotations"]["a"] = json!("b");
            pod["metadata"]["finalizers"] = json!([JOB_TRACKING, "example.com/mine"]);
        };
        assert!(refused(&pod(), own).is_empty());
        let unlabel = |pod: &mut Value| pod["metadata"]["labels"] = json!({});
        let mut ended = pod();
        ended["status"]["phase"] = json!("Succeeded");
        assert!(refused(&ended, unlabel).is_empty());
        let mut bare = pod();
        bare["metadata"] = json!({"name": "p", "labels": {"kueue.x-k8s.io/podset": "main"}});
        assert!(refused(&bare, unlabel).is_empty(), "no job made it");
        let mut of_free_job = pod();
        of_free_job["metadata"]["labels"].as_object_mut().expect("labels").remove("kueue.x-k8s.io/podset");
        assert!(refused(&of_free_job, unlabel).is_empty(), "nobody counts it");
        // A pod that its job has orphaned is found by its labels alone.
        let mut left = pod();
        left["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(refused(&left, unlabel).len(), 5);
    }
}
