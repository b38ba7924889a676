//! Requests to running jobs to save their work, and the recipients that know of them.

use jiff::Timestamp;

use crate::workload::status::seconds;

/// Recipients that know of a request to save. The request stands from the first try on: pods may know of it, whatever became of that try.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recipients {
    /// The pods know, or cannot be notified.
    pub(crate) pods: bool,
    /// The status of the job has said so.
    pub(crate) user: bool,
}

/// A request to a running job to save its work before some of its workers go.
#[derive(Clone, Debug)]
pub(crate) struct SaveRequest {
    pub(super) at: Timestamp,
    pub(super) until: Timestamp,
    /// Reason and message of the request, as the pods get them.
    pub(super) why: (String, String),
    pub(crate) told: Recipients,
    /// The workers have gone.
    pub(crate) over: bool,
}

impl SaveRequest {
    /// Ends the request when the workers go: the next loss of workers gets a request of its own.
    pub(crate) fn end(&mut self, now: Timestamp) {
        self.until = self.until.min(now);
        self.over = true;
    }
}

/// Time of a job's last save, and the step where it is known: of two saves within a second the greater step is the later one.
pub(crate) type LastSave = (Timestamp, Option<i64>);

/// State of a job's saves when it was evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Time of the eviction write: the condition has whole seconds only.
    pub(super) at: Timestamp,
    /// Last save of the job at that time.
    pub(crate) save: Option<LastSave>,
}

impl Before {
    /// Whether a save is newer than the eviction whose condition has the time `evicted`. Where both fall into one second and the save has no finer
    /// time, only a save that is later than the known one counts as newer.
    pub(super) fn precedes(&self, save: LastSave, evicted: Timestamp) -> bool {
        let finer = save.0.subsec_nanosecond() != 0 && seconds(self.at) == evicted;
        let since = if finer { self.at } else { evicted };
        save.0 >= since && self.save.is_none_or(|known| save > known)
    }
}

/// Memory of a write that asks a job to save, or evicts it. The grace period begins with the first try: a repeated request does not extend it.
#[derive(Clone, Debug)]
pub(crate) enum Noted {
    Evicted(Before),
    /// The pods are notified that they are to stop.
    Notified(Recipients),
    /// The pods are asked to save before some of them go.
    Asked(SaveRequest),
}
