//! Methods that take observations call, until these call the owners of the state themselves.

use berth_api::berth::CheckpointStore;
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::{Name, WorkloadView};
use crate::controller::{Control, key};
use crate::job::{attempts, starts};
use crate::training_job::{checkpoints, elastic};
use crate::write::{Kind, ObjectKey};

impl Control {
    pub(crate) fn note_stop(&mut self, object: &ObjectKey, job: &JobState, now: Timestamp) {
        if self.remains.starts.note_stop(&self.view, object, job, now) {
            self.count_start(object.kind);
        }
    }

    pub(crate) fn note_made(&mut self, object: &ObjectKey, job: &JobState, now: Timestamp) {
        if self.remains.starts.note_made(object, job, now) {
            self.count_start(Kind::TrainingJob);
        }
    }

    fn count_start(&mut self, kind: Kind) {
        if self.leads() {
            self.reports.measures.push(starts::measure(kind));
        }
    }

    pub(crate) fn note_lost(&mut self, object: &ObjectKey, job: &JobState, now: Timestamp) {
        self.remains.starts.note_lost(&self.view, object, job, now);
    }

    pub(crate) fn note_again(&mut self, name: &Name) {
        attempts::note_again(&mut self.view, name);
    }

    pub(crate) fn note_attempt(&mut self, uid: &str) {
        for name in attempts::gave_back(&self.view, uid) {
            if attempts::note_again(&mut self.view, &name) {
                self.mirror(&name);
            }
        }
    }

    pub(crate) fn note_shown(&mut self, name: &Name) {
        self.training.saving.note_shown(&self.view, name);
    }

    pub(crate) fn note_resized(&mut self, new: &WorkloadView) {
        self.training.note_resized(&self.view, new);
    }

    pub(crate) fn note_child(&mut self, object: &ObjectKey, job: &JobState) {
        self.training.children.note_child(object, job);
    }

    pub(crate) fn note_idle(&mut self, workload: &WorkloadView) {
        self.training.children.note_idle(&self.view, workload);
    }

    pub(crate) fn forget_child(&mut self, object: &ObjectKey, job: &JobState) {
        self.training.children.forget_child(&self.view, object, job);
    }

    pub(crate) fn forget_children(&mut self, workload: &WorkloadView) {
        self.training.children.forget_of(&self.view, workload);
    }

    pub(crate) fn note_settled(&mut self, object: &ObjectKey, job: &JobState) {
        self.training.growth.note_settled(object, job);
    }

    pub(crate) fn note_lost_slice(&mut self, slice: &WorkloadView, now: Timestamp) {
        self.training.growth.note_lost_slice(&self.view, slice, now);
    }

    pub(crate) fn mirror_slices_of(&mut self, older: &Name) {
        for slice in elastic::slices_after(&self.view, older) {
            self.mirror(&slice);
        }
    }

    pub(crate) fn put_store(&mut self, name: &str, object: Option<Box<CheckpointStore>>) {
        let users = checkpoints::put_store(&mut self.view, name, object);
        self.work.note_stores(!self.view.stores.is_empty());
        for (job, uid) in users {
            self.touch(key(Kind::TrainingJob, &job));
            self.mirror_owned_by(&uid);
            self.touch_owned_by(&uid);
        }
    }
}
