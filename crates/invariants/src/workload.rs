//! A Workload as the promises see it.

use std::time::Duration;

use jiff::Timestamp;

use super::asks::Ask;
use crate::quota_tree::Usage;

/// The fields of one state of a Workload that the promises read.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off an object")]
pub(super) struct Workload {
    pub(super) key: String,
    pub(super) owner: String,
    /// The uid of its job, as its label has it.
    pub(super) job_uid: String,
    /// The Workload's owner, or its last owner if the reference was removed.
    pub(super) origin: String,
    /// True if the owner is of a kind that Berth starts and stops.
    pub(super) of_known_kind: bool,
    /// Key of the slice that it takes the place of.
    pub(super) replaces: String,
    /// Pods for which it holds quota.
    pub(super) pods: usize,
    /// Number of those pods that are not over.
    pub(super) left: usize,
    /// Requests of its pod sets.
    pub(super) asks: Vec<Ask>,
    pub(super) active: bool,
    pub(super) queue: String,
    pub(super) cluster_queue: String,
    pub(super) charge: Usage,
    pub(super) reserved: bool,
    pub(super) admitted: bool,
    pub(super) evicted: bool,
    /// Time of its eviction, by Berth's clock.
    pub(super) evicted_at: Option<Timestamp>,
    pub(super) finished: bool,
    pub(super) deleting: bool,
    /// Time at which its deletion was first observed.
    pub(super) deleting_since: Option<Duration>,
    /// True if the Workload is gated, on hold or waits for replacement pods, so that no queue counts it.
    pub(super) held_back: bool,
}

/// Longest delay of a watch: so long after the deletion of a Workload, Berth may still start a job by it. The Workload holds its quota meanwhile.
const WATCH_DELAY: Duration = Duration::from_secs(5);

impl Workload {
    /// Whether a job may be started by the Workload at a time.
    pub(super) fn may_start(&self, at: Duration) -> bool {
        let is_known = self.deleting_since.is_some_and(|since| at.saturating_sub(since) > WATCH_DELAY);
        self.admitted && self.reserved && !is_known
    }

    /// Key of the LocalQueue that it names.
    pub(super) fn local_queue(&self) -> String {
        format!("{}/{}", self.key.split_once('/').map_or("", |(namespace, _)| namespace), self.queue)
    }
}
