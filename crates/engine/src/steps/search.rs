//! The steps of preemption one by one, on the functions that the search for victims calls: policies, orders, reservations.

use std::collections::{BTreeMap, BTreeSet};

use super::Steps;
use crate::assign::assignment::Assignment;
use crate::assign::mode::{Granular, Mode};
use crate::assign::partial;
use crate::assign::preference::is_preferred;
use crate::model::{Amount, FlavorFungibility, FlavorResource, Millis, Preempts};
use crate::preempt::ask::Ask;
use crate::preempt::candidates::{Candidate, Filter, Right};
use crate::preempt::fair::Turns;
use crate::preempt::lines::{Candidates, Line};
use crate::preempt::usage::sort_line;
use crate::quota::balance::amount;
use crate::world::ids::{QueueId, WorkloadId};

/// Whether flavor `a` is preferred to flavor `b`; each is given as its mode and the level from which it borrows. Cost: constant.
#[must_use]
pub fn flavor_preferred(a: (Granular, u32), b: (Granular, u32), fungibility: &FlavorFungibility) -> bool {
    is_preferred(a, b, fungibility.preemption_over_borrowing)
}

/// The largest counts of pods that fit; `pod_sets` gives the count and `minCount` of each pod set. The result is `None` if no count can be reduced or no
/// reduced counts fit. The search assumes that smaller counts fit if larger counts fit. Cost of `reduce_counts`: calls of `fits`, as many as the logarithm of
/// the number of pods that may be left out.
pub fn reduce_counts(pod_sets: &[(i64, Option<i64>)], mut fits: impl FnMut(&[i64]) -> bool) -> Option<Vec<i64>> {
    partial::search(pod_sets, |counts| fits(counts).then(|| counts.to_vec()))
}

/// A query from a queue whose preemptor may preempt every candidate.
fn anybody(queue: QueueId, gone: &BTreeSet<WorkloadId>) -> Ask<'_> {
    let (priority, queued_at, preempts) = (i64::MAX, Millis(0), Preempts::AsQueue);
    Ask { queue, priority, queued_at, needs: &[], usage: &[], gone, afs: None, preempts, asking: None }
}

impl Steps<'_> {
    fn candidates_named(&self, uids: &[&str]) -> Vec<Candidate<'_>> {
        let candidate = |uid: &&str| {
            let id: WorkloadId = self.0.store.by_uid.get(*uid).copied()?;
            let workload = self.0.store.workload(id)?;
            let held = workload.held()?;
            Some(Candidate::of(id, workload, held, Right::WithinQueue, None))
        };
        uids.iter().filter_map(candidate).collect()
    }

    fn uid_of(&self, id: WorkloadId) -> String {
        self.0.store.workload(id).map_or(String::new(), |workload| workload.uid.to_string())
    }

    /// Candidates by queue; the candidates of each queue are in their order.
    fn lines_of<'a>(
        &'a self,
        candidates: &[Candidate<'a>],
        has_usage: &impl Fn(&Candidate<'_>) -> bool,
    ) -> Vec<Line<'a>> {
        let mut lines: BTreeMap<QueueId, Vec<Candidate<'a>>> = BTreeMap::new();
        for candidate in candidates {
            lines.entry(candidate.queue).or_default().push(*candidate);
        }
        let afs = self.0.options.admission_fair_sharing.as_ref();
        let sorted = |line| Line::listed(sort_line(&self.0.store, afs, line, has_usage));
        lines.into_values().filter_map(sorted).collect()
    }

    /// The order in which workloads (by uid) are tried as victims for a ClusterQueue. The LocalQueue usage of the workloads in `without_usage` is taken as
    /// unknown. Workloads without quota are left out of the order. Cost of `candidate_order`: a sort of the workloads in `uids`, each of which is looked for in
    /// `without_usage`.
    #[must_use]
    pub fn candidate_order(&self, cluster_queue: &str, uids: &[&str], without_usage: &[&str]) -> Vec<String> {
        let Some(queue) = self.0.store.queue_ids.get(cluster_queue).copied() else { return Vec::new() };
        let candidates = self.candidates_named(uids);
        let has_usage = |candidate: &Candidate<'_>| !without_usage.contains(&candidate.uid);
        let gone = BTreeSet::new();
        let ask = anybody(queue, &gone);
        let filter = Filter::new(&self.0.store, &ask);
        let mut sequence = Candidates::listed(self.lines_of(&candidates, &has_usage), queue).sequence();
        let mut order = Vec::new();
        while let Some(candidate) = sequence.next(&filter, |_| true) {
            order.push(self.uid_of(candidate.workload));
        }
        order
    }

    /// The ClusterQueues from which fair sharing takes victims, one after the other, among workloads by uid. For each ClusterQueue in turn, a candidate is
    /// taken (but keeps its quota), or the ClusterQueue is dropped if `drops` is true for this turn. Cost of `target_order`: for each turn the shares of the
    /// nodes of the cohort tree, and a sort of the workloads in `uids`.
    #[must_use]
    pub fn target_order(&self, cluster_queue: &str, uids: &[&str], drops: &[bool]) -> Vec<String> {
        let Some(queue) = self.0.store.queue_ids.get(cluster_queue).copied() else { return Vec::new() };
        let candidates = self.candidates_named(uids);
        let gone = BTreeSet::new();
        let ask = anybody(queue, &gone);
        let filter = Filter::new(&self.0.store, &ask);
        let lines = self.lines_of(&candidates, &|_| true);
        let mut turns = Turns::new(&self.0.store, &self.0.tree, queue, lines.into_iter());
        let mut order = Vec::new();
        while let Some(node) = turns.next(&self.0.store, &self.0.tree) {
            if drops.get(order.len()).copied().unwrap_or(false) {
                turns.drop_queue(node);
            } else {
                turns.pop(&filter, node);
            }
            order.push(self.0.tree.nodes[node].name.clone());
        }
        order
    }

    /// Usage that a head keeps from later heads in its cycle: its full usage, or, in mode `Preempt` without victims, only the part within its queue's limits.
    /// Cost of `kept_free`: the number of cells in `usage`.
    #[must_use]
    pub fn kept_free(
        &mut self,
        cluster_queue: &str,
        mode: Mode,
        borrowing: u32,
        usage: &BTreeMap<FlavorResource, Amount>,
    ) -> BTreeMap<FlavorResource, Amount> {
        let Some(queue) = self.0.store.queue_ids.get(cluster_queue).copied() else { return BTreeMap::new() };
        let usage = self.0.store.usage_named(usage);
        let assignment = Assignment { usage, borrowing, held_to: Some(mode), ..Assignment::default() };
        let kept = self.0.kept(queue, &assignment, &[]);
        kept.into_iter().map(|(cell, value)| (self.0.store.named(cell), amount(value))).collect()
    }
}
