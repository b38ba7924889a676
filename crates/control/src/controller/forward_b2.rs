//! Methods that take observations call, until these call the owners of the state themselves.

use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::Name;
use crate::controller::Control;
use crate::job::{attempts, starts};
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
}
