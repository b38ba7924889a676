//! The compact form in which the placement of a pod set in a topology is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{one_of, rules};

/// Placement of one pod set: its domains, and the number of pods in each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[(
    "self.slices.all(s, s.valuesPerLevel.size() == self.levels.size())",
    "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
)])))]
pub struct TopologyAssignment {
    /// Node labels of the levels, widest first.
    #[schemars(length(min = 1, max = 16), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub levels: Vec<String>,
    /// Groups of domains; their concatenation is the placement.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A group of domains that are written together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules(&[
    (
        "has(self.podCounts.individual) ? self.podCounts.individual.size() == self.domainCount : true",
        "podCounts.individual must have length equal to domainCount",
    ),
    (
        "self.valuesPerLevel.all(v, has(v.individual) ? v.individual.roots.size() == self.domainCount : true)",
        "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice",
    ),
])))]
pub struct TopologyAssignmentSlice {
    /// Number of domains of this group.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// Values of the node labels of the levels, one entry for each level.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
    /// Number of pods in each domain.
    pub pod_counts: TopologyAssignmentSlicePodCounts,
}

/// Values of one level: one value for all domains, or one value for each domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = one_of("universal", "individual")))]
pub struct TopologyAssignmentSliceLevelValues {
    /// Value of the level in all domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub universal: Option<String>,
    /// Values of the level, one for each domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentSliceLevelIndividualValues>,
}

/// Values of a level, one for each domain, without their common beginning and end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TopologyAssignmentSliceLevelIndividualValues {
    /// Common beginning of the values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// Common end of the values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
    /// Distinct parts of the values, one for each domain.
    #[schemars(length(min = 1, max = 100000), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub roots: Vec<String>,
}

/// Pod counts: one number for all domains, or one number for each domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = one_of("universal", "individual")))]
pub struct TopologyAssignmentSlicePodCounts {
    /// Number of pods in every domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub universal: Option<i32>,
    /// Numbers of pods, one for each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100000), inner(range(min = 1)), extend("x-kubernetes-list-type" = "atomic"))]
    pub individual: Vec<i32>,
}
