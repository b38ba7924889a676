//! Notes about one job of any sort.

use jiff::Timestamp;

use crate::capacity::lack::Lack;
use crate::job::start_notes::StartNotes;
use crate::moments::after_seconds;
use crate::notes::records::Record;
use crate::training_job::training_notes::{self, TrainingNotes};

/// Seconds from a stop of a job to the next one, if another client starts the job again in the meantime. A stop waits no longer: a job without quota
/// must not run, and its pods are only charged until it is stopped.
const STOPS_APART_SECONDS: i64 = 1;

/// Notes about one job.
#[derive(Debug, Default)]
pub(crate) struct JobNotes {
    /// The job was seen at rest since its last start.
    is_at_rest: bool,
    /// The job is being deleted together with its pods, whatever keeps the job itself.
    is_rid_of_pods: bool,
    starts: StartNotes,
    /// Time at which Berth stopped the job last; unknown once the job has run for a while or is over.
    stopped_at: Option<Timestamp>,
    /// The started job is seen to lack pods.
    lack: Option<Box<Lack>>,
    settled: Option<Box<Settled>>,
    /// Time at which the first pods ended that its Workload does not know of yet.
    ended_at: Option<Timestamp>,
    /// Notes that only a TrainingJob has.
    training: Option<Box<TrainingNotes>>,
}

/// Marks of jobs by which their records are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobMark {
    /// Quota was seen idle into which the job could grow.
    HasIdleQuota,
    /// The job is to get more workers.
    WantsWorkers,
}

/// All workers of a Job were ready at once.
#[derive(Debug)]
struct Settled {
    /// Time of the change of their number before that, `None` for none.
    last_change: Option<Timestamp>,
}

impl JobNotes {
    /// Whether the job was seen at rest since its last start.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    pub(crate) fn note_at_rest(&mut self) {
        self.is_at_rest = true;
    }

    /// The job runs: nothing is known of its next rest.
    pub(crate) fn note_running(&mut self) {
        self.is_at_rest = false;
    }

    /// Whether the job is being deleted together with its pods.
    pub(crate) fn is_rid_of_pods(&self) -> bool {
        self.is_rid_of_pods
    }

    pub(crate) fn note_rid_of_pods(&mut self) {
        self.is_rid_of_pods = true;
    }

    /// Starts in a row within one admission.
    pub(crate) fn starts(&self) -> &StartNotes {
        &self.starts
    }

    pub(crate) fn starts_mut(&mut self) -> &mut StartNotes {
        &mut self.starts
    }

    /// Time from which Berth may stop the job again; `None` if Berth has not stopped the job a moment ago.
    pub(crate) fn may_stop_at(&self) -> Option<Timestamp> {
        self.stopped_at.map(|at| after_seconds(at, STOPS_APART_SECONDS))
    }

    /// Berth's own stop of the job was written.
    pub(crate) fn note_stopped(&mut self, now: Timestamp) {
        self.stopped_at = Some(now);
    }

    /// The job runs: a stop is forgotten from which on it may be stopped again by now.
    pub(crate) fn forget_old_stop(&mut self, now: Timestamp) {
        if self.may_stop_at().is_some_and(|due| due <= now) {
            self.stopped_at = None;
        }
    }

    /// The job is over.
    pub(crate) fn forget_stop(&mut self) {
        self.stopped_at = None;
    }

    /// The job is over, or was evicted.
    pub(crate) fn forget_starts(&mut self) {
        self.starts = StartNotes::default();
    }

    /// The pods that the started job is seen to lack.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.lack.as_deref().copied()
    }

    pub(crate) fn note_lack(&mut self, lack: Option<Lack>) {
        self.lack = lack.map(Box::new);
    }

    /// Whether all workers have been ready at once since their number changed at that time.
    pub(crate) fn has_settled_since(&self, change: Timestamp) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.last_change == Some(change))
    }

    /// All workers are ready after that change of their number.
    pub(crate) fn note_settled(&mut self, last_change: Option<Timestamp>) {
        self.settled = Some(Box::new(Settled { last_change }));
    }

    /// Whether all workers were ready at once.
    pub(crate) fn has_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Time at which the first pods ended that its Workload does not know of yet, as far as that was seen.
    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// More pods have ended.
    pub(crate) fn note_ended(&mut self, now: Timestamp) {
        self.ended_at.get_or_insert(now);
    }

    /// The Workload knows of the ended pods, or the job itself has ended.
    pub(crate) fn forget_ended(&mut self) {
        self.ended_at = None;
    }

    /// Notes that only a TrainingJob has.
    pub(crate) fn training(&self) -> &TrainingNotes {
        self.training.as_deref().unwrap_or(&training_notes::NONE)
    }

    /// The notes that only a TrainingJob has, to be changed; `None` if there are none.
    pub(crate) fn known_training_mut(&mut self) -> Option<&mut TrainingNotes> {
        self.training.as_deref_mut()
    }

    /// The notes that only a TrainingJob has, to be added to.
    pub(crate) fn training_mut(&mut self) -> &mut TrainingNotes {
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
