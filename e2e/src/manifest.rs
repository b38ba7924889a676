//! Functions that build the manifests of tests, so that a scenario reads as its story.

use serde_json::{Map, Value, json};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// A ResourceFlavor with node labels.
pub fn flavor(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: Map<String, Value> = labels.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
    json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}})
}

/// Quota of one resource.
#[derive(Clone, Copy, Debug)]
pub struct Quota<'a> {
    resource: &'a str,
    nominal: &'a str,
    borrowing: Option<&'a str>,
    lending: Option<&'a str>,
}

/// Nominal quota of one resource, without borrowing limit and lending limit.
pub fn quota<'a>(resource: &'a str, nominal: &'a str) -> Quota<'a> {
    Quota { resource, nominal, borrowing: None, lending: None }
}

impl<'a> Quota<'a> {
    /// Sets the borrowing limit.
    #[must_use]
    pub fn borrowing(mut self, limit: &'a str) -> Self {
        self.borrowing = Some(limit);
        self
    }

    /// Sets the lending limit.
    #[must_use]
    pub fn lending(mut self, limit: &'a str) -> Self {
        self.lending = Some(limit);
        self
    }

    fn json(self) -> Value {
        let mut object = json!({"name": self.resource, "nominalQuota": self.nominal});
        if let Some(limit) = self.borrowing {
            object["borrowingLimit"] = json!(limit);
        }
        if let Some(limit) = self.lending {
            object["lendingLimit"] = json!(limit);
        }
        object
    }
}

/// A resource group; every flavor must list the same resources in the same order.
pub fn group(flavors: &[(&str, &[Quota<'_>])]) -> Value {
    let covered: Vec<&str> = flavors.first().map(|(_, q)| q.iter().map(|q| q.resource).collect()).unwrap_or_default();
    let list: Vec<Value> = flavors
        .iter()
        .map(|(name, quotas)| json!({"name": name, "resources": quotas.iter().map(|q| q.json()).collect::<Vec<_>>()}))
        .collect();
    json!({"coveredResources": covered, "flavors": list})
}

/// A ClusterQueue for all namespaces; the fields of `more` are merged into its spec.
pub fn cluster_queue(name: &str, groups: &[Value], more: &Value) -> Value {
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    merge(&mut spec, more);
    json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
}

/// A Cohort; an empty `parent` means a root of the cohort tree.
pub fn cohort(name: &str, parent: &str, groups: &[Value]) -> Value {
    let mut spec = json!({"resourceGroups": groups});
    if !parent.is_empty() {
        spec["parentName"] = json!(parent);
    }
    json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": spec})
}

/// A LocalQueue.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"namespace": namespace, "name": name},
        "spec": {"clusterQueue": cluster_queue}})
}

/// A WorkloadPriorityClass.
pub fn priority_class(name: &str, value: i32) -> Value {
    json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value, "description": name})
}

/// A Job whose pods have one container.
#[derive(Clone, Debug)]
pub struct Job {
    object: Value,
}

impl Job {
    /// A suspended Job of one pod that requests one cpu, in the LocalQueue `queue`; the pod runs for 200 ms.
    pub fn new(namespace: &str, name: &str, queue: &str) -> Job {
        let labels = if queue.is_empty() { json!({}) } else { json!({"kueue.x-k8s.io/queue-name": queue}) };
        let container =
            json!({"name": "main", "image": "example.invalid/nothing", "resources": {"requests": {"cpu": "1"}}});
        Job {
            object: json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"namespace": namespace, "name": name, "labels": labels},
                "spec": {"suspend": true, "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {
                    "metadata": {"annotations": {}},
                    "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]},
                }},
            }),
        }
    }

    /// Replaces the resource requests of the Job's container.
    #[must_use]
    pub fn requests(mut self, requests: &[(&str, &str)]) -> Job {
        let requests: Map<String, Value> = requests.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
        // The limits of an extended resource must equal its requests.
        let limits: Map<String, Value> =
            requests.iter().filter(|(k, _)| k.contains('/')).map(|(k, v)| (k.clone(), v.clone())).collect();
        self.object["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": requests, "limits": limits});
        self
    }

    /// Cpu of each pod.
    #[must_use]
    pub fn cpu(self, amount: &str) -> Job {
        self.requests(&[("cpu", amount)])
    }

    /// Sets the number of the Job's pods, which run all at once.
    #[must_use]
    pub fn pods(self, count: u32) -> Job {
        self.spec(&json!({"parallelism": count, "completions": count}))
    }

    /// Adds an annotation to the Job's pods.
    #[must_use]
    pub fn pod_annotation(mut self, key: &str, value: &str) -> Job {
        self.object["spec"]["template"]["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// Lets the Job's pods run until they are deleted.
    #[must_use]
    pub fn endless(self) -> Job {
        self.pod_annotation("e2e.berth.dev/outcome", "never")
    }

    /// Lets each pod of the Job run for `milliseconds`.
    #[must_use]
    pub fn run_ms(self, milliseconds: u32) -> Job {
        self.pod_annotation("e2e.berth.dev/run-ms", &milliseconds.to_string())
    }

    /// Lets each pod of the Job take `milliseconds` to end after its deletion.
    #[must_use]
    pub fn termination_ms(self, milliseconds: u32) -> Job {
        self.pod_annotation("e2e.berth.dev/termination-ms", &milliseconds.to_string())
    }

    /// Adds a label to the Job.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Job {
        self.object["metadata"]["labels"][key] = json!(value);
        self
    }

    /// Adds an annotation to the Job.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Job {
        self.object["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// Adds a label to the Job's pods.
    #[must_use]
    pub fn pod_label(mut self, key: &str, value: &str) -> Job {
        self.object["spec"]["template"]["metadata"]["labels"][key] = json!(value);
        self
    }

    /// Merges the fields of `more` into the Job's spec.
    #[must_use]
    pub fn spec(mut self, more: &Value) -> Job {
        merge(&mut self.object["spec"], more);
        self
    }

    /// Merges the fields of `more` into the pod template's spec.
    #[must_use]
    pub fn pod_spec(mut self, more: &Value) -> Job {
        merge(&mut self.object["spec"]["template"]["spec"], more);
        self
    }

    /// The manifest.
    pub fn manifest(&self) -> Value {
        self.object.clone()
    }
}

/// Merges `from` into `into` as a merge patch does, in which `null` removes a field.
pub fn patch(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    patch(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Merges objects recursively; any other value is replaced.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
