//! Leader election as a pure state machine: what to do next with the Lease, given what was seen of it and our own clock.
//!
//! Clocks of different machines are never compared. A candidate measures, on its own monotonic clock, how long the record
//! has not changed; the holder measures how long ago its last successful renewal *began*. Times are durations since the
//! process began.
//!
//! The crate performs no request and has no clock. Start reading at [`Candidate`].

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

/// Number of a time in which one process leads: every claim of the Lease makes a higher one. The writer refuses a write that was decided in another term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Time-outs of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease holds without renewal.
    pub lease_duration: Duration,
    /// The holder gives up after that long without a renewal.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
}

/// The Lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Holder; `None` when it was released.
    pub holder: Option<String>,
    /// How long it holds without a change.
    pub duration: Duration,
    /// `leaseTransitions`.
    pub transitions: i32,
    /// resourceVersion.
    pub version: String,
}

/// The next thing that a participant does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Create it with us as holder.
    Create,
    /// Take it: replace at that version, with these transitions.
    Claim {
        /// Version to replace.
        version: String,
        /// New `leaseTransitions`.
        transitions: i32,
    },
    /// Renew it: replace at that version.
    Renew {
        /// Version to replace.
        version: String,
    },
    /// Stop leading now.
    StepDown,
    /// No request about the lease is due for that time.
    Wait(Duration),
}

#[derive(Clone, Debug)]
struct Leading {
    term: Term,
    renewed: Duration,
}

/// One participant of the election.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The record last seen (`None`: there is no Lease) and since when it has not changed.
    seen: Option<(Option<Record>, Duration)>,
    /// The record that we saw may be out of date: read before the next write.
    stale: bool,
    next_try: Duration,
    leading: Option<Leading>,
}

impl Candidate {
    /// A participant that has seen nothing yet.
    #[must_use]
    pub const fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, seen: None, stale: true, next_try: Duration::ZERO, leading: None }
    }

    /// Our term and the end of our lease, when we lead.
    #[must_use]
    pub fn leading(&self) -> Option<(Term, Duration)> {
        self.leading.as_ref().map(|leading| (leading.term, leading.renewed + self.timing.lease_duration))
    }

    /// The Lease was read.
    pub fn observe(&mut self, record: Option<Record>, now: Duration) {
        self.stale = false;
        let version = |record: &Option<Record>| record.as_ref().map(|record| record.version.clone());
        match &self.seen {
            Some((old, _)) if version(old) == version(&record) => {}
            _ => self.seen = Some((record, now)),
        }
    }

    /// The next action at `now`.
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

    /// A create, claim or renewal that began at `began` succeeded.
    pub fn written(&mut self, record: Record, began: Duration) {
        let term = match &self.leading {
            Some(leading) => leading.term,
            // A claim raises the transitions, so a term never comes back; a fresh Lease begins at one.
            None => Term(u64::try_from(record.transitions).unwrap_or(0).saturating_add(1)),
        };
        self.leading = Some(Leading { term, renewed: began });
        self.seen = Some((Some(record), began));
        self.stale = false;
        self.next_try = began + self.timing.retry_period;
    }

    /// A request failed or lost a race: look before trying again, at once after a lost race.
    pub fn failed(&mut self, conflict: bool, now: Duration) {
        self.stale = true;
        self.next_try = if conflict { now } else { now + self.timing.retry_period };
    }

    /// We do not lead any more.
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
