//! State of the capacity fallback: stock-outs, the pods that started jobs lack, and the jobs that move back to better tiers.

use std::collections::BTreeSet;

use berth_api::berth::StockBackoffStatus;
use berth_api::conditions::types;
use berth_api::node::Node;
use berth_cache::View;
use berth_cache::names::Name;
use berth_cache::tier_reasons::CLIMBED_BACK;
use berth_cache::tier_rules::{BackoffRules, When};
use berth_cache::timeline::Timeline;
use berth_engine::World;
use berth_engine::model as engine;
use berth_engine::model::Tier;
use berth_jobs::JobState;
use jiff::{SignedDuration, Timestamp};

use super::lack::{Lack, WantedPods};
use super::losses::{NodeNews, Reclaims};
use super::promotions::{Better, Promotion, PromotionCandidate, PromotionLook};
use super::stock::StockIndex;
use super::tier_assignment::TierAssignment;
use crate::measure::TierMove;
use crate::notes::workload::WorkloadMark;
use crate::notes::{JobRecords, WorkloadRecords};
use crate::workload::status::{find_true, since};

/// The pause in milliseconds between two searches for Workloads that could move back to a better tier.
const LOOK_MS: i64 = 5_000;
/// The longest time in milliseconds for a Workload that was chosen to move back to stop: after this time, a Workload whose pods hang on a lost node delays no
/// other Workload.
const STOP_MS: i64 = 600_000;
/// The time in milliseconds within which a Workload that was chosen to move back has to be evicted after its choice, and admitted again after the release of
/// its quota; afterwards the capacity that was free for it counts as lost.
const ARRIVAL_MS: i64 = 60_000;

/// The state of the capacity fallback that is not in objects.
#[derive(Debug, Default)]
pub struct CapacityFallback {
    /// The stock-outs by flavor and shape of pods.
    stock: StockIndex,
    /// The Workloads that are moving back to a better tier.
    promotions: Vec<Promotion>,
    /// Nodes that are being taken away, and the Workloads of their pods.
    reclaims: Reclaims,
    /// The time of the next search for Workloads that move back.
    next_promotion: Option<Timestamp>,
    /// Log entries still to be written about Workloads that have moved into tiers, or out of them.
    moves: Vec<TierMove>,
}

impl CapacityFallback {
    /// The stock-outs.
    pub(crate) fn stock(&self) -> &StockIndex {
        &self.stock
    }

    /// Takes the stock-outs from the status of a QueuePolicy, as an earlier leader wrote it; returns the changes for the engine.
    pub fn restore_stock(&mut self, shown: &[StockBackoffStatus], now: Timestamp) -> Vec<engine::StockOut> {
        self.stock.restore(shown, now)
    }

    /// Names of the nodes that are being taken away.
    pub fn leaving_nodes(&self) -> impl Iterator<Item = &String> {
        self.reclaims.nodes()
    }

    /// Whether the pods of a node that is being taken away still have to be read.
    pub(crate) fn is_node_unasked(&self, node: &str) -> bool {
        self.reclaims.is_unasked(node)
    }

    /// Records a node that was observed, or its deletion.
    pub fn put_node(&mut self, name: &str, node: Option<&Node>, taints: &BTreeSet<String>) -> Option<NodeNews> {
        self.reclaims.put(name, node, taints)
    }

    /// Records the answer about the pods of a node: the Workloads that have pods on the node lose their capacity there. The result of `note_pods_on_node` has
    /// the names of the Workloads that lose capacity.
    pub fn note_pods_on_node(
        &mut self,
        workloads: &mut WorkloadRecords,
        node: &str,
        lost: Vec<(Name, String, TierAssignment)>,
        now: Timestamp,
    ) -> Vec<Name> {
        self.reclaims.note_pods(workloads, node, lost, now)
    }

    /// Notes the changes of capacity tier, for the log.
    pub fn note_moves(&mut self, moves: Vec<TierMove>) {
        self.moves.extend(moves);
    }

    /// Removes and returns the changes of capacity tier that are to be logged.
    pub fn drain_moves(&mut self) -> impl Iterator<Item = TierMove> {
        self.moves.drain(..)
    }

    /// Forgets the better tiers at the beginning or the end of a term in which this process leads, because free capacity was not observed meanwhile.
    pub fn begin_term(&mut self, workloads: &mut WorkloadRecords) {
        for uid in workloads.uids(WorkloadMark::BetterTier) {
            workloads.change(&uid, |notes| notes.capacity_mut().note_better_tier(None));
        }
        self.promotions.clear();
    }

    /// The time of the next search for Workloads that move back.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.next_promotion
    }

    /// Records the state of a job's pods. True if all pods of the job have just become ready, and there are stock-outs that the ready pods may end.
    pub fn note_pods(&self, jobs: &mut JobRecords, job: &JobState, before: Option<WantedPods>, now: Timestamp) -> bool {
        let pods = WantedPods::of(job);
        let had = before == Some(WantedPods::Ready);
        match (pods, before) {
            (WantedPods::Lacking, Some(WantedPods::Ready) | None) => {
                jobs.change(&job.uid, |notes| notes.note_lack(Some(Lack { since: now, had })));
            }
            (WantedPods::Lacking, _) => {}
            (WantedPods::Ready | WantedPods::NotWanted, _) => {
                jobs.change_known(&job.uid, |notes| notes.note_lack(None));
            }
        }
        pods == WantedPods::Ready && !had && !self.stock.is_empty()
    }

    /// Records that pods have got nodes, and returns the changes for the engine.
    pub fn note_turned_up(&mut self, assignments: Vec<TierAssignment>, now: Timestamp) -> Vec<engine::Delta> {
        let mut news = Vec::new();
        for assignment in assignments {
            if self.stock.turned_up(&assignment.flavor, &assignment.shape, assignment.pods, now) {
                news.push(engine::Delta::InStock(assignment.flavor, assignment.shape));
            }
        }
        news
    }

    /// Records a stock-out, and returns the changes for the engine.
    pub fn note_stock_out(&mut self, lost: StockOuts) -> Vec<engine::Delta> {
        let mut news = Vec::new();
        for assignment in lost.assignments {
            let out =
                self.stock.ran_out(assignment.flavor, assignment.shape, assignment.pods, lost.times, lost.backoff);
            news.extend(out.map(engine::Delta::StockOut));
        }
        news
    }

    /// Whether a search for Workloads that could move back to a better tier is due. If a search is due, chosen Workloads that have arrived in their better
    /// tier, or that will not arrive there, are forgotten.
    pub fn begin_promotions(&mut self, workloads: &WorkloadRecords, view: &View, now: Timestamp) -> bool {
        if self.next_promotion.is_some_and(|at| at > now) {
            return false;
        }
        self.next_promotion = None;
        self.promotions.retain(|promotion| is_on_the_way(workloads, view, promotion, now));
        true
    }

    /// Whether a Workload of a ClusterQueue may be chosen now to move back to a better tier. In each cohort tree, one Workload moves at a time, and the next
    /// Workload after the first has arrived, because free capacity was counted for one Workload only.
    pub fn may_choose(&mut self, world: &World, queue: &str, now: Timestamp) -> bool {
        self.next_promotion = now.checked_add(SignedDuration::from_millis(LOOK_MS)).ok();
        !self.promotions.iter().any(|other| world.are_in_one_tree(&other.queue, queue))
    }

    /// Chooses a Workload of a ClusterQueue that moves to a better tier now, if there is one. `better_tier` returns the better tier of the Workload with a uid,
    /// with the flavors that the Workload would get.
    pub fn choose(
        &mut self,
        workloads: &mut WorkloadRecords,
        look: &PromotionLook<'_>,
        candidates: Vec<PromotionCandidate>,
        mut better_tier: impl FnMut(&str) -> Option<(Tier, Vec<String>)>,
    ) -> Option<Name> {
        let PromotionLook { queue, rules, timeline, now } = *look;
        for PromotionCandidate { name, uid, saved } in candidates {
            let found = better_tier(&uid).filter(|(_, flavors)| !self.stock.remembers(flavors, now));
            let Some((tier, _)) = found else {
                workloads.change_known(&uid, |notes| notes.capacity_mut().note_better_tier(None));
                continue;
            };
            let known = workloads.of(&uid).capacity().better_tier().copied().filter(|known| known.tier == tier);
            let mut better = known.unwrap_or(Better { tier, since: now, now: false });
            let saved = rules.when == When::Anytime || saved.is_some_and(|at| at >= better.since);
            better.now |= saved && has_passed(timeline, better.since, rules.steady_ms, now);
            workloads.change(&uid, |notes| notes.capacity_mut().note_better_tier(Some(better)));
            if better.now {
                self.promotions.push(Promotion { queue: queue.to_owned(), uid, chosen: now });
                return Some(name);
            }
        }
        None
    }
}

/// Whether a chosen Workload may still get the capacity that was free for it.
fn is_on_the_way(workloads: &WorkloadRecords, view: &View, promotion: &Promotion, now: Timestamp) -> bool {
    let Some(workload) = view.workloads().by_uid(&promotion.uid) else { return false };
    let passed = |from: Timestamp, ms: i64| has_passed(view.timeline(), from, ms, now);
    if passed(promotion.chosen, STOP_MS) {
        return false;
    }
    if workload.phase.keeps_quota() {
        let chosen = workloads.of(&promotion.uid).capacity().better_tier().is_some_and(|better| better.now);
        return chosen && !passed(promotion.chosen, ARRIVAL_MS);
    }
    let conditions = &workload.status.conditions;
    let is_promoted = find_true(conditions, types::EVICTED).is_some_and(|evicted| evicted.reason == CLIMBED_BACK);
    let left = since(conditions, types::QUOTA_RESERVED, "False");
    is_promoted && left.is_none_or(|left| !passed(left, ARRIVAL_MS))
}

fn has_passed(timeline: &Timeline, from: Timestamp, ms: i64, now: Timestamp) -> bool {
    timeline.millis_between(from, now) >= ms
}

/// Capacity for which no nodes came between two times.
#[derive(Debug)]
pub struct StockOuts {
    /// The tier assignments without nodes; empty on a replica that does not lead, if it follows the stock-outs in a QueuePolicy's status.
    pub assignments: Vec<TierAssignment>,
    /// The time since which the pods lacked nodes, and the time at which the Workload was evicted or the lack was found.
    pub times: (Timestamp, Timestamp),
    /// The back-off rules of the Workload's ClusterQueue, or the default rules if no policy of the ClusterQueue has tier rules.
    pub backoff: BackoffRules,
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_cache::moments::after_seconds;
    use berth_cache::tier_rules::PromotionRules;

    const RULES: PromotionRules =
        PromotionRules { when: When::AfterCheckpoint, min_stay_ms: 0, steady_ms: 10_000, max_times: 1 };

    fn at(second: i64) -> Timestamp {
        after_seconds(Timestamp::UNIX_EPOCH, second)
    }

    /// Searches among one Workload, whose last checkpoint was at the second `saved`; true if the Workload is chosen for the better tier.
    fn chosen(all: &mut (CapacityFallback, WorkloadRecords), better: Option<Tier>, saved: i64, now: i64) -> bool {
        let candidate =
            PromotionCandidate { name: ("team".into(), "a".into()), uid: "a".into(), saved: Some(at(saved)) };
        let better = |_: &str| better.map(|tier| (tier, vec!["f".to_owned()]));
        let (fallback, workloads) = all;
        let look = PromotionLook { queue: "q", rules: RULES, timeline: &Timeline::default(), now: at(now) };
        fallback.choose(workloads, &look, vec![candidate], better).is_some()
    }

    #[test]
    fn saved_workload_is_chosen_once_better_tier_stays_free() {
        let mut all = (CapacityFallback::default(), WorkloadRecords::default());
        let tier = Some(Tier::Reserved);
        assert!(!chosen(&mut all, tier, 0, 0), "free just now");
        assert!(!chosen(&mut all, tier, 0, 9));
        assert!(chosen(&mut all, tier, 1, 10));
        assert_eq!(all.0.promotions.len(), 1);
    }

    #[test]
    fn wait_for_better_tier_starts_anew_when_tier_is_taken() {
        let mut all = (CapacityFallback::default(), WorkloadRecords::default());
        assert!(!chosen(&mut all, Some(Tier::Reserved), 0, 0));
        assert!(!chosen(&mut all, None, 5, 5) && all.1.count(WorkloadMark::BetterTier) == 0);
        assert!(!chosen(&mut all, Some(Tier::Reserved), 6, 6));
        assert!(!chosen(&mut all, Some(Tier::Reserved), 15, 15) && !chosen(&mut all, Some(Tier::Spot), 16, 16));
        assert!(!chosen(&mut all, Some(Tier::Spot), 3, 26), "the save is older than the free tier");
    }
}
