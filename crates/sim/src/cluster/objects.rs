//! Manifests and edits of objects as users write them.

use berth_control::event::{Change, Observation};
use berth_control::write::{Action, Kind, ObjectKey, Purpose, QueryAnswer, QueryFailure, Task, WriteOutcome};
use serde_json::{Value, json};

use super::Cluster;
use crate::manifests::{cluster_queue, local_queue};

impl Cluster {
    /// Changes an object by a merge patch, as a client does.
    pub fn edit(&mut self, kind: Kind, namespace: &str, name: &str, patch: &Value) {
        self.api.edit(&Self::key(kind, namespace, name), patch);
        self.deliver();
    }

    /// The number of writes that control has made for a purpose.
    pub fn count(&self, purpose: Purpose) -> usize {
        self.writes.iter().filter(|(other, _)| *other == purpose).count()
    }

    /// The answer to a query for a complete job or pod, with all fields that its user has written.
    pub(super) fn read_object(&self, key: &ObjectKey) -> Result<QueryAnswer, QueryFailure> {
        self.objects().get(key).map(|job| QueryAnswer::Object(job.to_string().into())).ok_or(QueryFailure::Gone)
    }

    /// Gives a task back with an outcome that was made up. A query has the failure of the same name; a query cannot conflict, and is told to come
    /// again instead.
    pub(super) fn give_back(&mut self, task: &Task, outcome: WriteOutcome) {
        let now = self.now();
        if let Action::Write(_) = task.action {
            return self.control.outcome(task.id, outcome, now);
        }
        let failure = match outcome {
            WriteOutcome::Gone => QueryFailure::Gone,
            WriteOutcome::Refused(text) => QueryFailure::Refused(text),
            WriteOutcome::Busy(millis) => QueryFailure::Busy(millis),
            WriteOutcome::Conflict => QueryFailure::Busy(1_000),
            WriteOutcome::Unknown(text) => QueryFailure::Lost(text),
            WriteOutcome::NotSent => QueryFailure::NotSent,
            other => panic!("no query ends with {other:?}"),
        };
        self.control.outcome(task.id, failure, now);
    }

    /// Shows control a WorkloadPriorityClass that is new or has another value.
    pub fn set_class(&mut self, name: &str, value: i32) {
        let class = serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
        self.control.observe(Observation::WorkloadPriorityClass(Change::Apply(class)), self.now());
    }

    /// An owner reference that names an object of namespace `team` as the controlling owner. Any client may write such an owner reference.
    pub fn controlled_by(&self, kind: Kind, name: &str) -> Value {
        let (api_version, word) = match kind {
            Kind::TrainingJob => ("berth.dev/v1alpha1", "TrainingJob"),
            Kind::Job(kind) => (kind.info().api_version, kind.info().kind),
            other => panic!("{other:?} controls no job"),
        };
        let uid = &self.objects()[&Self::key(kind, "team", name)]["metadata"]["uid"];
        json!([{"apiVersion": api_version, "kind": word, "name": name, "uid": uid, "controller": true}])
    }

    /// Creates two ClusterQueues of the cohort `pool`, each given by name, LocalQueue and cpus. Each queue may reclaim lent quota from any other queue.
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
