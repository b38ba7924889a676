//! TrainingJob: one object for the researcher, with the pod template, the resources and the queue. Berth makes the pods.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::duration::some_time;
use super::queue_policy::tier;
use super::text::{LABEL_KEY, LABEL_VALUE, NAME, SHORT_BOUND, Text, amount};
use super::training_status::TrainingJobStatus;
use crate::rules::{telling, unique_told};

root_object! {
    @in (crate::berth)
    /// A distributed training that is queued, admitted, run and resumed as a whole.
    TrainingJob, "trainingjobs", NamespaceResourceScope, spec: TrainingJobSpec, status: TrainingJobStatus
}

/// Longest name of a TrainingJob: its pods' host names add role and index, and must fit into a DNS label.
pub const MAX_TRAINING_JOB_NAME: usize = 43;

/// The value of the node label for the type of accelerator.
const GPU_TYPE: Text = Text { size: (1, 63), ..LABEL_VALUE };
/// A folder in a container.
const MOUNT_PATH: Text = Text { what: "a path", size: (1, 1024), shape: "any but colons", pattern: "^[^:]+$" };

fn zero_or_more(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(amount(false)).unwrap_or_default()
}

fn more_than_zero(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(amount(true)).unwrap_or_default()
}

/// Rules over the whole TrainingJob, for the root of its schema: (rule, message).
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
#[schemars(!default, extend("required" = ["jobType", "template"], "x-kubernetes-validations" = telling(&[
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
    /// Framework, which decides how the pods find each other; immutable.
    #[schemars(extend(
        "enum" = ["PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"],
        "x-kubernetes-validations" = telling(&[[
            "self == oldSelf",
            "",
            "must stay as the job was created",
            ": ' + oldSelf + ', not ' + self",
        ]]),
    ))]
    pub job_type: String,
    /// Workers and what each needs.
    #[schemars(extend("default" = json!({})))]
    pub resources: TrainingResources,
    /// Queue, priority and patience.
    #[schemars(extend("default" = json!({})))]
    pub scheduling_config: SchedulingConfig,
    /// Bounds between which the number of workers may change, also while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic_config: Option<ElasticConfig>,
    /// The pod of a worker. Its first container runs the training, and gets the resources and the rendezvous.
    pub template: PodTemplateSpec,
    /// Roles beside the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub roles: Vec<TrainingRole>,
    /// Settings of an MPIJob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiConfig>,
    /// Tiers of capacity that it accepts, best first; its queue's order when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend(
        "items" = tier(),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_told(),
    ))]
    pub capacity_tiers: Vec<String>,
    /// Where and how often it saves its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointConfig>,
    /// How often the pod of one place is started again after a failure before the job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = 3))]
    pub backoff_limit: Option<i32>,
    /// Gives its quota back and waits until this is false again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub suspend: Option<bool>,
    /// Size of a volume in memory at `/dev/shm`; it counts against the memory of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "more_than_zero")]
    pub shared_memory: Option<Quantity>,
}

/// How many workers, and what each needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&[[
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    ".minReplicas",
    "minReplicas must not be greater than maxReplicas",
    ": %d > %d'.format([self.minReplicas, self.maxReplicas])",
]])))]
pub struct TrainingResources {
    /// Fewest workers with which it can start; `maxReplicas` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub min_replicas: Option<i32>,
    /// Workers that it wants; `minReplicas` when absent, and 1 when that is absent too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_replicas: Option<i32>,
    /// Needs of one worker, added to the first container of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_resources: Option<ReplicaResources>,
    /// Card that the workers need: the value of the node label that tells cards apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = GPU_TYPE.bound(), "x-kubernetes-validations" = GPU_TYPE.rule()))]
    pub gpu_type: Option<String>,
    /// Node label whose value all pods share: required of a gang, else preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = LABEL_KEY.bound(), "x-kubernetes-validations" = LABEL_KEY.rule()))]
    pub topology_constraint: Option<String>,
}

/// Resources of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReplicaResources {
    /// Whole GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub gpu: Option<i32>,
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "zero_or_more")]
    pub cpu: Option<Quantity>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "zero_or_more")]
    pub memory: Option<Quantity>,
}

/// Queue, priority and patience.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SchedulingConfig {
    /// LocalQueue of the namespace; the label `kueue.x-k8s.io/queue-name` may name it instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub queue: Option<String>,
    /// WorkloadPriorityClass; the label `kueue.x-k8s.io/priority-class` may name it instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub priority: Option<String>,
    /// All pods must be ready in time, or all of them go again; and a topology constraint is strict.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub gang_scheduling: Option<bool>,
    /// Longest time in the queue, such as `24h`; then the job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub max_wait_time: Option<String>,
    /// Time in which all pods of an admitted gang must be ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10m", "maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub scheduling_timeout: Option<String>,
    /// Preemption scope of the job, applied after the queue's policy: no victims (`Never`), victims of lower priority (`PreemptLower`), or
    /// all victims that the queue allows (`PreemptAlways`, the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Never", "PreemptLower", "PreemptAlways"], "default" = "PreemptAlways"))]
    pub preemption_policy: Option<String>,
    /// Scheduler of the pods; the default scheduler when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub scheduler_name: Option<String>,
}

/// Bounds between which the number of workers may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&[[
    "!has(self.minWorkers) || !has(self.maxWorkers) || self.minWorkers <= self.maxWorkers",
    ".minWorkers",
    "minWorkers must not be greater than maxWorkers",
    ": %d > %d'.format([self.minWorkers, self.maxWorkers])",
]])))]
pub struct ElasticConfig {
    /// True if the bounds apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,
    /// Fewest workers; `resources.minReplicas` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub min_workers: Option<i32>,
    /// Most workers; `resources.maxReplicas` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_workers: Option<i32>,
    /// Steps and pauses of changes while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_policy: Option<ScalePolicy>,
}

/// Steps and pauses of a change of the number of workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ScalePolicy {
    /// Pause before workers are added, after its start and after each change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5m", "maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub scale_up_cooldown: Option<String>,
    /// Pause before workers are taken, after its start and each change; what a preemption takes is given up at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1m", "maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub scale_down_cooldown: Option<String>,
    /// Workers that are added at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub scale_up_step: Option<i32>,
    /// Workers that are taken at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub scale_down_step: Option<i32>,
}

/// A role beside the workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["name"]))]
pub struct TrainingRole {
    /// `chief`, `ps` or `evaluator` of a TFJob, `launcher` of an MPIJob.
    #[schemars(extend("enum" = ["chief", "ps", "evaluator", "launcher"]))]
    pub name: String,
    /// Pods of this role.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Needs of one pod; of a launcher none, of other roles those of a worker, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_resources: Option<ReplicaResources>,
    /// Its pod; that of a worker when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
}

/// Settings of an MPIJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&[[
    "has(self.sshAuthSecret) == has(self.sshAuthMountPath)",
    "",
    "sshAuthSecret and sshAuthMountPath go together",
    ", and there is only ' + (has(self.sshAuthSecret) ? 'sshAuthSecret ' + self.sshAuthSecret \
     : 'sshAuthMountPath ' + self.sshAuthMountPath)",
]])))]
pub struct MpiConfig {
    /// Processes per worker; its GPUs when absent, and 1 when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots_per_worker: Option<i32>,
    /// Secret of type `kubernetes.io/ssh-auth` of the namespace, mounted into every pod; Berth does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub ssh_auth_secret: Option<String>,
    /// Where the Secret is mounted, for example the `.ssh` folder of the user of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = MOUNT_PATH.bound(), "x-kubernetes-validations" = MOUNT_PATH.rule()))]
    pub ssh_auth_mount_path: Option<String>,
}

/// Where and how often a training saves its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CheckpointConfig {
    /// Store that the administrator has declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub store: Option<String>,
    /// Longest time between two checkpoints, such as `30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub interval: Option<String>,
    /// Checkpoints that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub max_checkpoints: Option<i32>,
}
