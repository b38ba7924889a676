//! The oracle's admission fair sharing, as in Kueue: recent usage of LocalQueues orders the pending workloads of a ClusterQueue, and the candidates for
//! preemption in the ClusterQueue.
//!
//! Amounts are floats. Equal amounts compare as equal only in worlds in which floats are exact, such as the worlds of `worlds/by_usage.rs`.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;

/// Amounts by resource.
type Amounts = BTreeMap<String, f64>;

/// A LocalQueue.
#[derive(Clone, Debug)]
struct Lane {
    /// ClusterQueue of the LocalQueue.
    queue: String,
    /// In billionths.
    weight: i64,
    consumed: Amounts,
    /// Time for which the consumed amounts are valid; `None` if there are no amounts yet.
    at: Option<Millis>,
    /// Amounts of usage that are charged in advance, by workload.
    penalties: BTreeMap<String, Amounts>,
}

/// All LocalQueues.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalQueues {
    settings: AdmissionFairSharing,
    lanes: BTreeMap<String, Lane>,
    /// The ClusterQueues in which usage of LocalQueues orders workloads.
    ordered: BTreeSet<String>,
}

/// Part of a past usage that is left: half of it after each half-life. The parameter `time` must be a multiple of the half-life.
fn left_after(time: i64, half_life: i64) -> f64 {
    assert_eq!(time % half_life, 0, "floats are not exact");
    (0..time / half_life).fold(1.0, |left, _| left / 2.0)
}

impl LocalQueues {
    /// The LocalQueues of a world: each ClusterQueue has a LocalQueue of its name with weight 1, and `more` has the other LocalQueues.
    pub(crate) fn new(
        options: &Options,
        queues: &[ClusterQueueSpec],
        more: &[LocalQueueSpec],
        ledgers: &[(String, LedgerFigures)],
    ) -> Self {
        let lane = |queue: &String, weight| {
            let (consumed, penalties) = (Amounts::new(), BTreeMap::new());
            Lane { queue: queue.clone(), weight, consumed, at: None, penalties }
        };
        let own = queues.iter().map(|queue| (queue.name.clone(), lane(&queue.name, 1_000_000_000)));
        let more = more.iter().map(|queue| (queue.name.clone(), lane(&queue.cluster_queue, queue.weight)));
        let mut lanes: BTreeMap<String, Lane> = own.chain(more).collect();
        let in_units = |(name, used): (&String, &berth_quantity::Nano)| {
            (name.clone(), used.0 as f64 / berth_quantity::nano_per_unit(name) as f64)
        };
        for (name, figures) in ledgers {
            let lane = lanes.get_mut(name).unwrap();
            lane.consumed = figures.consumed.iter().map(in_units).collect();
            lane.at = Some(figures.at);
        }
        let is_ordered = |queue: &&ClusterQueueSpec| options.admission_fair_sharing.is_some() && queue.usage_based;
        Self {
            settings: options.admission_fair_sharing.clone().unwrap_or_default(),
            lanes,
            ordered: queues.iter().filter(is_ordered).map(|queue| queue.name.clone()).collect(),
        }
    }

    /// The ClusterQueue of a LocalQueue; for an unknown LocalQueue, the ClusterQueue of the same name.
    pub(crate) fn queue_of(&self, local_queue: &str) -> String {
        self.lanes.get(local_queue).map_or(local_queue.to_owned(), |lane| lane.queue.clone())
    }

    /// Whether usage of LocalQueues orders the workloads of a ClusterQueue.
    pub(crate) fn orders(&self, queue: &str) -> bool {
        self.ordered.contains(queue)
    }

    /// Updates all ledgers to a time: past usage decays, and usage of admitted workloads is added by the same factor. A ledger without any amounts begins at
    /// the time of the update.
    pub(crate) fn settle(&mut self, now: Millis, workloads: &[WorkloadSpec]) {
        for (name, lane) in &mut self.lanes {
            if !self.ordered.contains(&lane.queue) {
                continue;
            }
            let left = lane.at.map_or(1.0, |at| left_after(now.0 - at.0, self.settings.half_life));
            lane.at = Some(now);
            for used in lane.consumed.values_mut() {
                *used *= left;
            }
            for spec in workloads.iter().filter(|spec| spec.local_queue == *name) {
                let WorkloadState::Reserved(held) = &spec.state else { continue };
                for (resource, amount) in held.pod_sets.iter().filter(|_| held.admitted).flat_map(|set| &set.usage) {
                    *lane.consumed.entry(resource.clone()).or_default() += amount.get() as f64 * (1.0 - left);
                }
            }
        }
    }

    /// Charges an admission in advance: the part of its full request that would decay in one interval.
    pub(crate) fn charge(&mut self, spec: &WorkloadSpec) {
        let AdmissionFairSharing { half_life, sampling_interval, .. } = self.settings;
        let Some(lane) = self.lanes.get_mut(&spec.local_queue).filter(|lane| self.ordered.contains(&lane.queue)) else {
            return;
        };
        let mut penalty = Amounts::new();
        for set in &spec.pod_sets {
            for (resource, one) in &set.requests {
                let all = one.get() as f64 * set.count as f64;
                *penalty.entry(resource.clone()).or_default() += all * (1.0 - left_after(sampling_interval, half_life));
            }
        }
        lane.penalties.insert(spec.uid.clone(), penalty);
    }

    /// Drops the charge of a workload that is gone before the charge counted as usage.
    pub(crate) fn drop_penalty(&mut self, uid: &str) {
        for lane in self.lanes.values_mut() {
            lane.penalties.remove(uid);
        }
    }

    /// Weighted usage of a LocalQueue; `None` if usage orders nothing in its ClusterQueue.
    pub(crate) fn used(&self, local_queue: &str) -> Option<f64> {
        let lane = self.lanes.get(local_queue).filter(|lane| self.ordered.contains(&lane.queue))?;
        if lane.weight <= 0 {
            return Some(f64::INFINITY);
        }
        let mut sum = 0.0;
        for (resource, amount) in lane.penalties.values().chain([&lane.consumed]).flatten() {
            // In weighted usage, amounts of cpu are thousandths of a core.
            let units = if resource == "cpu" { amount / 1000.0 } else { *amount };
            sum += units * self.settings.weights.get(resource).copied().unwrap_or(1.0);
        }
        Some(sum / (lane.weight as f64 / 1e9))
    }
}
