//! Planned admissions that are not acknowledged yet. Planning waits for the writes that are under way. A plan whose write keeps ending without an
//! answer, while the API server answers other writes, keeps its quota and holds up no other workload.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::Issued;
use berth_engine::model::{Admission, Eviction, Verdict};
use jiff::Timestamp;

/// Number of writes in a row without an answer after which a plan is set aside.
const SEVERAL: u32 = 3;

/// The admissions that the engine has charged, by the uid of the workload.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    plans: BTreeMap<String, Admission>,
    /// Plans among them whose last write ended without an answer.
    failing: BTreeMap<String, Failing>,
    /// Writes of any object that the API server has made.
    made: u64,
    /// Evictions that are still to be written, by the uid of the victim.
    evictions: BTreeMap<String, Eviction>,
    /// Victims whose eviction the API server refused.
    refused: BTreeSet<String>,
    /// Time of a plan that reached the limit of unacknowledged admissions and left workloads out.
    filled_at: Option<Timestamp>,
    /// Time since when a plan waits for Workloads that are being created.
    delayed_since: Option<Timestamp>,
}

#[derive(Debug)]
struct Failing {
    /// Number of writes in a row without an answer.
    times: u32,
    /// [`Plans::made`] when the first of these writes ended.
    since: u64,
    is_aside: bool,
}

impl Failing {
    /// Sets the plan aside where that is due; true if it was. While the API server makes no writes at all, no other workload could go on.
    fn set_aside(&mut self, made: u64) -> bool {
        let due = !self.is_aside && self.times >= SEVERAL && made > self.since;
        self.is_aside |= due;
        due
    }
}

impl Plans {
    pub(crate) fn get(&self, uid: &str) -> Option<&Admission> {
        self.plans.get(uid)
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.plans.contains_key(uid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Number of all plans, also of those that are set aside.
    pub(crate) fn len(&self) -> usize {
        self.plans.len()
    }

    /// Number of plans whose acknowledgement is waited for.
    pub(crate) fn under_way(&self) -> usize {
        self.plans.len().saturating_sub(self.failing.values().filter(|plan| plan.is_aside).count())
    }

    pub(crate) fn insert(&mut self, admission: Admission) {
        let uid = admission.uid.to_string();
        self.failing.remove(&uid);
        self.plans.insert(uid, admission);
    }

    /// Removes a plan; true if there was one.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        self.failing.remove(uid);
        self.plans.remove(uid).is_some()
    }

    /// Removes all admissions and evictions, and names the workloads that were to be admitted.
    pub(crate) fn take(&mut self) -> Vec<String> {
        self.failing.clear();
        self.evictions.clear();
        self.refused.clear();
        std::mem::take(&mut self.plans).into_keys().collect()
    }

    /// The eviction of a victim, where one is to be written.
    pub(crate) fn eviction(&self, uid: &str) -> Option<&Eviction> {
        self.evictions.get(uid)
    }

    pub(crate) fn evicts(&self, uid: &str) -> bool {
        self.evictions.contains_key(uid)
    }

    pub(crate) fn evict(&mut self, eviction: Eviction) {
        self.evictions.insert(eviction.uid.clone(), eviction);
    }

    /// A workload is gone, be it to be admitted or evicted.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.remove(uid);
        self.evicts_no_longer(uid);
    }

    /// The victim leaves.
    pub(crate) fn evicts_no_longer(&mut self, uid: &str) {
        self.evictions.remove(uid);
        self.refused.remove(uid);
    }

    /// The API server refused the eviction of a victim.
    pub(crate) fn refuse_eviction(&mut self, uid: String) {
        self.refused.insert(uid);
    }

    pub(crate) fn refused_evictions(&self) -> impl Iterator<Item = &Eviction> {
        self.refused.iter().filter_map(|uid| self.evictions.get(uid))
    }

    /// The verdict on a preemptor, with a message that its evictions failed where none of its victims could be evicted: they are tried again.
    pub(crate) fn told_of_failures(&self, mut verdict: Verdict) -> Verdict {
        let failed = self.refused_evictions().filter(|eviction| eviction.preemptor == *verdict.uid).count();
        let all = Issued { preempted: failed, failed: 0 };
        if failed > 0
            && let Some(unfit) = verdict.message.strip_suffix(&all.suffix())
        {
            verdict.message = Issued { preempted: 0, failed }.told(unfit.to_owned()).into();
        }
        verdict
    }

    /// Drops the evictions for a preemptor, and names the victims.
    pub(crate) fn spare(&mut self, preemptor: &str) -> Vec<String> {
        self.evictions.extract_if(.., |_, eviction| eviction.preemptor == preemptor).map(|(uid, _)| uid).collect()
    }

    /// When a plan filled the room for unacknowledged admissions, and left somebody out.
    pub(crate) fn filled_at(&self) -> Option<Timestamp> {
        self.filled_at
    }

    /// Time since when the next plan is delayed: now, if it was not delayed before or the clock was set back.
    pub(crate) fn delay(&mut self, now: Timestamp) -> Timestamp {
        let since = self.delayed_since.map_or(now, |since| since.min(now));
        self.delayed_since = Some(since);
        since
    }

    /// The next plan is delayed no longer.
    pub(crate) fn end_delay(&mut self) {
        self.delayed_since = None;
    }

    pub(crate) fn note_filled(&mut self, at: Option<Timestamp>) {
        self.filled_at = at;
    }

    /// Notes a write of this plan that ended without an answer; `true` when the plan is set aside for that.
    pub(crate) fn unanswered(&mut self, uid: &str) -> bool {
        if !self.plans.contains_key(uid) {
            return false;
        }
        let first = || Failing { times: 0, since: self.made, is_aside: false };
        let plan = self.failing.entry(uid.to_owned()).or_insert_with(first);
        plan.times = plan.times.saturating_add(1);
        plan.set_aside(self.made)
    }

    /// Notes a write that the API server has made; `true` when plans are set aside for it: their failing writes are no outage.
    pub(crate) fn made(&mut self) -> bool {
        self.made = self.made.saturating_add(1);
        let due = self.failing.values_mut().filter_map(|plan| plan.set_aside(self.made).then_some(()));
        due.count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(uid: &str) -> Admission {
        Admission {
            uid: uid.into(),
            cluster_queue: "cq".into(),
            pod_sets: [].into(),
            admission_checks: Vec::new(),
            flavors_considered: None,
        }
    }

    #[test]
    fn unanswered_plan_is_set_aside_once_other_writes_succeed() {
        let mut plans = Plans::default();
        plans.insert(plan("a"));
        plans.insert(plan("b"));
        for _ in 0..10 {
            assert!(!plans.unanswered("a"), "an outage");
        }
        assert_eq!(plans.under_way(), 2);
        assert!(plans.made());
        assert!(!plans.made() && !plans.unanswered("a"), "once");
        assert_eq!((plans.under_way(), plans.len()), (1, 2));
        // Writes that were made before the first failure say nothing.
        assert!(!plans.unanswered("b") && !plans.unanswered("b") && !plans.unanswered("b"));
        assert_eq!(plans.under_way(), 1);
        plans.insert(plan("a"));
        assert_eq!(plans.under_way(), 2, "another plan is under way");
        assert!(plans.remove("a") && !plans.remove("a") && !plans.unanswered("a"));
        assert!(plans.made());
        assert_eq!((plans.under_way(), plans.len()), (0, 1));
        assert_eq!(plans.take(), ["b"]);
        assert!(plans.is_empty() && plans.under_way() == 0);
    }

    #[test]
    fn unanswered_plan_is_set_aside_at_third_failure_between_writes() {
        let mut plans = Plans::default();
        plans.insert(plan("a"));
        assert!(!plans.unanswered("a") && !plans.made());
        assert!(!plans.unanswered("a"));
        assert!(plans.unanswered("a") && !plans.unanswered("a"));
        assert_eq!(plans.under_way(), 0);
    }
}
