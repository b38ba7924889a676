//! Status of a TrainingJob.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state of a TrainingJob. It has no condition `Ready`: a job that waits in its queue is well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TrainingJobStatus {
    /// Generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Pending` (not queued yet, or admitted with pods that are still starting), `Queued`, `Running`, `Succeeded`, `Failed` or
    /// `Suspended`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["Pending", "Queued", "Running", "Succeeded", "Failed", "Suspended"]))]
    pub phase: String,
    /// Resources that it was given, while it is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<AllocatedResources>,
    /// Flavors that it was given, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavors: Option<String>,
    /// Capacity tier that it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_tier: Option<String>,
    /// Ready workers of those it was given, for example `3/4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// Accelerators that its pods ask for together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<i64>,
    /// Pods by role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub replica_statuses: BTreeMap<String, ReplicaStatus>,
    /// State of its checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointStatus>,
    /// Pods of the present run that failed and were started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
    /// `Queued`, `Admitted`, `Running`, `Succeeded`, `Failed`, `Suspended`, `SchedulingTimeout`,
    /// `CheckpointRequested`, `CheckpointOverdue`, `CheckpointStoreUnavailable`, `Elastic`, `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Recent events, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub events: Vec<TrainingEvent>,
}

/// State of the checkpoints of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CheckpointStatus {
    /// Complete checkpoints in its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// The last one, from which the next start goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<CheckpointInfo>,
    /// The last ones, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub checkpoints: Vec<CheckpointInfo>,
    /// Id of the checkpoint from which the last run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
}

/// Most checkpoints that a status shows.
pub const MAX_SHOWN_CHECKPOINTS: usize = 10;

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointInfo {
    /// Its name in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it was complete.
    pub time: Time,
    /// Step of the training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Epoch of the training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size of all its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Metadata that the job has written about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub metadata: BTreeMap<String, String>,
}

/// Most events that a status keeps.
pub const MAX_TRAINING_EVENTS: usize = 10;

/// Sums over all pods of an admission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AllocatedResources {
    /// Its cards, and other resources whose names end in `/gpu`.
    pub gpus: i64,
    /// CPU.
    pub cpu: Quantity,
    /// Memory.
    pub memory: Quantity,
    /// Nodes that its pods run on: counted when all of them are ready, and again after some failed or their number changed.
    /// Absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
}

/// Pods of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReplicaStatus {
    /// Ready.
    pub running: i32,
    /// Succeeded.
    pub succeeded: i32,
    /// Failed, and those that failed and were replaced.
    pub failed: i32,
    /// There and not ready.
    pub pending: i32,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingEvent {
    /// When.
    pub time: Time,
    /// One word.
    #[schemars(length(max = 256))]
    pub reason: String,
    /// Message.
    #[schemars(length(max = 1024))]
    pub message: String,
}
