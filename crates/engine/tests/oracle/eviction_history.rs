//! Preemptions that eviction history forbids in the oracle (`0005-no-eviction-loops.md`, rule 1): the pairs of preemptors and victims form no circle.

use std::collections::BTreeSet;

use berth_engine::*;

use super::history::History;
use super::place;

impl History<'_> {
    /// Whether workload `one`, after its eviction, returns before workload `other` in a strict queue. If usage orders LocalQueues, the order may have changed
    /// when a workload returns, so the result is true only for two workloads of the same LocalQueue.
    fn comes_back_before(&self, one: &str, other: &str) -> bool {
        let (one, other) = (self.places[one], self.places[other]);
        let queue = self.queue_of(one);
        let is_strict = self.accounting.queues[&queue].strategy == Strategy::StrictFifo;
        let are_in_line = if self.local_queues.orders(&queue) {
            one.local_queue == other.local_queue
        } else {
            self.queue_of(other) == queue
        };
        is_strict && are_in_line && place(one, self.now) < place(other, self.now)
    }

    /// Workloads that a workload must not preempt, because evictions would go round in a circle: each eviction holds back the next preemptor, by evicting it or
    /// by letting its victim return before it. Workloads that were admitted in this cycle must not be preempted, either.
    pub(super) fn not_preemptible(&self, spec: &WorkloadSpec) -> BTreeSet<String> {
        let Some(eviction_history) = self.eviction_history.get(&self.root(&self.queue_of(spec))) else {
            return self.fresh.clone();
        };
        let victims: BTreeSet<&String> = eviction_history.iter().map(|(_, victim)| victim).collect();
        let mut against = BTreeSet::from([spec.uid.clone()]);
        loop {
            let by = |one: &String| {
                let evicts =
                    eviction_history.iter().filter(|(_, victim)| victim == one).map(|(preemptor, _)| preemptor.clone());
                let before =
                    victims.iter().filter(|victim| self.comes_back_before(victim, one)).map(|uid| (*uid).clone());
                evicts.chain(before).collect::<Vec<_>>()
            };
            let more: BTreeSet<String> = against.iter().flat_map(by).collect();
            let known = against.len();
            against.extend(more);
            if against.len() == known {
                break;
            }
        }
        against.remove(&spec.uid);
        let holds_back = |uid: &String| against.iter().any(|one| self.comes_back_before(uid, one));
        let more: Vec<String> =
            self.accounting.holders.iter().map(|holder| holder.uid.clone()).filter(holds_back).collect();
        against.extend(more);
        against.extend(self.fresh.iter().cloned());
        against
    }
}
