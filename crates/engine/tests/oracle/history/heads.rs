//! The workload that a queue tries next in the oracle, and the order of victims by the usage of their LocalQueues.

use std::cmp::Ordering;

use berth_engine::*;

use super::super::place;
use super::History;

impl<'a> History<'a> {
    /// The ClusterQueue in which a workload waits.
    pub(crate) fn queue_of(&self, spec: &WorkloadSpec) -> String {
        self.local_queues.queue_of(&spec.local_queue)
    }

    /// The workload that a queue tries next: ordered by the usage of its LocalQueue as in Kueue, then a waiting preemptor, then by place. The LocalQueue of a
    /// workload that waits for quota for which it issued preemptions goes first (`0005-no-eviction-loops.md`). In the oracle victims leave for good, so that
    /// none of them comes before its preemptor.
    pub(super) fn head(&self, queue: &str) -> Option<&'a WorkloadSpec> {
        let is_out = |spec: &WorkloadSpec| self.parked.contains(&spec.uid) || self.aside.contains(&spec.uid);
        let waiting = self.waiting.get(queue)?.iter().copied();
        let active: Vec<&'a WorkloadSpec> = waiting.filter(|spec| !is_out(spec)).collect();
        let preemptor = active.iter().find(|spec| self.preemptors.get(queue) == Some(&spec.uid));
        let claims = preemptor.filter(|spec| self.local_queues.orders(queue) && self.claims.contains_key(&spec.uid));
        let is_behind = |spec: &WorkloadSpec| claims.is_some_and(|claims| claims.local_queue != spec.local_queue);
        let used = |spec: &WorkloadSpec| self.local_queues.used(&spec.local_queue).unwrap_or(0.0);
        let rest = |spec: &WorkloadSpec| (self.first.get(queue) != Some(&spec.uid), place(spec, self.now));
        let compare = |a: &WorkloadSpec, b: &WorkloadSpec| -> Ordering {
            let by_usage = is_behind(a).cmp(&is_behind(b)).then(used(a).total_cmp(&used(b)));
            by_usage.then_with(|| rest(a).cmp(&rest(b)))
        };
        active.iter().copied().min_by(|a, b| compare(a, b))
    }

    /// Records the usage of LocalQueues at the beginning of a cycle, which orders victims as in Kueue's snapshot.
    pub(super) fn note_usage(&mut self) {
        for holder in &mut self.accounting.holders {
            holder.used = self.local_queues.used(&self.places[&holder.uid].local_queue);
        }
    }
}
