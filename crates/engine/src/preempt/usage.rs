//! The order of candidates under admission fair sharing, as in Kueue. Between two candidates of one ClusterQueue in LocalQueues of different names, the
//! candidate of the LocalQueue with the higher usage goes first, whatever the priorities are. Between candidates of different ClusterQueues, or of LocalQueues
//! with the same name, the usage of LocalQueues plays no part.
//!
//! The comparison of candidates need not be an order: a before b before c before a is possible. Lists of candidates are sorted and merged in ways that give
//! Kueue's order if there is one, and otherwise the same result for the same input.

use std::cmp::Ordering;

use crate::preempt::candidates::Candidate;
use crate::queue::afs::AdmissionFairSharing;
use crate::queue::afs::ledgers::usage_of;
use crate::world::ids::QueueId;
use crate::world::store::Store;

/// Whether the usage of LocalQueues orders the candidates of a ClusterQueue.
pub(super) fn is_usage_based(store: &Store, queue: QueueId) -> bool {
    store.queues[queue].spec.as_ref().is_some_and(|spec| spec.usage_based)
}

/// The candidates of one queue in their order. Usage plays no part between two candidates of which one has no known usage.
pub(crate) fn sort_line<'a>(
    store: &Store,
    afs: Option<&AdmissionFairSharing>,
    mut line: Vec<Candidate<'a>>,
    has_usage: &impl Fn(&Candidate<'_>) -> bool,
) -> Vec<Candidate<'a>> {
    let by_usage = afs.filter(|_| line.first().is_some_and(|first| is_usage_based(store, first.queue)));
    line.sort_by(|a, b| b.evicted.cmp(&a.evicted).then_with(|| a.by_age(b)));
    let Some(afs) = by_usage else { return line };
    let known = |candidate: &Candidate<'a>| {
        let local_queue = store.workload(candidate.workload).filter(|_| has_usage(candidate))?.local_queue;
        let name = store.local_queue_names.key(local_queue).1.as_str();
        Some((name, usage_of(store, afs, &store.local_queues[local_queue])))
    };
    let line = line.into_iter().map(|candidate| (known(&candidate), candidate)).collect();
    let sorted = merge_sort(line, &|(a_used, a): &(Option<(&str, f64)>, Candidate<'a>), (b_used, b)| {
        let by_usage = match (a_used, b_used) {
            (Some((a_name, a)), Some((b_name, b))) if a_name != b_name => b.total_cmp(a),
            _ => Ordering::Equal,
        };
        b.evicted.cmp(&a.evicted).then(by_usage).then_with(|| a.by_age(b))
    });
    sorted.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Sorts by a comparison that need not be an order: the result depends on the input sequence alone.
fn merge_sort<T>(mut items: Vec<T>, compare: &impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if items.len() < 2 {
        return items;
    }
    let right = items.split_off(items.len() / 2);
    let mut sorted = Vec::with_capacity(items.len().saturating_add(right.len()));
    let mut left = merge_sort(items, compare).into_iter().peekable();
    let mut right = merge_sort(right, compare).into_iter().peekable();
    loop {
        let is_right = match (left.peek(), right.peek()) {
            (None, None) => return sorted,
            (Some(a), Some(b)) => compare(b, a).is_lt(),
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        sorted.extend(if is_right { right.next() } else { left.next() });
    }
}
