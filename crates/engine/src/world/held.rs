//! Quota that workloads hold, and the order of those who hold quota of one queue.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::model::{Millis, PodSetAssignment};
use crate::preempt::spare::Spare;
use crate::queue::sorted::Sorted;
use crate::queue::tie::Tie;
use crate::quota::balance::{Units, Usage, accumulate};
use crate::world::ids::{CellId, ClassId, QueueId, WorkloadId};
use crate::world::store::{PodSet, Store};

/// Quota held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) queue: QueueId,
    /// What it is charged.
    pub(crate) usage: Usage,
    /// What it was given, where that is more: it stands beside what it replaces.
    pub(crate) whole: Option<Box<Usage>>,
    /// How many pods of each pod set it was given, where those are not all.
    pub(crate) counts: Option<Box<[i64]>>,
    pub(crate) at: Millis,
    /// When its work was saved last.
    pub(crate) saved: Option<Millis>,
    /// Its checks are ready, too, or it has none.
    pub(crate) admitted: bool,
    /// Evicted, or its eviction is planned.
    pub(crate) evicted: bool,
    /// It is preempted for nobody.
    pub(crate) kept: bool,
    /// For whom, where it was planned here: the uid.
    pub(crate) evicted_for: Option<Arc<str>>,
    /// Planned here, not yet told by a delta.
    pub(crate) assumed: bool,
    /// The pods that it may do without.
    pub(crate) spare: Option<Box<Spare>>,
    /// How many of them are on their way out.
    pub(crate) giving: i64,
}

impl Held {
    /// What it was given.
    pub(crate) fn whole(&self) -> &Usage {
        self.whole.as_deref().unwrap_or(&self.usage)
    }
}

impl Store {
    /// How many pods a workload of a class was given of each pod set, where those are not all.
    pub(crate) fn counts_given(&self, class: ClassId, given: &[PodSetAssignment]) -> Option<Box<[i64]>> {
        let count = |set: &PodSet| {
            given.iter().find(|given| given.name == set.spec.name).map_or(set.spec.count, |given| given.count)
        };
        let pod_sets = &self.classes[class].pod_sets;
        pod_sets.iter().any(|set| count(set) != set.spec.count).then(|| pod_sets.iter().map(count).collect())
    }
}

/// What the workloads of a LocalQueue hold of one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// How many they are.
    pub(crate) reserving: u32,
    pub(crate) usage: Usage,
    /// The part of it that belongs to admitted workloads.
    pub(crate) admitted: Usage,
}

impl Totals {
    /// Adds usage, or takes it back; of one that is admitted, on both accounts.
    pub(crate) fn count(&mut self, usage: &[(CellId, Units)], admitted: bool, back: bool) {
        for totals in [Some(&mut self.usage), admitted.then_some(&mut self.admitted)].into_iter().flatten() {
            for (cell, value) in usage {
                accumulate(totals, *cell, if back { value.saturating_neg() } else { *value });
            }
        }
    }
}

/// Place of a workload among those who hold quota of the same queue: the order in which victims are looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: i64,
    at: Reverse<Millis>,
    /// A number by which most are told apart without a look at the last word between equals.
    start: u64,
    tie: Victim,
    pub(crate) workload: WorkloadId,
}

impl Rank {
    pub(crate) fn new(priority: i64, since: Millis, tie: &Tie, workload: WorkloadId) -> Self {
        Self { priority, at: Reverse(since), start: tie.start_of_victim(), tie: Victim(tie.clone()), workload }
    }
}

/// The last word between equals, in the order of victims.
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

/// The first eight bytes of a name: names that differ in them are in the order of these numbers.
pub(crate) fn start_of(name: &str) -> u64 {
    let mut start = [0; 8];
    for (to, byte) in start.iter_mut().zip(name.bytes()) {
        *to = byte;
    }
    u64::from_be_bytes(start)
}

/// Who holds quota of a queue.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Those on their way out.
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

    /// Whether a workload stands where it belongs.
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
    fn equals_are_in_the_order_of_their_names() {
        let mut names = NAMES;
        names.sort_unstable();
        assert_eq!(sorted(|name| Tie::Uid(name.into())), names);
    }

    #[test]
    fn of_equals_by_lot_the_last_of_the_queue_is_the_first_victim() {
        let mut names = NAMES;
        names.sort_unstable();
        names.reverse();
        assert_eq!(sorted(|name| Tie::Lot(name.into())), names);
    }
}
