//! Tier assignment of a pod set.

use berth_engine::model::{Shape, Tier};

/// Tier assignment of a pod set: one flavor that it was given, with its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierAssignment {
    pub(crate) pod_set: String,
    pub(crate) flavor: String,
    pub(crate) tier: Tier,
    pub(crate) shape: Shape,
    pub(crate) pods: i64,
}

impl TierAssignment {
    /// Flavor and tier in a message.
    pub(super) fn name(&self) -> String {
        format!("flavor {} ({} capacity)", self.flavor, self.tier)
    }

    /// Message about a tier that is left because its nodes did not turn up.
    pub(super) fn had_no_nodes(&self, waited: i64) -> String {
        format!("{} had no nodes for all {} pods within {waited}s", self.name(), self.pods)
    }
}
