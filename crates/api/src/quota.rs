//! Parts of quotas that ClusterQueues and Cohorts share.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beyond_kueue::{not_negative, resource_group, weight};
use crate::rules::SUBDOMAIN;

/// A set of resources and the flavors that provide all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = resource_group()))]
pub struct ResourceGroup {
    /// Names of the resources that this group provides.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub covered_resources: Vec<String>,
    /// Flavors in the order in which they are tried.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors: Vec<FlavorQuotas>,
}

/// Quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    /// Quota of every covered resource, in the order of coveredResources.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ResourceQuota>,
}

/// Quota of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ResourceQuota {
    /// Name of the resource.
    pub name: String,
    /// Amount that the ClusterQueue or Cohort owns.
    #[schemars(extend("x-kubernetes-validations" = not_negative()))]
    pub nominal_quota: Quantity,
    /// Limit of the usage above `nominalQuota`, borrowed from the cohort; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = not_negative()))]
    pub borrowing_limit: Option<Quantity>,
    /// Limit of the unused `nominalQuota` that other queues of the cohort may use; all of it if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = not_negative()))]
    pub lending_limit: Option<Quantity>,
}

/// Weight in fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FairSharing {
    /// Relative weight. With weight zero, any borrowed quota gives an infinite share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1, "x-kubernetes-validations" = weight()))]
    pub weight: Option<Quantity>,
}

/// Share of a queue or cohort as last computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FairSharingStatus {
    /// Highest usage above nominal quota over the resources, in thousandths of the cohort's lendable amount, divided by the weight.
    pub weighted_share: i64,
}
