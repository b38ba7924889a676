//! Pods, pod groups and JobSets as their users write them, and as Kueue 0.19 changes them: by its webhook, with its Workloads, and by its start. The
//! forms are those of Kueue's pkg/controller/jobs (pod, jobset) and pkg/podset.

use anyhow::{Context, Result};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{POD, WORKLOAD, items, text};
use berth_e2e::manifest;
use serde_json::{Value, json};

use crate::migration::kueue::{IN_USE, Kueue, workload_with};

/// Label of a managed pod, and name of its finalizer.
const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Group of a pod.
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
/// Annotation with the role hash of a pod, which names the pod set of pods of one shape.
pub(crate) const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Kueue's role hashes of the pods in these tests, by the pods' cpu request. The role hashes are those of pods in the form in which the API server hands them
/// over, that is, with a priority and the two tolerations that every pod gets. The role hashes in this table were computed with Kueue's own types, and not by
/// Berth.
const HASHES: [(&str, &str); 3] = [("500m", "d1d3a926"), ("1", "4b0469f7"), ("2", "c3465716")];
/// Scheduling gates that Kueue adds to every pod without an owner; the second gate is for an admission that names a topology.
const GATES: [&str; 2] = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"];

/// Annotation of pods that run until the annotation is removed.
fn endless() -> Value {
    json!({"e2e.berth.dev/outcome": "never"})
}

fn pod_spec(cpu: &str) -> Value {
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": cpu}}});
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]})
}

/// A pod as its user writes it, in a group of two pods if `group` is given.
pub(crate) fn pod(namespace: &str, name: &str, cpu: &str, group: Option<&str>) -> Value {
    let mut pod = json!({"apiVersion": POD.api_version, "kind": POD.kind,
        "metadata": {"namespace": namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"},
            "annotations": endless()},
        "spec": pod_spec(cpu)});
    if let Some(group) = group {
        pod["metadata"]["labels"][GROUP] = json!(group);
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("2");
    }
    pod
}

/// The role hash that Kueue computes for a pod.
pub(crate) fn role_of(pod: &Value) -> &'static str {
    let cpu = text(pod, "/spec/containers/0/resources/requests/cpu");
    HASHES.iter().find(|(of, _)| *of == cpu).map_or("", |(_, hash)| *hash)
}

/// A pod of a queue, as Kueue's webhook stores it.
pub(crate) fn gated(mut pod: Value) -> Value {
    let gates = GATES.map(|name| json!({"name": name}));
    let role = role_of(&pod);
    let metadata = json!({"labels": {MANAGED: "true"}, "finalizers": [MANAGED], "annotations": {ROLE_HASH: role}});
    let more = json!({"metadata": metadata, "spec": {"schedulingGates": gates}});
    manifest::merge(&mut pod, &more);
    pod
}

/// A JobSet of `jobs` Jobs of one pod with one cpu each, suspended as the webhook stores it.
pub(crate) fn job_set(namespace: &str, name: &str, jobs: usize) -> Value {
    let pods = json!({"metadata": {"annotations": endless()}, "spec": pod_spec("1")});
    let job = json!({"name": "job", "replicas": jobs,
        "template": {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pods}}});
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"suspend": true, "replicatedJobs": [job]}})
}

/// Whether a pod has the finalizer that keeps the pod until its end is accounted for.
pub(crate) fn is_held(pod: &Value) -> bool {
    items(pod, "/metadata/finalizers").contains(&json!(MANAGED))
}

/// The group of a pod; empty if the pod is in no group.
pub(crate) fn group_of(pod: &Value) -> &str {
    pod["metadata"]["labels"][GROUP].as_str().unwrap_or_default()
}

fn set_of(name: &str, count: usize, pod: &Value) -> Value {
    json!({"name": name, "count": count, "template": {"spec": pod["spec"]},
        "topologyRequest": {"podIndexLabel": "kueue.x-k8s.io/pod-group-pod-index"}})
}

/// The Workload that Kueue makes for a pod without a group.
pub(crate) fn workload_of_pod(pod: &Value) -> Value {
    workload_with(POD, pod, json!([set_of("main", 1, pod)]))
}

/// The Workload that Kueue makes for a group of equal pods; a pod that failed and was replaced is still an owner of the Workload.
pub(crate) fn workload_of_group(pods: &[Value]) -> Result<Value> {
    let first = pods.first().context("a group has pods")?;
    let owner = |pod: &Value| {
        let metadata = &pod["metadata"];
        json!({"apiVersion": POD.api_version, "kind": POD.kind, "name": metadata["name"], "uid": metadata["uid"]})
    };
    let owners: Vec<Value> = pods.iter().map(owner).collect();
    let role = first["metadata"]["annotations"][ROLE_HASH].as_str().context("a role")?;
    let count = pods.iter().filter(|pod| text(pod, "/status/phase") != "Failed").count();
    Ok(json!({"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind,
        "metadata": {"namespace": first["metadata"]["namespace"], "name": group_of(first), "finalizers": [IN_USE],
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}, "ownerReferences": owners},
        "spec": {"active": true, "priority": 0, "queueName": "queue", "podSets": [set_of(role, count, first)]}}))
}

/// The Workload that Kueue makes for a JobSet whose Jobs have one pod each.
pub(crate) fn workload_of_job_set(set: &Value) -> Value {
    let of_job = |job: &Value| {
        let place = json!({"podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": job["replicas"]});
        json!({"name": job["name"], "count": job["replicas"], "template": job["template"]["spec"]["template"],
            "topologyRequest": place})
    };
    let sets: Vec<Value> = items(set, "/spec/replicatedJobs").iter().map(of_job).collect();
    workload_with(JOBSET, set, json!(sets))
}

impl Kueue<'_> {
    /// Starts a pod in one write, which adds the fields of its flavor and its Workload and removes both scheduling gates.
    pub(crate) async fn start_pod(&self, name: &str, set: &str, workload: &str) -> Result<()> {
        let spec = json!({"nodeSelector": {"e2e/pool": "cpu"}, "schedulingGates": null});
        self.merge(POD, name, &json!({"metadata": self.marks(set, workload), "spec": spec})).await
    }

    /// Starts a JobSet in one write, as Kueue does.
    pub(crate) async fn start_job_set(&self, set: &Value, workload: &str) -> Result<()> {
        let mut jobs = set["spec"]["replicatedJobs"].clone();
        for job in jobs.as_array_mut().context("jobs")? {
            let marks = self.marks(text(job, "/name"), workload);
            let more = json!({"metadata": marks, "spec": {"nodeSelector": {"e2e/pool": "cpu"}}});
            manifest::merge(&mut job["template"]["spec"]["template"], &more);
        }
        let patch = json!({"spec": {"suspend": false, "replicatedJobs": jobs}});
        self.merge(JOBSET, text(set, "/metadata/name"), &patch).await
    }
}
