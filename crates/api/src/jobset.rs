//! JobSet (jobset.x-k8s.io/v1alpha2), as far as Berth reads it. The spec is kept as the JSON that was read: a JobSet's list of replicated jobs can
//! only be written as a whole, with every field that Berth does not know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// API group.
pub const GROUP: &str = "jobset.x-k8s.io";
/// Version of the API group that Berth reads and writes.
pub const VERSION: &str = "v1alpha2";
/// `apiVersion` of a JobSet.
pub const API_VERSION: &str = "jobset.x-k8s.io/v1alpha2";

root_object! {
    @in (crate::jobset)
    /// A group of Jobs that start, stop and restart together.
    JobSet, "jobsets", NamespaceResourceScope, spec: JobSetSpec, status: JobSetStatus
}

/// Desired state of a JobSet, as the JSON that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobSetSpec(pub Map<String, Value>);

/// Observed state of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStatus {
    /// Conditions of the types `Suspended`, `Completed`, `Failed` and others.
    pub conditions: Vec<Condition>,
    /// Number of restarts of the JobSet; a restart creates all its Jobs again.
    pub restarts: i32,
    /// Number of restarts that count towards `spec.failurePolicy.maxRestarts`.
    pub restarts_count_towards_max: i32,
    /// Status of each replicated job of the JobSet.
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
}

/// Status of the Jobs of one replicated job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJobStatus {
    /// Name of the replicated job.
    pub name: String,
    /// Number of Jobs of which all pods are ready or have ended.
    pub ready: i32,
    /// Number of Jobs that succeeded.
    pub succeeded: i32,
    /// Number of Jobs with active pods.
    pub active: i32,
}
