//! The children of an admitted TrainingJob, which run it: a headless Service for the names of its pods, the host file of an MPIJob, and one Indexed Job per
//! role.
//!
//! Jobs are called `<name>-<role>`, so that users find them. The names of the Service and the ConfigMap have a hash of the TrainingJob's uid, so that no other
//! client's object has such a name, and children of an earlier TrainingJob with this name are not mistaken for current ones.

use berth_api::berth::{API_VERSION, TrainingJob};
use berth_api::labels;
use berth_api::validation::{FieldError, summary};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use super::elastic::{Rescale, elastic};
use super::owner::{KIND, child_job_name};
use super::rendezvous::{Party, host_file, prepare};
use super::role::{Accelerators, Role, WORKER};
use super::roles::roles;
use super::saved::Continuation;
use crate::names::uid_suffix;
use crate::placement::{Placement, PlacementError};
use crate::template::TemplateParts;

/// Default number of restarts of each pod index.
const BACKOFF_LIMIT: i32 = 3;

/// Kinds of a TrainingJob's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKind {
    /// The headless Service for the names of the pods.
    Service,
    /// The ConfigMap with the host file of an MPIJob.
    ConfigMap,
    /// The Job with the pods of one role.
    Job,
}

/// A child: an object that the start of a TrainingJob creates.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Kind of the child.
    pub kind: ChildKind,
    /// Name of the child.
    pub name: String,
    /// The child as JSON.
    pub body: Value,
}

/// Permanent reason why an admitted TrainingJob cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The spec of the TrainingJob cannot be turned into pods.
    #[error("{}", summary(.0))]
    Invalid(Vec<FieldError>),
    /// The JSON in which control keeps the TrainingJob cannot be read.
    #[error("spec: {0}")]
    Unreadable(String),
    /// The pods cannot be placed on the flavors of the admission.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

impl From<serde_json::Error> for RunError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// The children that a start creates, in the order of creation, Jobs last. The pods of the new run get environment variables from `checkpoints`, with which the
/// training continues from its last checkpoint.
///
/// # Errors
/// The TrainingJob can never start as it was admitted; see [`RunError`].
pub fn children(
    job: &TrainingJob,
    accelerators: &Accelerators,
    placements: &[Placement],
    checkpoints: Continuation<'_>,
) -> Result<Vec<Child>, RunError> {
    let mut roles = roles(job, accelerators).map_err(RunError::Invalid)?;
    let mismatch = PlacementError::PodSets { given: placements.len(), wanted: roles.len() };
    if placements.len() != roles.len() {
        return Err(mismatch.into());
    }
    for role in &mut roles {
        let place = placements.iter().find(|place| place.pod_set == role.name).ok_or_else(|| mismatch.clone())?;
        role.count = place.count;
        place_in(&mut role.template, place)?;
    }
    let suffix = uid_suffix(job.uid());
    let service = format!("{}-{suffix}", job.name());
    let party = Party::new(job, &service, &roles, accelerators).knowing(checkpoints);
    let mut all = vec![child(job, ChildKind::Service, &service, service_spec(job))];
    if let Some(hosts) = host_file(&party) {
        all.push(child(job, ChildKind::ConfigMap, &party.host_map(), json!({"data": hosts})));
    }
    let workers = roles.iter().find(|role| role.name == WORKER).map_or(0, |role| role.count);
    for role in roles {
        let name = child_job_name(job.name(), &role.name);
        let annotations = elastic(job).and_then(|elastic| match elastic.rescale {
            Rescale::InPlace => (role.name == WORKER).then(|| json!({labels::ELASTIC_WORKERS: elastic.text()})),
            // The pods of every role learn the number of workers at their start, so the Job of each role has an annotation with this number.
            Rescale::ByRestart => Some(json!({labels::TOLD_WORKERS: workers.to_string()})),
        });
        let body = json!({"spec": job_spec(job, prepare(&party, role))});
        let mut child = child(job, ChildKind::Job, &name, body);
        if let (Some(annotations), Some(metadata)) = (annotations, child.body.pointer_mut("/metadata")) {
            metadata["annotations"] = annotations;
        }
        all.push(child);
    }
    Ok(all)
}

fn place_in(template: &mut PodTemplateSpec, place: &Placement) -> Result<(), PlacementError> {
    let parts = place.apply(&TemplateParts::of(template, place.count))?;
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels = Some(parts.labels);
    metadata.annotations = Some(parts.annotations).filter(|annotations| !annotations.is_empty());
    let spec = template.spec.get_or_insert_default();
    spec.node_selector = Some(parts.node_selector).filter(|selector| !selector.is_empty());
    spec.tolerations = Some(parts.tolerations).filter(|tolerations| !tolerations.is_empty());
    spec.affinity = parts.affinity;
    if !parts.scheduling_gates.is_empty() {
        let gate = |name| k8s_openapi::api::core::v1::PodSchedulingGate { name };
        spec.scheduling_gates = Some(parts.scheduling_gates.into_iter().map(gate).collect());
    }
    Ok(())
}

/// Labels of every object that belongs to a TrainingJob.
fn own_labels(job: &TrainingJob) -> [(&'static str, &str); 2] {
    [(labels::TRAINING_JOB, job.name()), (labels::TRAINING_JOB_UID, job.uid())]
}

fn child(job: &TrainingJob, kind: ChildKind, name: &str, more: Value) -> Child {
    let (api_version, kind_name) = match kind {
        ChildKind::Service => ("v1", "Service"),
        ChildKind::ConfigMap => ("v1", "ConfigMap"),
        ChildKind::Job => ("batch/v1", "Job"),
    };
    let labels: Map<String, Value> =
        own_labels(job).into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    let mut body = json!({
        "apiVersion": api_version,
        "kind": kind_name,
        "metadata": {
            "name": name,
            "namespace": job.namespace(),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": KIND, "name": job.name(), "uid": job.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
    });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    Child { kind, name: name.to_owned(), body }
}

fn service_spec(job: &TrainingJob) -> Value {
    // The Service publishes addresses of pods that are not ready, because pods look for each other before they are ready.
    json!({"spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": {labels::TRAINING_JOB_UID: job.uid()},
    }})
}

fn job_spec(job: &TrainingJob, role: Role) -> Value {
    let mut template = role.template;
    let own = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    own.extend(own_labels(job).map(|(key, value)| (key.to_owned(), value.to_owned())));
    own.insert(labels::TRAINING_ROLE.to_owned(), role.name);
    json!({
        "completionMode": "Indexed",
        "completions": role.count,
        "parallelism": role.count,
        "backoffLimitPerIndex": job.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT),
        // One failed index ends the training, because the other pods wait for it.
        "maxFailedIndexes": 0,
        // A pod that was lost with its node does not count as failed.
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]},
        // A terminating pod keeps its index and its quota, so its replacement starts after its end.
        "podReplacementPolicy": "Failed",
        "template": template,
    })
}
