//! A TrainingJob in the view: the fields that decisions need are read, and the spec is kept as JSON.

use std::sync::Arc;

use berth_api::berth::{TrainingJob, TrainingJobStatus};
use berth_api::conditions::{find, own_reasons, phases, training_types};
use berth_api::json::to_text;
use berth_api::labels::ADMISSION_GATED_BY;
use berth_api::validation::summary;
use berth_jobs::training::{
    Accelerators, Saved, TrainingFacts, WORKER, invalid_training_job, own_annotations, role_names, saved_of,
    training_facts, training_pod_sets,
};
use berth_jobs::{PodSetDigest, lets_go_first, version_number};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::workload_view::WorkloadView;

/// The identity of a set of pods: the pods of one admission stay on their nodes while no pod fails and the number of pods does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// The time at which the Workload of the pods was admitted.
    pub admitted: Timestamp,
    /// The number of failed pods of all roles.
    pub failed: i32,
    /// The number of pods that all roles should have.
    pub wanted: i32,
}

/// The number of nodes that was counted for a set of pods.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The set of pods whose nodes were counted; the number does not apply to any other set.
    pub crew: Crew,
    /// The number of nodes; 0 if no pod was on a node when the nodes were counted.
    pub nodes: i32,
}

/// A TrainingJob with the fields that decisions need.
#[derive(Clone, Debug)]
pub struct TrainingView {
    /// The uid of the TrainingJob.
    pub uid: String,
    /// The resourceVersion of the observed state, see [`Self::version`].
    pub resource_version: String,
    /// The generation of the TrainingJob, for its conditions and `status.observedGeneration`; 0 if the TrainingJob has none.
    pub generation: i64,
    /// Time of the TrainingJob's creation, in milliseconds since 1970.
    pub created: i64,
    /// True if the TrainingJob is being deleted.
    pub deleting: bool,
    /// True if the TrainingJob is being deleted, and the garbage collector orphans the objects that the TrainingJob owns.
    pub leaves_pods: bool,
    /// The LocalQueue, the priority and the patience of the TrainingJob.
    pub facts: TrainingFacts,
    /// The annotations of the TrainingJob that its Workload carries.
    pub own_annotations: [(&'static str, Option<String>); 2],
    /// The controllers that gate the TrainingJob's admission.
    pub admission_gates: Option<String>,
    /// The last checkpoint of the TrainingJob, if the TrainingJob's annotations name one.
    pub saved: Option<Saved>,
    /// Names of the TrainingJob's roles, workers first.
    pub roles: Vec<String>,
    /// The PriorityClass of the workers' pods.
    pub pod_priority_class: Option<String>,
    /// The pod sets of the TrainingJob, for the comparison with the pod sets of a Workload, or the errors of the TrainingJob's spec.
    pub asked: Result<Vec<PodSetDigest>, String>,
    /// The last observed status; the default status if the TrainingJob has no status yet.
    pub status: TrainingJobStatus,
    /// The number of nodes on which the TrainingJob's pods ran when the nodes were last counted.
    pub counted: Option<Counted>,
    /// The spec of the TrainingJob and the metadata that Berth reads, as JSON.
    packed: Arc<str>,
}

impl TrainingView {
    /// Makes the view of an observed TrainingJob; `older` is the view of its older state.
    pub fn new(object: Box<TrainingJob>, older: Option<&Self>, accelerators: &Accelerators) -> Self {
        let TrainingJob { metadata, spec, status } = *object;
        let leaves_pods = lets_go_first(&metadata);
        let (uid, version) = (metadata.uid.clone(), metadata.resource_version);
        let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
        let (generation, deleting) = (metadata.generation.unwrap_or_default(), metadata.deletion_timestamp.is_some());
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        };
        let job = TrainingJob { metadata, spec, status: None };
        let packed: Arc<str> = to_text(&job).into();
        let known = older.filter(|older| older.packed == packed);
        let counted = older.filter(|older| Some(&older.uid) == uid.as_ref()).and_then(|older| older.counted);
        let template = job.spec.template.spec.as_ref();
        Self {
            uid: uid.unwrap_or_default(),
            resource_version: version.unwrap_or_default(),
            generation,
            created,
            deleting,
            leaves_pods,
            facts: training_facts(&job),
            own_annotations: own_annotations(&job),
            admission_gates: job.metadata.annotations.as_ref().and_then(|all| all.get(ADMISSION_GATED_BY).cloned()),
            saved: job.metadata.annotations.as_ref().and_then(saved_of),
            roles: role_names(&job),
            pod_priority_class: template.and_then(|spec| spec.priority_class_name.clone()),
            asked: known.map_or_else(|| asked(&packed, accelerators), |known| known.asked.clone()),
            status: status.unwrap_or_default(),
            counted,
            packed: known.map_or(packed, |known| known.packed.clone()),
        }
    }

    /// The TrainingJob without its status, read from the JSON that the view keeps.
    ///
    /// # Errors
    /// The JSON of the TrainingJob cannot be read. If the kept JSON of a TrainingJob cannot be read, [`Self::asked`] is an error with the same text, so that
    /// the TrainingJob is reported as invalid.
    pub fn decode(&self) -> serde_json::Result<TrainingJob> {
        serde_json::from_str(&self.packed)
    }

    /// Whether the TrainingJob has ended, even if some of its Jobs still exist.
    pub fn is_over(&self) -> bool {
        has_ended(&self.status)
    }

    /// Whether the condition `Running` in the TrainingJob's status shows that all pods of the run that began at `begun` have been ready.
    pub fn was_up_since(&self, begun: Timestamp) -> bool {
        let condition = find(&self.status.conditions, training_types::RUNNING);
        let condition =
            condition.filter(|condition| condition.status == "True" || condition.reason == own_reasons::JOB_GONE);
        condition.is_some_and(|condition| condition.last_transition_time.0 >= begun)
    }

    /// Whether the TrainingJob's pods would be the pods for which a Workload has quota, because the TrainingJob's spec may have changed since. The number of
    /// workers is not compared, because the admission of the Workload decides about that number.
    pub fn asks_as(&self, workload: &WorkloadView) -> bool {
        let Ok(asked) = &self.asked else { return false };
        asked.len() == workload.shape.digests.len()
            && asked.iter().zip(&workload.shape.digests).all(|(asked, runs)| {
                let count = if asked.name == WORKER { runs.count } else { asked.count };
                let asked = PodSetDigest { count, min_count: runs.min_count, ..asked.clone() };
                asked == *runs
            })
    }

    /// Whether a run may begin now with the given number of workers.
    pub fn begins_with(&self, workers: i32) -> bool {
        let asked = self.asked.iter().flatten().find(|set| set.name == WORKER);
        asked.is_some_and(|set| (set.min_count.unwrap_or(set.count)..=set.count).contains(&workers))
    }

    /// The resourceVersion as a number, for comparison with other states of the TrainingJob; 0 if it is not a number.
    pub fn version(&self) -> u64 {
        version_number(&self.resource_version)
    }
}

/// Whether a TrainingJob with the given status has ended.
pub fn has_ended(status: &TrainingJobStatus) -> bool {
    matches!(status.phase.as_str(), phases::SUCCEEDED | phases::FAILED)
}

/// The pod sets of a TrainingJob, read from the JSON from which later decisions read the TrainingJob.
fn asked(packed: &str, accelerators: &Accelerators) -> Result<Vec<PodSetDigest>, String> {
    let job: TrainingJob = serde_json::from_str(packed).map_err(|error| format!("spec: {error}"))?;
    let job = &job;
    let faults = invalid_training_job(job, accelerators);
    if !faults.is_empty() {
        return Err(summary(&faults));
    }
    let sets = training_pod_sets(job, accelerators).map_err(|faults| summary(&faults))?;
    Ok(sets.iter().map(PodSetDigest::of).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::read;

    fn view() -> TrainingView {
        let spec = json!({"jobType": "PyTorchJob", "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
            "schedulingConfig": {"queue": "lq"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        let object = json!({"metadata": {"name": "t", "namespace": "a", "uid": "u"}, "spec": spec});
        TrainingView::new(read(object), None, &Accelerators::default())
    }

    #[test]
    fn training_job_is_read_again_as_it_was_observed() {
        let view = view();
        let job = view.decode().unwrap();
        assert_eq!((job.metadata.name.as_deref(), job.spec.resources.max_replicas), (Some("t"), Some(2)));
        assert_eq!(view.asked.unwrap().len(), 1);
    }

    /// If a TrainingJob that cannot be read were replaced by an empty TrainingJob, control would start, scale or change it as if its user had written nothing.
    #[test]
    fn unreadable_training_job_is_an_error_and_not_empty() {
        let unreadable = TrainingView { packed: r#"{"spec": 1}"#.into(), ..view() };
        let error = unreadable.decode().unwrap_err().to_string();
        let asked = asked(&unreadable.packed, &Accelerators::default()).unwrap_err();
        assert_eq!(asked, format!("spec: {error}"));
    }
}
