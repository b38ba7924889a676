//! Status of a QueuePolicy: its ClusterQueues, the number of jobs by tier, and the stock-outs.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state of a QueuePolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct QueuePolicyStatus {
    /// `Active`: whether it governs every queue that it claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The ClusterQueues that it governs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub cluster_queues: Vec<String>,
    /// Jobs by capacity tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["tier"]))]
    pub tiers: Vec<TierStatus>,
    /// Capacity that was not to be had, and is not asked for until a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub backoffs: Vec<StockBackoffStatus>,
}

/// Jobs of one tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["tier", "admittedWorkloads"]))]
pub struct TierStatus {
    /// Capacity tier.
    pub tier: String,
    /// Admitted workloads that hold quota of it.
    pub admitted_workloads: i32,
}

/// One stock-out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StockBackoffStatus {
    /// ResourceFlavor.
    pub flavor: String,
    /// Requests of one pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Node selector of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Digest of what else narrows the pods' nodes (required affinity, spread constraints, volume and resource claims, host
    /// ports, runtime class, scheduler); empty when nothing does. Pods run out of capacity for those of the same digest only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub constraints: String,
    /// Number of pods for which the capacity did not come.
    pub pods: i64,
    /// Stock-outs in a row.
    pub failures: i32,
    /// When that was.
    pub last_failure_time: Time,
    /// Until then it is not asked for.
    pub until: Time,
    /// When nothing of it is remembered any more.
    pub forgotten_at: Time,
}
