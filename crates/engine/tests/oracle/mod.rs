//! The oracle: a slow, obvious scheduler over plain objects, written from Kueue's documented behaviour and apart from the engine. The oracle works cycle by
//! cycle, with any number of pod sets and resource groups, and with partial admission. The oracle knows the gates that order heads, the gates of fair
//! preemption and of scans, and admission fair sharing. The oracle does not know workload slices. If Berth departs from Kueue on purpose
//! (`Options::profile`), the oracle follows the options.

pub(crate) mod accounting;
pub(crate) mod assign;
mod eviction_history;
pub(crate) mod history;
mod partial;
pub(crate) mod share;
pub(crate) mod usage;
pub(crate) mod victims;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use berth_engine::*;

use accounting::{Accounting, Amounts, Holder, Node};
use assign::{Found, Start};
use history::{History, Step};
use usage::LocalQueues;

/// Decisions of the oracle in a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    /// Pods and flavors of each admitted workload.
    pub(crate) admitted: BTreeMap<String, Start>,
    /// Victim, preemptor and reason of each eviction; victims that were evicted already are left out.
    pub(crate) evicted: BTreeSet<(String, String, &'static str)>,
    /// Reasons of the heads that stay pending.
    pub(crate) waiting: BTreeMap<String, PendingReason>,
}

impl Decided {
    /// The workloads that the oracle tried in the cycle.
    pub(crate) fn heads(&self) -> BTreeSet<&String> {
        self.admitted.keys().chain(self.waiting.keys()).collect()
    }
}

/// The head of a queue, with its assignment.
pub(crate) struct Head<'a> {
    spec: &'a WorkloadSpec,
    queue: String,
    found: Found,
    /// True if the head issued preemptions before and waits for its victims.
    is_preemptor: bool,
    /// True if the assignment is the one for which the head issued preemptions.
    held: bool,
    /// Number of departures from the head's cohort tree when this round of scans began; `None` if the head failed for another reason than a plain lack of room.
    began: Option<u64>,
    /// Number of scans in the head's round of scans over flavors.
    scans: usize,
}

/// The objects of a world in the form that the oracle uses.
pub(crate) fn accounting(
    cohorts: &[CohortSpec],
    queues: &[ClusterQueueSpec],
    workloads: &[WorkloadSpec],
) -> Accounting {
    let mut known: BTreeMap<String, CohortSpec> =
        cohorts.iter().map(|cohort| (cohort.name.clone(), cohort.clone())).collect();
    let named =
        queues.iter().filter_map(|queue| queue.cohort.clone()).chain(cohorts.iter().filter_map(|c| c.parent.clone()));
    for name in named {
        let empty = CohortSpec { name: name.clone(), parent: None, groups: vec![], weight: 1_000_000_000 };
        known.entry(name).or_insert(empty);
    }
    let mut holders = Vec::new();
    for spec in workloads {
        if let WorkloadState::Reserved(held) = &spec.state {
            let mut usage = Amounts::new();
            for set in &held.pod_sets {
                for (resource, flavor) in &set.flavors {
                    let amount = i128::from(set.usage[resource].get());
                    *usage.entry((flavor.clone(), resource.clone())).or_default() += amount;
                }
            }
            holders.push(Holder {
                uid: spec.uid.clone(),
                queue: held.cluster_queue.clone(),
                usage: Rc::new(usage),
                priority: spec.priority,
                queued_at: spec.queued_at,
                at: held.saved.map_or(held.at, |saved| saved.max(held.at)),
                evicted: held.evicted,
                not_preemptible: false,
                used: None,
            });
        }
    }
    Accounting::new(queues.iter().map(|queue| (queue.name.clone(), queue.clone())).collect(), known, holders)
}

/// One cycle from a world in which nothing was tried before. The world has only the LocalQueues that ClusterQueues have under their own names.
pub(crate) fn cycle(options: &Options, accounting: Accounting, workloads: &[WorkloadSpec], now: Millis) -> Decided {
    first_cycle(History::new(options, LocalQueues::default(), accounting, workloads, now))
}

/// The decisions of the oracle in the first cycle of a world.
pub(crate) fn first_cycle(mut history: History<'_>) -> Decided {
    let mut decided = Decided::default();
    for step in history.one_cycle() {
        match step {
            Step::Admit(uid, start) => {
                decided.admitted.insert(uid, start);
            }
            Step::Preempt(uid, victims) => {
                decided.evicted.extend(victims.into_iter().map(|(victim, reason)| (victim, uid.clone(), reason)));
                decided.waiting.insert(uid, PendingReason::WaitingForPreemptedWorkloads);
            }
            Step::Wait(uid, reason) => {
                decided.waiting.insert(uid, reason);
            }
        }
    }
    decided
}

/// Key in the order of pending workloads.
pub(crate) type Place = (Reverse<i64>, Millis, String);

fn place(spec: &WorkloadSpec, now: Millis) -> Place {
    let gained = (now.0 - spec.waits_since.0) * i64::from(spec.points_per_hour) / 3_600_000;
    (Reverse(spec.priority + gained), spec.queued_at, spec.uid.clone())
}

/// Whether two workloads of a queue are equal for scheduling.
fn are_equal(one: &WorkloadSpec, other: &WorkloadSpec) -> bool {
    (one.priority, one.preempts) == (other.priority, other.preempts) && one.pod_sets == other.pod_sets
}

fn by_age(heads: &[Head<'_>], history: &History<'_>) -> usize {
    let key = |head: &Head<'_>| {
        let (behind, place) = history.rank(head);
        (behind, head.found.borrow, place)
    };
    (0..heads.len()).min_by_key(|index| key(&heads[*index])).unwrap()
}

/// The winner of the fair-sharing tournament in the cohort tree of the first head.
fn by_share(accounting: &Accounting, heads: &[Head<'_>], history: &History<'_>) -> usize {
    let root = |head: &Head<'_>| accounting.line(&Node::Queue(head.queue.clone())).last().cloned();
    let first = root(&heads[0]);
    let mut best: BTreeMap<Node, usize> = BTreeMap::new();
    let with_usage = |head: &Head<'_>| {
        let mut with = accounting.clone();
        with.charge(&head.queue, head.found.usage.clone());
        with
    };
    let withs: Vec<Accounting> = heads.iter().map(with_usage).collect();
    let values_at = |index: usize, cohort: &Node| {
        let (head, with) = (&heads[index], &withs[index]);
        let line = with.line(&Node::Queue(head.queue.clone()));
        let child = line.iter().zip(line.iter().skip(1)).find(|(_, above)| *above == cohort).unwrap().0;
        let borrows = head.found.usage.iter().any(|(fr, value)| *value > 0 && with.exceeds(child, fr, 0));
        (borrows, with.share(child))
    };
    let mut levels: Vec<(usize, Node, usize)> = Vec::new();
    for (index, head) in heads.iter().enumerate().filter(|(_, head)| root(head) == first) {
        let line = accounting.line(&Node::Queue(head.queue.clone()));
        if line.len() == 1 {
            return index;
        }
        for (depth, node) in line.iter().skip(1).enumerate() {
            levels.push((line.len() - depth, node.clone(), index));
        }
    }
    // The deepest cohorts come first, because each cohort sends its winner up to its parent.
    levels.sort_by_key(|(depth, node, index)| (Reverse(*depth), node.clone(), *index));
    for (_, cohort, index) in levels {
        let line = accounting.line(&Node::Queue(heads[index].queue.clone()));
        let below = line.iter().zip(line.iter().skip(1)).find(|(_, above)| **above == cohort).unwrap().0;
        if matches!(below, Node::Cohort(_)) && best.get(below) != Some(&index) {
            continue;
        }
        let wins = best.get(&cohort).is_none_or(|champion| {
            let (a, b) = (values_at(index, &cohort), values_at(*champion, &cohort));
            let ((behind, place), (behind_other, other)) =
                (history.rank(&heads[index]), history.rank(&heads[*champion]));
            let prefers = history.options.gates.fair_prefer_non_borrowing;
            let by_borrowing = if prefers { a.0.cmp(&b.0) } else { Ordering::Equal };
            let order = behind.cmp(&behind_other).then(by_borrowing).then_with(|| a.1.compare(&b.1));
            order.then_with(|| place.cmp(&other)).is_lt()
        });
        if wins {
            best.insert(cohort, index);
        }
    }
    best[&first.unwrap()]
}
