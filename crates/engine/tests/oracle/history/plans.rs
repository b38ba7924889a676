//! Cycles of the oracle back to back, until nothing changes any more and every workload that may be tried has been tried.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::Departure;

use super::super::accounting::Node;
use super::{History, Step};

impl History<'_> {
    /// The steps of one cycle over the heads of all queues.
    pub(crate) fn one_cycle(&mut self) -> Vec<Step> {
        let cycle = self.cycle(&self.live.clone());
        cycle.steps.into_iter().map(|(_, step)| step).collect()
    }

    /// Runs cycles until nothing changes any more. Returns all steps by cohort tree.
    pub(crate) fn plan(&mut self) -> BTreeMap<Node, Vec<Step>> {
        let mut story: BTreeMap<Node, Vec<Step>> = BTreeMap::new();
        let mut live = std::mem::take(&mut self.live);
        let mut idle: BTreeMap<Node, usize> = BTreeMap::new();
        // Cohort trees in which something has changed since a workload was passed over there.
        let mut stirs: BTreeSet<Node> = BTreeSet::new();
        loop {
            if live.is_empty() {
                live = self.rouse();
                idle.clear();
                if live.is_empty() {
                    self.aside.clear();
                    return story;
                }
            }
            let cycle = self.cycle(&live);
            for (root, step) in cycle.steps {
                story.entry(root).or_default().push(step);
            }
            for root in live.clone() {
                if cycle.moved.contains(&root) {
                    idle.remove(&root);
                    stirs.insert(root);
                    continue;
                }
                let count = idle.entry(root.clone()).or_default();
                *count += 1;
                if cycle.scanning.get(&root).is_some_and(|most| *count <= *most) {
                    continue;
                }
                idle.remove(&root);
                if stirs.remove(&root) && self.call_back(&root) {
                    continue;
                }
                let losers = cycle.losers.get(&root).cloned().unwrap_or_default();
                if !self.options.profile.has(Departure::LosersStandAside) || losers.is_empty() {
                    live.remove(&root);
                }
                self.let_others_go_first(losers);
            }
        }
    }
}
