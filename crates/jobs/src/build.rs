//! Construction of the Workload of a job.

use crate::kind::JobKind;
use crate::metadata::max_execution_seconds;
use crate::names::{is_label_value, workload_name};
use berth_api::{PodSet, PriorityClassRef, Workload, WorkloadSpec, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeMap, BTreeSet};

/// Priority of a Workload, with the class that the priority is from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Priority {
    /// Value of the priority.
    pub value: i32,
    /// Class that the priority is from; `None` if no class applies.
    pub class: Option<PriorityClassRef>,
}

impl Priority {
    /// Priority from a WorkloadPriorityClass.
    #[must_use]
    pub fn of_workload_class(name: &str, value: i32) -> Self {
        Self { value, class: Some(class(labels::GROUP_KUEUE, "WorkloadPriorityClass", name)) }
    }

    /// Priority from a PriorityClass.
    #[must_use]
    pub fn of_pod_class(name: &str, value: i32) -> Self {
        Self { value, class: Some(class(labels::GROUP_SCHEDULING, "PriorityClass", name)) }
    }
}

fn class(group: &str, kind: &str, name: &str) -> PriorityClassRef {
    PriorityClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

/// The Workload to create for a job of kind `K` with these pod sets. The Workload has a name derived from the job's name, the job as its controlling owner, and
/// Berth's finalizer. `copied` has the keys of the labels that the Workload copies from the job.
#[must_use]
pub fn build_workload<K: JobKind>(
    job: &K::Object,
    pod_sets: Vec<PodSet>,
    priority: Priority,
    copied: &BTreeSet<String>,
) -> Workload {
    let kind = OwnerKind { group: K::GROUP, api_version: K::API_VERSION, kind: K::KIND };
    let mut workload = workload_of(K::metadata(job), kind, pod_sets, priority, copied);
    workload.spec.queue_name = K::queue_name(job).map(str::to_owned);
    workload
}

/// Group, version and kind of the owner of a Workload.
#[derive(Clone, Copy)]
pub(crate) struct OwnerKind {
    pub(crate) group: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

/// The Workload of an owner with this metadata, without a queue.
pub(crate) fn workload_of(
    owner: &ObjectMeta,
    kind: OwnerKind,
    pod_sets: Vec<PodSet>,
    priority: Priority,
    copied: &BTreeSet<String>,
) -> Workload {
    let name = owner.name.as_deref().unwrap_or_default();
    let uid = owner.uid.as_deref().unwrap_or_default();
    let reference = OwnerReference {
        api_version: kind.api_version.to_owned(),
        kind: kind.kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Workload {
        metadata: ObjectMeta {
            name: Some(workload_name(kind.kind, kind.group, name, uid)),
            namespace: owner.namespace.clone(),
            labels: some(own_labels(owner, uid, copied)),
            annotations: some(own_annotations(owner)),
            finalizers: Some(vec![labels::RESOURCE_IN_USE_FINALIZER.to_owned()]),
            owner_references: Some(vec![reference]),
            ..ObjectMeta::default()
        },
        spec: WorkloadSpec {
            pod_sets,
            priority: Some(priority.value),
            priority_class_ref: priority.class,
            active: Some(true),
            maximum_execution_time_seconds: max_execution_seconds(owner),
            ..WorkloadSpec::default()
        },
        status: None,
    }
}

fn own_labels(owner: &ObjectMeta, uid: &str, copied: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut result: BTreeMap<_, _> = owner
        .labels
        .iter()
        .flatten()
        .filter(|(key, _)| copied.contains(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !uid.is_empty() && is_label_value(uid) {
        result.insert(labels::JOB_UID.to_owned(), uid.to_owned());
    }
    result
}

fn own_annotations(owner: &ObjectMeta) -> BTreeMap<String, String> {
    let is_copied = |key: &str| {
        matches!(key, labels::ADMISSION_GATED_BY | labels::ELASTIC_JOB | labels::CAPACITY_TIERS)
            || key.starts_with(labels::PROVISIONING_REQUEST_PREFIX)
    };
    let all = owner.annotations.iter().flatten();
    all.filter(|(key, _)| is_copied(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn some(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchJob;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    fn built(job: Value, priority: Priority) -> Value {
        let job: Job = serde_json::from_value(job).expect("job");
        let copied = BTreeSet::from(["team".to_owned(), "absent".to_owned()]);
        let sets = BatchJob::pod_sets(&job).expect("pod sets");
        serde_json::to_value(build_workload::<BatchJob>(&job, sets, priority, &copied)).expect("serialises")
    }

    #[test]
    fn job_becomes_workload_with_its_queue_priority_and_pod_sets() {
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let job = json!({
            "metadata": {"name": "sample", "namespace": "ns", "uid": "7b1d6f8a-1111-4222-8333-444455556666",
                "labels": {"kueue.x-k8s.io/queue-name": "lq", "team": "a", "other": "b",
                    "kueue.x-k8s.io/max-exec-time-seconds": "60"},
                "annotations": {"provreq.kueue.x-k8s.io/class": "x", "other": "y"}},
            "spec": {"parallelism": 3, "template": template},
        });
        let expected = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-sample-fb8ff", "namespace": "ns",
                "labels": {"kueue.x-k8s.io/job-uid": "7b1d6f8a-1111-4222-8333-444455556666", "team": "a"},
                "annotations": {"provreq.kueue.x-k8s.io/class": "x"},
                "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "sample",
                    "uid": "7b1d6f8a-1111-4222-8333-444455556666", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"podSets": [{"name": "main", "count": 3, "template": template}], "queueName": "lq", "priority": 7,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
                "active": true, "maximumExecutionTimeSeconds": 60},
        });
        assert_eq!(built(job, Priority::of_workload_class("high", 7)), expected);
    }

    #[test]
    fn workload_of_bare_job_omits_absent_fields() {
        let job = json!({"metadata": {"name": "a", "uid": "-"}, "spec": {"template": {"spec": {"containers": []}}}});
        let workload = built(job, Priority::default());
        assert_eq!(workload["metadata"]["labels"], Value::Null);
        assert_eq!(workload["metadata"]["annotations"], Value::Null);
        assert_eq!(workload["spec"]["queueName"], Value::Null);
        assert_eq!(workload["spec"]["priority"], json!(0));
        assert_eq!(workload["spec"]["priorityClassRef"], Value::Null);
        let pods = Priority::of_pod_class("p", 1).class.expect("class");
        assert_eq!((pods.group.as_str(), pods.kind.as_str()), ("scheduling.k8s.io", "PriorityClass"));
    }
}
