//! Usage beyond quota: usage of pods that run without a reservation, until they are gone. Usage beyond quota is charged to the ClusterQueue of the job alone,
//! and a cohort lends as if there were no such usage. If cohorts counted usage beyond quota, a queue whose pods end slowly could take the quota of a lender
//! that the cohort protects (`docs/departures/0063-usage-beyond-is-charged-to-its-queue.md`).

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
    /// Replaces the usage beyond quota of one workload, or of one job without a workload (the field `carrier`). The cost of `set_beyond` is the number of cells
    /// of the old and the new usage.
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
            // Usage may have become smaller, as when a workload leaves, so the queue's cohort tree is woken.
            let generation = &mut self.tree.nodes[node].generation;
            *generation = generation.saturating_add(1);
            self.wake(node);
        }
    }

    /// Lets a planned admission replace the charge for pods that run already, and lets the charge return when the plan is given up, so that running pods are
    /// counted once. There is no cost of `cover_charge` if no usage is beyond quota.
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

/// Removes the usage beyond quota of a victim's job from the cohort tree of a [`Trial`], or adds this usage again. A job is not protected from preemption by
/// its usage beyond quota.
pub(crate) fn leave(store: &Store, trial: &mut Trial<'_>, workload: WorkloadId, out: bool) {
    if store.beyond.is_empty() {
        return;
    }
    let found = store.workload(workload).and_then(|workload| store.beyond.get(&*workload.uid));
    if let Some(beyond) = found.filter(|beyond| !beyond.is_covered) {
        trial.charge_beyond(store.queues[beyond.queue].node, &beyond.usage, out);
    }
}

/// If the workload's pods already run without quota, removes from the trial the usage beyond quota of all workloads of its queue whose pods run without quota.
/// Running pods without quota already occupy the places for which their workloads are tried, so a workload is admitted if its own pods fit in these places. For
/// any other workload, the places of running pods without quota are taken. The cost of `set_trials_aside` is the number of workloads and jobs with usage beyond
/// quota, which is nearly always 0.
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
    /// Whether an admission is planned, and not yet confirmed by a delta, for a workload whose pods run already.
    fn has_planned_place(&self, id: WorkloadId) -> bool {
        let workload = self.workload(id);
        workload.is_some_and(|workload| {
            self.classes[workload.class].runs && workload.held().is_some_and(|held| held.assumed)
        })
    }

    /// Usage beyond quota of a queue, summed over the workloads and jobs that are charged.
    pub(crate) fn beyond_of(&self, queue: QueueId) -> Usage {
        let mut sum = Usage::new();
        let charged = self.beyond.values().filter(|beyond| beyond.queue == queue && !beyond.is_covered);
        for (cell, value) in charged.flat_map(|beyond| &beyond.usage) {
            accumulate(&mut sum, *cell, *value);
        }
        sum
    }
}
