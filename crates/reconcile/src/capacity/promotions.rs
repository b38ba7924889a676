//! Workloads that are moving back, and better tiers that were seen free.

use berth_cache::names::Name;
use berth_cache::tier_rules::PromotionRules;
use berth_cache::timeline::Timeline;
use berth_engine::model::Tier;
use jiff::Timestamp;

/// A better tier to which a running Workload could move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Better {
    /// The tier to which the Workload could move.
    pub tier: Tier,
    /// The time since which the tier is seen free.
    pub since: Timestamp,
    /// True if the Workload should move to the tier now.
    pub now: bool,
}

/// A running Workload that was chosen to move to a better tier.
#[derive(Clone, Debug)]
pub(crate) struct Promotion {
    pub(super) queue: String,
    pub(super) uid: String,
    pub(super) chosen: Timestamp,
}

/// A search for a Workload of one ClusterQueue that moves back to a better tier.
#[derive(Clone, Copy, Debug)]
pub struct PromotionLook<'a> {
    /// The name of the ClusterQueue.
    pub queue: &'a str,
    /// The rules of the ClusterQueue's policies for moving back.
    pub rules: PromotionRules,
    /// The readings of both clocks, by which the time is measured for which a tier has been free.
    pub timeline: &'a Timeline,
    /// The time of the search.
    pub now: Timestamp,
}

/// A running Workload whose own state lets it move to a better tier.
#[derive(Debug)]
pub struct PromotionCandidate {
    /// Namespace and name of the Workload.
    pub name: Name,
    /// The uid of the Workload.
    pub uid: String,
    /// The time of the Workload's last checkpoint, if the Workload moves only after a checkpoint.
    pub saved: Option<Timestamp>,
}
