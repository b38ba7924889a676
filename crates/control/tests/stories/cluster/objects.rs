//! Objects as users write them.

use berth_control::event::{Change, Observation};
use serde_json::{Value, json};

use super::Cluster;

impl Cluster {
    /// A WorkloadPriorityClass, new or with another value.
    pub fn set_class(&mut self, name: &str, value: i32) {
        let class = serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
        self.control.observe(Observation::WorkloadPriorityClass(Change::Apply(class)), self.now);
    }
}

pub fn flavor(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeLabels": labels}})
}

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

pub fn local_queue(name: &str, cluster_queue: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": cluster_queue}})
}

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

/// A Workload of one pod that somebody makes before its job.
pub fn made_before(template: &Value) -> Value {
    json!({"metadata": {"namespace": "team", "name": "before"},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]}})
}

/// Server-side apply of the counts of pod sets.
pub fn apply_counts(object: &mut Value, body: &Value) {
    for wanted in body["spec"]["podSets"].as_array().into_iter().flatten() {
        let sets = object["spec"]["podSets"].as_array_mut().unwrap();
        let set = sets.iter_mut().find(|set| set["name"] == wanted["name"]).expect("a pod set of that name");
        set["count"] = wanted["count"].clone();
    }
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
    object["metadata"]["generation"] = json!(generation + 1);
}
