//! Cohort: a group of queues that lend each other quota, possibly with quota of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beyond_kueue::BELOW_A_PARENT;
use crate::quota::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::rules::{SUBDOMAIN, rules_with_value};

root_object! {
    /// A node in a forest of cohorts; the leaves of the trees are ClusterQueues.
    Cohort, "cohorts", ClusterResourceScope, spec: CohortSpec, status: CohortStatus
}

/// Desired state of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&BELOW_A_PARENT)))]
pub struct CohortSpec {
    /// Name of the parent cohort; a cohort without a parent is the root of its tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub parent_name: Option<String>,
    /// Quota of the cohort itself, which all ClusterQueues below it may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Weight of this cohort in its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// Observed state of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CohortStatus {
    /// Share of this cohort in its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
