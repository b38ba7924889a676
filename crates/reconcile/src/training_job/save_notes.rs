//! Notes about the requests to save a checkpoint that the job of one Workload got.

use jiff::Timestamp;

use crate::job::save_requests::{Before, LastSave, Noted, Recipients, SaveRequest};

/// Notes about the requests to save of one Workload.
#[derive(Debug, Default)]
pub struct SaveNotes {
    /// The recipients of the request to save before the job stops, from the first try on.
    notified: Option<Recipients>,
    /// The last save of the job when this process evicted the Workload. The note about the last save is kept after the quota is released, because the status of
    /// the job may lag behind.
    before: Option<Box<Before>>,
    /// The request to save before workers are removed, from the first try on.
    asked: Option<Box<SaveRequest>>,
}

impl SaveNotes {
    /// Whether no request to save is noted about the Workload.
    pub fn is_empty(&self) -> bool {
        self.notified.is_none() && self.before.is_none() && self.asked.is_none()
    }

    /// Recipients that know that the job is to stop; `None` before the first try to notify the pods.
    pub(crate) fn notified(&self) -> Option<Recipients> {
        self.notified
    }

    /// The job's saves at the eviction of the Workload.
    pub fn before(&self) -> Option<&Before> {
        self.before.as_deref()
    }

    /// The last request to save before workers are removed, also if the request has ended.
    pub fn asked(&self) -> Option<&SaveRequest> {
        self.asked.as_deref()
    }

    /// Notes a write that asks the job to save, or evicts the Workload.
    pub fn note(&mut self, noted: Noted) {
        match noted {
            Noted::Evicted(before) => self.before = Some(Box::new(before)),
            Noted::Notified(recipients) => drop(self.notified.get_or_insert(recipients)),
            Noted::Asked(asked) => self.asked = Some(Box::new(asked)),
        }
    }

    /// Notes that the pods know that they are to stop, or cannot be notified.
    pub(crate) fn note_notified(&mut self) {
        if let Some(recipients) = &mut self.notified {
            recipients.pods = true;
        }
    }

    /// Notes that the pods know that they are to save before workers are removed, or cannot be asked.
    pub(crate) fn note_asked(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.notified.pods = true;
        }
    }

    /// Notes that the status of the job shows the request to save.
    pub fn note_shown(&mut self) {
        if let Some(recipients) = &mut self.notified {
            recipients.user = true;
        }
        if let Some(asked) = &mut self.asked {
            asked.notified.user = true;
        }
    }

    /// Keeps the last save of the job at the time when the eviction was stored.
    pub(crate) fn note_evicted(&mut self, save: Option<LastSave>) {
        if let Some(before) = &mut self.before {
            before.save = save;
        }
    }

    /// Ends the request to save before workers are removed, because the workers have gone.
    pub(crate) fn end_request(&mut self, now: Timestamp) {
        if let Some(asked) = &mut self.asked {
            asked.end(now);
        }
    }

    /// Forgets the requests of a Workload that has lost its quota.
    pub(crate) fn forget_requests(&mut self) {
        self.notified = None;
        self.asked = None;
    }
}
