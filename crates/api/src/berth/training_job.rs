//! TrainingJob: one object in which a researcher states the pod template, the resources and the queue. Berth creates the pods.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::duration::some_time;
use super::queue_policy::tier;
use super::text::{LABEL_KEY, LABEL_VALUE, NAME, SHORT_BOUND, Text, amount};
use super::training_status::TrainingJobStatus;
use crate::rules::{rules_with_value, unique_with_value};

root_object! {
    @in (crate::berth)
    /// A TrainingJob is a distributed training that Berth queues, admits, runs and resumes as a unit.
    TrainingJob, "trainingjobs", NamespaceResourceScope, spec: TrainingJobSpec, status: TrainingJobStatus
}

/// Longest name of a TrainingJob, in characters: the host names of its pods add the role and the index, and must fit into a DNS label.
pub const MAX_TRAINING_JOB_NAME: usize = 43;

/// The rule for a value of the node label with the type of accelerator.
const GPU_TYPE: Text = Text { size: (1, 63), ..LABEL_VALUE };
/// The rule for the path of a folder in a container.
const MOUNT_PATH: Text = Text { what: "a path", size: (1, 1024), shape: "any but colons", pattern: "^[^:]+$" };

fn zero_or_more(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(amount(false)).unwrap_or_default()
}

fn more_than_zero(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(amount(true)).unwrap_or_default()
}

/// CEL rules for the root of a TrainingJob's schema, as pairs of rule and message.
pub fn training_job_rules() -> Vec<(String, &'static str)> {
    vec![
        (
            format!("self.metadata.name.size() <= {MAX_TRAINING_JOB_NAME}"),
            "metadata.name: must be no more than 43 characters, so that host names of pods fit into a DNS label",
        ),
        (
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')".to_owned(),
            "metadata.name: must begin with a lower case letter and consist of lower case letters, digits and '-'",
        ),
    ]
}

/// Desired state of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["jobType", "template"], "x-kubernetes-validations" = rules_with_value(&[
    [
        "self.jobType == 'TFJob' || self.jobType == 'MPIJob' || !has(self.roles) || self.roles.size() == 0",
        ".roles",
        "roles: only TFJob (chief, ps, evaluator) and MPIJob (launcher) have roles beside their workers",
        ", a ' + self.jobType + ' has no ' + self.roles[0].name",
    ],
    [
        "self.jobType != 'TFJob' || !has(self.roles) || self.roles.all(r, r.name in ['chief', 'ps', 'evaluator'])",
        ".roles",
        "roles: a TFJob may have the roles chief, ps and evaluator",
        ", not ' + self.roles.map(r, r.name).filter(n, !(n in ['chief', 'ps', 'evaluator']))[0]",
    ],
    [
        "self.jobType != 'MPIJob' || !has(self.roles) || self.roles.all(r, r.name == 'launcher')",
        ".roles",
        "roles: an MPIJob may have the role launcher",
        ", not ' + self.roles.map(r, r.name).filter(n, n != 'launcher')[0]",
    ],
    [
        "self.jobType == 'MPIJob' || !has(self.mpi)",
        ".mpi",
        "mpi: only an MPIJob may have it",
        ", not a ' + self.jobType",
    ],
    [
        "!has(self.elasticConfig) || !has(self.elasticConfig.enabled) || !self.elasticConfig.enabled || \
         !has(self.elasticConfig.maxWorkers) || self.elasticConfig.maxWorkers <= (has(self.resources.maxReplicas) ? \
         self.resources.maxReplicas : has(self.resources.minReplicas) ? self.resources.minReplicas : 1)",
        ".elasticConfig.maxWorkers",
        "maxWorkers must not be greater than resources.maxReplicas",
        ": %d > %d'.format([self.elasticConfig.maxWorkers, has(self.resources.maxReplicas) ? self.resources.maxReplicas : \
         has(self.resources.minReplicas) ? self.resources.minReplicas : 1])",
    ],
    [
        "!has(self.elasticConfig) || !has(self.elasticConfig.enabled) || !self.elasticConfig.enabled || \
         !has(self.elasticConfig.minWorkers) || self.elasticConfig.minWorkers >= (has(self.resources.minReplicas) ? \
         self.resources.minReplicas : has(self.resources.maxReplicas) ? self.resources.maxReplicas : 1)",
        ".elasticConfig.minWorkers",
        "minWorkers must not be less than resources.minReplicas",
        ": %d < %d'.format([self.elasticConfig.minWorkers, has(self.resources.minReplicas) ? self.resources.minReplicas : \
         has(self.resources.maxReplicas) ? self.resources.maxReplicas : 1])",
    ],
])))]
pub struct TrainingJobSpec {
    /// Framework of the training, which decides how the pods find each other; immutable.
    #[schemars(extend(
        "enum" = ["PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"],
        "x-kubernetes-validations" = rules_with_value(&[[
            "self == oldSelf",
            "",
            "must stay as the job was created",
            ": ' + oldSelf + ', not ' + self",
        ]]),
    ))]
    pub job_type: String,
    /// Number of workers, and the resources of each worker.
    #[schemars(extend("default" = json!({})))]
    pub resources: TrainingResources,
    /// LocalQueue, priority and time limits of the job.
    #[schemars(extend("default" = json!({})))]
    pub scheduling_config: SchedulingConfig,
    /// Bounds between which the number of workers may change, also while the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic_config: Option<ElasticConfig>,
    /// Pod template of a worker. The first container of the template runs the training, and gets the resources and the environment variables by
    /// which the pods find each other.
    pub template: PodTemplateSpec,
    /// Roles of the job besides the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub roles: Vec<TrainingRole>,
    /// Settings of an MPIJob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiConfig>,
    /// Capacity tiers that the job accepts, best first; the order of its queue if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend(
        "items" = tier(),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_with_value(),
    ))]
    pub capacity_tiers: Vec<String>,
    /// Store and interval of the job's checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointConfig>,
    /// Number of times that the pod of one index is restarted after failures before the job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = 3))]
    pub backoff_limit: Option<i32>,
    /// If true, the job gives its quota back and waits until this field is false again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub suspend: Option<bool>,
    /// Size of the in-memory volume at `/dev/shm` of each pod. The content of the volume counts against the memory limit of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "more_than_zero")]
    pub shared_memory: Option<Quantity>,
}

/// Number of workers, and the resources of each worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[[
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    ".minReplicas",
    "minReplicas must not be greater than maxReplicas",
    ": %d > %d'.format([self.minReplicas, self.maxReplicas])",
]])))]
pub struct TrainingResources {
    /// Smallest number of workers with which the job may start; `maxReplicas` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub min_replicas: Option<i32>,
    /// Wanted number of workers; `minReplicas` if absent, and 1 if that is absent too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_replicas: Option<i32>,
    /// Resource requests of one worker, set in the first container of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_resources: Option<ReplicaResources>,
    /// Type of accelerator that the workers need: a value of the accelerator node label (by default `nvidia.com/gpu.product`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = GPU_TYPE.bound(), "x-kubernetes-validations" = GPU_TYPE.rule()))]
    pub gpu_type: Option<String>,
    /// Key of a node label that has the same value for the nodes of all pods: required with `gangScheduling`, else preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = LABEL_KEY.bound(), "x-kubernetes-validations" = LABEL_KEY.rule()))]
    pub topology_constraint: Option<String>,
}

/// Resource requests of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReplicaResources {
    /// Number of accelerators of one pod, a whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub gpu: Option<i32>,
    /// Amount of CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "zero_or_more")]
    pub cpu: Option<Quantity>,
    /// Amount of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "zero_or_more")]
    pub memory: Option<Quantity>,
}

/// LocalQueue, priority and time limits of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SchedulingConfig {
    /// Name of the LocalQueue; the label `kueue.x-k8s.io/queue-name` may name the LocalQueue instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub queue: Option<String>,
    /// Name of the WorkloadPriorityClass; the label `kueue.x-k8s.io/priority-class` may name the class instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub priority: Option<String>,
    /// If true, all pods must be ready within `schedulingTimeout`, or the job gives its quota back and waits; `topologyConstraint` is then
    /// required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub gang_scheduling: Option<bool>,
    /// Longest time, such as `24h`, that the job may be without all its pods running; then the job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub max_wait_time: Option<String>,
    /// Time within which all pods must be ready after the admission, if `gangScheduling` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10m", "maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub scheduling_timeout: Option<String>,
    /// Preemption scope of the job, applied after the queue's policy: no victims (`Never`), victims of lower priority (`PreemptLower`), or
    /// all victims that the queue allows (`PreemptAlways`, the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Never", "PreemptLower", "PreemptAlways"], "default" = "PreemptAlways"))]
    pub preemption_policy: Option<String>,
    /// Name of the pods' scheduler; the default scheduler if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub scheduler_name: Option<String>,
}

/// Bounds between which the number of workers may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[[
    "!has(self.minWorkers) || !has(self.maxWorkers) || self.minWorkers <= self.maxWorkers",
    ".minWorkers",
    "minWorkers must not be greater than maxWorkers",
    ": %d > %d'.format([self.minWorkers, self.maxWorkers])",
]])))]
pub struct ElasticConfig {
    /// If true, the number of workers may change within the bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,
    /// Smallest number of workers; `resources.minReplicas` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub min_workers: Option<i32>,
    /// Largest number of workers; `resources.maxReplicas` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_workers: Option<i32>,
    /// Steps and pauses of changes of the number of workers while the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_policy: Option<ScalePolicy>,
}

/// Steps and pauses of a change of the number of workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ScalePolicy {
    /// Shortest time between the start of the job, or its last change, and a scale-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5m", "maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub scale_up_cooldown: Option<String>,
    /// Shortest time between the start of the job, or its last change, and a scale-down. A preemption removes workers at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1m", "maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub scale_down_cooldown: Option<String>,
    /// Number of workers that one step adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub scale_up_step: Option<i32>,
    /// Number of workers that one step removes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub scale_down_step: Option<i32>,
}

/// A role of the job besides the workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["name"]))]
pub struct TrainingRole {
    /// Name of the role: `chief`, `ps` or `evaluator` of a TFJob, `launcher` of an MPIJob.
    #[schemars(extend("enum" = ["chief", "ps", "evaluator", "launcher"]))]
    pub name: String,
    /// Number of pods of the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Resource requests of one pod of the role. Without `replicaResources`, a launcher has no requests, and a pod of another role has those of a
    /// worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_resources: Option<ReplicaResources>,
    /// Pod template of the role; that of a worker if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
}

/// Settings of an MPIJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[[
    "has(self.sshAuthSecret) == has(self.sshAuthMountPath)",
    "",
    "sshAuthSecret and sshAuthMountPath go together",
    ", and there is only ' + (has(self.sshAuthSecret) ? 'sshAuthSecret ' + self.sshAuthSecret \
     : 'sshAuthMountPath ' + self.sshAuthMountPath)",
]])))]
pub struct MpiConfig {
    /// Number of processes of each worker; if absent, the number of accelerators of the worker, and 1 if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots_per_worker: Option<i32>,
    /// Name of a Secret of type `kubernetes.io/ssh-auth` in the job's namespace. The Secret with the SSH key is mounted into every pod; Berth does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub ssh_auth_secret: Option<String>,
    /// Path at which the Secret is mounted, for example the `.ssh` folder of the image's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = MOUNT_PATH.bound(), "x-kubernetes-validations" = MOUNT_PATH.rule()))]
    pub ssh_auth_mount_path: Option<String>,
}

/// Store and interval of a job's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CheckpointConfig {
    /// Name of the CheckpointStore in which the job saves its checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub store: Option<String>,
    /// Longest time between two checkpoints, such as `30m`; the condition `CheckpointOverdue` reports a longer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub interval: Option<String>,
    /// Number of checkpoints that Berth keeps in the store; it deletes older ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub max_checkpoints: Option<i32>,
}
