//! QueuePolicy: settings of ClusterQueues that Kueue does not have. A queue without one behaves as in Kueue, except for the pages in docs/departures.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::duration::{DURATION, duration_rule, some_time};
use super::queue_policy_status::QueuePolicyStatus;
use super::text::{LABEL_KEY, LABEL_VALUE, NAME, SHORT_BOUND};
use crate::rules::{rules, telling, unique_told};

root_object! {
    @in (crate::berth)
    /// Capacity tiers and limits of some ClusterQueues.
    QueuePolicy, "queuepolicies", ClusterResourceScope, spec: QueuePolicySpec, status: QueuePolicyStatus
}

/// Desired state of a QueuePolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "has(self.clusterQueues) || has(self.clusterQueueSelector)",
    "one of the fields in [clusterQueues clusterQueueSelector] must be set",
)])))]
pub struct QueuePolicySpec {
    /// Names of the ClusterQueues that it governs. A queue that two policies claim follows both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("items" = NAME.schema(), "x-kubernetes-list-type" = "set"))]
    pub cluster_queues: Vec<String>,
    /// Labels of further ClusterQueues that it governs; an empty selector selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("properties" = selector()))]
    pub cluster_queue_selector: Option<LabelSelector>,
    /// Tiers of capacity: which are taken in which order, and when a job goes on to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_tiers: Option<CapacityTiers>,
    /// Limits of devices and priority per job, and of jobs that hold quota at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionLimits>,
    /// Bounds of preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionBounds>,
    /// Points of priority for waiting in the order of a queue's workloads; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_time_bonus: Option<WaitingTimeBonus>,
    /// Which WorkloadPriorityClass a job has by a label of its pods; as in Kueue when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_from_label: Option<PriorityFromLabel>,
    /// Most that a ClusterQueue may borrow of each resource, in per cent of its nominal quota; a smaller `borrowingLimit` of the
    /// queue holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub borrowing_ratio_percent: Option<i32>,
}

/// Schema of a capacity tier.
pub(super) fn tier() -> Value {
    json!({"type": "string", "enum": ["reserved", "on-demand", "spot"]})
}

/// Rule of a map whose keys are tiers.
fn by_tier() -> Value {
    telling(&[[
        "self.all(t, t in ['reserved', 'on-demand', 'spot'])",
        "",
        "keys must be reserved, on-demand or spot",
        ", not ' + self.filter(t, !(t in ['reserved', 'on-demand', 'spot']))[0]",
    ]])
}

/// Fields of a label selector, which Kubernetes' own schema allows any operator, key and value.
fn selector() -> Value {
    let values = telling(&[[
        "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 \
         : !has(self.values) || self.values.size() == 0",
        ".values",
        "In and NotIn take values, and Exists and DoesNotExist take none",
        ", but %s has %d'.format([self.operator, has(self.values) ? self.values.size() : 0])",
    ]]);
    json!({
        "matchExpressions": {"type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": LABEL_KEY.schema(),
                "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                "values": {
                    "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": LABEL_VALUE.schema(),
                },
            },
            "x-kubernetes-validations": values,
        }},
        "matchLabels": {
            "type": "object",
            "maxProperties": 64,
            "additionalProperties": LABEL_VALUE.schema(),
            "x-kubernetes-validations": LABEL_KEY.rule_of_keys(),
        },
    })
}

/// Rule of a back-off: the longest time is not shorter than the first.
fn longest_is_longest() -> Value {
    // A text that is no duration breaks the rule of its own field, and cannot be compared.
    let times = format!("self.initial.matches('{DURATION}') && self.max.matches('{DURATION}')");
    let rule =
        format!("!has(self.initial) || !has(self.max) || !({times}) || duration(self.initial) <= duration(self.max)");
    telling(&[[&rule, ".max", "max must not be shorter than initial", ": %s < %s'.format([self.max, self.initial])"]])
}

/// Points of priority for waiting. A workload that waits long enough goes before later ones of higher priority, so that none starves. The
/// points only order pending workloads; they never allow a preemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["pointsPerHour"]))]
pub struct WaitingTimeBonus {
    /// Points of priority that an hour of waiting is worth.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub points_per_hour: i32,
}

/// The priorities of jobs by a label of their pods. It is looked for on the pod templates of the Workload in their order, then on the
/// Workload itself. A job without it, with a value that has no class here, or with a class that does not exist has the priority that it
/// has in Kueue: by the label `kueue.x-k8s.io/priority-class`, else by the `priorityClassName` of its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["label", "classes"]))]
pub struct PriorityFromLabel {
    /// Key of the label.
    #[schemars(extend("maxLength" = LABEL_KEY.bound(), "x-kubernetes-validations" = LABEL_KEY.rule()))]
    pub label: String,
    /// The classes by value of the label.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["value"]))]
    pub classes: Vec<LabelledClass>,
}

/// The class that a value of a label stands for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["value", "workloadPriorityClass"]))]
pub struct LabelledClass {
    /// Value of the label.
    #[schemars(extend("maxLength" = LABEL_VALUE.bound(), "x-kubernetes-validations" = LABEL_VALUE.rule()))]
    pub value: String,
    /// Name of the WorkloadPriorityClass.
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub workload_priority_class: String,
}

/// Tiers of capacity: reserved, on demand, spot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CapacityTiers {
    /// The tiers that jobs accept which name none and select none, best first; the queue's flavors as they come when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend(
        "items" = tier(),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_told(),
    ))]
    pub default: Vec<String>,
    /// The tiers of such jobs by a label of their pods: the first entry that fits takes the place of `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub default_for: Vec<DefaultFor>,
    /// Treatment of selectors by which a job asks for a reservation or for spot itself. `Respect`, the default: they pin the job.
    /// `Override`: they are removed with their tolerations while the job runs, and the job goes from tier to tier like any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Respect", "Override"], "default" = "Respect"))]
    pub selectors: Option<String>,
    /// How long a started job may lack nodes before it goes on, by tier; ten minutes when absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 3,
        "additionalProperties" = json!({
            "type": "string",
            "maxLength": SHORT_BOUND,
            "x-kubernetes-validations": some_time(),
        }),
        "x-kubernetes-validations" = by_tier(),
    ))]
    pub patience: BTreeMap<String, String>,
    /// Signals of a stock-out; all of them when absent. `Unschedulable`: no node takes a pod within the patience. `ScaleUpFailed`: an
    /// autoscaler says, by an event about a pod, that it gets no node for the pod. `ProvisioningRequestFailed`: an autoscaler that was
    /// asked by an admission check got no capacity. `NodeReclaimed`: a taint announces that the spot node of a pod is about to be taken
    /// away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend(
        "items" = json!({
            "type": "string",
            "enum": ["Unschedulable", "ScaleUpFailed", "ProvisioningRequestFailed", "NodeReclaimed"],
        }),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_told(),
    ))]
    pub stock_out_on: Vec<String>,
    /// Most of a tier that one ClusterQueue may hold, by tier, in per cent of the nominal quota that all queues and cohorts of its tree
    /// have in the flavors of that tier; no limit when absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 3,
        "additionalProperties" = json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 100}),
        "x-kubernetes-validations" = by_tier(),
    ))]
    pub max_share_percent: BTreeMap<String, i32>,
    /// How long capacity that did not turn up is not asked for again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<StockBackoff>,
    /// Return of running jobs to a better tier when it is free; jobs stay where they are when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub climb_back: Option<ClimbBack>,
}

/// The tiers of jobs with a label. It is looked for on the pod templates of the Workload and on the Workload itself. An entry fits
/// a job with one of the values where the ClusterQueue has a flavor of one of the tiers: a reservation that is not there is not waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["label", "values", "tiers"]))]
pub struct DefaultFor {
    /// Key of the label.
    #[schemars(extend("maxLength" = LABEL_KEY.bound(), "x-kubernetes-validations" = LABEL_KEY.rule()))]
    pub label: String,
    /// Values of the label, of which a job has one.
    #[schemars(length(min = 1, max = 16), extend("items" = LABEL_VALUE.schema(), "x-kubernetes-list-type" = "set"))]
    pub values: Vec<String>,
    /// The tiers that it accepts, best first.
    #[schemars(length(min = 1, max = 3), extend(
        "items" = tier(),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_told(),
    ))]
    pub tiers: Vec<String>,
}

/// When a running job leaves its tier for a better one. It is stopped and started again for that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClimbBack {
    /// `AfterCheckpoint`, the default: once the job says, by the annotation `berth.dev/last-checkpoint-time`, that it saved a
    /// checkpoint since the better tier was free. `Anytime`: whether it did or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["AfterCheckpoint", "Anytime"], "default" = "AfterCheckpoint"))]
    pub when: Option<String>,
    /// A job stays at least so long; an hour when absent, and no time at all with `0s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub min_stay: Option<String>,
    /// The better tier must have been free for so long; five minutes when absent. With `0s` it is taken as soon as it is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub hysteresis: Option<String>,
    /// A job climbs at most so many times in its life; 3 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_times: Option<i32>,
}

/// Back-off of a flavor that is out of stock, shared by all jobs that ask for as much of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = longest_is_longest()))]
pub struct StockBackoff {
    /// The first time; five minutes when absent, or `max` where that is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub initial: Option<String>,
    /// Factor by which each further stock-out is longer; 2 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub factor: Option<i32>,
    /// The longest; two hours when absent, or `initial` where that is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub max: Option<String>,
    /// After so long without another, a stock-out is forgotten; half an hour when absent. With `0s` it is forgotten at once, and
    /// the back-off never grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub decay: Option<String>,
}

/// Limits of devices and priority per job, and of jobs that hold quota at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionLimits {
    /// Most jobs of a ClusterQueue that hold quota at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_jobs: Option<i32>,
    /// Most devices that one job may ask for, over all its pods: resources whose names end in `/gpu`, and cards of TrainingJobs.
    #[serde(rename = "maxGPUsPerJob", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_gpus_per_job: Option<i32>,
    /// Priorities that jobs may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_range: Option<PriorityRange>,
}

/// Bounds of preemption; what Kueue's fields of the ClusterQueue allow is narrowed by them, never widened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PreemptionBounds {
    /// A workload of the queue preempts only workloads whose priority is at least so much lower.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub min_priority_difference: Option<i32>,
    /// A workload of the queue is not preempted for so long after it reserved quota. `0s` protects nobody, as when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub protected_running_time: Option<String>,
    /// Time in which a job of the queue that saves checkpoints may save one more before it is stopped. 30 seconds for
    /// TrainingJobs when absent, and none for other jobs, which are told of it only where this is set. `0s` stops them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub grace_period: Option<String>,
    /// Most workloads that are evicted for one of the queue's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_victims: Option<i32>,
    /// Most that those who are evicted may hold of each contested resource, in per cent of what the one asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 1_000_000))]
    pub max_evicted_percent: Option<i32>,
}

/// Bounds of a priority, both included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = telling(&[[
    "!has(self.min) || !has(self.max) || self.min <= self.max",
    ".min",
    "min must not be greater than max",
    ": %d > %d'.format([self.min, self.max])",
]])))]
pub struct PriorityRange {
    /// The lowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub min: Option<i32>,
    /// The highest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub max: Option<i32>,
}
