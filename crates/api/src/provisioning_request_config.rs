//! ProvisioningRequestConfig: parameters of the admission check that requests capacity from an autoscaler.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::rules::{QUALIFIED_NAME, SUBDOMAIN};

root_object! {
    /// Settings of the ProvisioningRequests that Berth creates for workloads.
    ProvisioningRequestConfig, "provisioningrequestconfigs", ClusterResourceScope, spec: ProvisioningRequestConfigSpec
}

/// Desired state of a ProvisioningRequestConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProvisioningRequestConfigSpec {
    /// Provisioning class of the requests.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub provisioning_class_name: String,
    /// Parameters passed to the provisioning class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100, "additionalProperties" = json!({"type": "string", "maxLength": 255})))]
    pub parameters: BTreeMap<String, String>,
    /// Resources for which Berth creates ProvisioningRequests: only for pod sets that request one of them. An empty list of resources means that Berth creates
    /// ProvisioningRequests for all pod sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub managed_resources: Vec<String>,
    /// Number and delays of retries after a failed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800})))]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    /// Changes that the pods get after a successful request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Condition for merging pod sets in a request: either `IdenticalPodTemplates` or `IdenticalWorkloadSchedulingRequirements`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]))]
    pub pod_set_merge_policy: Option<String>,
}

/// Changes to pods after a successful request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selector entries that the pods get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub node_selector: Vec<ProvisioningRequestNodeSelector>,
}

/// One node selector entry whose value comes from the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProvisioningRequestNodeSelector {
    /// Key of the node label.
    #[schemars(length(min = 1, max = 317), regex(pattern = QUALIFIED_NAME))]
    pub key: String,
    /// Key in the request's provisioningClassDetails that holds the value.
    #[schemars(length(min = 1, max = 32768))]
    pub value_from_provisioning_class_detail: String,
}

/// Exponential back-off between requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProvisioningRequestRetryStrategy {
    /// Number of retries before the workload is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 3))]
    pub backoff_limit_count: Option<i32>,
    /// First delay in seconds; each further delay is twice as long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 60))]
    pub backoff_base_seconds: Option<i32>,
    /// Longest delay in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1800))]
    pub backoff_max_seconds: Option<i32>,
}
