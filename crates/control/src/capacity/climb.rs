//! Return to a better tier: a running job goes there once that tier has been free for a while, a limited number of times.

use berth_api::conditions::types;
use berth_engine::model::{PodSetSpec, Tier};
use jiff::{SignedDuration, Timestamp};

use super::rules::{ClimbRules, When};
use super::watch::CLIMBED_BACK;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::flight::Decision;
use crate::controller::{Control, key, seconds_between};
use crate::deltas;
use crate::training_job::elastic::runs_since;
use crate::workload::evict;
use crate::workload::status::{find_true, since};
use crate::workload::transitions::evicted_for;
use crate::write::Kind;

/// Pause between two looks for workloads that could return to a better tier, in milliseconds.
const LOOK_MS: i64 = 5_000;

/// A better tier that a running workload could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Better {
    pub(crate) tier: Tier,
    /// Time since when the tier is seen free.
    pub(crate) since: Timestamp,
    /// The workload is to go there now.
    pub(crate) now: bool,
}

/// A running workload that was chosen to go to a better tier.
#[derive(Clone, Debug)]
pub(crate) struct Climber {
    queue: String,
    uid: String,
    chosen: Timestamp,
}

/// Longest time in milliseconds for a chosen workload to stop: one whose pods hang on a lost node holds up no other.
const STOP_MS: i64 = 600_000;
/// Time in milliseconds after its choice, and after its quota went back, from which a chosen workload will never arrive at what was free for it.
const ARRIVAL_MS: i64 = 60_000;

impl Control {
    /// Looks, from time to time, for running workloads that could have a better tier. In each cohort tree one goes at a time, and the next one when
    /// that has arrived: free capacity was counted for it alone.
    pub(crate) fn climb(&mut self, now: Timestamp) {
        if self.capacity.next_climb.is_some_and(|at| at > now) {
            return;
        }
        let climbing: Vec<(String, ClimbRules)> = self
            .view
            .claims
            .iter()
            .filter_map(|(queue, claim)| Some((queue.clone(), claim.rules.tiers.as_ref()?.climb?)))
            .collect();
        self.capacity.next_climb = None;
        let mut climbers = std::mem::take(&mut self.capacity.climbers);
        climbers.retain(|climber| self.context().is_on_the_way(climber, now));
        self.capacity.climbers = climbers;
        for (queue, rules) in climbing {
            self.capacity.next_climb = now.checked_add(SignedDuration::from_millis(LOOK_MS)).ok();
            let mut others = self.capacity.climbers.iter();
            if !others.any(|other| self.quota.world.are_in_one_tree(&other.queue, &queue)) {
                self.climb_in(&queue, rules, now);
            }
        }
    }

    fn climb_in(&mut self, queue: &str, rules: ClimbRules, now: Timestamp) {
        let stays = |workload: &WorkloadView| {
            let stayed = runs_since(workload).is_some_and(|at| self.context().has_passed(at, rules.min_stay_ms, now));
            // A pod would be deleted, and the pod in its place begins anew.
            let returns = !workload.whole().is_some_and(|whole| whole.kind.is_pods());
            stayed && returns && !workload.is(types::EVICTED) && evicted_for(workload, CLIMBED_BACK) < rules.max_times
        };
        let mut candidates: Vec<(i64, Timestamp, Name, String)> = self
            .view
            .workloads
            .reserving(queue)
            .filter(|workload| stays(workload))
            .map(|workload| {
                (workload.priority.saturating_neg(), workload.queued_first(), workload.key(), workload.uid.clone())
            })
            .collect();
        candidates.sort_unstable();
        for (_, _, name, uid) in candidates {
            let found = self.quota.world.better_tier(&uid);
            let found = found.filter(|(_, flavors)| !self.capacity.stock.remembers(flavors, now)).map(|(tier, _)| tier);
            let Some(tier) = found else {
                self.capacity.better.remove(&uid);
                continue;
            };
            let known = self.capacity.better.get(&uid).copied().filter(|known| known.tier == tier);
            let mut better = known.unwrap_or(Better { tier, since: now, now: false });
            let saved = rules.when == When::Anytime || self.context().saved_since(&name, better.since);
            better.now |= saved && self.context().has_passed(better.since, rules.steady_ms, now);
            self.capacity.better.insert(uid.clone(), better);
            if better.now {
                self.capacity.climbers.push(Climber { queue: queue.to_owned(), uid, chosen: now });
                self.touch(key(Kind::Workload, &name));
                return;
            }
        }
    }
}

impl Context<'_> {
    fn has_passed(&self, from: Timestamp, ms: i64, now: Timestamp) -> bool {
        self.view.timeline.millis_between(from, now) >= ms
    }

    /// Whether a chosen workload may still take what was free for it.
    fn is_on_the_way(&self, climber: &Climber, now: Timestamp) -> bool {
        let Some(workload) = self.view.workloads.by_uid(&climber.uid) else { return false };
        if self.has_passed(climber.chosen, STOP_MS, now) {
            return false;
        }
        if !workload.is(types::EVICTED) && workload.reserved() {
            let chosen = self.capacity.better.get(&climber.uid).is_some_and(|better| better.now);
            return chosen && !self.has_passed(climber.chosen, ARRIVAL_MS, now);
        }
        let conditions = &workload.status.conditions;
        let climbs = find_true(conditions, types::EVICTED).is_some_and(|evicted| evicted.reason == CLIMBED_BACK);
        let left = since(conditions, types::QUOTA_RESERVED, "False");
        climbs && left.is_none_or(|left| !self.has_passed(left, ARRIVAL_MS, now))
    }

    /// The tiers that a workload accepts, in the order in which they are tried. `told` are the tiers that it has by itself, and `pod_sets` the pod
    /// sets that the engine gets. A workload that has left for a better tier takes a tier with a remembered stock-out only where nothing else is
    /// free, though another workload may give that tier up meanwhile. The worst of several such tiers comes first, as the workload comes from there.
    pub(crate) fn line_of(
        &self,
        workload: &WorkloadView,
        told: Option<Vec<Tier>>,
        pod_sets: &[PodSetSpec],
    ) -> Option<Vec<Tier>> {
        let left = find_true(&workload.status.conditions, types::EVICTED).filter(|left| left.reason == CLIMBED_BACK);
        let Some(left) = left.filter(|_| !workload.reserved()) else { return told };
        let Some(queue) = self.queue_of(workload) else { return told };
        let of_queue = || {
            let default = &self.rules_for(workload)?.tiers.as_ref()?.default;
            let pinned = pod_sets.iter().any(PodSetSpec::asks_for_capacity);
            (!pinned && !default.is_empty()).then(|| default.clone())
        };
        let at = left.last_transition_time.0;
        let tiers = told.clone().or_else(of_queue)?;
        let (mut line, remembered): (Vec<Tier>, Vec<Tier>) =
            tiers.into_iter().partition(|tier| !self.remembers_tier(queue, *tier, at));
        if remembered.is_empty() {
            return told;
        }
        line.extend(remembered.into_iter().rev());
        Some(line)
    }

    /// Whether each flavor that a queue has of a tier was out of stock not long before that moment.
    fn remembers_tier(&self, queue: &str, tier: Tier, at: Timestamp) -> bool {
        let is_of = |flavor: &&str| self.capacity_tier_of(flavor).map(deltas::tier) == Some(tier);
        let flavors: Vec<String> = self.flavors_of(queue).filter(is_of).map(str::to_owned).collect();
        !flavors.is_empty()
            && flavors.iter().all(|flavor| self.capacity.stock.remembers(std::slice::from_ref(flavor), at))
    }

    /// Whether the job of a workload says that it saved a checkpoint since a moment.
    fn saved_since(&self, name: &Name, moment: Timestamp) -> bool {
        let saved = self.view.workloads.get(name).and_then(|workload| self.saved_at(workload));
        saved.is_some_and(|at| at >= moment)
    }
}

/// Evicts a workload that returns to a better tier.
pub(crate) fn decide(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let Some(better) = ctx.capacity.better.get(&workload.uid).filter(|better| better.now) else {
        return Decision::Done;
    };
    let from: Vec<&str> = ctx.tiers_held(workload).into_iter().map(|tier| tier.as_str()).collect();
    let free = seconds_between(better.since, now);
    let message =
        format!("goes back up from {} to {} capacity, which has been free for {free}s", from.join(", "), better.tier);
    Decision::write(evict(workload, now, (CLIMBED_BACK, ""), &message))
}
