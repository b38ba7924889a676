//! Paths of metadata fields, as faults name them.

use crate::metadata::{annotation, label};
use berth_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Path of a label, as `kubectl` shows it.
pub(crate) fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

/// Path of an annotation, as `kubectl` shows it.
pub(crate) fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// Path of the name of a Workload that was made beforehand: the annotation wins over the label.
pub(crate) fn prebuilt_path(metadata: &ObjectMeta) -> String {
    let key = labels::PREBUILT_WORKLOAD_NAME;
    if annotation(metadata, key).is_some() { annotation_path(key) } else { label_path(key) }
}

/// Path of the queue name of an object that has one: the label wins over the annotation, which some kinds have.
pub(super) fn queue_path(metadata: &ObjectMeta) -> String {
    let key = labels::QUEUE_NAME;
    if label(metadata, key).is_some() { label_path(key) } else { annotation_path(key) }
}
