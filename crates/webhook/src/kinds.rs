//! Reviews of Kueue's kinds and of TrainingJobs, by rules that the schemas of these kinds cannot express.

use crate::author::{self, Leave};
use crate::review::{Answer, Request, Unreadable};
use crate::routes::Around;
use berth_api::berth::TrainingJob;
use berth_api::labels::ELASTIC_JOB;
use berth_api::validation::{
    FieldError, newly_broken, validate_cluster_queue, validate_cluster_queue_update, validate_cohort,
    validate_concurrent_admission, validate_priority_boost, validate_resource_flavor, validate_workload,
    validate_workload_update,
};
use berth_api::{ClusterQueue, Cohort, ReclaimablePod, ResourceFlavor, Workload};
use berth_jobs::prebuilt_size_rule;
use berth_jobs::training::{invalid_training_job, invalid_training_job_change, invalid_training_job_metadata};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) fn cluster_queue(request: &Request, concurrent_admission: bool) -> Result<Answer, Unreadable> {
    let alone = |queue: &ClusterQueue| {
        let mut errors = validate_cluster_queue(queue);
        if concurrent_admission {
            errors.extend(validate_concurrent_admission(queue));
        }
        errors
    };
    validate::<ClusterQueue>(request, alone, validate_cluster_queue_update)
}

pub(crate) fn cohort(request: &Request) -> Result<Answer, Unreadable> {
    validate::<Cohort>(request, validate_cohort, |_, _| Vec::new())
}

pub(crate) fn resource_flavor(request: &Request) -> Result<Answer, Unreadable> {
    validate::<ResourceFlavor>(request, validate_resource_flavor, |_, _| Vec::new())
}

pub(crate) fn training_job(request: &Request, around: &Around<'_>) -> Result<Answer, Unreadable> {
    let unasked = || Leave::Unanswered("nobody was asked".to_owned());
    match author::question(request).map(|_| around.leave.clone().unwrap_or_else(unasked)) {
        Some(Leave::Refused(words)) => {
            return Ok(Answer::Forbid(format!("{words}, which Berth does for the author of a TrainingJob")));
        }
        Some(Leave::Unanswered(why)) => {
            let words = "the API server does not say whether its author may create Jobs";
            return Ok(Answer::Postpone(format!("{words}: {why}")));
        }
        Some(Leave::Given) | None => {}
    }
    let accelerators = around.cluster_facts.accelerators();
    let alone = |job: &TrainingJob| {
        let mut errors = invalid_training_job(job, &accelerators);
        errors.extend(invalid_training_job_metadata(job));
        errors
    };
    validate::<TrainingJob>(request, alone, invalid_training_job_change)
}

pub(crate) fn workload(request: &Request, priority_boost: bool) -> Result<Answer, Unreadable> {
    let alone = |workload: &Workload| {
        let mut errors = validate_workload(workload);
        errors.extend(validate_priority_boost(workload).filter(|_| priority_boost));
        errors.extend(prebuilt_size_rule(workload));
        errors
    };
    let object: Workload = request.object()?;
    let old = request.old_object::<Workload>();
    let mut errors = broken(&object, old.as_ref(), alone, validate_workload_update);
    errors.retain(|error| !old.as_ref().is_some_and(|old| is_stale_count(error, old, &object)));
    Ok(Answer::of(errors))
}

/// Whether an error is about a count of reclaimable pods that an elastic Workload had before the number of its pods was reduced: the count has not
/// changed, so it is accepted.
fn is_stale_count(error: &FieldError, old: &Workload, new: &Workload) -> bool {
    let annotations = new.metadata.annotations.as_ref();
    let is_elastic = annotations.and_then(|all| all.get(ELASTIC_JOB)).is_some_and(|value| value == "true");
    let given_back = |workload: &Workload| {
        let status = workload.status.as_ref();
        let pods = status.map(|status| status.reclaimable_pods.as_slice()).unwrap_or_default();
        let about = |pods: &&ReclaimablePod| error.field == format!("status.reclaimablePods[{}].count", pods.name);
        pods.iter().find(about).map(|pods| pods.count)
    };
    is_elastic && given_back(new).is_some() && given_back(old) == given_back(new)
}

/// Removes `minCount`, the smallest number of pods of a pod set, from a new Workload if partial admission is off.
pub(crate) fn drop_min_counts(request: &Request, partial_admission: bool) -> Result<Answer, Unreadable> {
    if partial_admission || request.operation != "CREATE" {
        return Ok(Answer::Allow);
    }
    // The API server checks a Workload's schema only after the mutating webhook, so a value of a wrong type in `podSets` is no error of this webhook.
    let object: Value = request.object()?;
    let sets = object.pointer("/spec/podSets").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let with = sets.iter().enumerate().filter(|(_, set)| set.get("minCount").is_some());
    Ok(Answer::Change(
        with.map(|(index, _)| json!({"op": "remove", "path": format!("/spec/podSets/{index}/minCount")})).collect(),
    ))
}

/// Validates an object alone, and in an update also the change. An error that the stored object has already is no reason to refuse its update.
fn validate<T: DeserializeOwned>(
    request: &Request,
    alone: impl Fn(&T) -> Vec<FieldError>,
    change: impl Fn(&T, &T) -> Vec<FieldError>,
) -> Result<Answer, Unreadable> {
    let object: T = request.object()?;
    let old = request.old_object::<T>();
    Ok(Answer::of(broken(&object, old.as_ref(), alone, change)))
}

fn broken<T>(
    object: &T,
    old: Option<&T>,
    alone: impl Fn(&T) -> Vec<FieldError>,
    change: impl Fn(&T, &T) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let Some(old) = old else { return alone(object) };
    let mut errors = newly_broken(alone(object), &alone(old));
    errors.extend(change(old, object));
    errors
}
