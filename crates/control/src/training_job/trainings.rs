//! Facts about TrainingJobs that no object says.

use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::{Name, View, WorkloadView};
use crate::state::flight::Flight;
use crate::training_job::children::Children;
use crate::training_job::growth::Growth;
use crate::training_job::saves::Saving;
use crate::training_job::slices::granted;
use crate::write::{Kind, ObjectKey, Outcome, Purpose, key};

/// Facts about TrainingJobs that no object says.
#[derive(Debug, Default)]
pub(crate) struct Trainings {
    pub(crate) saving: Saving,
    pub(crate) growth: Growth,
    pub(crate) children: Children,
    /// Objects that were applied for the present run of a TrainingJob, by its uid.
    pub(crate) prepared: BTreeMap<String, BTreeSet<ObjectKey>>,
}

impl Trainings {
    /// A Workload is about to be seen in that state.
    pub(crate) fn note_workload(&mut self, view: &View, new: &WorkloadView) {
        if !new.reserved() {
            self.growth.shrunk.remove(&new.uid);
            self.saving.forget(&new.uid);
            self.prepared.remove(new.owner.as_ref().map(|owner| owner.uid.as_str()).unwrap_or_default());
        }
        self.children.note_idle(view, new);
        self.note_resized(view, new);
    }

    /// A Workload is gone.
    pub(crate) fn forget_workload(&mut self, view: &View, workload: &WorkloadView, now: Timestamp) {
        self.growth.forget_workload(&workload.uid);
        self.saving.forget(&workload.uid);
        self.saving.before.remove(&workload.uid);
        self.growth.note_lost_slice(view, workload, now);
        self.children.forget_of(view, workload);
    }

    /// A Job was seen in that state.
    pub(crate) fn note_job(&mut self, object: &ObjectKey, job: &JobState) {
        self.growth.note_settled(object, job);
        self.children.note_child(object, job);
    }

    /// A Job is gone.
    pub(crate) fn forget_job(&mut self, view: &View, object: &ObjectKey, job: &JobState) {
        if let Some(owner) = &job.owner {
            // A user who takes away a Job of a TrainingJob may have taken objects that the Job needs: they are applied anew before the next.
            self.prepared.remove(&*owner.uid);
        }
        self.growth.settled.remove(&job.uid);
        self.children.forget_child(view, object, job);
    }

    /// A TrainingJob is gone.
    pub(crate) fn forget_training_job(&mut self, name: &Name, uid: &str) {
        self.growth.forget_training_job(name, uid);
        self.saving.books.remove(uid);
        self.saving.begun.remove(uid);
        self.prepared.remove(uid);
    }

    /// Notes a new state of a Workload. If the number of workers changes, prepared objects such as the host file are made again.
    fn note_resized(&mut self, view: &View, new: &WorkloadView) {
        let old = view.workloads.get(&new.key());
        if let Some(owner) = new.owner.as_ref()
            && old.is_some_and(|old| granted(old) != granted(new))
        {
            self.prepared.remove(&owner.uid);
        }
    }

    /// Notes an object that the present run of a TrainingJob has.
    pub(crate) fn note_prepared(&mut self, job: String, object: ObjectKey) {
        self.prepared.entry(job).or_default().insert(object);
    }

    /// Effects of a write that has come back: pods were notified that they are to save, a run began or changed, or checkpoints were deleted. Names the
    /// TrainingJob that is decided about again.
    pub(crate) fn note_outcome(
        &mut self,
        view: &View,
        object: &ObjectKey,
        flight: &Flight,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<ObjectKey> {
        let told = matches!(outcome, Outcome::Applied { .. } | Outcome::Gone | Outcome::Refused(_));
        if let Some(uid) = view.uid_of(object).filter(|_| told && flight.purpose.asks_to_save()) {
            self.saving.note_notified(&uid, flight.purpose);
        }
        if !matches!(outcome, Outcome::Applied { .. }) {
            return None;
        }
        let of = |key: &ObjectKey| (key.namespace.clone(), key.name.clone());
        match flight.purpose {
            Purpose::Evict => self.saving.note_evicted(view, &of(object)),
            Purpose::StartTraining => self.saving.note_start(view, &of(&flight.origin)),
            Purpose::ScaleTraining => {
                self.growth.note_scaled(view, &of(&flight.origin), now);
                self.saving.end_request(view, &of(&flight.origin), now);
            }
            // Workers that were never started go by this write alone.
            Purpose::LowerCount => self.saving.end_request(view, &of(&flight.origin), now),
            Purpose::DeleteCheckpoints => {
                let known = self.saving.note_deleted(view, &of(object), flight.place.as_deref());
                return known.then(|| key(Kind::TrainingJob, &of(object)));
            }
            _ => {}
        }
        None
    }
}
