//! Usage beyond quota: usage of pods that run without a reservation, until they are gone. It counts against the ClusterQueue of their job
//! alone, and a cohort lends as if there were none. Otherwise a queue whose pods end slowly could take the quota of a lender that the cohort
//! protects (`docs/departures/0063-usage-beyond-is-charged-to-its-queue.md`).

use std::sync::Arc;

use crate::model::BeyondSpec;
use crate::quota::balance::{Usage, accumulate, units};
use crate::quota::tree::Trial;
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::Store;
use crate::world::store::Workload;

/// Usage without a reservation, and the queue that it is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    queue: QueueId,
    usage: Usage,
}

impl World {
    /// Replaces the usage beyond quota of one carrier. Costs the cells of the old and the new usage.
    pub(crate) fn set_beyond(&mut self, spec: &BeyondSpec) {
        let mut usage = Usage::new();
        for (cell, value) in &spec.usage {
            let cell = self.store.intern_cell(&cell.flavor, &cell.resource);
            accumulate(&mut usage, cell, units(*value).max(0));
        }
        usage.retain(|(_, value)| *value > 0);
        let new = (!usage.is_empty()).then(|| Beyond { queue: self.queue_id(&spec.cluster_queue), usage });
        if self.store.beyond.get(&*spec.carrier) == new.as_ref() {
            return;
        }
        if let Some(old) = self.store.beyond.remove(&*spec.carrier) {
            let node = self.store.queues[old.queue].node;
            self.tree.charge_beyond(node, &old.usage, true);
            self.mark(old.queue);
            // Usage may have gone down, as when a workload leaves.
            let generation = &mut self.tree.nodes[node].generation;
            *generation = generation.saturating_add(1);
            self.wake(node);
        }
        if let Some(new) = new {
            let node = self.store.queues[new.queue].node;
            self.tree.charge_beyond(node, &new.usage, false);
            self.mark(new.queue);
            self.store.beyond.insert(Arc::from(spec.carrier.as_str()), new);
        }
    }
}

/// Removes the usage beyond quota of a victim's job from a trial, or puts it back: a job is not spared as a victim because of such usage.
pub(crate) fn leave(store: &Store, trial: &mut Trial<'_>, workload: WorkloadId, out: bool) {
    if store.beyond.is_empty() {
        return;
    }
    let found = store.workload(workload).and_then(|workload| store.beyond.get(&*workload.uid));
    if let Some(beyond) = found {
        trial.charge_beyond(store.queues[beyond.queue].node, &beyond.usage, out);
    }
}

/// Takes out of the what-if what pods of a queue use whose workloads are tried although they run, where this workload is one of them: these pods have
/// the places that they ask for, and as many of them stay as fit. All other workloads find these places taken. Costs the carriers of usage beyond quota:
/// nearly always none.
pub(crate) fn set_trials_aside(store: &Store, trial: &mut Trial<'_>, workload: WorkloadId, queue: QueueId) {
    let runs = |workload: &Workload| store.classes[workload.class].runs;
    if store.beyond.is_empty() || !store.workload(workload).is_some_and(runs) {
        return;
    }
    for (carrier, beyond) in store.beyond.iter().filter(|(_, beyond)| beyond.queue == queue) {
        let tried = store.by_uid.get(carrier).and_then(|id| store.workload(*id));
        if tried.is_some_and(runs) {
            trial.charge_beyond(store.queues[queue].node, &beyond.usage, true);
        }
    }
}

impl Store {
    /// Usage beyond quota of a queue, counted from the carriers.
    pub(crate) fn beyond_of(&self, queue: QueueId) -> Usage {
        let mut sum = Usage::new();
        for (cell, value) in
            self.beyond.values().filter(|beyond| beyond.queue == queue).flat_map(|beyond| &beyond.usage)
        {
            accumulate(&mut sum, *cell, *value);
        }
        sum
    }
}
