//! Workloads that are moving back, and better tiers that were seen free.

use berth_engine::model::Tier;
use jiff::Timestamp;

use crate::cache::tier_rules::ClimbRules;
use crate::names::Name;
use crate::timeline::Timeline;

/// A better tier to which a running Workload could move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Better {
    pub(crate) tier: Tier,
    /// The time since which the tier is seen free.
    pub(crate) since: Timestamp,
    /// True if the Workload should move to the tier now.
    pub(crate) now: bool,
}

/// A running Workload that was chosen to move to a better tier.
#[derive(Clone, Debug)]
pub(crate) struct Climber {
    pub(super) queue: String,
    pub(super) uid: String,
    pub(super) chosen: Timestamp,
}

/// A search for a Workload of one queue that moves back to a better tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromotionLook<'a> {
    pub(crate) queue: &'a str,
    pub(crate) rules: ClimbRules,
    pub(crate) timeline: &'a Timeline,
    pub(crate) now: Timestamp,
}

/// A running Workload whose own state lets it move to a better tier.
#[derive(Debug)]
pub(crate) struct PromotionCandidate {
    pub(crate) name: Name,
    pub(crate) uid: String,
    /// The time of the Workload's last checkpoint, if the Workload moves only after a checkpoint.
    pub(crate) saved: Option<Timestamp>,
}
