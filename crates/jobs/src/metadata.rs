//! The metadata fields that every kind of job has.

use berth_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Whether the job has the annotation of a running stop, so that Berth is stopping the job, and the job's templates still have the changes of its start.
pub(crate) fn is_stopping(metadata: &ObjectMeta) -> bool {
    annotation(metadata, labels::STOPPING) == Some("true")
}

/// The value of a label, if it is not empty.
pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// The value of a label or annotation, which may be empty: an empty value is a fault instead of an absent value.
pub(crate) fn written<'a>(all: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    all?.get(key).map(String::as_str)
}

/// A boolean in the notations that Kueue accepts, which are those of Go's `strconv.ParseBool`.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The owner that controls an object.
#[must_use]
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The API group of an `apiVersion`; empty for the core group.
#[must_use]
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// `metadata.resourceVersion` as a number; 0 if the object has none, see [`version_number`].
#[must_use]
pub fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().map_or(0, version_number)
}

/// A resourceVersion as a number; 0 if the text is empty or not a number. The resourceVersions of an API server are decimal numbers that grow with each change,
/// and the runtime takes no object with another resourceVersion, so 0 means that no API server has stored the object.
#[must_use]
pub fn version_number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

/// The value of an annotation, if it is not empty.
pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// LocalQueue of the job. A job without a queue is not managed, unless the configuration manages such jobs.
#[must_use]
pub fn queue_name(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, labels::QUEUE_NAME)
}

/// WorkloadPriorityClass of the job, which wins over the PriorityClass of the pods.
#[must_use]
pub fn workload_priority_class(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, labels::PRIORITY_CLASS)
}

/// Name of the job's prebuilt Workload; the annotation wins over the label.
#[must_use]
pub fn prebuilt_workload_name(metadata: &ObjectMeta) -> Option<&str> {
    let key = labels::PREBUILT_WORKLOAD_NAME;
    annotation(metadata, key).or_else(|| label(metadata, key))
}

/// Maximum execution time of the job in seconds; a value that is no positive number sets no limit.
#[must_use]
pub fn max_execution_seconds(metadata: &ObjectMeta) -> Option<i32> {
    label(metadata, labels::MAX_EXEC_TIME_SECONDS)?.parse().ok().filter(|seconds| *seconds > 0)
}

/// Whether the job is elastic: its number of pods may change while it runs.
pub(crate) fn is_elastic(metadata: &ObjectMeta) -> bool {
    annotation(metadata, labels::ELASTIC_JOB) == Some("true")
}

/// Finalizer with which an object is deleted after its dependents were orphaned.
const ORPHAN: &str = "orphan";

/// Whether an object is being deleted, and its dependents are orphaned first.
#[must_use]
pub fn lets_go_first(metadata: &ObjectMeta) -> bool {
    let kept = metadata.finalizers.iter().flatten().any(|name| name == ORPHAN);
    kept && metadata.deletion_timestamp.is_some()
}
