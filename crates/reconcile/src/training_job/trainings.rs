//! State about TrainingJobs that is in no API object.

use berth_cache::{View, WorkloadView};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::notes::{JobRecords, Notes};
use crate::state::in_flight::InFlightWrite;
use crate::training_job::children::Children;
use crate::training_job::growth::{self, Growth};
use crate::training_job::saves;
use crate::training_job::slices::granted;
use crate::training_job::training_notes::TrainingNotes;
use crate::write::{Kind, ObjectKey, PodsOf, Purpose, WriteOutcome, key};

/// State about TrainingJobs that is in no API object.
#[derive(Debug, Default)]
pub struct Trainings {
    /// The schedule of the searches for jobs that could grow.
    growth: Growth,
    /// The Jobs that have run each TrainingJob.
    children: Children,
}

impl Trainings {
    /// Time of the next search for jobs that could grow, if any job is elastic.
    pub fn wake_at(&self, view: &View) -> Option<Timestamp> {
        self.growth.wake_at(view)
    }

    /// Whether a search for jobs that could grow is due; if so, the next search is due after a pause.
    pub fn begin_look(&mut self, view: &View, now: Timestamp) -> bool {
        self.growth.begin_look(view, now)
    }

    /// The criteria by which the pods of a Workload's job are found.
    pub(crate) fn pods_of(&self, workload: &WorkloadView) -> PodsOf {
        self.children.pods_of(workload)
    }

    /// Handles the new state of a Workload, before the view stores that state.
    pub fn note_workload(&mut self, jobs: &mut JobRecords, view: &View, new: &WorkloadView) {
        self.children.note_idle(view, new);
        let old = view.workloads().get(&new.key());
        // If the number of workers changes, prepared objects such as the host file are applied again.
        let is_resized = old.is_some_and(|old| granted(old) != granted(new));
        if let Some(owner) = new.owner.as_ref().filter(|_| !new.reserved() || is_resized) {
            forget_prepared(jobs, &owner.uid);
        }
    }

    /// Handles a Workload that is gone.
    pub fn forget_workload(&mut self, jobs: &mut JobRecords, view: &View, workload: &WorkloadView, now: Timestamp) {
        growth::note_lost_slice(jobs, view, workload, now);
        self.children.forget_of(view, workload);
    }

    /// Handles the new state of a Job.
    pub fn note_job(&mut self, jobs: &mut JobRecords, object: &ObjectKey, job: &JobState) {
        growth::note_settled(jobs, object, job);
        self.children.note_child(object, job);
    }

    /// Handles a Job that is gone.
    pub fn forget_job(&mut self, jobs: &mut JobRecords, view: &View, object: &ObjectKey, job: &JobState) {
        if let Some(owner) = &job.owner {
            // A user who deletes a Job of a TrainingJob may have deleted objects that the Job needs: these objects are applied again before the next Job.
            forget_prepared(jobs, &owner.uid);
        }
        self.children.forget_child(view, object, job);
    }
}

/// Handles the outcome of a write: pods were notified to save, a run began or changed, or checkpoints were deleted. The result of `note_outcome` is the key of
/// a TrainingJob if control must decide about the TrainingJob again.
pub fn note_outcome(
    notes: &mut Notes,
    view: &View,
    object: &ObjectKey,
    write: &InFlightWrite,
    outcome: &WriteOutcome,
    now: Timestamp,
) -> Option<ObjectKey> {
    let is_answered = matches!(outcome, WriteOutcome::Applied { .. } | WriteOutcome::Gone | WriteOutcome::Refused(_));
    if let Some(uid) = view.uid_of(object).filter(|_| is_answered && write.purpose.asks_to_save()) {
        saves::note_notified(notes.workloads_mut(), &uid, write.purpose);
    }
    if !matches!(outcome, WriteOutcome::Applied { .. }) {
        return None;
    }
    let of = |key: &ObjectKey| (key.namespace.clone(), key.name.clone());
    match write.purpose {
        Purpose::Evict => saves::note_evicted(notes, view, &of(object)),
        Purpose::StartTraining => saves::note_start(notes.jobs_mut(), view, &of(&write.origin)),
        Purpose::ScaleTraining => {
            growth::note_scaled(notes.jobs_mut(), view, &of(&write.origin), now);
            saves::end_request(notes.workloads_mut(), view, &of(&write.origin), now);
        }
        // If the workers to remove were never started, the write that lowers the Workload's count is the only write that removes them.
        Purpose::LowerCount => saves::end_request(notes.workloads_mut(), view, &of(&write.origin), now),
        Purpose::DeleteCheckpoints => {
            let known = saves::note_deleted(notes.jobs_mut(), view, &of(object), write.place.as_deref());
            return known.then(|| key(Kind::TrainingJob, &of(object)));
        }
        _ => {}
    }
    None
}

/// Makes sure that the objects of a TrainingJob are applied again before its next Job is created.
fn forget_prepared(jobs: &mut JobRecords, uid: &str) {
    jobs.change_known(uid, |notes| notes.known_training_mut().map(TrainingNotes::forget_prepared));
}
