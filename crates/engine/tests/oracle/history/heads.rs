//! Whom a queue tries next, and whose victims go first for what their LocalQueues used.

use std::cmp::Ordering;

use berth_engine::*;

use super::super::place;
use super::History;

impl<'a> History<'a> {
    /// The ClusterQueue in which a workload waits.
    pub(crate) fn queue_of(&self, spec: &WorkloadSpec) -> String {
        self.local_queues.queue_of(&spec.local_queue)
    }

    /// Whom a queue tries next: by what its LocalQueue used (kueue.md 6.2, rule 1), then who preempted, then by place. Where one has a claim
    /// on what it had freed, its LocalQueue goes first (`no-eviction-loops.md`). Victims leave for good here, so that none of them comes
    /// before the one that it was evicted for.
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

    /// Victims are ordered by the usage at the beginning of a cycle, as it is in the snapshot of kueue.md 6.3.
    pub(super) fn note_usage(&mut self) {
        for holder in &mut self.books.holders {
            holder.used = self.local_queues.used(&self.places[&holder.uid].local_queue);
        }
    }
}
