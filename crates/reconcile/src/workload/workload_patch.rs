//! Merge patches of Workloads, field by field.

use berth_api as api;
use berth_cache::workload_view::WorkloadView;
use berth_jobs::ObjectPatch;
use serde_json::{Map, Value};

/// A merge patch of a Workload, with the version that was read as its precondition.
pub struct WorkloadPatch(ObjectPatch);

impl WorkloadPatch {
    /// An empty patch of a Workload, with the Workload's uid and version as preconditions.
    pub fn of(workload: &WorkloadView) -> Self {
        Self(ObjectPatch::of_version(&workload.uid, workload.resource_version.clone()))
    }

    /// Adds the change that a note of the crate `jobs` makes to a patch.
    pub(crate) fn with(self, note: impl FnOnce(ObjectPatch) -> ObjectPatch) -> Self {
        Self(note(self.0))
    }

    /// Sets `metadata.annotations`; null removes an annotation.
    pub fn annotations(self, annotations: Map<String, Value>) -> Self {
        Self(self.0.annotations(annotations))
    }

    /// Sets one of `metadata.annotations`; `None` removes the annotation.
    pub(crate) fn annotation(self, name: &str, value: Option<&str>) -> Self {
        Self(self.0.annotation(name, value))
    }

    /// Sets one of `metadata.labels`.
    pub(crate) fn label(self, name: &str, value: &str) -> Self {
        Self(self.0.labels([(name, value)]))
    }

    /// Sets the complete list `metadata.finalizers`.
    pub fn finalizers<T: AsRef<str>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self(self.0.finalizers(names))
    }

    /// Sets the complete list `metadata.ownerReferences`.
    pub fn owner_references(self, references: Vec<Value>) -> Self {
        Self(self.0.owner_references(references))
    }

    /// Sets `spec.active`.
    pub fn active(self, active: bool) -> Self {
        Self(self.0.spec("active", active))
    }

    /// Sets the complete list `spec.podSets`.
    pub fn pod_sets(self, sets: Value) -> Self {
        Self(self.0.spec("podSets", sets))
    }

    /// Sets `spec.priority`.
    pub fn priority(self, value: i32) -> Self {
        Self(self.0.spec("priority", value))
    }

    /// Sets fields of the spec by their names.
    pub(crate) fn spec_fields(self, fields: Map<String, Value>) -> Self {
        Self(self.0.spec_fields(fields))
    }

    /// Sets the complete list `status.admissionChecks`.
    pub(crate) fn admission_checks(self, checks: &[api::AdmissionCheckState]) -> Self {
        Self(self.0.status(serde_json::json!({ "admissionChecks": checks })))
    }
}

impl From<WorkloadPatch> for ObjectPatch {
    fn from(patch: WorkloadPatch) -> Self {
        patch.0
    }
}
