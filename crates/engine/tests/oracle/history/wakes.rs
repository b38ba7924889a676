//! Workloads that the oracle tries again: after an admission, and after a departure.

use std::collections::BTreeSet;

use berth_engine::steps::*;
use berth_engine::*;

use super::super::accounting::{Holder, Node};
use super::super::are_equal;
use super::super::assign::{How, Search};
use super::History;

impl History<'_> {
    /// Wakes workloads that may fit because other workloads were admitted: workloads whose pod sets compete for flavors, or whose scan goes past flavors that
    /// they could borrow (`0005-no-eviction-loops.md`, at its end). Returns the cohort trees in which workloads are to be tried again.
    pub(super) fn rouse(&mut self) -> BTreeSet<Node> {
        let mut roused = BTreeSet::new();
        let stirred = std::mem::take(&mut self.stirred);
        for (queue, waiting) in self.waiting.clone() {
            let root = self.root(&queue);
            let has_choice = self.accounting.queues[&queue].groups.iter().any(|group| group.flavors.len() > 1);
            if !self.options.profile.has(Departure::TriedAgainAfterAdmissions)
                || !stirred.contains(&root)
                || !has_choice
            {
                continue;
            }
            let parked = self.parked.clone();
            let scans_on = self.accounting.queues[&queue].fungibility.when_can_borrow == Fungibility::TryNextFlavor;
            let is_fickle = |spec: &WorkloadSpec| spec.pod_sets.len() > 1 || scans_on;
            for spec in waiting.iter().filter(|spec| is_fickle(spec) && parked.contains(&spec.uid)) {
                let how = How::default();
                let not_preemptible = BTreeSet::new();
                let search = Search {
                    options: self.options,
                    accounting: &self.accounting,
                    spec,
                    queue: &queue,
                    not_preemptible: &not_preemptible,
                    how,
                };
                if self.accounting.is_active(&queue) && search.assign(&search.all_pods()).mode == Mode::Fit {
                    for equal in waiting.iter().filter(|other| are_equal(other, spec)) {
                        self.parked.remove(&equal.uid);
                    }
                    roused.insert(root.clone());
                }
            }
        }
        roused
    }

    /// Passes over the heads `losers` and workloads equal to them for the rest of the plan, so that the workloads behind them are tried.
    pub(super) fn let_others_go_first(&mut self, losers: Vec<String>) {
        if !self.options.profile.has(Departure::LosersStandAside) {
            return;
        }
        for uid in losers {
            let spec = self.places[&uid];
            let queue = self.queue_of(spec);
            let equals = self.places.values().filter(|other| are_equal(other, spec) && self.queue_of(other) == queue);
            let equals: Vec<String> = equals.map(|equal| equal.uid.clone()).collect();
            self.aside.extend(equals);
        }
    }

    /// Lets the workloads of a cohort tree that were passed over be tried again; returns true if there are any.
    pub(super) fn call_back(&mut self, root: &Node) -> bool {
        let (mine, others): (BTreeSet<String>, _) = std::mem::take(&mut self.aside)
            .into_iter()
            .partition(|uid| self.root(&self.queue_of(self.places[uid])) == *root);
        self.aside = others;
        !mine.is_empty()
    }

    /// Removes evicted workloads and wakes their cohort trees.
    pub(crate) fn let_leave(&mut self) -> Vec<String> {
        let gone: Vec<Holder> = self.accounting.holders.iter().filter(|holder| holder.evicted).cloned().collect();
        let uids: Vec<String> = gone.iter().map(|holder| holder.uid.clone()).collect();
        self.accounting = self.accounting.without(&uids);
        uids.iter().for_each(|uid| self.local_queues.drop_penalty(uid));
        for holder in &gone {
            let root = self.root(&holder.queue);
            self.live.insert(root.clone());
            self.eviction_history.remove(&root);
            for (queue, waiting) in &self.waiting {
                if self.accounting.line(&Node::Queue(queue.clone())).last() == Some(&root) {
                    for spec in waiting {
                        self.parked.remove(&spec.uid);
                    }
                }
            }
            *self.generations.entry(holder.queue.clone()).or_default() += 1;
        }
        uids
    }
}
