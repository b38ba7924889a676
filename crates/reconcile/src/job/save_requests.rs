//! Requests to running jobs to save a checkpoint, and the recipients that know of a request.

use jiff::Timestamp;

use crate::workload::status::seconds;

/// The recipients that know of a request to save. A request to save counts from the first try to send the request, because pods may know of the request even
/// if the try failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recipients {
    /// True if the pods know of the request to save, or cannot be notified.
    pub pods: bool,
    /// True if the status of the job has shown the request to save to the user.
    pub(crate) user: bool,
}

/// A request to a running job to save a checkpoint before a loss of workers.
#[derive(Clone, Debug)]
pub struct SaveRequest {
    /// The time of the request to save.
    pub(super) at: Timestamp,
    /// The time at which the grace period that the request to save gives is over.
    pub(super) until: Timestamp,
    /// The reason and the message of the request to save, in the form for the pods.
    pub(super) why: (String, String),
    /// The recipients that know of this request to save.
    pub notified: Recipients,
    /// True if the workers that were to be lost are gone.
    pub(crate) over: bool,
}

impl SaveRequest {
    /// Ends the request when the workers are gone, so that the next loss of workers gets a request of its own.
    pub fn end(&mut self, now: Timestamp) {
        self.until = self.until.min(now);
        self.over = true;
    }
}

/// The time of a job's last save, with the training step of the checkpoint if it is known. If two saves fall into one second, the save with the greater step is
/// the later one.
pub(crate) type LastSave = (Timestamp, Option<i64>);

/// The saves of a job at the time of its eviction.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// The time of the eviction write, which is finer than the time of the condition in full seconds.
    pub(super) at: Timestamp,
    /// The last save of the job that was known at the eviction.
    pub(crate) save: Option<LastSave>,
}

impl Before {
    /// Whether a save is newer than the eviction whose condition has the time `evicted`. If save and eviction fall into one second and the save has no finer
    /// time, only a save that is later than the known save counts as newer.
    pub(super) fn precedes(&self, save: LastSave, evicted: Timestamp) -> bool {
        let finer = save.0.subsec_nanosecond() != 0 && seconds(self.at) == evicted;
        let since = if finer { self.at } else { evicted };
        save.0 >= since && self.save.is_none_or(|known| save > known)
    }
}

/// The note about a write that asks a job to save or evicts it. The grace period begins with the first try to send the request to save, and a repeated request
/// does not extend it.
#[derive(Clone, Debug)]
pub enum Noted {
    /// The job was evicted, with its saves at the time of the eviction.
    Evicted(Before),
    /// The pods were notified that they are to stop.
    Notified(Recipients),
    /// The pods were asked to save before a loss of workers.
    Asked(SaveRequest),
}
