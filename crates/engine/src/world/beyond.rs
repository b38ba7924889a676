//! Usage beyond quota: usage of pods that run without a reservation, until they are gone. It counts against the ClusterQueue of their job
//! alone, and a cohort lends as if there were none. Otherwise a queue whose pods end slowly could take the quota of a lender that the cohort
//! protects (`docs/departures/0063-usage-beyond-is-charged-to-its-queue.md`).

pub(crate) mod charge;

use std::sync::Arc;

use crate::model::BeyondSpec;
use crate::quota::balance::{Usage, accumulate, units};
use crate::quota::tree::Trial;
use crate::world::World;
use crate::world::beyond::charge::Beyond;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{Store, Workload};

impl World {
    /// Replaces the usage beyond quota of one carrier. Costs the cells of the old and the new usage.
    pub(crate) fn set_beyond(&mut self, spec: &BeyondSpec) {
        let mut usage = Usage::new();
        for (cell, value) in &spec.usage {
            let cell = self.store.intern_cell(&cell.flavor, &cell.resource);
            accumulate(&mut usage, cell, units(*value).max(0));
        }
        usage.retain(|(_, value)| *value > 0);
        let is_covered = self.store.by_uid.get(&*spec.carrier).is_some_and(|id| self.store.has_planned_place(*id));
        let new = (!usage.is_empty()).then(|| Beyond { queue: self.queue_id(&spec.cluster_queue), usage, is_covered });
        if self.store.beyond.get(&*spec.carrier) == new.as_ref() {
            return;
        }
        if let Some(old) = self.store.beyond.remove(&*spec.carrier) {
            self.charge_one(&old, true);
        }
        if let Some(new) = new {
            self.charge_one(&new, false);
            self.store.beyond.insert(Arc::from(spec.carrier.as_str()), new);
        }
    }

    /// Charges a queue for usage beyond quota, or takes the charge back.
    fn charge_one(&mut self, beyond: &Beyond, back: bool) {
        if beyond.is_covered {
            return;
        }
        let node = self.store.queues[beyond.queue].node;
        self.tree.charge_beyond(node, &beyond.usage, back);
        self.mark(beyond.queue);
        if back {
            // Usage may have gone down, as when a workload leaves.
            let generation = &mut self.tree.nodes[node].generation;
            *generation = generation.saturating_add(1);
            self.wake(node);
        }
    }

    /// Lets a planned admission take the place of the charge for pods that run already, and the charge the place of a plan that was given up: what runs
    /// is counted once. Costs nothing where no usage is beyond quota.
    pub(crate) fn cover_charge(&mut self, id: WorkloadId) {
        if self.store.beyond.is_empty() {
            return;
        }
        let is_covered = self.store.has_planned_place(id);
        let Some(uid) = self.store.workload(id).map(|workload| Arc::clone(&workload.uid)) else { return };
        let Some(old) = self.store.beyond.get(&uid).filter(|old| old.is_covered != is_covered).cloned() else { return };
        let new = Beyond { is_covered, ..old.clone() };
        self.charge_one(&old, true);
        self.charge_one(&new, false);
        self.store.beyond.insert(uid, new);
    }
}

/// Removes the usage beyond quota of a victim's job from a trial, or puts it back: a job is not spared as a victim because of such usage.
pub(crate) fn leave(store: &Store, trial: &mut Trial<'_>, workload: WorkloadId, out: bool) {
    if store.beyond.is_empty() {
        return;
    }
    let found = store.workload(workload).and_then(|workload| store.beyond.get(&*workload.uid));
    if let Some(beyond) = found.filter(|beyond| !beyond.is_covered) {
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
    for (carrier, beyond) in store.beyond.iter().filter(|(_, beyond)| beyond.queue == queue && !beyond.is_covered) {
        let tried = store.by_uid.get(carrier).and_then(|id| store.workload(*id));
        if tried.is_some_and(runs) {
            trial.charge_beyond(store.queues[queue].node, &beyond.usage, true);
        }
    }
}

impl Store {
    /// Whether an admission is planned, and not seen yet, of a workload whose pods run already.
    fn has_planned_place(&self, id: WorkloadId) -> bool {
        let workload = self.workload(id);
        workload.is_some_and(|workload| {
            self.classes[workload.class].runs && workload.held().is_some_and(|held| held.assumed)
        })
    }

    /// Usage beyond quota of a queue, counted from the carriers.
    pub(crate) fn beyond_of(&self, queue: QueueId) -> Usage {
        let mut sum = Usage::new();
        let charged = self.beyond.values().filter(|beyond| beyond.queue == queue && !beyond.is_covered);
        for (cell, value) in charged.flat_map(|beyond| &beyond.usage) {
            accumulate(&mut sum, *cell, *value);
        }
        sum
    }
}
