//! Facts about TrainingJobs that no object says.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::cache::{Name, View, WorkloadView};
use crate::controller::flight::Flight;
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
    /// A Workload is gone.
    pub(crate) fn forget_workload(&mut self, uid: &str) {
        self.growth.forget_workload(uid);
        self.saving.forget(uid);
        self.saving.before.remove(uid);
    }

    /// A TrainingJob is gone.
    pub(crate) fn forget_training_job(&mut self, name: &Name, uid: &str) {
        self.growth.forget_training_job(name, uid);
        self.saving.books.remove(uid);
        self.saving.begun.remove(uid);
        self.prepared.remove(uid);
    }

    /// A Workload is about to be seen in that state: objects that were made for another number of workers, as a host file, are not for these.
    pub(crate) fn note_resized(&mut self, view: &View, new: &WorkloadView) {
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
