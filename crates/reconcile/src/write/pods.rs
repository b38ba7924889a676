//! Criteria for the pods of a job, and pods that queries find.

use std::collections::BTreeSet;

use berth_api::labels::POD_SET;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Criteria by which the pods of a job are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsOf {
    /// Label by which the pods name the uid of their job. Any client may write the label: the label narrows the search and proves nothing.
    pub label: &'static str,
    /// Uid of the job.
    pub uid: String,
    /// Uids of the Jobs that control the pods; `None` if not all of these Jobs are known: then any Job may control the pods.
    pub jobs: Option<BTreeSet<String>>,
}

impl PodsOf {
    /// Whether a pod that was found by the label belongs to the job: a Job with one of the known uids controls the pod.
    #[must_use]
    pub fn has(&self, pod: &ObjectMeta) -> bool {
        berth_jobs::controller(pod).is_some_and(|owner| {
            let known = self.jobs.as_ref().is_none_or(|jobs| jobs.contains(&owner.uid));
            known && is_batch_job(owner)
        })
    }
}

/// A pod on a node whose pods are queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOnNode {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// Name of the pod set in the pod's label; empty without that label.
    pub pod_set: String,
    /// Name and uid of the batch/v1 Job that controls the pod, if a Job controls it.
    pub job: Option<(String, String)>,
}

impl PodOnNode {
    /// The pod with the given metadata.
    #[must_use]
    pub fn of(pod: ObjectMeta) -> Self {
        let job = berth_jobs::controller(&pod).filter(|owner| is_batch_job(owner));
        let job = job.map(|owner| (owner.name.clone(), owner.uid.clone()));
        let pod_set = pod.labels.as_ref().and_then(|labels| labels.get(POD_SET)).cloned().unwrap_or_default();
        Self {
            namespace: pod.namespace.unwrap_or_default(),
            name: pod.name.unwrap_or_default(),
            uid: pod.uid.unwrap_or_default(),
            pod_set,
            job,
        }
    }
}

/// A pod whose job is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftPod {
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// True if the pod is being deleted.
    pub deleting: bool,
    /// Name and uid of the batch/v1 Job that controls the pod, if a Job controls it.
    pub job: Option<(String, String)>,
}

impl LeftPod {
    /// The pod with the given metadata; `None` if an object of another kind than batch/v1 Job controls the pod.
    #[must_use]
    pub fn of(pod: ObjectMeta) -> Option<Self> {
        let controller = berth_jobs::controller(&pod);
        if controller.is_some_and(|owner| !is_batch_job(owner)) {
            return None;
        }
        Some(Self {
            job: controller.map(|owner| (owner.name.clone(), owner.uid.clone())),
            deleting: pod.deletion_timestamp.is_some(),
            name: pod.name.unwrap_or_default(),
            uid: pod.uid.unwrap_or_default(),
        })
    }
}

fn is_batch_job(owner: &OwnerReference) -> bool {
    owner.kind == "Job" && owner.api_version.starts_with("batch/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_belongs_to_job_by_controller_reference_not_by_label() {
        let owned = |kind: &str, version: &str, uid: &str, controls: bool| {
            let owner = json!({"apiVersion": version, "kind": kind, "name": "j", "uid": uid, "controller": controls});
            serde_json::from_value(json!({"labels": {"l": "u"}, "ownerReferences": [owner]})).expect("metadata")
        };
        let jobs = Some(BTreeSet::from(["one".to_owned()]));
        let known = PodsOf { label: "l", uid: "u".to_owned(), jobs };
        let unknown = PodsOf { jobs: None, ..known.clone() };
        let has = |pod: &ObjectMeta| (known.has(pod), unknown.has(pod));
        assert_eq!(has(&owned("Job", "batch/v1", "one", true)), (true, true));
        assert_eq!(has(&owned("Job", "batch/v1", "other", true)), (false, true));
        assert_eq!(has(&owned("Job", "batch/v1", "one", false)), (false, false));
        assert_eq!(has(&owned("Job", "example.com/v1", "one", true)), (false, false));
        assert_eq!(has(&owned("ReplicaSet", "apps/v1", "one", true)), (false, false));
        assert_eq!(has(&ObjectMeta::default()), (false, false));
    }
}
