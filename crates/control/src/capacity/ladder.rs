//! State of the capacity fallback: capacity that did not turn up, the pods that started jobs lack, and the jobs that return to better tiers.

use std::collections::BTreeMap;

use berth_api::conditions::types;
use berth_engine::World;
use berth_engine::model as engine;
use berth_engine::model::Tier;
use berth_jobs::JobState;
use jiff::{SignedDuration, Timestamp};

use super::climbers::{Better, Climber, PromotionCandidate};
use super::losses::Reclaims;
use super::reasons::CLIMBED_BACK;
use super::rules::{Backoff, ClimbRules, When};
use super::stock::StockBook;
use super::tier_assignment::TierAssignment;
use crate::cache::{View, WorkloadView};
use crate::measure::TierMove;
use crate::names::Name;
use crate::timeline::Timeline;
use crate::workload::status::{find_true, since};
use crate::write::StuckPod;

/// Pause between two looks for workloads that could return to a better tier, in milliseconds.
const LOOK_MS: i64 = 5_000;
/// Longest time in milliseconds for a chosen workload to stop: one whose pods hang on a lost node holds up no other.
const STOP_MS: i64 = 600_000;
/// Time in milliseconds after its choice, and after its quota went back, from which a chosen workload will never arrive at what was free for it.
const ARRIVAL_MS: i64 = 60_000;

/// State of the capacity fallback beside the objects.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    pub(crate) stock: StockBook,
    /// The last answer about the pods of a started workload, by its uid.
    pub(super) answers: BTreeMap<String, Answer>,
    /// Started jobs that are seen to lack pods, by uid.
    pub(crate) lacking: BTreeMap<String, Lack>,
    /// Running workloads that could have a better tier, by uid.
    pub(super) better: BTreeMap<String, Better>,
    /// Workloads on the way to a better tier.
    climbers: Vec<Climber>,
    /// Nodes that are being taken away, and whose pods run there.
    pub(crate) reclaims: Reclaims,
    /// Time of the next look for better tiers.
    next_climb: Option<Timestamp>,
    /// Log entries still to be written about workloads that came to tiers, or left them.
    pub(crate) moves: Vec<TierMove>,
}

impl Ladder {
    /// The term in which this process leads has ended, or begins: free capacity in better tiers was not observed meanwhile.
    pub(crate) fn begin_term(&mut self) {
        self.better.clear();
        self.climbers.clear();
    }

    /// Time of the next look for better tiers.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.next_climb
    }

    /// Takes an answer about the pods of a workload that no node takes.
    pub(crate) fn note_answer(&mut self, workload: &str, stuck: Vec<StuckPod>, now: Timestamp) {
        self.answers.insert(workload.to_owned(), Answer { at: now, stuck });
    }

    /// A job is gone.
    pub(crate) fn forget_job(&mut self, uid: &str) {
        self.lacking.remove(uid);
    }

    /// Takes note of what a job's new state shows of its pods. True if all of them have come just now, and stock-outs are known that this may end.
    pub(crate) fn note_pods(&mut self, job: &JobState, before: Option<Pods>, now: Timestamp) -> bool {
        let pods = Pods::of(job);
        let had = before == Some(Pods::Ready);
        match (pods, before) {
            (Pods::Lacking, Some(Pods::Ready) | None) => {
                self.lacking.insert(job.uid.clone(), Lack { since: now, had });
            }
            (Pods::Lacking, _) => {}
            (Pods::Ready | Pods::NotWanted, _) => drop(self.lacking.remove(&job.uid)),
        }
        pods == Pods::Ready && !had && !self.stock.is_empty()
    }

    /// Notes that capacity turned up, and gives the news for the engine.
    pub(crate) fn note_turned_up(&mut self, assignments: Vec<TierAssignment>, now: Timestamp) -> Vec<engine::Delta> {
        let mut news = Vec::new();
        for assignment in assignments {
            if self.stock.turned_up(&assignment.flavor, &assignment.shape, assignment.pods, now) {
                news.push(engine::Delta::InStock(assignment.flavor, assignment.shape));
            }
        }
        news
    }

    /// Notes that capacity did not turn up, and gives the news for the engine.
    pub(crate) fn note_stock_out(&mut self, lost: StockOuts) -> Vec<engine::Delta> {
        let mut news = Vec::new();
        for assignment in lost.assignments {
            let out =
                self.stock.ran_out(assignment.flavor, assignment.shape, assignment.pods, lost.times, lost.backoff);
            news.extend(out.map(engine::Delta::StockOut));
        }
        news
    }

    /// Forgets what was seen of the pods of a workload, which was evicted for it.
    pub(crate) fn forget_pods_of(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.reclaims.forget(uid);
    }

    /// A Workload is seen in that state.
    pub(crate) fn note_workload(&mut self, new: &WorkloadView) {
        if !new.reserved() {
            self.reclaims.forget(&new.uid);
        }
        if !self.better.is_empty() && (new.is(types::EVICTED) || !new.reserved()) {
            self.better.remove(&new.uid);
        }
    }

    /// A Workload is gone.
    pub(crate) fn forget_workload(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.reclaims.forget(uid);
        self.better.remove(uid);
    }

    /// Whether a look for workloads that could return to a better tier is due. Workloads on the way that have arrived, or never will, are forgotten
    /// then.
    pub(crate) fn begin_climb(&mut self, view: &View, now: Timestamp) -> bool {
        if self.next_climb.is_some_and(|at| at > now) {
            return false;
        }
        self.next_climb = None;
        let mut climbers = std::mem::take(&mut self.climbers);
        climbers.retain(|climber| self.is_on_the_way(view, climber, now));
        self.climbers = climbers;
        true
    }

    /// Whether a chosen workload may still take what was free for it.
    fn is_on_the_way(&self, view: &View, climber: &Climber, now: Timestamp) -> bool {
        let Some(workload) = view.workloads.by_uid(&climber.uid) else { return false };
        let passed = |from: Timestamp, ms: i64| has_passed(&view.timeline, from, ms, now);
        if passed(climber.chosen, STOP_MS) {
            return false;
        }
        if !workload.is(types::EVICTED) && workload.reserved() {
            let chosen = self.better.get(&climber.uid).is_some_and(|better| better.now);
            return chosen && !passed(climber.chosen, ARRIVAL_MS);
        }
        let conditions = &workload.status.conditions;
        let climbs = find_true(conditions, types::EVICTED).is_some_and(|evicted| evicted.reason == CLIMBED_BACK);
        let left = since(conditions, types::QUOTA_RESERVED, "False");
        climbs && left.is_none_or(|left| !passed(left, ARRIVAL_MS))
    }

    /// Whether a workload of a queue may be chosen. In each cohort tree one goes at a time, and the next one when that has arrived: free capacity was
    /// counted for it alone.
    pub(crate) fn may_choose(&mut self, world: &World, queue: &str, now: Timestamp) -> bool {
        self.next_climb = now.checked_add(SignedDuration::from_millis(LOOK_MS)).ok();
        !self.climbers.iter().any(|other| world.are_in_one_tree(&other.queue, queue))
    }

    /// Chooses a workload of a queue that goes to a better tier now, if there is one. `better_tier` names the better tier of a workload, by its uid,
    /// with the flavors that it would have.
    pub(crate) fn choose(
        &mut self,
        (queue, rules): (&str, ClimbRules),
        candidates: Vec<PromotionCandidate>,
        mut better_tier: impl FnMut(&str) -> Option<(Tier, Vec<String>)>,
        timeline: &Timeline,
        now: Timestamp,
    ) -> Option<Name> {
        for PromotionCandidate { name, uid, saved } in candidates {
            let found = better_tier(&uid).filter(|(_, flavors)| !self.stock.remembers(flavors, now));
            let Some((tier, _)) = found else {
                self.better.remove(&uid);
                continue;
            };
            let known = self.better.get(&uid).copied().filter(|known| known.tier == tier);
            let mut better = known.unwrap_or(Better { tier, since: now, now: false });
            let saved = rules.when == When::Anytime || saved.is_some_and(|at| at >= better.since);
            better.now |= saved && has_passed(timeline, better.since, rules.steady_ms, now);
            self.better.insert(uid.clone(), better);
            if better.now {
                self.climbers.push(Climber { queue: queue.to_owned(), uid, chosen: now });
                return Some(name);
            }
        }
        None
    }
}

fn has_passed(timeline: &Timeline, from: Timestamp, ms: i64, now: Timestamp) -> bool {
    timeline.millis_between(from, now) >= ms
}

/// Capacity that did not turn up between two times.
#[derive(Debug)]
pub(crate) struct StockOuts {
    pub(crate) assignments: Vec<TierAssignment>,
    pub(crate) times: (Timestamp, Timestamp),
    pub(crate) backoff: Backoff,
}

/// Time since when a started job lacks pods, as far as that was seen: not before the first look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lack {
    pub(crate) since: Timestamp,
    /// The job had all of them before.
    pub(crate) had: bool,
}

/// Pods that no node takes.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) at: Timestamp,
    pub(crate) stuck: Vec<StuckPod>,
}

/// State of the pods that a job should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pods {
    /// The job does not run.
    NotWanted,
    /// The job runs, and some pods are not ready.
    Lacking,
    /// All pods are ready, or have succeeded.
    Ready,
}

impl Pods {
    pub(crate) fn of(job: &JobState) -> Self {
        if job.suspended || job.finished.is_some() {
            Self::NotWanted
        } else if job.ready {
            Self::Ready
        } else {
            Self::Lacking
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::after_seconds;

    const RULES: ClimbRules =
        ClimbRules { when: When::AfterCheckpoint, min_stay_ms: 0, steady_ms: 10_000, max_times: 1 };

    fn at(second: i64) -> Timestamp {
        after_seconds(Timestamp::UNIX_EPOCH, second)
    }

    /// Looks at one workload, which saved last at that second; true if it is chosen for the better tier.
    fn chosen(ladder: &mut Ladder, better: Option<Tier>, saved: i64, now: i64) -> bool {
        let candidate =
            PromotionCandidate { name: ("team".into(), "a".into()), uid: "a".into(), saved: Some(at(saved)) };
        let better = |_: &str| better.map(|tier| (tier, vec!["f".to_owned()]));
        ladder.choose(("q", RULES), vec![candidate], better, &Timeline::default(), at(now)).is_some()
    }

    #[test]
    fn workload_is_chosen_after_save_once_better_tier_is_steadily_free() {
        let mut ladder = Ladder::default();
        let tier = Some(Tier::Reserved);
        assert!(!chosen(&mut ladder, tier, 0, 0), "free just now");
        assert!(!chosen(&mut ladder, tier, 0, 9));
        assert!(chosen(&mut ladder, tier, 1, 10));
        assert_eq!(ladder.climbers.len(), 1);
    }

    #[test]
    fn better_tier_that_is_taken_meanwhile_counts_anew() {
        let mut ladder = Ladder::default();
        assert!(!chosen(&mut ladder, Some(Tier::Reserved), 0, 0));
        assert!(!chosen(&mut ladder, None, 5, 5) && ladder.better.is_empty());
        assert!(!chosen(&mut ladder, Some(Tier::Reserved), 6, 6));
        assert!(!chosen(&mut ladder, Some(Tier::Reserved), 15, 15) && !chosen(&mut ladder, Some(Tier::Spot), 16, 16));
        assert!(!chosen(&mut ladder, Some(Tier::Spot), 3, 26), "the save is older than the free tier");
    }
}
