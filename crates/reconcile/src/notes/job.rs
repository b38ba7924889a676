//! Notes about one job of any kind.

use berth_cache::moments::after_seconds;
use jiff::Timestamp;

use crate::capacity::lack::Lack;
use crate::job::start_notes::StartNotes;
use crate::notes::records::Record;
use crate::training_job::training_notes::{self, TrainingNotes};

/// Time in seconds between two stops of a job, if another client starts the job again in between. The time between two stops of a job is short, because a job
/// without quota must not run, and its pods are only charged until the job is stopped.
const STOPS_APART_SECONDS: i64 = 1;

/// Notes about one job of any kind.
#[derive(Debug, Default)]
pub struct JobNotes {
    /// True if the job was observed at rest since its last start.
    is_at_rest: bool,
    /// True if the job is being deleted together with its pods, even if a finalizer keeps the job itself.
    is_rid_of_pods: bool,
    starts: StartNotes,
    /// Time at which Berth last stopped the job; `None` once the job has run for a while or has ended.
    stopped_at: Option<Timestamp>,
    /// Pods that the started job was observed to lack.
    lack: Option<Box<Lack>>,
    settled: Option<Box<Settled>>,
    /// Time at which the first pods ended that the job's Workload does not show as ended yet.
    ended_at: Option<Timestamp>,
    /// Notes that only a TrainingJob has.
    training: Option<Box<TrainingNotes>>,
}

/// Properties of jobs by which the notes about the jobs are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobMark {
    /// Idle quota was observed into which the job could grow.
    HasIdleQuota,
    /// The job is to get more workers.
    WantsWorkers,
}

/// The note that all workers of a Job were ready at once.
#[derive(Debug)]
struct Settled {
    /// Time of the last change of the number of workers before all were ready; `None` if the number never changed.
    last_change: Option<Timestamp>,
}

impl JobNotes {
    /// Whether the job was observed at rest since its last start.
    pub fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    /// Notes that the job was observed at rest.
    pub fn note_at_rest(&mut self) {
        self.is_at_rest = true;
    }

    /// Notes that the job runs, so that the job does not count as observed at rest any more.
    pub(crate) fn note_running(&mut self) {
        self.is_at_rest = false;
    }

    /// Whether the job is being deleted together with its pods.
    pub fn is_rid_of_pods(&self) -> bool {
        self.is_rid_of_pods
    }

    /// Notes that the job is being deleted together with its pods.
    pub fn note_rid_of_pods(&mut self) {
        self.is_rid_of_pods = true;
    }

    /// The starts of the job in a row within one admission.
    pub fn starts(&self) -> &StartNotes {
        &self.starts
    }

    /// The starts of the job in a row within one admission, as a mutable reference.
    pub(crate) fn starts_mut(&mut self) -> &mut StartNotes {
        &mut self.starts
    }

    /// Time from which Berth may stop the job again; `None` if Berth has not stopped the job recently.
    pub(crate) fn may_stop_at(&self) -> Option<Timestamp> {
        self.stopped_at.map(|at| after_seconds(at, STOPS_APART_SECONDS))
    }

    /// Notes that Berth stopped the job.
    pub fn note_stopped(&mut self, now: Timestamp) {
        self.stopped_at = Some(now);
    }

    /// Forgets the last stop of a running job, if the job may be stopped again by `now`.
    pub(crate) fn forget_old_stop(&mut self, now: Timestamp) {
        if self.may_stop_at().is_some_and(|due| due <= now) {
            self.stopped_at = None;
        }
    }

    /// Forgets the last stop of the job, because the job has ended.
    pub(crate) fn forget_stop(&mut self) {
        self.stopped_at = None;
    }

    /// Forgets the starts of the job, because the job has ended or was evicted.
    pub(crate) fn forget_starts(&mut self) {
        self.starts = StartNotes::default();
    }

    /// The pods that the started job was observed to lack.
    pub fn lack(&self) -> Option<Lack> {
        self.lack.as_deref().copied()
    }

    /// Notes the pods that the started job lacks; `None` if the job lacks none.
    pub(crate) fn note_lack(&mut self, lack: Option<Lack>) {
        self.lack = lack.map(Box::new);
    }

    /// Whether all workers were ready at once after the given change of their number.
    pub(crate) fn has_settled_since(&self, change: Timestamp) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.last_change == Some(change))
    }

    /// Notes that all workers were ready at once after the last change of their number.
    pub(crate) fn note_settled(&mut self, last_change: Option<Timestamp>) {
        self.settled = Some(Box::new(Settled { last_change }));
    }

    /// Whether all workers were ready at once.
    pub fn has_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Time at which the first pods were observed to have ended that the job's Workload does not show as ended yet.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// Notes that pods of the job have ended.
    pub fn note_ended(&mut self, now: Timestamp) {
        self.ended_at.get_or_insert(now);
    }

    /// Forgets the time at which pods of the job ended, because the Workload shows these pods as ended or the job itself has ended.
    pub fn forget_ended(&mut self) {
        self.ended_at = None;
    }

    /// The notes about a TrainingJob; empty for any other job.
    pub fn training(&self) -> &TrainingNotes {
        self.training.as_deref().unwrap_or(&training_notes::NONE)
    }

    /// The notes about a TrainingJob, as a mutable reference; `None` if there are none.
    pub(crate) fn known_training_mut(&mut self) -> Option<&mut TrainingNotes> {
        self.training.as_deref_mut()
    }

    /// The notes about a TrainingJob, as a mutable reference; created if there are none.
    pub fn training_mut(&mut self) -> &mut TrainingNotes {
        self.training.get_or_insert_default()
    }
}

impl Record for JobNotes {
    type Mark = JobMark;
    type Place = ();
    const MARKS: &'static [JobMark] = &[JobMark::HasIdleQuota, JobMark::WantsWorkers];

    fn has(&self, mark: JobMark) -> bool {
        match mark {
            JobMark::HasIdleQuota => self.training().idle_since().is_some(),
            JobMark::WantsWorkers => self.training().wanted().is_some(),
        }
    }

    fn place(&self) -> Option<()> {
        None
    }

    fn is_empty(&self) -> bool {
        !self.is_at_rest
            && !self.is_rid_of_pods
            && self.starts.is_empty()
            && self.stopped_at.is_none()
            && self.lack.is_none()
            && !self.has_settled()
            && self.ended_at.is_none()
            && self.training().is_empty()
    }
}
