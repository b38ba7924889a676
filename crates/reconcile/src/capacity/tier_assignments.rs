//! The tier assignments of a Workload, and the tier rules that apply to the Workload.

use std::collections::BTreeSet;

use berth_api::CapacityTier;
use berth_cache::WorkloadView;
use berth_cache::deltas::strip_capacity;
use berth_cache::tier_rules::{TierRules, USUAL};
use berth_engine::model::Shape;

use crate::capacity::tier_assignment::TierAssignment;
use crate::context::Context;

/// The tier assignments of a Workload: the assigned flavors that have a tier, each once for each pod set.
pub(crate) fn tier_assignments(ctx: &Context<'_>, workload: &WorkloadView) -> Vec<TierAssignment> {
    let mut assignments = Vec::new();
    for given in workload.given() {
        let name = given.effective_name();
        let Some(set) = workload.shape.pod_sets.iter().find(|set| set.name == name) else { continue };
        let mut set = set.clone();
        if ctx.overrides_selectors(workload) {
            strip_capacity(&mut set);
        }
        let flavors: BTreeSet<&String> = given.flavors.values().collect();
        for flavor in flavors {
            let Some(tier) = ctx.capacity_tier_of(flavor).map(berth_cache::deltas::tier) else { continue };
            assignments.push(TierAssignment {
                pod_set: name.to_owned(),
                flavor: flavor.clone(),
                tier,
                shape: Shape::of(&set),
                // The number of pods in the spec of an elastic job's Workload may have been lowered since the admission.
                pods: given.count.map_or(set.count, |count| i64::from(count).min(set.count)),
            });
        }
    }
    assignments
}

impl<'a> Context<'a> {
    /// The tier of a flavor.
    pub(crate) fn capacity_tier_of(&self, flavor: &str) -> Option<CapacityTier> {
        self.view.capacity_tier_of(flavor)
    }

    /// The tier rules that apply to a Workload: the rules of its ClusterQueue's policy, otherwise the default rules if the Workload names tiers itself.
    pub(crate) fn tier_rules(&self, workload: &WorkloadView) -> Option<&'a TierRules> {
        let own = self.rules_for(workload).and_then(|rules| rules.tiers.as_ref());
        own.or_else(|| workload.tiers.is_some().then_some(&USUAL))
    }
}

#[cfg(test)]
mod tests;
