//! Quota by flavor and resource, and cohorts that share it.

use crate::model::Amount;

/// A quota cell is addressed by flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResource {
    /// Name of the ResourceFlavor.
    pub flavor: String,
    /// Name of the resource, for example `cpu`.
    pub resource: String,
}

/// Quota of one resource in one flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `nominalQuota`.
    pub nominal: Amount,
    /// `borrowingLimit`; `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `lendingLimit`; `None` lends everything.
    pub lending_limit: Option<Amount>,
}

/// One flavor of a resource group, quotas in the order of `ResourceGroup::covered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// Flavor name.
    pub flavor: String,
    /// One quota per covered resource.
    pub quotas: Vec<Quota>,
}

/// A resource group of a ClusterQueue or Cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// `coveredResources`.
    pub covered: Vec<String>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// Weight 1 of fair sharing: weights are in billionths.
pub const WEIGHT_ONE: i64 = 1_000_000_000;

/// A Cohort object. A cohort that is only referenced exists too, with no quota and weight 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortSpec {
    /// Object name.
    pub name: String,
    /// `spec.parentName`.
    pub parent: Option<String>,
    /// The cohort's own quota.
    pub groups: Vec<ResourceGroup>,
    /// `fairSharing.weight` in nano units (1 = 1_000_000_000).
    pub weight: i64,
}
