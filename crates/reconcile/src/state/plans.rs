//! Planned admissions that are not acknowledged yet. The next plan waits until the planned admissions are written. If the writes of an admission stay
//! unanswered while the API server answers other writes, the admission keeps its quota, and other Workloads do not wait for that admission.

use berth_engine::Issued;
use berth_engine::model::{Admission, Eviction, Verdict};
use jiff::Timestamp;

use crate::notes::WorkloadRecords;
use crate::notes::workload::WorkloadMark;
use crate::state::plan_notes::PlanNotes;

/// State that concerns all plans; the notes about each Workload have the Workload's own planned admission and eviction.
#[derive(Debug, Default)]
pub struct Plans {
    /// Number of writes that the API server has made, for any object.
    made: u64,
    /// Time of the plan that reached the limit of unacknowledged admissions and left Workloads out.
    filled_at: Option<Timestamp>,
    /// Time since which a plan waits for Workloads that are being created.
    delayed_since: Option<Timestamp>,
}

/// Whether no admission is planned.
pub fn none_planned(workloads: &WorkloadRecords) -> bool {
    planned(workloads) == 0
}

/// Number of all planned admissions, including the planned admissions that are set aside.
pub fn planned(workloads: &WorkloadRecords) -> usize {
    workloads.count(WorkloadMark::Planned)
}

/// Number of planned admissions whose acknowledgement is awaited.
pub fn under_way(workloads: &WorkloadRecords) -> usize {
    planned(workloads).saturating_sub(workloads.count(WorkloadMark::Aside))
}

/// Plans the admission of a Workload.
pub fn plan_admission(workloads: &mut WorkloadRecords, admission: Admission) {
    let uid = admission.uid.clone();
    workloads.change(&uid, |notes| notes.plan_mut().admit(admission));
}

/// Drops the planned admission of a Workload; true if there was one.
pub fn drop_admission(workloads: &mut WorkloadRecords, uid: &str) -> bool {
    workloads.change_known(uid, |notes| notes.plan_mut().drop_admission()).unwrap_or_default()
}

/// Drops all planned admissions and evictions, and returns the uids of the Workloads that were to be admitted.
pub fn take_planned(workloads: &mut WorkloadRecords) -> Vec<String> {
    let planned = workloads.uids(WorkloadMark::Planned);
    for mark in [WorkloadMark::Planned, WorkloadMark::Evicted, WorkloadMark::EvictionRefused] {
        for uid in workloads.uids(mark) {
            workloads.change(&uid, |notes| *notes.plan_mut() = PlanNotes::default());
        }
    }
    planned
}

/// Plans the eviction of a Workload.
pub fn plan_eviction(workloads: &mut WorkloadRecords, eviction: Eviction) {
    let uid = eviction.uid.clone();
    workloads.change(&uid, |notes| notes.plan_mut().evict(eviction));
}

fn refused_evictions(workloads: &WorkloadRecords) -> impl Iterator<Item = &Eviction> {
    workloads.marked(WorkloadMark::EvictionRefused).filter_map(|(_, notes)| notes.plan().eviction())
}

/// The engine's verdict on a preemptor. If no victim of the preemptor could be evicted, the verdict's message says that the evictions failed; the evictions
/// are tried again.
pub fn with_failures(workloads: &WorkloadRecords, mut verdict: Verdict) -> Verdict {
    let failed = refused_evictions(workloads).filter(|eviction| eviction.preemptor == *verdict.uid).count();
    let all = Issued { preempted: failed, failed: 0 };
    if failed > 0
        && let Some(unfit) = verdict.message.strip_suffix(&all.suffix())
    {
        verdict.message = Issued { preempted: 0, failed }.message(unfit.to_owned()).into();
    }
    verdict
}

/// Drops the planned evictions for a preemptor, and returns the uids of the victims.
pub fn spare_victims(workloads: &mut WorkloadRecords, preemptor: &str) -> Vec<String> {
    let victims = workloads.marked(WorkloadMark::Evicted);
    let victims = victims.filter(|(_, notes)| notes.plan().eviction().is_some_and(|one| one.preemptor == preemptor));
    let victims: Vec<String> = victims.map(|(uid, _)| uid.to_owned()).collect();
    for uid in &victims {
        workloads.change(uid, |notes| notes.plan_mut().spare());
    }
    victims
}

impl Plans {
    /// Time of the plan that reached the limit of unacknowledged admissions and left Workloads out.
    pub fn filled_at(&self) -> Option<Timestamp> {
        self.filled_at
    }

    /// Delays the next plan, and returns the time since which the plan is delayed, which is `now` if the plan was not delayed before or the clock was set back.
    pub fn delay(&mut self, now: Timestamp) -> Timestamp {
        let since = self.delayed_since.map_or(now, |since| since.min(now));
        self.delayed_since = Some(since);
        since
    }

    /// Ends the delay of the next plan.
    pub fn end_delay(&mut self) {
        self.delayed_since = None;
    }

    /// Notes the time of a plan that reached the limit of unacknowledged admissions; `None` if the plan did not.
    pub fn note_filled(&mut self, at: Option<Timestamp>) {
        self.filled_at = at;
    }

    /// Notes an unanswered write of a planned admission; `true` if the unanswered write sets the admission aside.
    pub fn unanswered(&self, workloads: &mut WorkloadRecords, uid: &str) -> bool {
        workloads.change_known(uid, |notes| notes.plan_mut().note_unanswered(self.made)).unwrap_or_default()
    }

    /// Notes a write that the API server has made; `true` if planned admissions are set aside, because their unanswered writes are then no outage.
    pub fn made(&mut self, workloads: &mut WorkloadRecords) -> bool {
        self.made = self.made.saturating_add(1);
        let mut any = false;
        for uid in workloads.uids(WorkloadMark::Failing) {
            any |= workloads.change(&uid, |notes| notes.plan_mut().note_made(self.made));
        }
        any
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
        let (mut plans, mut all) = (Plans::default(), WorkloadRecords::default());
        plan_admission(&mut all, plan("a"));
        plan_admission(&mut all, plan("b"));
        for _ in 0..10 {
            assert!(!plans.unanswered(&mut all, "a"), "an outage");
        }
        assert_eq!(under_way(&all), 2);
        assert!(plans.made(&mut all));
        assert!(!plans.made(&mut all) && !plans.unanswered(&mut all, "a"), "once");
        assert_eq!((under_way(&all), planned(&all)), (1, 2));
        // Writes that the API server made before the first unanswered write of a planned admission do not set the admission aside.
        let mut unanswered = |uid| plans.unanswered(&mut all, uid);
        assert!(!unanswered("b") && !unanswered("b") && !unanswered("b"));
        assert_eq!(under_way(&all), 1);
        plan_admission(&mut all, plan("a"));
        assert_eq!(under_way(&all), 2, "another plan is under way");
        assert!(drop_admission(&mut all, "a") && !drop_admission(&mut all, "a") && !plans.unanswered(&mut all, "a"));
        assert!(plans.made(&mut all));
        assert_eq!((under_way(&all), planned(&all)), (0, 1));
        assert_eq!(take_planned(&mut all), ["b"]);
        assert!(none_planned(&all) && under_way(&all) == 0);
    }

    #[test]
    fn unanswered_plan_is_set_aside_at_third_failure_between_writes() {
        let (mut plans, mut all) = (Plans::default(), WorkloadRecords::default());
        plan_admission(&mut all, plan("a"));
        assert!(!plans.unanswered(&mut all, "a") && !plans.made(&mut all));
        assert!(!plans.unanswered(&mut all, "a"));
        assert!(plans.unanswered(&mut all, "a") && !plans.unanswered(&mut all, "a"));
        assert_eq!(under_way(&all), 0);
    }
}
