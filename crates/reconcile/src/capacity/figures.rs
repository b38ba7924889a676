//! Metrics and log entries of the capacity fallback: the waiting time for each tier that a Workload got, and the reason why a Workload left a tier.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::CapacityTier;
use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_cache::moments::{millis_between, seconds_between};
use berth_cache::tier_reasons::LEAVES_TIER;
use berth_engine::model::Tier;
use jiff::Timestamp;

use crate::context::Context;
use crate::measure::{Measure, TierMove, TierStep};
use crate::training_job::elastic::{grew, runs_since};
use crate::workload::evictions::queued_since;
use crate::workload::status::{find, find_true, since};

/// The reason of a stock-out that the job itself survives: only workers that were added to the job got no nodes.
const GROWTH_STOCK_OUT: &str = "GrowthStockOut";

/// Whether a Workload was admitted between two states: a scale-up does not count as a second admission of its job.
fn is_admitted_between(old: &WorkloadView, new: &WorkloadView) -> bool {
    new.is(types::ADMITTED) && !old.is(types::ADMITTED) && !grew(new)
}

/// The time since which a Workload holds its quota, because an autoscaler may be asked for capacity before the job runs.
fn held_since(workload: &WorkloadView) -> Option<Timestamp> {
    runs_since(workload).or_else(|| since(&workload.status.conditions, types::QUOTA_RESERVED, "True"))
}

impl Context<'_> {
    /// Log entries for a change of a Workload from `old` to `new`, observed at `now`.
    pub fn tier_moves(&self, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<TierMove> {
        let evicted = find_true(&new.status.conditions, types::EVICTED).filter(|_| !old.is(types::EVICTED));
        let what = if let Some(evicted) = evicted {
            let stayed = held_since(old).map_or(0, |held| seconds_between(held, now));
            TierStep::Left { reason: evicted.reason.clone(), stayed }
        } else if is_admitted_between(old, new) {
            TierStep::Admitted { waited: seconds_between(queued_since(new), now) }
        } else {
            return Vec::new();
        };
        let mut flavors = BTreeMap::<CapacityTier, BTreeSet<&str>>::new();
        for flavor in new.given_flavors() {
            if let Some(tier) = self.capacity_tier_of(flavor) {
                flavors.entry(tier).or_default().insert(flavor);
            }
        }
        let moved = |(tier, flavors): (CapacityTier, BTreeSet<&str>)| TierMove {
            namespace: new.namespace.clone(),
            workload: new.name.clone(),
            cluster_queue: new.holds().unwrap_or_default().to_owned(),
            tier: tier.to_string(),
            flavors: flavors.into_iter().collect::<Vec<_>>().join(","),
            what: what.clone(),
        };
        flavors.into_iter().map(moved).collect()
    }

    /// The tiers of the flavors that a workload holds.
    pub(crate) fn tiers_held(&self, workload: &WorkloadView) -> BTreeSet<CapacityTier> {
        workload.given_flavors().filter_map(|flavor| self.capacity_tier_of(flavor)).collect()
    }

    /// The metric changes (`Measure`) for a change of a Workload from `old` to `new`, observed at `now`.
    pub(crate) fn tier_measures(&self, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<Measure> {
        let admitted = is_admitted_between(old, new);
        let evicted =
            find(&new.status.conditions, types::EVICTED).filter(|_| new.is(types::EVICTED) && !old.is(types::EVICTED));
        let lacked = self.stock_out_between(old, new);
        let left = evicted.map(|condition| condition.reason.as_str());
        let left = left.filter(|reason| LEAVES_TIER.contains(reason) || lacked.is_some());
        if !admitted && left.is_none() {
            return Vec::new();
        }
        let queue = new.holds().unwrap_or_default();
        let mut measures = Vec::new();
        for tier in self.tiers_held(new) {
            let labels = || vec![("cluster_queue", queue.to_owned()), ("tier", tier.to_string())];
            if admitted {
                let millis = millis_between(queued_since(new), now);
                measures.push(Measure::Count { name: "berth_tier_admissions", labels: labels(), by: 1 });
                measures.push(Measure::Observe { name: "berth_tier_wait_time_seconds", labels: labels(), millis });
            }
            if let Some(reason) = left {
                let mut labels = labels();
                labels.push(("reason", reason.to_owned()));
                measures.push(Measure::Count { name: "berth_tier_departures", labels, by: 1 });
            }
            if let (Some(at), Some(started)) = (lacked, held_since(old)) {
                let millis = millis_between(started, at);
                measures.push(Measure::Observe { name: "berth_tier_stock_out_seconds", labels: labels(), millis });
            }
        }
        measures
    }
}

/// The metric changes (`Measure`) for workers that were added to a Workload and got no nodes of a tier between two times.
pub fn growth_measures(workload: &WorkloadView, tier: Tier, (since, now): (Timestamp, Timestamp)) -> [Measure; 2] {
    let queue = workload.holds().unwrap_or_default();
    let labels = || vec![("cluster_queue", queue.to_owned()), ("tier", tier.to_string())];
    let mut left = labels();
    left.push(("reason", GROWTH_STOCK_OUT.to_owned()));
    let millis = millis_between(since, now);
    [
        Measure::Count { name: "berth_tier_departures", labels: left, by: 1 },
        Measure::Observe { name: "berth_tier_stock_out_seconds", labels: labels(), millis },
    ]
}

#[cfg(test)]
mod tests;
