//! Tier assignment of a pod set.

use berth_engine::model::{Shape, Tier};

/// The tier assignment of a pod set: a flavor that was assigned to the pod set, with the tier of the flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierAssignment {
    pub(crate) pod_set: String,
    /// The name of the assigned flavor.
    pub flavor: String,
    /// The tier of the flavor.
    pub tier: Tier,
    /// The capacity that one pod of the pod set needs.
    pub shape: Shape,
    /// The number of pods of the assignment that get nodes together, or lack nodes together.
    pub pods: i64,
}

impl TierAssignment {
    /// Flavor and tier as text for a message.
    pub(super) fn name(&self) -> String {
        format!("flavor {} ({} capacity)", self.flavor, self.tier)
    }

    /// The message about a tier that a Workload leaves because its nodes did not come.
    pub(super) fn had_no_nodes(&self, waited: i64) -> String {
        format!("{} had no nodes for all {} pods within {waited}s", self.name(), self.pods)
    }
}
