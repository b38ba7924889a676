//! Workloads on the way to a better tier, and better tiers that were seen free.

use berth_engine::model::Tier;
use jiff::Timestamp;

use crate::cache::tier_rules::ClimbRules;
use crate::names::Name;
use crate::timeline::Timeline;

/// A better tier that a running workload could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Better {
    pub(crate) tier: Tier,
    /// Time since when the tier is seen free.
    pub(crate) since: Timestamp,
    /// The workload is to go there now.
    pub(crate) now: bool,
}

/// A running workload that was chosen to go to a better tier.
#[derive(Clone, Debug)]
pub(crate) struct Climber {
    pub(super) queue: String,
    pub(super) uid: String,
    pub(super) chosen: Timestamp,
}

/// A look for a workload of one queue that returns to a better tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromotionLook<'a> {
    pub(crate) queue: &'a str,
    pub(crate) rules: ClimbRules,
    pub(crate) timeline: &'a Timeline,
    pub(crate) now: Timestamp,
}

/// A running workload that may go to a better tier, as far as it is concerned.
#[derive(Debug)]
pub(crate) struct PromotionCandidate {
    pub(crate) name: Name,
    pub(crate) uid: String,
    /// Time of its last save, where it goes only after one.
    pub(crate) saved: Option<Timestamp>,
}
