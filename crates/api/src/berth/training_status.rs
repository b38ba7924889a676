//! Status of a TrainingJob.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state of a TrainingJob. The status has no condition `Ready`, because a job that waits in its queue is not at fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TrainingJobStatus {
    /// Generation of the spec that the status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Phase of the job: one of `Pending` (not queued yet, or admitted with pods that are still starting), `Queued`, `Running`, `Succeeded`, `Failed` and
    /// `Suspended`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["Pending", "Queued", "Running", "Succeeded", "Failed", "Suspended"]))]
    pub phase: String,
    /// Resources that the admission gives to the job, while it is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<AllocatedResources>,
    /// Flavors that the admission assigns to the job, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavors: Option<String>,
    /// Capacity tier that the admission assigns to the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_tier: Option<String>,
    /// Number of ready workers and of admitted workers, for example `3/4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// Number of accelerators that the job's pods request together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<i64>,
    /// Number of pods by role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub replica_statuses: BTreeMap<String, ReplicaStatus>,
    /// State of the job's checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointStatus>,
    /// Number of pods of the present run that failed and were restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
    /// Conditions of the job: the types are `Queued`, `Admitted`, `Running`, `Succeeded`, `Failed`, `Suspended`, `SchedulingTimeout`, `CheckpointRequested`,
    /// `CheckpointOverdue`, `CheckpointStoreUnavailable`, `Elastic` and `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Recent events of the job, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub events: Vec<TrainingEvent>,
}

/// State of the checkpoints of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CheckpointStatus {
    /// Number of complete checkpoints of the job in its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// The latest checkpoint, from which the next run starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<CheckpointInfo>,
    /// The latest checkpoints, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub checkpoints: Vec<CheckpointInfo>,
    /// Id of the checkpoint from which the last run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
}

/// Largest number of checkpoints that the status of a TrainingJob shows.
pub const MAX_SHOWN_CHECKPOINTS: usize = 10;

/// One checkpoint of a TrainingJob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointInfo {
    /// Name of the checkpoint's folder in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Time at which the checkpoint was complete.
    pub time: Time,
    /// Step of the training that the checkpoint holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Epoch of the training that the checkpoint holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Address of the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size of all files of the checkpoint, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Metadata that the job has written into the checkpoint's `checkpoint.json`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub metadata: BTreeMap<String, String>,
}

/// Largest number of events that the status of a TrainingJob keeps.
pub const MAX_TRAINING_EVENTS: usize = 10;

/// Resources of an admission, summed over all its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AllocatedResources {
    /// Number of accelerators: the accelerator resource of TrainingJobs, and other resources whose names end in `/gpu`.
    pub gpus: i64,
    /// Amount of CPU.
    pub cpu: Quantity,
    /// Amount of memory.
    pub memory: Quantity,
    /// Number of nodes on which the job's pods run; absent while the number is unknown. Berth counts the nodes of a job when all its pods are ready,
    /// and again after pods failed or the number of pods changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
}

/// Number of pods of one role, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReplicaStatus {
    /// Number of ready pods.
    pub running: i32,
    /// Number of pods of the role that succeeded.
    pub succeeded: i32,
    /// Number of pods of the role that failed, including failed pods that were replaced.
    pub failed: i32,
    /// Number of pods of the role that exist and are not ready.
    pub pending: i32,
}

/// An event in the life of a TrainingJob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingEvent {
    /// Time of the event.
    pub time: Time,
    /// Reason of the event, in one word.
    #[schemars(length(max = 256))]
    pub reason: String,
    /// Message of the event.
    #[schemars(length(max = 1024))]
    pub message: String,
}
