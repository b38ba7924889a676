//! Ledgers of LocalQueues: how they are taken in, updated and charged, and the lanes of a ClusterQueue, which are ordered by the ledgers.

#![expect(clippy::float_arithmetic, reason = "usage is weighted and reported in floats, as in Kueue")]

use std::collections::BTreeMap;

use berth_quantity::nano_per_unit;

use crate::model::{LedgerFigures, Millis, Nano, WorkloadState};
use crate::queue::afs::{AdmissionFairSharing, entry_rate, weighted_usage};
use crate::quota::balance::Units;
use crate::world::World;
use crate::world::ids::{CellId, LocalQueueId, QueueId, ResourceId, WorkloadId};
use crate::world::store::{Held, LocalQueue, Store};

/// An amount as the status shows it: in whole units from 1000 units on, and below 1000 units with at least four digits. Positive usage is never shown as 0.
fn to_nano(amount: f64, per_unit: i128) -> Nano {
    if amount <= 0.0 {
        return Nano(0);
    }
    let nano = amount * per_unit as f64;
    let mut step = per_unit;
    while step > 1 && nano < step as f64 * 1000.0 {
        step /= 1000;
    }
    let step = step.max(1);
    #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
    let steps = (nano / step as f64).round().max(1.0) as i128;
    Nano(steps.saturating_mul(step))
}

fn by_resource(store: &Store, usage: impl Iterator<Item = (CellId, Units)>) -> BTreeMap<ResourceId, f64> {
    let mut amounts = BTreeMap::new();
    for (cell, value) in usage {
        *amounts.entry(store.cells.key(cell).1).or_default() += value as f64;
    }
    amounts
}

/// Weighted usage of a LocalQueue: its past usage and the penalties that do not count as usage yet.
pub(crate) fn usage_of(store: &Store, settings: &AdmissionFairSharing, local_queue: &LocalQueue) -> f64 {
    let ledger = &local_queue.ledger;
    let consumed = ledger.consumed.iter().map(|(resource, amount)| (*resource, *amount));
    let penalties = ledger.penalties.values().flatten().copied();
    let parts = consumed.chain(penalties).map(|(resource, amount)| (store.resource(resource), amount));
    let weight = local_queue.spec.as_ref().map_or(1.0, |spec| spec.weight as f64 / 1_000_000_000.0);
    weighted_usage(parts, &settings.weights, weight)
}

impl World {
    /// Whether a ClusterQueue orders its workloads by the usage of their LocalQueues.
    pub(crate) fn has_lanes(&self, queue: QueueId) -> bool {
        self.options.admission_fair_sharing.is_some()
            && self.store.queues[queue].spec.as_ref().is_some_and(|spec| spec.usage_based)
    }

    pub(crate) fn lane(&self, queue: QueueId, local_queue: LocalQueueId) -> u32 {
        let lane = || u32::try_from(crate::world::ids::Id::index(local_queue)).unwrap_or(0).saturating_add(1);
        if self.has_lanes(queue) { lane() } else { 0 }
    }

    pub(crate) fn usage_of_lane(&self, lane: u32) -> f64 {
        match usize::try_from(lane).ok().and_then(|lane| lane.checked_sub(1)) {
            Some(index) => self.weighted(&self.store.local_queues[crate::world::ids::Id::at(index)]),
            None => 0.0,
        }
    }

    fn weighted(&self, local_queue: &LocalQueue) -> f64 {
        let settings = self.options.admission_fair_sharing.as_ref();
        settings.map_or(0.0, |settings| usage_of(&self.store, settings, local_queue))
    }

    /// Weighted usage of a LocalQueue, by which workloads and victims are ordered; `None` if admission fair sharing is off or the LocalQueue is unknown. Cost
    /// of `local_queue_usage`: the number of resources in the LocalQueue's ledger and in the penalties of its workloads that hold quota and are not admitted
    /// yet.
    #[must_use]
    pub fn local_queue_usage(&self, namespace: &str, name: &str) -> Option<f64> {
        self.options.admission_fair_sharing.as_ref()?;
        let id = self.store.local_queue_names.get(&(namespace.to_owned(), name.to_owned()))?;
        Some(self.weighted(&self.store.local_queues[id]))
    }

    /// Recent usage of a LocalQueue, for its status; `None` if it was never computed and no delta set it. Cost of `ledger`: the number of resources in the
    /// LocalQueue's ledger.
    #[must_use]
    pub fn ledger(&self, namespace: &str, name: &str) -> Option<LedgerFigures> {
        let id = self.store.local_queue_names.get(&(namespace.to_owned(), name.to_owned()))?;
        let ledger = &self.store.local_queues[id].ledger;
        let at = ledger.at?;
        let named = |(resource, amount): (&ResourceId, &f64)| {
            let name = self.store.resource(*resource);
            (name.to_owned(), to_nano(*amount, nano_per_unit(name)))
        };
        Some(LedgerFigures { consumed: ledger.consumed.iter().map(named).collect(), at })
    }

    pub(crate) fn set_ledger(&mut self, namespace: &str, name: &str, figures: &LedgerFigures) {
        let id = self.store.local_queue_id(namespace, name);
        let amount = |(resource, amount): (&String, &Nano)| {
            (self.store.resources.intern(resource), amount.0 as f64 / nano_per_unit(resource) as f64)
        };
        let mut amount = amount;
        let consumed = figures.consumed.iter().map(&mut amount).collect();
        let ledger = &mut self.store.local_queues[id].ledger;
        ledger.consumed = consumed;
        ledger.at = Some(figures.at);
        self.unsettled = true;
        self.changed_local_queues.insert(id);
    }

    /// Drops the penalty of a reservation that did not come about or whose workload is gone; the penalty of a workload that was admitted counts as usage
    /// instead.
    pub(crate) fn drop_penalty(&mut self, workload: WorkloadId) {
        if let Some(local_queue) = self.store.workload(workload).map(|workload| workload.local_queue) {
            let was_admitted = self.admitted_lately.remove(&(local_queue, workload));
            let ledger = &mut self.store.local_queues[local_queue].ledger;
            if was_admitted { ledger.confirm(workload) } else { ledger.revert(workload) }
        }
    }

    /// Takes in the admission state of a delta. The penalty of a workload counts as usage when the workload is admitted. Until the admission the penalty stays
    /// charged, even if the workload loses its reservation meanwhile. The penalty does not follow the workload to another LocalQueue.
    pub(crate) fn note_admission(
        &mut self,
        id: WorkloadId,
        was_queue: LocalQueueId,
        was: Option<&Held>,
        state: &WorkloadState,
    ) {
        if self.options.admission_fair_sharing.is_none() {
            return;
        }
        let Some(local_queue) = self.store.workload(id).map(|workload| workload.local_queue) else { return };
        if was_queue != local_queue {
            self.store.local_queues[was_queue].ledger.revert(id);
        }
        let was_assumed = was.is_some_and(|held| held.assumed);
        match state {
            WorkloadState::Reserved(held)
                if held.admitted && !was.is_some_and(|held| held.admitted && !held.assumed) =>
            {
                self.admitted_lately.insert((local_queue, id));
            }
            WorkloadState::Pending { .. } if was_assumed => self.store.local_queues[local_queue].ledger.revert(id),
            _ => {}
        }
    }

    /// End of the current sampling interval; `None` while no ledger has usage to update.
    pub(crate) fn next_settlement(&self) -> Option<Millis> {
        let interval = self.options.admission_fair_sharing.as_ref()?.sampling_interval.max(1);
        let at = self.settled_at.filter(|_| self.unsettled)?;
        Some(Millis(at.0.saturating_add(interval)))
    }

    /// Updates ledgers to the time `now`: the ledgers of LocalQueues with an admission since the last update, and at the end of the sampling interval the
    /// ledgers of all LocalQueues under admission fair sharing. A call of `plan` updates the ledgers, too, without a call of `settle`. Cost of `settle`:
    /// constant if admission fair sharing is off; otherwise the number of all ClusterQueues, and the number of LocalQueues and resources under admission fair
    /// sharing whose ledgers are updated or whose ClusterQueue is strict.
    pub fn settle(&mut self, now: Millis) {
        let Some(settings) = self.options.admission_fair_sharing.clone() else { return };
        let ordered: Vec<QueueId> = self.store.queues.ids().filter(|queue| self.has_lanes(*queue)).collect();
        let heads: Vec<_> = ordered.iter().map(|queue| self.strict_head(*queue)).collect();
        self.settle_all(now, &settings, &ordered);
        for (queue, head) in ordered.into_iter().zip(heads) {
            if self.strict_head(queue) != head {
                // The former head of the strict queue kept the new head from being tried, so the cohort tree is tried again.
                self.live.insert(self.tree.root(self.store.queues[queue].node));
            }
        }
    }

    fn settle_all(&mut self, now: Millis, settings: &AdmissionFairSharing, ordered: &[QueueId]) {
        for (local_queue, workload) in std::mem::take(&mut self.admitted_lately) {
            let queue = self.store.workload(workload).and_then(|workload| workload.held()).map(|held| held.queue);
            if queue.is_some_and(|queue| self.has_lanes(queue)) {
                self.settle_one(local_queue, now, settings.half_life);
                self.store.local_queues[local_queue].ledger.confirm(workload);
            }
        }
        if self.settled_at.is_some_and(|at| now.0.saturating_sub(at.0) < settings.sampling_interval.max(1)) {
            return;
        }
        self.settled_at = Some(now);
        self.unsettled = false;
        for queue in ordered {
            for id in self.store.queues[*queue].local_queues.clone() {
                self.settle_one(id, now, settings.half_life);
            }
        }
    }

    /// The workload that a queue tries next, if the queue is strict.
    fn strict_head(&self, queue: QueueId) -> Option<WorkloadId> {
        self.store.queues[queue].is_strict().then(|| self.head(queue)).flatten()
    }

    fn settle_one(&mut self, id: LocalQueueId, now: Millis, half_life: i64) {
        let local_queue = &self.store.local_queues[id];
        let admitted = local_queue.own_totals().into_iter().flat_map(|totals| &totals.admitted);
        let usage = by_resource(&self.store, admitted.copied());
        let ledger = &mut self.store.local_queues[id].ledger;
        if ledger.is_idle() && usage.values().all(|amount| *amount <= 0.0) {
            // The rest of the past usage fades and is not reported again, because the amounts that were reported last decay to the same values.
            if ledger.at.is_some() {
                ledger.settle(&usage, now, half_life);
            }
            return;
        }
        ledger.settle(&usage, now, half_life);
        self.unsettled = true;
        self.changed_local_queues.insert(id);
    }

    /// Charges a reservation to its LocalQueue in advance: a part of the workload's full request, whatever amount the workload was given.
    pub(crate) fn charge(&mut self, workload: WorkloadId, now: Millis) {
        let held = self.store.workload(workload).and_then(|workload| workload.held());
        let Some(queue) = held.map(|held| held.queue).filter(|queue| self.has_lanes(*queue)) else { return };
        let Some(rate) = self.options.admission_fair_sharing.as_ref().map(entry_rate) else { return };
        let Some((local_queue, class)) = self.store.workload(workload).map(|known| (known.local_queue, known.class))
        else {
            return;
        };
        let groups = &self.store.queues[queue].groups;
        let counts = |resource: &ResourceId| {
            !self.options.ignore_undeclared || groups.iter().any(|group| group.covered.contains(resource))
        };
        let mut asked: BTreeMap<ResourceId, f64> = BTreeMap::new();
        for pod_set in self.store.classes[class].pod_sets.iter() {
            for (resource, one) in pod_set.requests.iter().filter(|(resource, _)| counts(resource)) {
                *asked.entry(*resource).or_default() +=
                    one.saturating_mul(Units::from(pod_set.spec.count)) as f64 * rate;
            }
        }
        let ledger = &mut self.store.local_queues[local_queue].ledger;
        ledger.at = ledger.at.or(Some(now));
        ledger.penalties.insert(workload, asked.into_iter().collect());
    }
}

#[cfg(test)]
mod tests {
    use berth_quantity::{format_nano, nano_per_unit};

    use super::to_nano;

    #[test]
    fn reported_usage_keeps_four_digits_and_positive_usage_stays_positive() {
        let rows = [
            ("cpu", 0.0088, "8800n"),
            ("cpu", 488.281_25, "488281u"),
            ("cpu", 1109.3, "1109m"),
            ("cpu", 2000.0, "2"),
            ("cpu", 0.0, "0"),
            ("cpu", 1e-12, "1n"),
            ("gpu", 0.4, "400m"),
            ("gpu", 0.123_456_78, "123457u"),
            ("memory", 4096.0, "4Ki"),
            ("memory", 5_000_000_000.7, "5000000001"),
        ];
        for (resource, amount, text) in rows {
            assert_eq!(format_nano(resource, to_nano(amount, nano_per_unit(resource))), text, "{amount} of {resource}");
        }
    }
}
