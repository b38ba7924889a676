//! Reviews of jobs by the admission webhook: defaults at creation, and the rules that refuse a creation or a change.
//!
//! Defaults and rules are functions of the job and of a few facts about the cluster. Control also finds jobs that no webhook has reviewed: it suspends jobs
//! that run without admission, and reports fields that cannot be read.

mod facts;
mod held;
mod paths;
mod topology;

pub use facts::{DEFAULT_NAME, Defaults, Facts, KeptSuspend};
use held::held_rules;
pub use held::kept_suspend;
use paths::queue_path;
pub(crate) use paths::{annotation_path, label_path, prebuilt_path};
pub(crate) use topology::{Place, topology_rules};

use crate::batch_job::BatchJob;
use crate::build::{Priority, build_workload};
use crate::kind::JobKind;
use crate::metadata::{annotation, is_elastic, label, prebuilt_workload_name, workload_priority_class, written};
use crate::size::size_rule;
use berth_api::validation::{FieldError, admission_gates, newly_broken, subdomain, validate_admission_gates_update};
use berth_api::{labels, parse_tiers};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// Defaults for a job at its creation.
#[must_use]
pub fn job_defaults<K: JobKind>(job: &K::Object, facts: Facts) -> Defaults {
    let metadata = K::metadata(job);
    if facts.governed || !facts.managed_namespace || facts.unmanaged_kind {
        return Defaults::default();
    }
    let named = K::queue_name(job).is_some();
    let given = !named && facts.default_queue;
    let managed = named || given || facts.without_queue_name;
    Defaults {
        queue_name: given,
        priority_class: managed && facts.default_priority_class && workload_priority_class(metadata).is_none(),
        suspend: managed && !K::is_suspended(job),
    }
}

/// Faults of a job that do not depend on an earlier state of the job.
#[must_use]
pub fn validate_job<K: JobKind>(job: &K::Object) -> Vec<FieldError> {
    let mut errors = metadata_rules(K::metadata(job), K::queue_name(job));
    errors.extend(time_rule(K::metadata(job)));
    errors.extend(prebuilt_rule(K::metadata(job), None));
    if K::KIND != BatchJob::KIND {
        errors.extend(elastic_rule(K::metadata(job), K::KIND));
    }
    errors.extend(K::invalid(job));
    // A job without a queue gets no Workload, and a prebuilt Workload has a review of its own.
    if K::queue_name(job).is_some() && prebuilt_workload_name(K::metadata(job)).is_none() {
        errors.extend(size_rule(job, 1, || {
            Some(build_workload::<K>(job, K::pod_sets(job).ok()?, Priority::default(), &BTreeSet::new()))
        }));
    }
    errors
}

/// Fault of the name of a prebuilt Workload in a job's metadata. A pod of a pod group must name its group as its prebuilt Workload, and `group` is the group's
/// name.
pub(crate) fn prebuilt_rule(metadata: &ObjectMeta, group: Option<&str>) -> Option<FieldError> {
    let key = labels::PREBUILT_WORKLOAD_NAME;
    let Some(name) = prebuilt_workload_name(metadata) else {
        // An empty annotation `prebuilt-workload-name` counts as absent, as in Kueue.
        let name = written(metadata.labels.as_ref(), key)?;
        return Some(FieldError::new(label_path(key), name, misnamed(name, "Workload")?));
    };
    let other =
        || group.filter(|group| *group != name).map(|group| format!("must be that of the pod's group, {group}"));
    let wrong = subdomain(name).or_else(other)?;
    Some(FieldError::new(prebuilt_path(metadata), name, wrong))
}

/// Fault of the name of an object of kind `what`.
fn misnamed(name: &str, what: &str) -> Option<String> {
    let empty = name.is_empty().then(|| format!("must not be empty: leave it out, or name a {what}"));
    empty.or_else(|| subdomain(name))
}

/// Fault of an object that asks to be elastic although its kind cannot be elastic.
pub(crate) fn elastic_rule(metadata: &ObjectMeta, kind: &str) -> Option<FieldError> {
    let message =
        format!("is not supported for a {kind}; of the kinds that Berth knows a batch/v1 Job alone may say so");
    is_elastic(metadata).then(|| FieldError::new(annotation_path(labels::ELASTIC_JOB), "true", message))
}

/// Fault of the label with a job's maximum execution time.
pub(crate) fn time_rule(metadata: &ObjectMeta) -> Option<FieldError> {
    let key = labels::MAX_EXEC_TIME_SECONDS;
    let text = written(metadata.labels.as_ref(), key)?;
    let wrong = !text.parse::<i32>().is_ok_and(|seconds| seconds > 0);
    wrong.then(|| FieldError::new(label_path(key), text, "must be a whole number of seconds greater than 0"))
}

/// Faults of the metadata fields that every kind of job has. If the job has no label with the queue name, `queue` is the queue name from its annotation.
pub(crate) fn metadata_rules(metadata: &ObjectMeta, queue: Option<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let named = match written(metadata.labels.as_ref(), labels::QUEUE_NAME) {
        Some(name) => Some((label_path(labels::QUEUE_NAME), name)),
        None => queue.map(|name| (annotation_path(labels::QUEUE_NAME), name)),
    };
    let named = named.and_then(|(path, name)| Some(FieldError::new(path, name, misnamed(name, "LocalQueue")?)));
    errors.extend(named);
    errors.extend(metadata.annotations.as_ref().and_then(|annotations| admission_gates(annotations).err()));
    if let Some(text) = metadata.annotations.as_ref().and_then(|annotations| annotations.get(labels::CAPACITY_TIERS))
        && let Err(wrong) = parse_tiers(text)
    {
        errors.push(FieldError::new(annotation_path(labels::CAPACITY_TIERS), text, wrong.to_string()));
    }
    errors
}

/// Faults of a change of a job. A fault that the job had before the change is no fault of the change.
#[must_use]
pub fn validate_job_update<K: JobKind>(old: &K::Object, new: &K::Object, default_queue: bool) -> Vec<FieldError> {
    let mut errors = newly_broken(validate_job::<K>(new), &validate_job::<K>(old));
    errors.retain(|error| !K::is_tolerated(error, old, new));
    let queues = (K::queue_name(old), K::queue_name(new));
    let suspended = (K::is_suspended(old), K::is_suspended(new));
    errors.extend(metadata_change_rules(K::metadata(old), K::metadata(new), queues, suspended, default_queue));
    errors.extend(held_rules::<K>(old, new, false));
    errors.extend(K::invalid_change(old, new));
    errors
}

/// Faults of a change of a job that is being deleted. Until a job that is being deleted has stopped, the fields by which its quota is charged must stay; all
/// other changes are allowed.
#[must_use]
pub fn validate_leaving_job<K: JobKind>(old: &K::Object, new: &K::Object) -> Vec<FieldError> {
    held_rules::<K>(old, new, true)
}

/// Faults of a change of the metadata fields that every kind of job has. The job's queue name and its `spec.suspend` are each a pair of the values before and
/// after the change.
pub(crate) fn metadata_change_rules(
    before: &ObjectMeta,
    after: &ObjectMeta,
    (was, is): (Option<&str>, Option<&str>),
    (was_suspended, suspended): (bool, bool),
    default_queue: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The error about a removed queue name or prebuilt Workload has the path of the removed value in the old object.
    let with = |is: Option<&str>| if is.is_some() { after } else { before };
    if !suspended && was != is {
        errors.push(running(queue_path(with(is)), is));
    } else if default_queue && was.is_some() && is.is_none() {
        let message = "must not be removed in a namespace that has a LocalQueue called default";
        errors.push(FieldError::new(queue_path(before), was.unwrap_or_default(), message));
    }
    let prebuilt = prebuilt_workload_name(after);
    // A running elastic job may name another prebuilt Workload, as in Kueue.
    if !suspended && !is_elastic(before) && prebuilt_workload_name(before) != prebuilt {
        errors.push(running(prebuilt_path(with(prebuilt)), prebuilt));
    }
    let seconds = |metadata| label(metadata, labels::MAX_EXEC_TIME_SECONDS);
    // A write that stops or starts the job must not change its maximum execution time, as in Kueue.
    if !(was_suspended && suspended) && seconds(before) != seconds(after) {
        errors.push(running(label_path(labels::MAX_EXEC_TIME_SECONDS), seconds(after)));
    }
    errors.extend(priority_class_change(before, after, suspended));
    if is_elastic(before) != is_elastic(after) {
        let value = annotation(after, labels::ELASTIC_JOB).unwrap_or_default();
        errors.push(FieldError::new(annotation_path(labels::ELASTIC_JOB), value, "is immutable"));
    }
    errors.extend(validate_admission_gates_update(before, after));
    errors
}

/// Fault of a change of the priority class: the class may be changed, but must not be added while pods run, and must not be removed.
pub(crate) fn priority_class_change(before: &ObjectMeta, after: &ObjectMeta, suspended: bool) -> Option<FieldError> {
    match (workload_priority_class(before), workload_priority_class(after)) {
        (Some(was), None) => {
            let message = "must not be removed; change it to another WorkloadPriorityClass";
            Some(FieldError::new(label_path(labels::PRIORITY_CLASS), was, message))
        }
        (None, Some(class)) if !suspended => Some(running(label_path(labels::PRIORITY_CLASS), Some(class))),
        _ => None,
    }
}

fn running(path: String, value: Option<&str>) -> FieldError {
    FieldError::new(path, value.unwrap_or_default(), "is immutable while the job is not suspended")
}
