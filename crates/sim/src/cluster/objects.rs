//! Manifests and edits of objects as users write them.

use berth_control::event::{Change, Observation};
use berth_control::write::{Action, Kind, ObjectKey, Purpose, QueryAnswer, QueryFailure, Task, WriteOutcome};
use serde_json::{Value, json};

use super::{Cluster, merge};

impl Cluster {
    pub fn edit(&mut self, kind: Kind, namespace: &str, name: &str, patch: &Value) {
        let key = Self::key(kind, namespace, name);
        let mut object = self.objects[&key].clone();
        let spec = object["spec"].clone();
        merge(&mut object, patch);
        if object["spec"] != spec {
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
        }
        self.store(&key, object);
    }

    /// The number of writes that control has made for a purpose.
    pub fn count(&self, purpose: Purpose) -> usize {
        self.writes.iter().filter(|(other, _)| *other == purpose).count()
    }

    /// The answer to a read of a complete job or pod, with all fields that its user has written.
    pub(super) fn whole(&self, key: &ObjectKey) -> Result<QueryAnswer, QueryFailure> {
        self.objects.get(key).map(|job| QueryAnswer::Object(job.to_string().into())).ok_or(QueryFailure::Gone)
    }

    /// Gives a task back with an outcome that was made up. A query has the failure of the same name.
    pub(super) fn give_back(&mut self, task: &Task, outcome: WriteOutcome) {
        if let Action::Write(_) = task.action {
            return self.control.outcome(task.id, outcome, self.now);
        }
        let failure = match outcome {
            WriteOutcome::Gone => QueryFailure::Gone,
            WriteOutcome::Refused(text) => QueryFailure::Refused(text),
            WriteOutcome::Busy(millis) => QueryFailure::Busy(millis),
            WriteOutcome::Unknown(text) => QueryFailure::Lost(text),
            WriteOutcome::NotSent => QueryFailure::NotSent,
            other => panic!("no query ends with {other:?}"),
        };
        self.control.outcome(task.id, failure, self.now);
    }

    /// A WorkloadPriorityClass, new or with another value.
    pub fn set_class(&mut self, name: &str, value: i32) {
        let class = serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
        self.control.observe(Observation::WorkloadPriorityClass(Change::Apply(class)), self.now);
    }

    /// An owner reference that names an object of namespace `team` as the controlling owner. Any client may write such a reference.
    pub fn controlled_by(&self, kind: Kind, name: &str) -> Value {
        let (api_version, word) = match kind {
            Kind::TrainingJob => ("berth.dev/v1alpha1", "TrainingJob"),
            Kind::Job(kind) => (kind.info().api_version, kind.info().kind),
            other => panic!("{other:?} controls no job"),
        };
        let uid = &self.objects[&Self::key(kind, "team", name)]["metadata"]["uid"];
        json!([{"apiVersion": api_version, "kind": word, "name": name, "uid": uid, "controller": true}])
    }

    /// Creates ClusterQueues of the cohort `pool`, each given by name, LocalQueue and cpus: each queue may reclaim the quota that it has lent from any other
    /// queue.
    pub fn pool(&mut self, queues: [(&str, &str, i64); 2]) {
        for (name, local, cpus) in queues {
            let mut queue = cluster_queue(name, Some("pool"), &[("default", &cpus.to_string())]);
            queue["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
            self.put(Kind::ClusterQueue, queue);
            self.put(Kind::LocalQueue, local_queue(local, name));
        }
    }
}

/// Whether a condition of an object is true.
pub fn is(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == kind && one["status"] == "True")
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

/// A prebuilt Workload of one pod.
pub fn made_before(template: &Value) -> Value {
    json!({"metadata": {"namespace": "team", "name": "before"},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]}})
}

/// Server-side apply of annotations and the counts of pod sets.
pub fn apply_counts(object: &mut Value, body: &Value) {
    super::merge(&mut object["metadata"]["annotations"], &body["metadata"]["annotations"]);
    for wanted in body["spec"]["podSets"].as_array().into_iter().flatten() {
        let sets = object["spec"]["podSets"].as_array_mut().unwrap();
        let set = sets.iter_mut().find(|set| set["name"] == wanted["name"]).expect("a pod set of that name");
        set["count"] = wanted["count"].clone();
    }
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
    object["metadata"]["generation"] = json!(generation + 1);
}
