//! JobSet (jobset.x-k8s.io/v1alpha2), as far as Berth reads it. The spec stays as it came: its list of jobs can only be
//! written as a whole, and must come back with every field that we do not know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// API group.
pub const GROUP: &str = "jobset.x-k8s.io";
/// The version that is read and written.
pub const VERSION: &str = "v1alpha2";
/// `apiVersion` of a JobSet.
pub const API_VERSION: &str = "jobset.x-k8s.io/v1alpha2";

root_object! {
    @in (crate::jobset)
    /// A group of Jobs that run as one.
    JobSet, "jobsets", NamespaceResourceScope, spec: JobSetSpec, status: JobSetStatus
}

/// Desired state, as it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobSetSpec(pub Map<String, Value>);

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStatus {
    /// `Suspended`, `Completed`, `Failed` and others.
    pub conditions: Vec<Condition>,
    /// Restarts of the whole, which make all its Jobs anew.
    pub restarts: i32,
    /// Restarts that count towards `spec.failurePolicy.maxRestarts`.
    pub restarts_count_towards_max: i32,
    /// One entry per replicated job.
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
}

/// How the Jobs of one replicated job fare.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJobStatus {
    /// Replicated job.
    pub name: String,
    /// Jobs with all pods ready or over.
    pub ready: i32,
    /// Jobs that succeeded.
    pub succeeded: i32,
    /// Jobs with active pods.
    pub active: i32,
}
