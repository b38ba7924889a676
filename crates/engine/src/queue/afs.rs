//! Admission fair sharing: the recent usage of each LocalQueue orders the workloads of its ClusterQueue, as in Kueue.
//!
//! The ledger of a LocalQueue is plain data, which reads no clock. The ledger has the decayed usage of admitted workloads, with the time for which this usage
//! is valid. The ledger also has penalties, which are charged in advance for reservations and count as usage when the workloads are admitted. The ledgers get
//! the current time from calls of `plan` and `settle`.

#![expect(clippy::float_arithmetic, reason = "usage decays by half-lives and is weighted in floats, as in Kueue")]

pub(crate) mod ledgers;

use std::collections::BTreeMap;

use crate::model::Millis;
use crate::world::ids::{ResourceId, WorkloadId};

/// Settings of admission fair sharing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionFairSharing {
    /// Time in which past usage of a LocalQueue halves (`usageHalfLifeTime`), in milliseconds; with 0, past usage is forgotten at once.
    pub half_life: i64,
    /// Time between two updates of the usage of LocalQueues (`usageSamplingInterval`), in milliseconds.
    pub sampling_interval: i64,
    /// Weights of resources in the usage of a LocalQueue (`resourceWeights`); a resource without a weight has the weight 1.
    pub weights: BTreeMap<String, f64>,
}

/// Part of a past usage that is left after the time `elapsed`.
#[must_use]
pub(crate) fn kept(elapsed: i64, half_life: i64) -> f64 {
    if half_life <= 0 { 0.0 } else { 0.5_f64.powf(elapsed.max(0) as f64 / half_life as f64) }
}

/// Part of a workload's requests that is charged in advance when the workload is admitted.
#[must_use]
pub(crate) fn entry_rate(settings: &AdmissionFairSharing) -> f64 {
    if settings.half_life <= 0 { 0.0 } else { 1.0 - kept(settings.sampling_interval, settings.half_life) }
}

/// Weighted usage of a LocalQueue: the sum of consumed and charged amounts times the resource weights, divided by the LocalQueue's weight. The amounts in
/// `parts` are in milli units for cpu and in units for other resources, and may name a resource more than once. The weighted usage is infinite if the
/// LocalQueue's weight is not positive. Cost of `weighted_usage`: the number of `parts`.
#[must_use]
pub fn weighted_usage<'a>(
    parts: impl Iterator<Item = (&'a str, f64)>,
    weights: &BTreeMap<String, f64>,
    weight: f64,
) -> f64 {
    if weight <= 0.0 {
        return f64::INFINITY;
    }
    // Amounts are summed by resource before they are weighted, as in Kueue, so that equal usage gives equal floats.
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, amount) in parts {
        *sums.entry(name).or_default() += amount;
    }
    let weighted = sums.into_iter().map(|(name, amount)| {
        let units = if name == "cpu" { amount / 1000.0 } else { amount };
        units * weights.get(name).copied().unwrap_or(1.0)
    });
    weighted.fold(0.0, |sum, part| sum + part) / weight
}

/// Recent usage of a LocalQueue, for admission fair sharing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    consumed: BTreeMap<ResourceId, f64>,
    at: Option<Millis>,
    penalties: BTreeMap<WorkloadId, Vec<(ResourceId, f64)>>,
}

impl Ledger {
    fn settle(&mut self, usage: &BTreeMap<ResourceId, f64>, now: Millis, half_life: i64) {
        let since = self.at.map_or(0, |at| now.0.saturating_sub(at.0));
        let kept = if self.at.is_none() && half_life > 0 { 1.0 } else { kept(since, half_life) };
        for amount in self.consumed.values_mut() {
            *amount *= kept;
        }
        if half_life > 0 {
            for (resource, amount) in usage {
                *self.consumed.entry(*resource).or_default() += amount * (1.0 - kept);
            }
        }
        self.at = Some(now);
    }

    /// Counts the penalty of an admitted workload as usage of its LocalQueue.
    fn confirm(&mut self, workload: WorkloadId) {
        for (resource, amount) in self.penalties.remove(&workload).unwrap_or_default() {
            *self.consumed.entry(resource).or_default() += amount;
        }
    }

    /// Whether hardly any past usage of the LocalQueue is left and no penalty of its workloads is charged.
    fn is_idle(&self) -> bool {
        self.penalties.is_empty() && self.consumed.values().all(|amount| *amount < 0.5)
    }

    /// Drops the penalty of a reservation that did not come about, or whose workload is never admitted.
    fn revert(&mut self, workload: WorkloadId) {
        self.penalties.remove(&workload);
    }
}
