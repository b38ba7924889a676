//! The quota that a workload holds, and the order of the workloads that hold quota of one queue.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::model::Millis;
use crate::queue::sorted::Sorted;
use crate::queue::tie::Tie;
use crate::quota::balance::{Units, Usage, accumulate};
use crate::world::ids::{CellId, QueueId, WorkloadId};
use crate::world::spare::Spare;

/// Quota held.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on one another")]
pub(crate) struct Held {
    pub(crate) queue: QueueId,
    /// Usage that is charged to the queue for the workload.
    pub(crate) usage: Usage,
    /// Full usage of the workload, if it is more than the charge: the workload replaces a slice that holds quota, too.
    pub(crate) full_usage: Option<Box<Usage>>,
    /// Number of admitted pods of each pod set; `None` if all pods are admitted.
    pub(crate) counts: Option<Box<[i64]>>,
    pub(crate) at: Millis,
    /// Time of the workload's last checkpoint.
    pub(crate) saved: Option<Millis>,
    /// True if the admission checks of the workload are ready or it has no admission checks.
    pub(crate) admitted: bool,
    /// True if the workload was evicted or its eviction is planned.
    pub(crate) evicted: bool,
    /// True if the workload must not be preempted at all.
    pub(crate) kept: bool,
    /// UID of the preemptor for which the workload is evicted, if the engine planned the eviction.
    pub(crate) evicted_for: Option<Arc<str>>,
    /// True while the reservation is only planned and no delta has confirmed it.
    pub(crate) assumed: bool,
    /// The surplus pods that the workload can give up.
    pub(crate) spare: Option<Box<Spare>>,
    /// Number of surplus pods that the workload is giving up.
    pub(crate) giving: i64,
}

impl Held {
    /// Full usage of the quota that the workload was given, including the part that its old slice holds.
    pub(crate) fn full_usage(&self) -> &Usage {
        self.full_usage.as_deref().unwrap_or(&self.usage)
    }
}

/// Quota that the workloads of a LocalQueue hold of one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Number of the LocalQueue's workloads that hold quota of the ClusterQueue.
    pub(crate) reserving: u32,
    pub(crate) usage: Usage,
    /// The part of the LocalQueue's quota usage that admitted workloads hold.
    pub(crate) admitted: Usage,
}

impl Totals {
    /// Adds the usage of a workload to the quota that the LocalQueue holds, and, if the workload is admitted, to the quota that its admitted workloads hold.
    pub(crate) fn add(&mut self, usage: &[(CellId, Units)], admitted: bool) {
        for totals in self.sums(admitted) {
            for (cell, value) in usage {
                accumulate(totals, *cell, *value);
            }
        }
    }

    /// Subtracts the usage of a workload from the sums of a LocalQueue to which `Totals::add` added it.
    pub(crate) fn subtract(&mut self, usage: &[(CellId, Units)], admitted: bool) {
        for totals in self.sums(admitted) {
            for (cell, value) in usage {
                accumulate(totals, *cell, value.saturating_neg());
            }
        }
    }

    /// The sums of a LocalQueue in which the usage of a workload counts: all workloads with quota, and admitted workloads.
    fn sums(&mut self, admitted: bool) -> impl Iterator<Item = &mut Usage> {
        [Some(&mut self.usage), admitted.then_some(&mut self.admitted)].into_iter().flatten()
    }
}

/// Position of a workload among the holders of quota of the same queue, in the order in which victims are searched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: i64,
    at: Reverse<Millis>,
    /// A number that decides most comparisons of ranks, so that the tie-break is rarely compared.
    start: u64,
    tie: Victim,
    pub(crate) workload: WorkloadId,
}

impl Rank {
    pub(crate) fn new(priority: i64, since: Millis, tie: &Tie, workload: WorkloadId) -> Self {
        Self { priority, at: Reverse(since), start: tie.start_of_victim(), tie: Victim(tie.clone()), workload }
    }
}

/// The tie-break between equal holders of quota, in the order of victims.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Victim(Tie);

impl Ord for Victim {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.compare_victims(&other.0)
    }
}

impl PartialOrd for Victim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The workloads that hold quota of a queue.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Evicted workloads that still hold quota.
    pub(crate) leaving: Sorted<Rank>,
    pub(crate) staying: Sorted<Rank>,
}

impl Holders {
    pub(crate) fn len(&self) -> usize {
        self.leaving.len().saturating_add(self.staying.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.staying.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = WorkloadId> {
        self.leaving.iter().chain(&self.staying).map(|rank| rank.workload)
    }

    fn part(&mut self, evicted: bool) -> &mut Sorted<Rank> {
        if evicted { &mut self.leaving } else { &mut self.staying }
    }

    pub(crate) fn insert(&mut self, rank: Rank, evicted: bool) {
        self.part(evicted).insert(rank);
    }

    pub(crate) fn remove(&mut self, rank: &Rank, evicted: bool) {
        self.part(evicted).remove(rank);
    }

    /// Whether a workload is in the right list (leaving or staying) at the right rank.
    pub(crate) fn has(&self, rank: &Rank, evicted: bool) -> bool {
        if evicted { self.leaving.contains(rank) } else { self.staying.contains(rank) }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Millis;
    use crate::queue::tie::Tie;
    use crate::world::ids::{Id as _, WorkloadId};

    use super::Rank;

    const NAMES: [&str; 9] = ["b", "", "abcdefgh", "abcdefghi", "abcdefg", "abcdefgh\0", "abcdefgi", "ü", "a"];

    fn sorted(tie: fn(&str) -> Tie) -> Vec<String> {
        let rank = |name: &&str| Rank::new(0, Millis(0), &tie(name), WorkloadId::at(0));
        let mut ranks: Vec<Rank> = NAMES.iter().map(rank).collect();
        ranks.sort();
        ranks.iter().map(|rank| rank.tie.0.word().to_string()).collect()
    }

    #[test]
    fn equal_holders_are_ordered_by_uid() {
        let mut names = NAMES;
        names.sort_unstable();
        assert_eq!(sorted(|name| Tie::Uid(name.into())), names);
    }

    #[test]
    fn last_of_equal_holders_by_tie_hash_is_first_victim() {
        let mut names = NAMES;
        names.sort_unstable();
        names.reverse();
        assert_eq!(sorted(|name| Tie::Lot(name.into())), names);
    }
}
