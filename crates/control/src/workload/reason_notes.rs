//! The reason why one Workload waits, as it is to be written next, and when it was written last.

use berth_engine::model::Verdict;
use jiff::Timestamp;

/// The place of a reason that is still to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReasonPlace {
    /// In the queue: at first the heads of their queues, then (true) all others.
    Queue(bool),
    /// Behind the queue, until its older text is old enough.
    Later(Timestamp),
}

/// The reason why one Workload waits.
#[derive(Debug, Default)]
pub(crate) struct ReasonNotes {
    /// The reason that is still to be written.
    next: Option<(Verdict, ReasonPlace)>,
    /// Time at which the last text was written.
    written: Option<Timestamp>,
}

impl ReasonNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_none() && self.written.is_none()
    }

    pub(crate) fn place(&self) -> Option<ReasonPlace> {
        self.next.as_ref().map(|(_, place)| *place)
    }

    /// The reason that is still to be written.
    pub(crate) fn next(&self) -> Option<&Verdict> {
        self.next.as_ref().map(|(verdict, _)| verdict)
    }

    /// Time at which the last text was written.
    pub(crate) fn written(&self) -> Option<Timestamp> {
        self.written
    }

    /// Has a reason written, in place of the one that waits; `None` for no reason.
    pub(crate) fn wait(&mut self, next: Option<(Verdict, ReasonPlace)>) {
        self.next = next;
    }

    /// Moves the reason to another place.
    pub(crate) fn move_to(&mut self, new: ReasonPlace) {
        if let Some((_, place)) = &mut self.next {
            *place = new;
        }
    }

    /// The reason, which is written now.
    pub(crate) fn write(&mut self, now: Timestamp) -> Option<Verdict> {
        self.written = Some(now);
        self.next.take().map(|(verdict, _)| verdict)
    }
}
