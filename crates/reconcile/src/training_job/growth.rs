//! Growth of elastic TrainingJobs: the jobs that could have more workers, and the workers that jobs are to give up.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::labels;
use berth_cache::{Name, View, WorkloadView};
use berth_engine::model as engine;
use berth_jobs::JobState;
use berth_jobs::training::{RoleState, Scale, WORKER, role_of_child};
use jiff::{SignedDuration, Timestamp};

use crate::notes::job::JobMark;
use crate::notes::workload::WorkloadMark;
use crate::notes::{JobRecords, Notes, WorkloadRecords};
use crate::training_job::restarts::{begun_at, scaled};
use crate::training_job::run::run_under;
use crate::training_job::scale_notes::GiveUp;
use crate::training_job::slices::granted;
use crate::write::ObjectKey;

/// Pause between two searches for jobs that could grow, in milliseconds.
const LOOK_MS: i64 = 5_000;

/// The schedule of the searches for jobs that could grow.
#[derive(Debug, Default)]
pub struct Growth {
    /// Time of the next search for jobs that could grow.
    next_look: Option<Timestamp>,
}

impl Growth {
    /// Time of the next search for jobs that could grow, if any job is elastic.
    pub fn wake_at(&self, view: &View) -> Option<Timestamp> {
        self.next_look.filter(|_| view.training().has_elastic())
    }

    /// Whether a search for jobs that could grow is due; if so, the next search is due after a pause.
    pub fn begin_look(&mut self, view: &View, now: Timestamp) -> bool {
        if !view.training().has_elastic() || self.next_look.is_some_and(|at| at > now) {
            return false;
        }
        self.next_look = now.checked_add(SignedDuration::from_millis(LOOK_MS)).ok();
        true
    }
}

/// Forgets all plans for scaling when this process begins or ceases to lead. The result of `begin_term` has the uids of the Workloads that were to give up
/// workers.
pub fn begin_term(notes: &mut Notes) -> Vec<String> {
    take_wanted(notes.jobs_mut());
    take_idle(notes.jobs_mut());
    let asked = notes.workloads().uids(WorkloadMark::GivesUp);
    end_requests(notes.workloads_mut(), &asked);
    asked
}

/// Handles a TrainingJob that is not elastic: no quota counts as idle for the job.
pub fn note_inelastic(jobs: &mut JobRecords, uid: &str) {
    jobs.change_known(uid, |notes| notes.known_training_mut().map(|training| training.note_idle(None)));
}

/// Forgets the numbers of workers that jobs were to grow to.
fn take_wanted(jobs: &mut JobRecords) {
    for uid in jobs.uids(JobMark::WantsWorkers) {
        jobs.change(&uid, |notes| notes.training_mut().want(None));
    }
}

/// Removes and returns the times since when quota has been idle, by the uid of the job that could grow into the quota.
fn take_idle(jobs: &mut JobRecords) -> BTreeMap<String, Timestamp> {
    let idle = jobs.marked(JobMark::HasIdleQuota);
    let idle: BTreeMap<String, Timestamp> =
        idle.filter_map(|(uid, notes)| Some((uid.to_owned(), notes.training().idle_since()?))).collect();
    for uid in idle.keys() {
        jobs.change(uid, |notes| notes.training_mut().note_idle(None));
    }
    idle
}

/// Records a Job whose workers are all ready.
pub(crate) fn note_settled(jobs: &mut JobRecords, object: &ObjectKey, job: &JobState) {
    let role = job.owner.as_ref().and_then(|owner| role_of_child(&owner.name, &object.name));
    let marks = [labels::ELASTIC_WORKERS, labels::TOLD_WORKERS];
    let elastic = role == Some(WORKER) && marks.into_iter().any(|mark| job.annotation(mark).is_some());
    if elastic && job.role.as_deref().is_some_and(RoleState::is_up) {
        let last = job.annotation(labels::LAST_SCALE).and_then(Scale::parse);
        jobs.change(&job.uid, |notes| notes.note_settled(last.map(|last| last.at)));
        let has = job.role.as_deref().map_or(0, |role| role.wanted);
        if let Some(owner) = &job.owner {
            jobs.change_known(&owner.uid, |notes| {
                notes.known_training_mut().map(|training| training.note_ready_workers(has))
            });
        }
    }
}

/// Handles the jobs that could have more workers, in the order of the offer, and returns the names of the jobs that are to grow. In each ClusterQueue one job
/// grows at a time, because the idle quota was counted for that job alone. A job that waits for a checkpoint does not keep another job from growing. `fits`
/// says whether there is idle quota for a job.
pub fn offer(
    jobs: &mut JobRecords,
    candidates: Vec<GrowthCandidate>,
    mut fits: impl FnMut(&GrowthCandidate) -> bool,
) -> Vec<Name> {
    let mut growing = BTreeSet::new();
    let mut chosen = Vec::new();
    take_wanted(jobs);
    let seen = take_idle(jobs);
    for candidate in candidates {
        if growing.contains(&candidate.queue) {
            // Quota into which a TrainingJob could grow was idle before another job of the queue had its turn to grow, so the time of idle quota is kept.
            if let Some(idle) = seen.get(&candidate.job) {
                jobs.change(&candidate.job, |notes| notes.training_mut().note_idle(Some(*idle)));
            }
            continue;
        }
        if !fits(&candidate) {
            continue;
        }
        jobs.change(&candidate.job, |notes| {
            notes.training_mut().note_idle(Some(candidate.idle));
            notes.training_mut().want(candidate.may.then_some(candidate.workers));
        });
        if candidate.may {
            growing.insert(candidate.queue);
            chosen.push(candidate.name);
        }
    }
    chosen
}

/// Notes that a slice is gone that never replaced another slice: the next slice is not created immediately.
pub(crate) fn note_lost_slice(jobs: &mut JobRecords, view: &View, slice: &WorkloadView, now: Timestamp) {
    let job = slice.training_job().filter(|_| slice.replaces.is_some() && !slice.is_finished());
    if let Some(name) = job {
        note_failed_scale_up(jobs, view, &name, slice.size(WORKER), now);
    }
}

/// Notes that a TrainingJob did not reach a number of workers.
fn note_failed_scale_up(jobs: &mut JobRecords, view: &View, name: &Name, workers: i32, now: Timestamp) {
    let Some(job) = view.training().get(name) else { return };
    let Some(elastic) = job.facts.elastic else { return };
    let pause = elastic.up_cooldown_seconds;
    jobs.change(&job.uid, |notes| notes.training_mut().note_failed_scale_up(workers, pause, now));
}

/// Notes that the number of workers of a TrainingJob was changed.
pub(crate) fn note_scaled(jobs: &mut JobRecords, view: &View, name: &Name, now: Timestamp) {
    let Some(job) = view.training().get(name) else { return };
    let taken_back = jobs.change(&job.uid, |notes| notes.known_training_mut()?.note_scaled());
    if let Some(workers) = taken_back {
        note_failed_scale_up(jobs, view, name, workers, now);
    }
}

/// Drops the requests to give up workers for a preemptor, and returns the uids of the Workloads that were to give up workers.
pub fn spare_workers(workloads: &mut WorkloadRecords, preemptor: &str) -> Vec<String> {
    let asked = workloads.marked(WorkloadMark::GivesUp);
    let asked =
        asked.filter(|(_, notes)| notes.scale().gives_up().is_some_and(|one| one.eviction.preemptor == preemptor));
    let asked: Vec<String> = asked.map(|(uid, _)| uid.to_owned()).collect();
    end_requests(workloads, &asked);
    asked
}

fn end_requests(workloads: &mut WorkloadRecords, asked: &[String]) {
    for uid in asked {
        workloads.change(uid, |notes| notes.scale_mut().end_request());
    }
}

/// Records that a Workload is to give up workers, or is to be evicted; returns the name of the Workload's TrainingJob.
pub fn ask_for_workers(
    workloads: &mut WorkloadRecords,
    view: &View,
    eviction: engine::Eviction,
    pods: i64,
) -> Option<Name> {
    let workload = view.workloads().by_uid(&eviction.uid)?;
    let pods = i32::try_from(pods).unwrap_or(i32::MAX);
    let keeps = granted(workload).saturating_sub(pods);
    workloads.change(&workload.uid, |notes| notes.scale_mut().ask_for_workers(GiveUp { keeps, eviction }));
    workload.training_job()
}

/// Forgets a request to give up workers after the Workload has given them up.
pub fn note_given_up(workloads: &mut WorkloadRecords, view: &View, workload: &str) {
    let Some(asked) = workloads.of(workload).scale().gives_up() else { return };
    let over = view
        .workloads()
        .by_uid(workload)
        .is_none_or(|workload| !workload.phase.keeps_quota() || granted(workload) <= asked.keeps);
    if over {
        workloads.change(workload, |notes| notes.scale_mut().end_request());
    }
}

/// Notes that no pods of a Workload are left beyond the pods of the workers that stay.
pub fn note_shrunk(workloads: &mut WorkloadRecords, view: &View, name: &Name, now: Timestamp) {
    let Some(workload) = view.workloads().get(name) else { return };
    // A restart continues, whatever becomes of the job's spec.
    let restarted = scaled(workload).map(|scale| scale.workers);
    if let Some(workers) = restarted.or_else(|| run_under(view, workload).map(|run| run.workers)) {
        workloads.change(&workload.uid, |notes| notes.scale_mut().note_shrunk(workers, now));
    }
}

/// Time before which a listing does not show the checkpoint from which a run resumes: the pods of the previous run may save until they are gone.
pub(crate) fn resumes_from(workloads: &WorkloadRecords, workload: &WorkloadView) -> Option<Timestamp> {
    let begun = begun_at(workload)?;
    let gone = workloads.of(&workload.uid).scale().shrunk_at().filter(|_| scaled(workload).is_some());
    Some(gone.map_or(begun, |at| begun.max(at)))
}

/// A running TrainingJob that could have more workers now.
#[derive(Debug)]
pub struct GrowthCandidate {
    /// Namespace and name of the TrainingJob.
    pub name: Name,
    /// Uid of the TrainingJob.
    pub job: String,
    /// Uid of the Workload under which the TrainingJob runs.
    pub workload: String,
    /// The ClusterQueue whose quota the TrainingJob holds.
    pub queue: String,
    /// Number of workers that the TrainingJob would have after it has grown.
    pub(crate) workers: i32,
    /// Numbers of pods that the TrainingJob would have after it has grown, by pod set.
    pub counts: Vec<i64>,
    /// The quota that the TrainingJob holds.
    pub given: Vec<engine::PodSetAssignment>,
    /// Time since when the quota for the additional workers is idle.
    pub(crate) idle: Timestamp,
    /// True if the TrainingJob's own state lets the job grow into the idle quota.
    pub(crate) may: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_cache::moments::after_seconds;

    fn at(second: i64) -> Timestamp {
        after_seconds(Timestamp::UNIX_EPOCH, second)
    }

    fn candidate(name: &str, queue: &str, idle: i64, may: bool) -> GrowthCandidate {
        GrowthCandidate {
            name: ("team".to_owned(), name.to_owned()),
            job: name.to_owned(),
            workload: format!("{name}-workload"),
            queue: queue.to_owned(),
            workers: 4,
            counts: vec![4],
            given: Vec::new(),
            idle: at(idle),
            may,
        }
    }

    fn wanted(jobs: &JobRecords) -> BTreeMap<String, i32> {
        let all = jobs.marked(JobMark::WantsWorkers);
        all.filter_map(|(uid, notes)| Some((uid.to_owned(), notes.training().wanted()?))).collect()
    }

    fn idle(jobs: &JobRecords) -> BTreeMap<String, Timestamp> {
        let all = jobs.marked(JobMark::HasIdleQuota);
        all.filter_map(|(uid, notes)| Some((uid.to_owned(), notes.training().idle_since()?))).collect()
    }

    #[test]
    fn one_job_of_each_queue_grows_at_a_time() {
        let mut jobs = JobRecords::default();
        let all = vec![candidate("a", "q", 1, true), candidate("b", "q", 2, true), candidate("c", "p", 3, true)];
        let chosen: Vec<String> = offer(&mut jobs, all, |_| true).into_iter().map(|name| name.1).collect();
        assert_eq!(chosen, ["a", "c"]);
        assert_eq!(wanted(&jobs), BTreeMap::from([("a".to_owned(), 4), ("c".to_owned(), 4)]));
        assert!(!idle(&jobs).contains_key("b"), "quota was not seen idle for it before");
    }

    #[test]
    fn job_that_must_save_before_growth_delays_no_other() {
        let mut jobs = JobRecords::default();
        let all = || vec![candidate("a", "q", 1, false), candidate("b", "q", 2, true)];
        assert_eq!(offer(&mut jobs, all(), |_| true).len(), 1);
        assert_eq!(idle(&jobs), BTreeMap::from([("a".to_owned(), at(1)), ("b".to_owned(), at(2))]));
        assert!(offer(&mut jobs, all(), |job| job.job == "a").is_empty());
        assert_eq!(idle(&jobs), BTreeMap::from([("a".to_owned(), at(1))]), "the quota of the other is not idle");
    }
}
