//! Paths of metadata fields in error messages.

use crate::metadata::{annotation, label};
use berth_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Path of a label in the form of `kubectl`.
pub(crate) fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

/// Path of an annotation in the form of `kubectl`.
pub(crate) fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// Path of the name of a job's prebuilt Workload: the annotation wins over the label.
pub(crate) fn prebuilt_path(metadata: &ObjectMeta) -> String {
    let key = labels::PREBUILT_WORKLOAD_NAME;
    if annotation(metadata, key).is_some() { annotation_path(key) } else { label_path(key) }
}

/// Path of an object's queue name: the label wins over the annotation, which only some kinds have.
pub(super) fn queue_path(metadata: &ObjectMeta) -> String {
    let key = labels::QUEUE_NAME;
    if label(metadata, key).is_some() { label_path(key) } else { annotation_path(key) }
}
