//! Moving back: a running job moves to a better tier once that tier has been free for a while, a limited number of times.

use berth_api::conditions::types;
use berth_cache::deltas;
use berth_cache::moments::seconds_between;
use berth_cache::tier_reasons::CLIMBED_BACK;
use berth_cache::tier_rules::{PromotionRules, When};
use berth_cache::{View, WorkloadView};
use berth_engine::model::{PodSetSpec, Tier};
use jiff::Timestamp;

use super::promotions::PromotionCandidate;
use crate::context::Context;
use crate::decision::Decision;
use crate::training_job::elastic::runs_since;
use crate::workload::evict;
use crate::workload::evictions::evicted_for;
use crate::workload::status::find_true;

/// The ClusterQueues whose jobs move back to better tiers, with the rules for moving back.
pub fn promoting(view: &View) -> Vec<(String, PromotionRules)> {
    let rules =
        view.claims().iter().filter_map(|(queue, claim)| Some((queue.clone(), claim.rules.tiers.as_ref()?.promotion?)));
    rules.collect()
}

/// The Workloads of a ClusterQueue whose own state lets them move to a better tier, in the order in which they are tried.
pub fn candidates(ctx: &Context<'_>, queue: &str, rules: PromotionRules, now: Timestamp) -> Vec<PromotionCandidate> {
    let passed = |from: Timestamp, ms: i64| ctx.view.timeline().millis_between(from, now) >= ms;
    let stays = |workload: &&WorkloadView| {
        let stayed = runs_since(workload).is_some_and(|at| passed(at, rules.min_stay_ms));
        // A pod cannot move: the pod would be deleted, and the pod that replaces it begins anew.
        let returns = !workload.owner_key().is_some_and(|owner_key| owner_key.kind.is_pods());
        stayed && returns && !workload.is(types::EVICTED) && evicted_for(workload, CLIMBED_BACK) < rules.max_times
    };
    let mut found: Vec<&WorkloadView> = ctx.view.workloads().reserving(queue).filter(stays).collect();
    found.sort_by_key(|workload| (workload.priority.saturating_neg(), workload.queued_first(), workload.key()));
    let candidate = |workload: &WorkloadView| PromotionCandidate {
        name: workload.key(),
        uid: workload.uid.clone(),
        saved: ctx.saved_at(workload).filter(|_| rules.when == When::AfterCheckpoint),
    };
    found.into_iter().map(candidate).collect()
}

impl Context<'_> {
    /// The tiers that a Workload accepts, in the order in which the tiers are tried. The argument `own_tiers` has the tiers that the Workload itself names, and
    /// `pod_sets` has the pod sets in the engine's type. A Workload that was evicted to move back takes a tier with a remembered stock-out only if no other
    /// tier is free, even if another Workload frees that tier in the meantime. The worst of several tiers with a remembered stock-out comes first, because the
    /// Workload comes from there.
    pub(crate) fn line_of(
        &self,
        workload: &WorkloadView,
        own_tiers: Option<Vec<Tier>>,
        pod_sets: &[PodSetSpec],
    ) -> Option<Vec<Tier>> {
        let left = find_true(&workload.status.conditions, types::EVICTED).filter(|left| left.reason == CLIMBED_BACK);
        let Some(left) = left.filter(|_| !workload.reserved()) else { return own_tiers };
        let Some(queue) = self.queue_of(workload) else { return own_tiers };
        let of_queue = || {
            let default = &self.rules_for(workload)?.tiers.as_ref()?.default;
            let pinned = pod_sets.iter().any(PodSetSpec::asks_for_capacity);
            (!pinned && !default.is_empty()).then(|| default.clone())
        };
        let at = left.last_transition_time.0;
        let tiers = own_tiers.clone().or_else(of_queue)?;
        let (mut line, remembered): (Vec<Tier>, Vec<Tier>) =
            tiers.into_iter().partition(|tier| !self.remembers_tier(queue, *tier, at));
        if remembered.is_empty() {
            return own_tiers;
        }
        line.extend(remembered.into_iter().rev());
        Some(line)
    }

    /// Whether each flavor that a ClusterQueue has in a tier was out of stock shortly before a time.
    fn remembers_tier(&self, queue: &str, tier: Tier, at: Timestamp) -> bool {
        let is_of = |flavor: &&str| self.capacity_tier_of(flavor).map(deltas::tier) == Some(tier);
        let flavors: Vec<String> = self.flavors_of(queue).filter(is_of).map(str::to_owned).collect();
        !flavors.is_empty()
            && flavors.iter().all(|flavor| self.capacity.stock().remembers(std::slice::from_ref(flavor), at))
    }
}

/// Evicts a Workload that moves back to a better tier.
pub fn decide(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let Some(better) = ctx.notes_of(workload).capacity().better_tier().filter(|better| better.now) else {
        return Decision::Done;
    };
    let from: Vec<&str> = ctx.tiers_held(workload).into_iter().map(|tier| tier.as_str()).collect();
    let free = seconds_between(better.since, now);
    let message =
        format!("goes back up from {} to {} capacity, which has been free for {free}s", from.join(", "), better.tier);
    Decision::write(evict(workload, now, (CLIMBED_BACK, ""), &message))
}

#[cfg(test)]
mod tests;
