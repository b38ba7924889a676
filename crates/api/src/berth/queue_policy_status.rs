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
    /// Conditions of the policy. The condition `Active` is true if all fields of the policy apply to all ClusterQueues that it selects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Names of the ClusterQueues to which the policy applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub cluster_queues: Vec<String>,
    /// Number of admitted workloads by capacity tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["tier"]))]
    pub tiers: Vec<TierStatus>,
    /// Back-offs: flavors whose nodes were not created, with the time until which Berth skips each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub backoffs: Vec<StockBackoffStatus>,
}

/// Admitted workloads of one capacity tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["tier", "admittedWorkloads"]))]
pub struct TierStatus {
    /// Name of the capacity tier.
    pub tier: String,
    /// Number of admitted workloads that hold quota of the tier.
    pub admitted_workloads: i32,
}

/// Back-off of one flavor for pods of one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StockBackoffStatus {
    /// Name of the ResourceFlavor.
    pub flavor: String,
    /// Requests of one pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Node selector of the pods to which the back-off applies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Digest of the pods' other constraints on nodes (required affinity, spread constraints, volume and resource claims, host ports, runtime class,
    /// scheduler); empty if the pods have no such constraint. The back-off of a flavor applies only to pods with the same digest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub constraints: String,
    /// Number of pods of the shape that got no nodes of the flavor. The back-off of a flavor applies to workloads with at least this number of pods of the same
    /// shape.
    pub pods: i64,
    /// Number of stock-outs in a row of the flavor for pods of the shape.
    pub failures: i32,
    /// Time of the last stock-out of the flavor for pods of the shape.
    pub last_failure_time: Time,
    /// Time until which Berth skips the flavor for pods of the shape.
    pub until: Time,
    /// Time at which Berth forgets the stock-outs of the flavor for pods of the shape.
    pub forgotten_at: Time,
}
