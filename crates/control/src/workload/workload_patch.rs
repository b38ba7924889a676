//! Merge patches of Workloads, field by field.

use berth_api as api;
use berth_jobs::ObjectPatch;
use serde_json::{Map, Value};

use crate::cache::workload_view::WorkloadView;

/// A merge patch of a Workload, for the version that was read.
pub(crate) struct WorkloadPatch(ObjectPatch);

impl WorkloadPatch {
    pub(crate) fn of(workload: &WorkloadView) -> Self {
        Self(ObjectPatch::of_version(&workload.uid, workload.resource_version.clone()))
    }

    /// Adds the change that a note of the crate `jobs` is.
    pub(crate) fn with(self, note: impl FnOnce(ObjectPatch) -> ObjectPatch) -> Self {
        Self(note(self.0))
    }

    /// `metadata.annotations`; null removes one.
    pub(crate) fn annotations(self, annotations: Map<String, Value>) -> Self {
        Self(self.0.annotations(annotations))
    }

    /// One of `metadata.annotations`; `None` removes it.
    pub(crate) fn annotation(self, name: &str, value: Option<&str>) -> Self {
        Self(self.0.annotation(name, value))
    }

    /// One of `metadata.labels`.
    pub(crate) fn label(self, name: &str, value: &str) -> Self {
        Self(self.0.labels([(name, value)]))
    }

    /// `metadata.finalizers`, complete.
    pub(crate) fn finalizers<T: AsRef<str>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self(self.0.finalizers(names))
    }

    /// `metadata.ownerReferences`, complete.
    pub(crate) fn owner_references(self, references: Vec<Value>) -> Self {
        Self(self.0.owner_references(references))
    }

    /// `spec.active`.
    pub(crate) fn active(self, active: bool) -> Self {
        Self(self.0.spec("active", active))
    }

    /// `spec.podSets`, complete.
    pub(crate) fn pod_sets(self, sets: Value) -> Self {
        Self(self.0.spec("podSets", sets))
    }

    /// `spec.priority`.
    pub(crate) fn priority(self, value: i32) -> Self {
        Self(self.0.spec("priority", value))
    }

    /// Fields of the spec, by their names.
    pub(crate) fn spec_fields(self, fields: Map<String, Value>) -> Self {
        Self(self.0.spec_fields(fields))
    }

    /// `status.admissionChecks`, complete.
    pub(crate) fn admission_checks(self, checks: &[api::AdmissionCheckState]) -> Self {
        Self(self.0.status(serde_json::json!({ "admissionChecks": checks })))
    }
}

impl From<WorkloadPatch> for ObjectPatch {
    fn from(patch: WorkloadPatch) -> Self {
        patch.0
    }
}
