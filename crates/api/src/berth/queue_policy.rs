//! QueuePolicy: settings of ClusterQueues that Kueue does not have. A ClusterQueue without a QueuePolicy behaves as in Kueue, except for the
//! differences that the pages in docs/departures describe.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::duration::{DURATION, duration_rule, some_time};
use super::queue_policy_status::QueuePolicyStatus;
use super::text::{LABEL_KEY, LABEL_VALUE, NAME, SHORT_BOUND};
use crate::rules::{rules, rules_with_value, unique_with_value};

root_object! {
    @in (crate::berth)
    /// A QueuePolicy sets capacity tiers, admission limits and bounds of preemption for some ClusterQueues.
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
    /// Names of the ClusterQueues to which the policy applies. If several policies select a ClusterQueue, all of them apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("items" = NAME.schema(), "x-kubernetes-list-type" = "set"))]
    pub cluster_queues: Vec<String>,
    /// Label selector for further ClusterQueues to which the policy applies; an empty selector selects all ClusterQueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("properties" = selector()))]
    pub cluster_queue_selector: Option<LabelSelector>,
    /// Capacity tiers: their order for a job, and the conditions under which a job goes on to the next tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_tiers: Option<CapacityTiers>,
    /// Admission limits: accelerators and priority of each job, and the number of jobs that hold quota at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionLimits>,
    /// Bounds of preemption: which workloads a workload of the ClusterQueues may preempt, and for how long it is protected itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionBounds>,
    /// Points of priority that a workload gets for waiting, in the order of its ClusterQueue; no points if the field is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_time_bonus: Option<WaitingTimeBonus>,
    /// WorkloadPriorityClass of a job by a label of its pods; if absent, the priority is that of Kueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_from_label: Option<PriorityFromLabel>,
    /// Limit of the quota that a ClusterQueue may borrow of each resource, in percent of its nominal quota. A smaller `borrowingLimit` of the
    /// ClusterQueue takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub borrowing_ratio_percent: Option<i32>,
}

/// Schema of a capacity tier.
pub(super) fn tier() -> Value {
    json!({"type": "string", "enum": ["reserved", "on-demand", "spot"]})
}

/// Schema rule for a map whose keys are capacity tiers.
fn by_tier() -> Value {
    rules_with_value(&[[
        "self.all(t, t in ['reserved', 'on-demand', 'spot'])",
        "",
        "keys must be reserved, on-demand or spot",
        ", not ' + self.filter(t, !(t in ['reserved', 'on-demand', 'spot']))[0]",
    ]])
}

/// Schema of the fields of a label selector; Kubernetes' own schema allows any operator, key and value in a selector.
fn selector() -> Value {
    let values = rules_with_value(&[[
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

/// Schema rule for a back-off, whose `max` is not shorter than its `initial`.
fn longest_is_longest() -> Value {
    // The rule for a back-off compares only texts that are durations; for other texts the rule of `initial` or `max` itself fails.
    let times = format!("self.initial.matches('{DURATION}') && self.max.matches('{DURATION}')");
    let rule =
        format!("!has(self.initial) || !has(self.max) || !({times}) || duration(self.initial) <= duration(self.max)");
    rules_with_value(&[[
        &rule,
        ".max",
        "max must not be shorter than initial",
        ": %s < %s'.format([self.max, self.initial])",
    ]])
}

/// Points of priority for waiting. A workload that waits long enough goes before later workloads of higher priority, so that no workload starves. The points
/// for waiting only order pending workloads; they never allow a preemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["pointsPerHour"]))]
pub struct WaitingTimeBonus {
    /// Points of priority that a workload gets for each hour of waiting.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub points_per_hour: i32,
}

/// Priorities of jobs by a label of their pods. Berth looks for the label on the pod templates of the Workload in their order, then on the
/// Workload itself. If a job lacks the label, if its value has no class here, or if the class does not exist, the job has its priority in Kueue:
/// by the label `kueue.x-k8s.io/priority-class`, else by the `priorityClassName` of its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["label", "classes"]))]
pub struct PriorityFromLabel {
    /// Key of the label.
    #[schemars(extend("maxLength" = LABEL_KEY.bound(), "x-kubernetes-validations" = LABEL_KEY.rule()))]
    pub label: String,
    /// WorkloadPriorityClasses by value of the label.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["value"]))]
    pub classes: Vec<LabelledClass>,
}

/// The WorkloadPriorityClass for one value of the label.
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

/// Settings of the capacity tiers `reserved`, `on-demand` and `spot`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CapacityTiers {
    /// Tiers, best first, of jobs that name no tiers and whose pods select no kind of capacity. Without default tiers, Berth tries the flavors in the
    /// order of the ClusterQueue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend(
        "items" = tier(),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_with_value(),
    ))]
    pub default: Vec<String>,
    /// Tiers by a label of the pods, for jobs that name no tiers and whose pods select no kind of capacity. The first entry of `defaultFor` that fits a job
    /// replaces the tiers in `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub default_for: Vec<DefaultFor>,
    /// Treatment of node selectors by which a job itself selects a reservation or spot nodes. With `Respect`, the default, the selectors pin the job to the
    /// tier that they select. With `Override`, Berth removes the selectors and their tolerations while the job runs, and the job falls back through the tiers
    /// like any other job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Respect", "Override"], "default" = "Respect"))]
    pub selectors: Option<String>,
    /// Time, by tier, for which a started job may lack nodes before it goes on to the next tier; ten minutes if absent.
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
    /// Signals that count as a stock-out; all four signals if absent. The signal `Unschedulable` means that the scheduler finds no node for a pod within
    /// `patience`. The signal `ScaleUpFailed` means that an event of an autoscaler says that the autoscaler gets no node for a pod. The signal
    /// `ProvisioningRequestFailed` means that a ProvisioningRequest of an admission check got no capacity. The signal `NodeReclaimed` means that a taint
    /// announces that the cloud is about to reclaim the spot node of a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend(
        "items" = json!({
            "type": "string",
            "enum": ["Unschedulable", "ScaleUpFailed", "ProvisioningRequestFailed", "NodeReclaimed"],
        }),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_with_value(),
    ))]
    pub stock_out_on: Vec<String>,
    /// Limit, by tier, of the quota that one ClusterQueue may hold in the tier, in percent of the nominal quota that all ClusterQueues and
    /// Cohorts of its tree have in the flavors of that tier; no limit if absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 3,
        "additionalProperties" = json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 100}),
        "x-kubernetes-validations" = by_tier(),
    ))]
    pub max_share_percent: BTreeMap<String, i32>,
    /// Back-off of a flavor whose nodes were not created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<StockBackoff>,
    /// Return of running jobs to a better tier that has become free; if absent, jobs stay in their tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub climb_back: Option<ClimbBack>,
}

/// Tiers of jobs whose pods have a label with one of the values. Berth looks for the label on the pod templates of the Workload and on the Workload itself. An
/// entry of `defaultFor` fits a job only if the ClusterQueue has a flavor of one of its tiers, so that no job waits for a reservation that the ClusterQueue
/// does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["label", "values", "tiers"]))]
pub struct DefaultFor {
    /// Key of the label.
    #[schemars(extend("maxLength" = LABEL_KEY.bound(), "x-kubernetes-validations" = LABEL_KEY.rule()))]
    pub label: String,
    /// Values of the label; the entry fits a job that has one of them.
    #[schemars(length(min = 1, max = 16), extend("items" = LABEL_VALUE.schema(), "x-kubernetes-list-type" = "set"))]
    pub values: Vec<String>,
    /// Tiers of the jobs that this entry fits, best first.
    #[schemars(length(min = 1, max = 3), extend(
        "items" = tier(),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = unique_with_value(),
    ))]
    pub tiers: Vec<String>,
}

/// Conditions under which a running job leaves its tier for a better one. Berth stops the job and starts it again in the better tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClimbBack {
    /// State in which a job may move back. With `AfterCheckpoint`, the default, a job may move back if its annotation `berth.dev/last-checkpoint-time` shows a
    /// checkpoint that is newer than the time at which the better tier became free. With `Anytime`, a job may move back whatever checkpoints it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["AfterCheckpoint", "Anytime"], "default" = "AfterCheckpoint"))]
    pub when: Option<String>,
    /// Shortest time for which a job stays in its tier; an hour if absent. With `0s` a job may move back at any time after its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub min_stay: Option<String>,
    /// Time for which the better tier must have been free; five minutes if absent. With `0s` a job takes the better tier as soon as it is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub hysteresis: Option<String>,
    /// Number of times that a job may move back in its life; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_times: Option<i32>,
}

/// Back-off of a flavor that is out of stock. The back-off applies to all jobs that request at least as many pods of the same shape as the job that
/// got no nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = longest_is_longest()))]
pub struct StockBackoff {
    /// Back-off after the first stock-out; five minutes if absent, or `max` if that is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub initial: Option<String>,
    /// Factor by which each further stock-out in a row makes the back-off longer; 2 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub factor: Option<i32>,
    /// Longest back-off; two hours if absent, or `initial` if that is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = some_time()))]
    pub max: Option<String>,
    /// Time without a stock-out after which Berth forgets one stock-out; half an hour if absent. With `0s` each stock-out counts as the first,
    /// and the back-off never grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub decay: Option<String>,
}

/// Admission limits: accelerators and priority of each job, and the number of jobs that hold quota at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionLimits {
    /// Largest number of jobs of one ClusterQueue that hold quota at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_jobs: Option<i32>,
    /// Largest number of accelerators that the pods of one job may request together: resources whose names end in `/gpu`, and the accelerator
    /// resource of TrainingJobs.
    #[serde(rename = "maxGPUsPerJob", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_gpus_per_job: Option<i32>,
    /// Priorities with which jobs are admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_range: Option<PriorityRange>,
}

/// Bounds of preemption, which narrow what the preemption fields of the ClusterQueue allow, and never widen that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PreemptionBounds {
    /// Difference of priorities that a preemption needs: a workload of the ClusterQueue preempts only workloads whose priority is lower by at
    /// least this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub min_priority_difference: Option<i32>,
    /// Time after the reservation of its quota for which a workload of the ClusterQueue is not preempted; if absent, or `0s`, no workload is
    /// protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub protected_running_time: Option<String>,
    /// Time that a job of the ClusterQueue gets to save a checkpoint before Berth stops it. If this grace period is absent, TrainingJobs get 30
    /// seconds, and other jobs are not asked to save. With a grace period of `0s`, Berth stops all jobs at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SHORT_BOUND, "x-kubernetes-validations" = duration_rule()))]
    pub grace_period: Option<String>,
    /// Largest number of workloads that one workload of the ClusterQueue may preempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_victims: Option<i32>,
    /// Largest amount of each contested resource that the preempted workloads may hold together, in percent of the request of the workload that
    /// preempts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 1_000_000))]
    pub max_evicted_percent: Option<i32>,
}

/// Bounds of a priority, both included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[[
    "!has(self.min) || !has(self.max) || self.min <= self.max",
    ".min",
    "min must not be greater than max",
    ": %d > %d'.format([self.min, self.max])",
]])))]
pub struct PriorityRange {
    /// Lowest priority with which a job is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub min: Option<i32>,
    /// Highest priority with which a job is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub max: Option<i32>,
}
