//! Faults for which the webhook refuses the creation or a change of a batch/v1 Job.

use super::{BatchJob, completions_follow, is_indexed, pod_count};
use crate::admission::{Place, annotation_path};
use crate::kind::JobKind;
use crate::metadata::{annotation, go_bool, is_elastic, written};
use berth_api::labels;
use berth_api::validation::FieldError;
use k8s_openapi::api::batch::v1::{Job, JobSpec};

/// Faults of a Job's annotations about fewer pods and about topology.
pub(super) fn invalid(job: &Job) -> Vec<FieldError> {
    let Some(spec) = &job.spec else { return Vec::new() };
    let count = pod_count(spec);
    let mut errors = Vec::new();
    let key = labels::JOB_MIN_PARALLELISM;
    if let Some(text) = written(job.metadata.annotations.as_ref(), key)
        && !text.parse::<i32>().is_ok_and(|least| (1..count).contains(&least))
    {
        let message = format!("must be a whole number greater than 0 and less than {count}, the number of pods");
        errors.push(FieldError::new(annotation_path(key), text, message));
    }
    if is_elastic(&job.metadata) {
        errors.extend(not_elastic(job, spec));
    }
    errors.extend(following_completions(job, spec));
    let path = "spec.template.metadata".to_owned();
    // A Job has a single pod set, so the rules about pod set groups do not apply, as in Kueue.
    errors.extend(Place { path, metadata: spec.template.metadata.as_ref(), count: Some(count) }.rules());
    errors
}

/// Faults of an elastic Job: its number of pods must not be fixed at admission, and its pods must not request one topology domain together.
fn not_elastic(job: &Job, spec: &JobSpec) -> Vec<FieldError> {
    let own = job.metadata.annotations.as_ref();
    let of_pods = spec.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let key = labels::JOB_MIN_PARALLELISM;
    let fewest = written(own, key).map(|text| {
        let message =
            format!("must not be set together with {}: its number of pods changes as it runs", labels::ELASTIC_JOB);
        FieldError::new(annotation_path(key), text, message)
    });
    let levels = [labels::POD_SET_REQUIRED_TOPOLOGY, labels::POD_SET_PREFERRED_TOPOLOGY];
    let placed = levels.into_iter().filter_map(|key| {
        let message = format!(
            "is not supported for a Job with {}; {} is",
            labels::ELASTIC_JOB,
            labels::POD_SET_UNCONSTRAINED_TOPOLOGY
        );
        Some(FieldError::new(format!("spec.template.metadata.annotations[{key}]"), written(of_pods, key)?, message))
    });
    fewest.into_iter().chain(placed).collect()
}

/// Fault of completions that follow the parallelism: the two numbers must be equal, and the Job must be indexed.
fn following_completions(job: &Job, spec: &JobSpec) -> Option<FieldError> {
    let key = labels::JOB_COMPLETIONS_EQUAL_PARALLELISM;
    let text = written(job.metadata.annotations.as_ref(), key)?;
    let refuse = |message: String| Some(FieldError::new(annotation_path(key), text, message));
    match go_bool(text) {
        None => refuse("must be true or false".to_owned()),
        Some(false) => None,
        Some(true) if !is_indexed(spec) => refuse("needs spec.completionMode Indexed".to_owned()),
        Some(true) => {
            let (parallelism, completions) = (spec.parallelism.unwrap_or(1), spec.completions.unwrap_or(1));
            if parallelism == completions {
                return None;
            }
            let message = format!("must be equal to spec.parallelism, {parallelism}, with the annotation {key}");
            Some(FieldError::new("spec.completions", completions.to_string(), message))
        }
    }
}

/// Whether a change of a Job is accepted although the Job then has the fault `wrong`: a fault of the annotation with the minimum parallelism, which the change
/// leaves as it is. The minimum parallelism is checked only when a user writes the annotation, as in Kueue, so that a user may reduce the number of pods below
/// it. A pending Job with fewer pods than its minimum parallelism loses its Workload, and Berth reports why the Job gets no other Workload.
pub(super) fn is_tolerated(wrong: &FieldError, old: &Job, new: &Job) -> bool {
    let key = labels::JOB_MIN_PARALLELISM;
    let [before, after] = [old, new].map(|job| written(job.metadata.annotations.as_ref(), key));
    before == after && wrong.field == annotation_path(key)
}

/// Faults of a change of a running Job's number of pods: the number is that of the Job's admission, which may be smaller than the user's.
pub(super) fn invalid_change(old: &Job, new: &Job) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if BatchJob::is_suspended(old) {
        return errors;
    }
    let parallelism = |job: &Job| job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1);
    let key = labels::JOB_MIN_PARALLELISM;
    if annotation(&old.metadata, key).is_some() && parallelism(old) != parallelism(new) {
        let message = format!("must not change while the job runs and has the annotation {key}");
        errors.push(FieldError::new("spec.parallelism", parallelism(new).to_string(), message));
    }
    let follows = |job: &Job| completions_follow(&job.metadata);
    if follows(old) != follows(new) && !BatchJob::is_suspended(new) {
        let key = labels::JOB_COMPLETIONS_EQUAL_PARALLELISM;
        let value = annotation(&new.metadata, key).unwrap_or_default();
        errors.push(FieldError::new(annotation_path(key), value, "is immutable while the job is not suspended"));
    }
    errors
}
