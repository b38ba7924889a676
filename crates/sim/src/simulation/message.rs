//! Messages of the network and timers, in the order of their times.

use std::collections::BTreeMap;

use berth_control::write::{Task, TaskId, TaskOutcome};
use berth_lease::Action;

use super::lease_store::LeaseAnswer;

/// A process of a replica: messages to an earlier one of the same replica are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Number of the replica.
    pub(super) replica: usize,
    /// Number of its start.
    pub(super) start: u64,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// The next event from outside.
    Event,
    /// A task has its turn in the runtime of a process.
    Send(Process, Box<Task>),
    /// A request arrives at the API server; with `answers`, its outcome goes back.
    Request { from: Process, task: Box<Task>, sent_ms: u64, answers: bool },
    /// An outcome arrives at a process.
    Answer(Process, TaskId, TaskOutcome),
    /// The request for a list of a kind arrives at the API server, for an epoch of the lists.
    List { from: Process, stream: usize, epoch: u64 },
    /// Entries of a watch arrive at a process.
    Changes(Process, usize),
    /// A candidate has its turn.
    Elect(Process),
    /// A request about the Lease arrives at the API server.
    LeaseRequest { from: Process, action: Action, began_ms: u64, answers: bool },
    /// The answer to a request about the Lease arrives at a process.
    LeaseAnswer { to: Process, answer: LeaseAnswer, began_ms: u64 },
    /// The loop of a process has its turn.
    Step(Process),
    /// Controllers of Kubernetes have their turn.
    Controllers,
    /// A replica starts.
    Start(usize),
}

impl Message {
    /// The process at which it arrives; `None` for the API server and for what is outside.
    pub(super) const fn addressee(&self) -> Option<Process> {
        match self {
            Self::Send(to, _)
            | Self::Answer(to, ..)
            | Self::Changes(to, _)
            | Self::Elect(to)
            | Self::LeaseAnswer { to, .. }
            | Self::Step(to) => Some(*to),
            _ => None,
        }
    }
}

/// Messages under way.
#[derive(Debug, Default)]
pub(super) struct Messages {
    waiting: BTreeMap<(u64, u64), Message>,
    sequence: u64,
}

impl Messages {
    /// Adds a message that arrives at a time. Messages of one time arrive in the order in which they were added.
    pub(super) fn add(&mut self, at_ms: u64, message: Message) {
        self.sequence += 1;
        self.waiting.insert((at_ms, self.sequence), message);
    }

    /// The next message with its time.
    pub(super) fn next(&mut self) -> Option<(u64, Message)> {
        let ((at, _), message) = self.waiting.pop_first()?;
        Some((at, message))
    }
}
