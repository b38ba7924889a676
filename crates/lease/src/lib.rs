//! Leader election as a pure state machine: the next action on the Lease, computed from the observed Lease and the process's own clock.
//!
//! Clocks of different machines are never compared. A candidate measures, on its own monotonic clock, how long the Lease has not changed. The leader measures
//! the time since its last successful renewal *began*. Times are durations since the start of the process.
//!
//! The crate sends no requests and has no clock. [`Candidate`] is the place to start reading.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

use std::time::Duration;

/// Number of a term, in which one process leads. Every claim of the Lease begins a term with a higher number. The part of Berth that sends writes refuses a
/// write that was decided in another term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Time-outs of the leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time for which the Lease is held without a renewal.
    pub lease_duration: Duration,
    /// Time without a renewal after which the leader steps down.
    pub renew_deadline: Duration,
    /// Pause between two attempts to get or renew the Lease.
    pub retry_period: Duration,
}

/// The content of the Lease, as read from the API server or written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identity of the holder; `None` if the holder has released the Lease.
    pub holder: Option<String>,
    /// Time for which the Lease is held without a change.
    pub duration: Duration,
    /// The `leaseTransitions` of the Lease: the number of changes of its holder.
    pub transitions: i32,
    /// The resourceVersion of the Lease.
    pub version: String,
}

/// The next action of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Create the Lease with the candidate as its holder.
    Create,
    /// Claim the Lease: replace the version of the Lease with the resourceVersion `version`, and set `leaseTransitions` to `transitions`.
    Claim {
        /// The resourceVersion of the Lease that the write replaces.
        version: String,
        /// New `leaseTransitions`.
        transitions: i32,
    },
    /// Renew the Lease: replace the version of the Lease with the resourceVersion `version`.
    Renew {
        /// The resourceVersion of the Lease that the write replaces.
        version: String,
    },
    /// Stop leading at once.
    StepDown,
    /// Wait for this time, in which no request about the Lease is due.
    Wait(Duration),
}

#[derive(Clone, Debug)]
struct Leading {
    term: Term,
    renewed: Duration,
}

/// A candidate: one participant of the election, which may be the leader.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The last observed Lease (`None` if there is no Lease), and the time since which it has not changed.
    seen: Option<(Option<Record>, Duration)>,
    /// True if the observed Lease may be outdated, so that the next action is a read.
    stale: bool,
    next_try: Duration,
    leading: Option<Leading>,
}

impl Candidate {
    /// A candidate that has not observed the Lease yet.
    #[must_use]
    pub const fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, seen: None, stale: true, next_try: Duration::ZERO, leading: None }
    }

    /// The candidate's term and the end of its lease, if the candidate leads.
    #[must_use]
    pub fn leading(&self) -> Option<(Term, Duration)> {
        self.leading.as_ref().map(|leading| (leading.term, leading.renewed + self.timing.lease_duration))
    }

    /// Stores the Lease that a read returned as the last Lease that the candidate observed.
    pub fn observe(&mut self, record: Option<Record>, now: Duration) {
        self.stale = false;
        let version = |record: &Option<Record>| record.as_ref().map(|record| record.version.clone());
        match &self.seen {
            Some((old, _)) if version(old) == version(&record) => {}
            _ => self.seen = Some((record, now)),
        }
    }

    /// The next action of the candidate at the time `now`.
    #[must_use]
    pub fn next(&mut self, now: Duration) -> Action {
        if let Some(leading) = &self.leading {
            let lost = now >= leading.renewed + self.timing.renew_deadline;
            if lost || self.held_by_another() {
                return Action::StepDown;
            }
        }
        if now < self.next_try {
            return Action::Wait(self.next_try - now);
        }
        if self.stale {
            return Action::Read;
        }
        match &self.seen {
            None => Action::Read,
            Some((None, _)) => Action::Create,
            Some((Some(record), since)) => {
                if self.leading.is_some() {
                    return Action::Renew { version: record.version.clone() };
                }
                let ours = record.holder.as_ref().is_none_or(|holder| *holder == self.identity);
                let end = *since + record.duration;
                if ours || now >= end {
                    return Action::Claim {
                        version: record.version.clone(),
                        transitions: record.transitions.saturating_add(1),
                    };
                }
                let pause = self.timing.retry_period.min(end - now).max(Duration::from_millis(1));
                self.stale = true;
                self.next_try = now + pause;
                Action::Wait(pause)
            }
        }
    }

    /// Updates the candidate after its create, claim or renewal of the Lease, which began at `began`, has succeeded.
    pub fn written(&mut self, record: Record, began: Duration) {
        let term = match &self.leading {
            Some(leading) => leading.term,
            // Each claim of the Lease increases its `leaseTransitions`, so no term number occurs twice. The first term of a newly created Lease has the number
            // 1.
            None => Term(u64::try_from(record.transitions).unwrap_or(0).saturating_add(1)),
        };
        self.leading = Some(Leading { term, renewed: began });
        self.seen = Some((Some(record), began));
        self.stale = false;
        self.next_try = began + self.timing.retry_period;
    }

    /// Updates the candidate after its request about the Lease has failed. The candidate reads the Lease before the next write, at once after a conflict and
    /// otherwise after the retry period.
    pub fn failed(&mut self, conflict: bool, now: Duration) {
        self.stale = true;
        self.next_try = if conflict { now } else { now + self.timing.retry_period };
    }

    /// Ends the candidate's term, so that the candidate no longer leads.
    pub fn step_down(&mut self, now: Duration) {
        self.leading = None;
        self.stale = true;
        self.next_try = now;
    }

    fn held_by_another(&self) -> bool {
        match &self.seen {
            Some((Some(record), _)) => record.holder.as_ref() != Some(&self.identity),
            Some((None, _)) => true,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
