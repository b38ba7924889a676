//! What the ladder did, in numbers and for the log: which tier was given after how long a wait, and which was left for what reason.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::CapacityTier;
use jiff::Timestamp;

use super::watch::{LEAVES_TIER, RECLAIMED, STOCK_OUT, seconds_since};
use crate::core::{Control, millis_between};
use crate::elastic::{grew, runs_since};
use crate::measure::{Measure, TierMove, TierStep};
use crate::status::{find, find_true, since};
use crate::transitions::queued_since;
use crate::view::WorkloadView;

/// Whether it was admitted between these two states: a growth is no second admission of its job.
fn is_admitted_between(old: &WorkloadView, new: &WorkloadView) -> bool {
    new.is("Admitted") && !old.is("Admitted") && !grew(new)
}

impl Control {
    /// What the log is to say of a change of a workload from `old` to `new`, seen at `now`.
    pub(crate) fn tier_moves(&self, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<TierMove> {
        let evicted = find_true(&new.status.conditions, "Evicted").filter(|_| !old.is("Evicted"));
        let what = if let Some(evicted) = evicted {
            let held = runs_since(old).or_else(|| since(&old.status.conditions, "QuotaReserved", "True"));
            let stayed = held.map_or(0, |held| seconds_since(held, now));
            TierStep::Left { reason: evicted.reason.clone(), stayed }
        } else if is_admitted_between(old, new) {
            TierStep::Admitted { waited: seconds_since(queued_since(new), now) }
        } else {
            return Vec::new();
        };
        let given = new.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        let mut flavors = BTreeMap::<CapacityTier, BTreeSet<&str>>::new();
        for flavor in given.flat_map(|set| set.flavors.values()) {
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
        let given = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        given.flat_map(|set| set.flavors.values()).filter_map(|flavor| self.capacity_tier_of(flavor)).collect()
    }

    /// The measures of a change of a workload from `old` to `new`, seen at `now`.
    pub(crate) fn tier_measures(&self, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<Measure> {
        let admitted = is_admitted_between(old, new);
        let evicted = find(&new.status.conditions, "Evicted").filter(|_| new.is("Evicted") && !old.is("Evicted"));
        let left = evicted.map(|condition| condition.reason.as_str()).filter(|reason| LEAVES_TIER.contains(reason));
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
            let lacked = evicted.filter(|condition| [STOCK_OUT, RECLAIMED].contains(&condition.reason.as_str()));
            if let (Some(condition), Some(started)) = (lacked, runs_since(old)) {
                let millis = millis_between(started, condition.last_transition_time.0);
                measures.push(Measure::Observe { name: "berth_tier_stock_out_seconds", labels: labels(), millis });
            }
        }
        measures
    }
}
