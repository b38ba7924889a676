//! Pods that the Job controller creates, read from their metadata. A cluster may have tens of thousands of pods of Jobs, and the status of a Job counts nearly
//! all of the Job's pods. Control keeps in memory only the odd pods: those whose Job does not count them, or whose spec has changed.

use crate::metadata::group_of;
use crate::pods::uid_labels;
use berth_api::{labels, lean};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The batch/v1 Job that controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsJob {
    /// Name of the Job.
    pub name: Box<str>,
    /// Uid of the Job.
    pub uid: Box<str>,
}

/// A pod that has the label with its pod set's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off a pod")]
pub struct JobPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: Box<str>,
    /// `metadata.generation` of the pod: 1 until the pod's spec changes or the pod is deleted.
    pub generation: i64,
    /// Name of the Workload by which the pod was started, from the pod's annotation.
    pub workload: Option<Box<str>>,
    /// Name of the pod's pod set.
    pub set: Box<str>,
    /// The Job that controls the pod, if any.
    pub job: Option<PodsJob>,
    /// Uids of jobs in the pod's labels.
    pub named: Vec<Box<str>>,
    /// The pod is being deleted.
    pub deleting: bool,
    /// The pod is being deleted, and only finalizers keep the pod.
    pub gone: bool,
    /// The pod is managed alone or in a pod group, or its controller is not a Job.
    others: bool,
    /// The pod has the finalizer of the Job controller.
    tracked: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    generation: i64,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    owner_references: Vec<Reference>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl JobPod {
    /// Reads a pod from the JSON text of the pod or of its metadata.
    ///
    /// # Errors
    /// The text is no pod.
    pub fn read(text: &str) -> serde_json::Result<Box<Self>> {
        let Head { mut metadata } = *lean::decode::<Head>(text)?;
        let deleting = metadata.deletion_timestamp.is_some();
        let mut named: Vec<Box<str>> = Vec::new();
        for uid in uid_labels().filter_map(|key| metadata.labels.get(key)) {
            if !uid.is_empty() && !named.iter().any(|known| **known == **uid) {
                named.push(uid.as_str().into());
            }
        }
        let controller = metadata.owner_references.into_iter().find(|owner| owner.controller);
        let is_job = |owner: &Reference| owner.kind == "Job" && group_of(&owner.api_version) == "batch";
        let others =
            metadata.labels.contains_key(labels::MANAGED) || controller.as_ref().is_some_and(|owner| !is_job(owner));
        let job = controller.filter(is_job);
        Ok(Box::new(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid.into(),
            generation: metadata.generation,
            workload: metadata.annotations.remove(labels::WORKLOAD).map(Into::into),
            set: metadata.labels.remove(labels::POD_SET).unwrap_or_default().into(),
            job: job.map(|owner| PodsJob { name: owner.name.into(), uid: owner.uid.into() }),
            named,
            deleting,
            gone: deleting && metadata.deletion_grace_period_seconds == Some(0),
            others,
            tracked: metadata.finalizers.iter().any(|name| name == crate::pods::JOB_TRACKING),
        }))
    }

    /// Whether a job has created the pod, judged by its present metadata. Single pods and pods of other kinds also have the label with a pod set's name.
    #[must_use]
    pub fn is_of_job(&self) -> bool {
        let started = self.workload.is_some() && !self.others;
        self.job.is_some() || !self.named.is_empty() || self.tracked || started
    }

    /// Whether the pod is an odd pod, which control has to keep: its Job does not count it or is about to lose it, or the pod's spec has changed.
    #[must_use]
    pub fn is_odd(&self) -> bool {
        let Some(job) = &self.job else { return self.is_of_job() };
        let loses = !self.named.contains(&job.uid);
        loses || self.is_changed()
    }

    /// Whether the pod's spec has changed since the pod's creation.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        // The deletion of a pod increases its generation, too.
        self.generation > 1 && !self.deleting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(change: impl FnOnce(&mut Value)) -> JobPod {
        let mut metadata = json!({
            "name": "j-abcde", "namespace": "team", "uid": "p", "generation": 1,
            "labels": {"kueue.x-k8s.io/podset": "main", "batch.kubernetes.io/controller-uid": "u", "controller-uid": "u"},
            "annotations": {"kueue.x-k8s.io/workload": "job-j-12345"}, "finalizers": ["batch.kubernetes.io/job-tracking"],
            "managedFields": [{"manager": "m"}],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
        });
        change(&mut metadata);
        let text = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
        *JobPod::read(&text.to_string()).expect("a pod")
    }

    fn without(metadata: &mut Value, field: &str) {
        metadata.as_object_mut().expect("metadata").remove(field);
    }

    #[test]
    fn pod_that_its_job_counts_is_not_remembered() {
        let ordinary = pod(|_| ());
        assert!(!ordinary.is_odd() && ordinary.is_of_job(), "{ordinary:?}");
        assert_eq!(
            (&*ordinary.set, ordinary.workload.as_deref(), ordinary.named.len()),
            ("main", Some("job-j-12345"), 1)
        );
        let leaving = pod(|metadata| {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            metadata["deletionGracePeriodSeconds"] = json!(30);
            metadata["generation"] = json!(2);
        });
        assert!(leaving.deleting && !leaving.gone && !leaving.is_odd(), "{leaving:?}");
    }

    #[test]
    fn orphaned_or_resized_pod_of_job_is_remembered() {
        let released = pod(|metadata| without(metadata, "ownerReferences"));
        assert!(released.is_odd() && released.job.is_none());
        let relabelled = pod(|metadata| metadata["labels"] = json!({"kueue.x-k8s.io/podset": "main"}));
        assert!(relabelled.is_odd() && relabelled.named.is_empty(), "its Job is about to lose it");
        let resized = pod(|metadata| metadata["generation"] = json!(2));
        assert!(resized.is_odd() && resized.is_changed());
        // Berth has started the pod of this test, and the pod has lost the owner reference and the labels of its Job.
        let odd_pod = pod(|metadata| {
            for field in ["ownerReferences", "finalizers"] {
                without(metadata, field);
            }
            metadata["labels"] = json!({"kueue.x-k8s.io/podset": "main"});
        });
        assert!(odd_pod.is_odd() && odd_pod.is_of_job());
    }

    /// Pods that Berth manages alone or in a pod group come from another watch than the pods of Jobs, so they do not count as odd pods.
    #[test]
    fn pod_without_managed_job_is_not_remembered() {
        let single = pod(|metadata| {
            metadata["labels"] = json!({"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/managed": "true"});
            metadata["finalizers"] = json!(["kueue.x-k8s.io/managed"]);
            metadata["generation"] = json!(2);
            without(metadata, "ownerReferences");
        });
        assert!(!single.is_odd() && !single.is_of_job(), "{single:?}");
        let of_set = pod(|metadata| {
            metadata["labels"] = json!({"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/managed": "true"});
            metadata["finalizers"] = json!([]);
            metadata["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": true}]);
        });
        assert!(!of_set.is_odd());
        // The pod belongs to a RayCluster, which Berth does not manage and which another queue manager, such as Kueue, has started with its pods.
        let of_stranger = pod(|metadata| {
            metadata["labels"] = json!({"kueue.x-k8s.io/podset": "main"});
            metadata["finalizers"] = json!([]);
            metadata["ownerReferences"][0]["apiVersion"] = json!("ray.io/v1");
            metadata["ownerReferences"][0]["kind"] = json!("RayCluster");
        });
        assert!(!of_stranger.is_odd());
    }

    /// The watch shows the last state of a deleted pod and of a relabelled pod in one form; only the deleted pod has a grace period of zero.
    #[test]
    fn watch_event_of_relabelled_pod_is_distinguished_from_its_deletion() {
        let at = "2026-01-01T00:00:00Z";
        for (deleted, grace, finalizers, gone) in [
            (None, None, json!(["batch.kubernetes.io/job-tracking"]), false),
            (None, None, json!([]), false),
            (Some(at), Some(30), json!([]), false),
            (Some(at), Some(30), json!(["batch.kubernetes.io/job-tracking"]), false),
            (Some(at), Some(0), json!([]), true),
            (Some(at), Some(0), json!(["batch.kubernetes.io/job-tracking"]), true),
        ] {
            let last = pod(|metadata| {
                metadata["deletionTimestamp"] = json!(deleted);
                metadata["deletionGracePeriodSeconds"] = json!(grace);
                metadata["finalizers"] = finalizers.clone();
            });
            assert_eq!(last.gone, gone, "{deleted:?} {grace:?} {finalizers}");
        }
    }
}
