//! Messages of the simulated network and timers, ordered by their times.

use std::collections::BTreeMap;

use berth_control::write::{Task, TaskId, TaskOutcome};
use berth_lease::Action;

use super::lease_store::LeaseAnswer;

/// A process of a replica: messages to an earlier process of the replica are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Number of the replica.
    pub(super) replica: usize,
    /// Number of the process among the processes of its replica.
    pub(super) start: u64,
}

/// An event of the simulation that happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// The next external event happens.
    Event,
    /// The runtime of a process sends a task.
    Send(Process, Box<Task>),
    /// A request arrives at the API server; with `answers`, its outcome is sent back.
    Request { from: Process, task: Box<Task>, sent_ms: u64, answers: bool },
    /// An outcome arrives at a process.
    Answer(Process, TaskId, TaskOutcome),
    /// The request for a list of a kind arrives at the API server; `epoch` counts the times at which a process has requested all lists.
    List { from: Process, stream: usize, epoch: u64 },
    /// Entries of a watch arrive at a process.
    Changes(Process, usize),
    /// A candidate of a process makes its next step in the leader election.
    Elect(Process),
    /// A request about the Lease arrives at the API server.
    LeaseRequest { from: Process, action: Action, began_ms: u64, answers: bool },
    /// The answer to a request about the Lease arrives at a process.
    LeaseAnswer { to: Process, answer: LeaseAnswer, began_ms: u64 },
    /// The control loop of a process makes a step.
    Step(Process),
    /// The controllers of Kubernetes run.
    Controllers,
    /// A new process of a replica starts.
    Start(usize),
}

impl Message {
    /// The process at which the message arrives; `None` for messages to the API server and for external events.
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
    /// Adds a message that arrives at a time. Messages with equal times arrive in the order in which they were added.
    pub(super) fn add(&mut self, at_ms: u64, message: Message) {
        self.sequence += 1;
        self.waiting.insert((at_ms, self.sequence), message);
    }

    /// Removes the next message, and returns it with its time.
    pub(super) fn next(&mut self) -> Option<(u64, Message)> {
        let ((at, _), message) = self.waiting.pop_first()?;
        Some((at, message))
    }
}
