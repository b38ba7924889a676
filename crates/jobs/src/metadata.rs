//! The metadata fields that every kind of job has.

use berth_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Whether a stop is under way: the changes of a start are still to be removed from the templates.
pub(crate) fn is_stopping(metadata: &ObjectMeta) -> bool {
    annotation(metadata, labels::STOPPING) == Some("true")
}

/// A non-empty label.
pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// A label or annotation that is present, even if it is empty: an empty value is refused and not taken for absent.
pub(crate) fn written<'a>(all: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    all?.get(key).map(String::as_str)
}

/// A truth value in the forms that Kueue takes, which are those of Go's `strconv.ParseBool`.
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

/// The group in an `apiVersion`; empty for the core group.
#[must_use]
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// `metadata.resourceVersion` as a number, 0 when it has none.
#[must_use]
pub fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// A non-empty annotation.
pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// LocalQueue that governs the job; without one it is not managed (unless the configuration says otherwise).
#[must_use]
pub fn queue_name(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, labels::QUEUE_NAME)
}

/// WorkloadPriorityClass of the job; it wins over the pods' PriorityClass.
#[must_use]
pub fn workload_priority_class(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, labels::PRIORITY_CLASS)
}

/// Name of the Workload that was made for the job beforehand; the annotation wins over the label.
#[must_use]
pub fn prebuilt_workload_name(metadata: &ObjectMeta) -> Option<&str> {
    let key = labels::PREBUILT_WORKLOAD_NAME;
    annotation(metadata, key).or_else(|| label(metadata, key))
}

/// Maximum execution time in seconds; a value that is no positive number is no limit.
#[must_use]
pub fn max_execution_seconds(metadata: &ObjectMeta) -> Option<i32> {
    label(metadata, labels::MAX_EXEC_TIME_SECONDS)?.parse().ok().filter(|seconds| *seconds > 0)
}

/// Whether an object asks that its number of pods may change while it runs.
pub(crate) fn is_elastic(metadata: &ObjectMeta) -> bool {
    annotation(metadata, labels::ELASTIC_JOB) == Some("true")
}

/// Finalizer of an object that is deleted after the objects that it owns were orphaned.
const ORPHAN: &str = "orphan";

/// Whether an object is being deleted, and the objects that it owns are orphaned first.
#[must_use]
pub fn lets_go_first(metadata: &ObjectMeta) -> bool {
    let kept = metadata.finalizers.iter().flatten().any(|name| name == ORPHAN);
    kept && metadata.deletion_timestamp.is_some()
}
