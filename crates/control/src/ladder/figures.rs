//! What the ladder did, in numbers: which tier was given after how long a wait, and which was left for what reason.

use std::collections::BTreeSet;

use berth_api::CapacityTier;
use jiff::Timestamp;

use super::watch::{LEAVES_TIER, RECLAIMED, STOCK_OUT};
use crate::core::{Control, millis_between};
use crate::measure::Measure;
use crate::status::{find, since};
use crate::transitions::queued_since;
use crate::view::WorkloadView;

impl Control {
    /// The tiers of the flavors that a workload holds.
    pub(crate) fn tiers_held(&self, workload: &WorkloadView) -> BTreeSet<CapacityTier> {
        let given = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        given.flat_map(|set| set.flavors.values()).filter_map(|flavor| self.capacity_tier_of(flavor)).collect()
    }

    /// The measures of a change of a workload from `old` to `new`, seen at `now`.
    pub(crate) fn tier_measures(&self, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<Measure> {
        let admitted = new.is("Admitted") && !old.is("Admitted");
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
            if let (Some(condition), Some(started)) = (lacked, since(&old.status.conditions, "Admitted", "True")) {
                let millis = millis_between(started, condition.last_transition_time.0);
                measures.push(Measure::Observe { name: "berth_tier_stock_out_seconds", labels: labels(), millis });
            }
        }
        measures
    }
}
