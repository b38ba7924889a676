//! Notes about the reason why one Workload waits: the reason to write next, and the time of the last write.

use berth_engine::model::Verdict;
use jiff::Timestamp;

/// The place of a reason that is still to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonPlace {
    /// The reason is in the queue of reasons to write: first (false) the reasons of heads of queues, then (true) all other reasons.
    Queue(bool),
    /// The reason is behind the queue of reasons to write until the given time, at which the text in the status is old enough.
    Later(Timestamp),
}

/// Notes about the reason why one Workload waits.
#[derive(Debug, Default)]
pub struct ReasonNotes {
    /// The reason that is still to be written to the Workload's status.
    next: Option<(Verdict, ReasonPlace)>,
    /// Time at which the last reason was written to the Workload's status.
    written: Option<Timestamp>,
}

impl ReasonNotes {
    /// Whether no pending reason is noted about the Workload.
    pub fn is_empty(&self) -> bool {
        self.next.is_none() && self.written.is_none()
    }

    /// The place of the reason that is still to be written, `None` if there is no such reason.
    pub fn place(&self) -> Option<ReasonPlace> {
        self.next.as_ref().map(|(_, place)| *place)
    }

    /// The reason that is still to be written.
    pub fn next(&self) -> Option<&Verdict> {
        self.next.as_ref().map(|(verdict, _)| verdict)
    }

    /// Time at which the last reason was written to the Workload's status.
    pub fn written(&self) -> Option<Timestamp> {
        self.written
    }

    /// Queues a reason to be written, in place of the reason that waits; `None` drops the reason that waits.
    pub(crate) fn wait(&mut self, next: Option<(Verdict, ReasonPlace)>) {
        self.next = next;
    }

    /// Moves the reason that is still to be written to another place in the queue of reasons.
    pub(crate) fn move_to(&mut self, new: ReasonPlace) {
        if let Some((_, place)) = &mut self.next {
            *place = new;
        }
    }

    /// Removes and returns the reason that is written now.
    pub fn write(&mut self, now: Timestamp) -> Option<Verdict> {
        self.written = Some(now);
        self.next.take().map(|(verdict, _)| verdict)
    }
}
