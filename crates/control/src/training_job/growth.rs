//! Growth of elastic TrainingJobs: the jobs that could have more workers, and the workers that jobs are to give up.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_api::labels;
use berth_engine::model as engine;
use berth_jobs::JobState;
use berth_jobs::training::{RoleState, Scale, WORKER, role_of_child};
use jiff::{SignedDuration, Timestamp};

use crate::cache::{Name, View, WorkloadView};
use crate::moments::after_seconds;
use crate::training_job::restarts::{begun_at, scaled};
use crate::training_job::run::run_under;
use crate::training_job::slices::granted;
use crate::write::ObjectKey;

/// Pause between two looks for jobs that could grow, in milliseconds.
const LOOK_MS: i64 = 5_000;

/// State about elastic jobs.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// TrainingJobs that are elastic.
    pub(super) jobs: BTreeSet<Name>,
    /// Time of the next look for jobs that could grow.
    next_look: Option<Timestamp>,
    /// Time since when quota is seen idle into which a TrainingJob (by uid) could grow.
    pub(super) idle: BTreeMap<String, Timestamp>,
    /// Number of workers that a TrainingJob (by uid) needs: its new slice does not exist yet.
    pub(super) wanted: BTreeMap<String, i32>,
    /// Time before which a TrainingJob (by uid) is not looked at again: its last scale-up failed.
    pub(super) not_before: BTreeMap<String, Timestamp>,
    /// Failed scale-ups of a TrainingJob (by uid) since the last successful one.
    vain: BTreeMap<String, Vain>,
    /// Number of workers to which a TrainingJob (by uid) had grown whose scale-up is being taken back.
    taken_back: BTreeMap<String, i32>,
    /// Workers that a Workload (by uid) is to give up for a preemptor.
    pub(super) gives_up: BTreeMap<String, GiveUp>,
    /// Number of workers with which a Workload (by uid) was seen to have no pods beyond, and the time of that.
    pub(super) shrunk: BTreeMap<String, (i32, Timestamp)>,
    /// Last change of their number (its time, `None` for none) after which all workers of a Job (by uid) were ready at once.
    pub(crate) settled: BTreeMap<String, Option<Timestamp>>,
}

impl Growth {
    /// The term in which this process leads has ended, or begins: nothing of what was planned for jobs is done any more. Names the Workloads, by uid,
    /// that were to give up workers.
    pub(crate) fn begin_term(&mut self) -> Vec<String> {
        self.wanted.clear();
        self.idle.clear();
        std::mem::take(&mut self.gives_up).into_keys().collect()
    }

    /// Takes note whether a TrainingJob is elastic.
    pub(crate) fn note_training_job(&mut self, name: &Name, uid: &str, is_elastic: bool) {
        if is_elastic {
            self.jobs.insert(name.clone());
        } else {
            self.jobs.remove(name);
            self.idle.remove(uid);
        }
    }

    /// The workers that a Workload is to give up.
    pub(crate) fn asked_of(&self, workload: &str) -> Option<&GiveUp> {
        self.gives_up.get(workload)
    }

    /// Drops the requests to give up workers for a preemptor, and names the Workloads, by uid.
    pub(crate) fn spare(&mut self, preemptor: &str) -> Vec<String> {
        let spared = self.gives_up.extract_if(.., |_, asked| asked.eviction.preemptor == preemptor);
        spared.map(|(uid, _)| uid).collect()
    }

    /// Time of the next look for jobs that could grow, where any job is elastic.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.next_look.filter(|_| !self.jobs.is_empty())
    }

    /// A Workload is gone.
    pub(crate) fn forget_workload(&mut self, uid: &str) {
        self.shrunk.remove(uid);
        self.gives_up.remove(uid);
    }

    /// A TrainingJob is gone.
    pub(crate) fn forget_training_job(&mut self, name: &Name, uid: &str) {
        self.jobs.remove(name);
        self.idle.remove(uid);
        self.wanted.remove(uid);
        self.not_before.remove(uid);
        self.vain.remove(uid);
        self.taken_back.remove(uid);
    }

    /// Takes note of a Job whose workers are all ready.
    pub(crate) fn note_settled(&mut self, object: &ObjectKey, job: &JobState) {
        let role = job.owner.as_ref().and_then(|owner| role_of_child(&owner.name, &object.name));
        let marks = [labels::ELASTIC_WORKERS, labels::TOLD_WORKERS];
        let elastic = role == Some(WORKER) && marks.into_iter().any(|mark| job.annotation(mark).is_some());
        if elastic && job.role.as_deref().is_some_and(RoleState::is_up) {
            let last = job.annotation(labels::LAST_SCALE).and_then(Scale::parse);
            self.settled.insert(job.uid.clone(), last.map(|last| last.at));
            let has = job.role.as_deref().map_or(0, |role| role.wanted);
            if let Some(owner) = job.owner.as_ref()
                && self.vain.get(&*owner.uid).is_some_and(|vain| vain.workers <= has)
            {
                self.vain.remove(&*owner.uid);
                self.not_before.remove(&*owner.uid);
            }
        }
    }

    /// Whether a look for jobs that could grow is due; the next one is due after a pause.
    pub(crate) fn begin_look(&mut self, now: Timestamp) -> bool {
        if self.jobs.is_empty() || self.next_look.is_some_and(|at| at > now) {
            return false;
        }
        self.next_look = now.checked_add(SignedDuration::from_millis(LOOK_MS)).ok();
        true
    }

    /// Takes the jobs that could have more workers, in the order in which these are offered, and names those that are to grow. In each queue one job
    /// grows at a time, because idle quota was counted for it alone. A job that waits until it has saved keeps no other from growing. `fits` says
    /// whether a job has the quota.
    pub(crate) fn offer(
        &mut self,
        candidates: Vec<GrowthCandidate>,
        mut fits: impl FnMut(&GrowthCandidate) -> bool,
    ) -> Vec<Name> {
        let mut growing = BTreeSet::new();
        let mut chosen = Vec::new();
        self.wanted.clear();
        let seen = std::mem::take(&mut self.idle);
        for candidate in candidates {
            if growing.contains(&candidate.queue) {
                // Quota that is idle for this job was so before another job of its queue had its turn.
                let idle = seen.get(&candidate.job).copied();
                self.idle.extend(idle.map(|at| (candidate.job, at)));
                continue;
            }
            if !fits(&candidate) {
                continue;
            }
            self.idle.insert(candidate.job.clone(), candidate.idle);
            if candidate.may {
                growing.insert(candidate.queue);
                self.wanted.insert(candidate.job, candidate.workers);
                chosen.push(candidate.name);
            }
        }
        chosen
    }

    /// Notes that a slice is gone that never replaced another one: the next slice is not made at once.
    pub(crate) fn note_lost_slice(&mut self, view: &View, slice: &WorkloadView, now: Timestamp) {
        let job = slice.training_job().filter(|_| slice.replaces.is_some() && !slice.is(types::FINISHED));
        if let Some(name) = job {
            self.note_vain_growth(view, &name, slice.size(WORKER), now);
        }
    }

    /// Notes that a TrainingJob did not come to have so many workers. Each such try in a row doubles the pause before the next one, because adding
    /// pods and taking them away again interrupts the training.
    fn note_vain_growth(&mut self, view: &View, name: &Name, workers: i32, now: Timestamp) {
        let Some(job) = view.training.get(name) else { return };
        let Some(pause) = job.facts.elastic.map(|elastic| elastic.up_cooldown_seconds) else { return };
        let vain = self.vain.entry(job.uid.clone()).or_default();
        *vain = Vain { times: vain.times.saturating_add(1), workers };
        let doubled = pause.max(1).saturating_mul(1 << vain.times.saturating_sub(1).min(12));
        let pause = doubled.min(LONGEST_PAUSE_SECONDS.max(pause));
        self.not_before.insert(job.uid.clone(), after_seconds(now, pause));
    }

    /// Notes that the number of workers of a TrainingJob is about to change. A scale-up to `added` workers, which were never all ready, has failed by
    /// that.
    pub(crate) fn note_scaling(&mut self, job: String, added: Option<i32>) {
        match added {
            Some(workers) => drop(self.taken_back.insert(job, workers)),
            None => drop(self.taken_back.remove(&job)),
        }
    }

    /// Notes that the number was changed.
    pub(crate) fn note_scaled(&mut self, view: &View, name: &Name, now: Timestamp) {
        let Some(job) = view.training.get(name) else { return };
        if let Some(workers) = self.taken_back.remove(&job.uid) {
            self.note_vain_growth(view, name, workers, now);
        }
    }

    /// Takes note that a Workload is to give up workers, or is to leave; names its TrainingJob.
    pub(crate) fn ask_for_workers(&mut self, view: &View, eviction: engine::Eviction, pods: i64) -> Option<Name> {
        let workload = view.workloads.by_uid(&eviction.uid)?;
        let pods = i32::try_from(pods).unwrap_or(i32::MAX);
        let keeps = granted(workload).saturating_sub(pods);
        self.gives_up.insert(workload.uid.clone(), GiveUp { keeps, eviction });
        workload.training_job()
    }

    /// Forgets a request to give up workers once the Workload has given them up.
    pub(crate) fn note_given_up(&mut self, view: &View, workload: &str) {
        let Some(asked) = self.gives_up.get(workload) else { return };
        let over = view.workloads.by_uid(workload).is_none_or(|workload| {
            !workload.reserved()
                || workload.is(types::FINISHED)
                || workload.is(types::EVICTED)
                || granted(workload) <= asked.keeps
        });
        if over {
            self.gives_up.remove(workload);
        }
    }

    /// Notes that no pods of a Workload are left beyond those of the workers that stay.
    pub(crate) fn note_shrunk(&mut self, view: &View, name: &Name, now: Timestamp) {
        let Some(workload) = view.workloads.get(name) else { return };
        // A restart goes on whatever becomes of its job's spec.
        let restarted = scaled(workload).map(|scale| scale.workers);
        if let Some(workers) = restarted.or_else(|| run_under(view, workload).map(|run| run.workers)) {
            self.shrunk.insert(workload.uid.clone(), (workers, now));
        }
    }

    /// Time since when the listing must be that shows the checkpoint from which a run goes on: the pods before may save until they are gone.
    pub(crate) fn resumes_from(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let begun = begun_at(workload)?;
        let gone = self.shrunk.get(&workload.uid).filter(|_| scaled(workload).is_some());
        Some(gone.map_or(begun, |(_, at)| begun.max(*at)))
    }
}

/// Failed scale-ups in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vain {
    times: u32,
    /// Number of workers that the last one was to bring the job to.
    workers: i32,
}

/// Longest pause in seconds after failed scale-ups, where the job's own is not longer.
const LONGEST_PAUSE_SECONDS: i64 = 3_600;

/// A request to an elastic job to give up workers.
#[derive(Clone, Debug)]
pub(crate) struct GiveUp {
    /// Number of workers that stay.
    pub(crate) keeps: i32,
    /// The eviction that the engine wants, with its preemptor.
    pub(crate) eviction: engine::Eviction,
}

/// A running TrainingJob that could have more workers now.
#[derive(Debug)]
pub(crate) struct GrowthCandidate {
    pub(crate) name: Name,
    /// Uid of the TrainingJob.
    pub(crate) job: String,
    /// Uid of the Workload under which it runs.
    pub(crate) workload: String,
    /// The ClusterQueue whose quota it holds.
    pub(crate) queue: String,
    /// Number of workers that it would have.
    pub(crate) workers: i32,
    /// The pods that it would have, by pod set.
    pub(crate) counts: Vec<i64>,
    /// The quota that it holds.
    pub(crate) given: Vec<engine::PodSetAssignment>,
    /// Time since when the quota is idle that it would take.
    pub(crate) idle: Timestamp,
    /// True if the job's own state lets it grow into that quota.
    pub(crate) may: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_job_of_each_queue_grows_at_a_time() {
        let mut growth = Growth::default();
        let all = vec![candidate("a", "q", 1, true), candidate("b", "q", 2, true), candidate("c", "p", 3, true)];
        let chosen: Vec<String> = growth.offer(all, |_| true).into_iter().map(|name| name.1).collect();
        assert_eq!(chosen, ["a", "c"]);
        assert_eq!(growth.wanted, BTreeMap::from([("a".to_owned(), 4), ("c".to_owned(), 4)]));
        assert!(!growth.idle.contains_key("b"), "quota was not seen idle for it before");
    }

    #[test]
    fn job_that_has_to_save_first_holds_up_no_other() {
        let mut growth = Growth::default();
        let all = || vec![candidate("a", "q", 1, false), candidate("b", "q", 2, true)];
        assert_eq!(growth.offer(all(), |_| true).len(), 1);
        assert_eq!(growth.idle, BTreeMap::from([("a".to_owned(), at(1)), ("b".to_owned(), at(2))]));
        assert!(growth.offer(all(), |job| job.job == "a").is_empty());
        assert_eq!(growth.idle, BTreeMap::from([("a".to_owned(), at(1))]), "the quota of the other is not idle");
    }
}
