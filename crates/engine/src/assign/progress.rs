//! Progress of a workload's scan over the flavors of its queue.

use crate::assign::claim::Claim;
use crate::world::ids::ResourceId;

/// The value of `began` that the change counter (epoch) of no cohort tree has.
pub(crate) const UNSURE: u64 = u64::MAX;

/// Progress of a workload's scan over flavors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// For each pod set: resource and index of the flavor that was tried last, -1 if the list was exhausted.
    pub(crate) tried: Vec<Vec<(ResourceId, i32)>>,
    pub(crate) generation: u64,
    pub(crate) cycle: u64,
    /// Change counter (epoch) of the cohort tree at the time when the workload's present round of scans began at the first flavors; [`UNSURE`] if the head
    /// failed for another reason than a plain lack of room.
    pub(crate) began: u64,
    /// Number of scans in the workload's round of scans over flavors.
    pub(crate) scans: usize,
    /// True while preemptions are under way: the next scan begins at the flavor for which the preemptions were issued.
    pub(crate) waits: bool,
    /// The assignment for which the workload has issued preemptions; `None` if it has issued none.
    pub(crate) claim: Option<Box<Claim>>,
}

impl Progress {
    /// Whether the scan over flavors has to begin anew because the quota has changed since the last scan. With the parameter `preserves`, the scan over flavors
    /// goes on for one cycle although the quota has changed.
    pub(crate) const fn is_outdated(&self, generation: u64, cycle: u64, preserves: bool) -> bool {
        !(preserves && cycle.saturating_sub(self.cycle) <= 1) && generation > self.generation
    }

    pub(crate) fn has_pending_flavors(&self) -> bool {
        !self.waits && self.tried.iter().flatten().any(|(_, index)| *index != -1)
    }

    /// Keeps the workload at the chosen flavors while its victims leave.
    pub(crate) fn wait_for(&mut self, chosen: impl Iterator<Item = Vec<(ResourceId, i32)>>) {
        let before = |(resource, index): (ResourceId, i32)| (resource, index.saturating_sub(1));
        self.tried = chosen.map(|set| set.into_iter().map(before).collect()).collect();
        self.waits = true;
        self.scans = 0;
    }

    /// Index of the flavor that the next scan tries first.
    pub(crate) fn next(&self, pod_set: usize, resource: ResourceId) -> usize {
        let tried = self.tried.get(pod_set).and_then(|t| t.iter().find(|(r, _)| *r == resource));
        tried.map_or(0, |(_, index)| usize::try_from(index.saturating_add(1)).unwrap_or(0))
    }
}
