//! Quota by flavor and resource, and cohorts that share it.

use crate::model::Amount;

/// The key of a quota cell: a flavor and a resource.
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
    /// Limit of the quota that the queue or cohort may borrow (`borrowingLimit`); `None` means that borrowing is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// Limit of the quota that the queue or cohort may lend (`lendingLimit`); `None` means that all quota may be lent.
    pub lending_limit: Option<Amount>,
}

/// A flavor of a resource group, with quotas in the order of `ResourceGroup::covered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// Flavor name.
    pub flavor: String,
    /// Quotas of the flavor, one for each covered resource of its resource group.
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

/// The weight 1 of fair sharing: weights are stored in billionths.
pub const WEIGHT_ONE: i64 = 1_000_000_000;

/// A Cohort object. A cohort that is only referenced exists, too, with no quota and weight 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortSpec {
    /// Object name.
    pub name: String,
    /// `spec.parentName`.
    pub parent: Option<String>,
    /// The cohort's own quota.
    pub groups: Vec<ResourceGroup>,
    /// `fairSharing.weight` in billionths (the weight 1 is 1_000_000_000).
    pub weight: i64,
}
