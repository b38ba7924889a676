//! Objects as users and administrators write them, in namespace `team`.

use serde_json::{Value, json};

use crate::api_server::merge;

/// A ResourceFlavor with node labels.
#[must_use]
pub fn flavor(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeLabels": labels}})
}

/// A ClusterQueue with cpus of the given flavors, in the given order.
#[must_use]
pub fn cluster_queue(name: &str, cohort: Option<&str>, flavors: &[(&str, &str)]) -> Value {
    let flavors: Vec<Value> = flavors
        .iter()
        .map(|(flavor, quota)| json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": quota}]}))
        .collect();
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    });
    if let Some(cohort) = cohort {
        spec["cohortName"] = json!(cohort);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A LocalQueue of a ClusterQueue.
#[must_use]
pub fn local_queue(name: &str, cluster_queue: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": cluster_queue}})
}

/// A Job of one pod in a LocalQueue.
#[must_use]
pub fn job(name: &str, queue: &str, cpu: &str, suspend: bool) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": suspend, "parallelism": 1, "completions": 1,
            "template": {
                "metadata": {"labels": {"mine": "yes"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        },
    })
}

/// A JobSet `a` of two Jobs with two pods of one cpu each, as AxLearn writes JobSets: not suspended, and with the queue in an annotation.
#[must_use]
pub fn job_set() -> Value {
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": "a", "annotations": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicatedJobs": [{"name": "job", "replicas": 2, "template": {"spec": {"parallelism": 2,
            "completions": 2, "template": {"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}}}]}})
}

/// A TrainingJob of two workers with one cpu each; `more` is merged into its spec.
#[must_use]
pub fn training_job(name: &str, more: &Value) -> Value {
    let mut spec = json!({
        "jobType": "PyTorchJob",
        "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
        "schedulingConfig": {"queue": "lq"},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    merge(&mut spec, more);
    json!({"metadata": {"name": name, "namespace": "team"}, "spec": spec})
}

/// A pod as the API server stores the pod after the webhook.
#[must_use]
pub fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "team", "name": name, "finalizers": ["kueue.x-k8s.io/managed"],
            "labels": {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true"}},
        "spec": {"restartPolicy": "Never", "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

/// A prebuilt Workload of one pod.
#[must_use]
pub fn made_before(template: &Value) -> Value {
    json!({"metadata": {"namespace": "team", "name": "before"},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]}})
}
