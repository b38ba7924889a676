//! Faults of a simulation run: the profile limits the strength of each fault, and each run draws its own faults from the profile.

use std::fmt;

use super::planted::Planted;
use crate::dice::Dice;

/// Largest strength of each fault, and the planted bug, if there is a bug.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Largest shares of requests with faults, per thousand.
    pub requests: RequestFaults,
    /// Largest shares of external events with faults of a process, per thousand.
    pub processes: ProcessFaults,
    /// Longest delay of a watch, in milliseconds.
    pub lag_ms: u64,
    /// The planted bug of the runs, if there is a bug.
    pub planted: Option<Planted>,
}

/// Shares of requests with each fault, per thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFaults {
    /// Requests that never arrive.
    pub lost: usize,
    /// Requests that are performed, but whose answer never arrives.
    pub unanswered: usize,
    /// Requests that arrive seconds later.
    pub late: usize,
    /// Requests that arrive twice.
    pub doubled: usize,
    /// Requests that the API server refuses permanently, for a while, or by a conflict.
    pub refused: usize,
}

/// Shares of external events before which a process or its connection fails, per thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessFaults {
    /// A process ends, and another process of its replica starts after a while.
    pub crashes: usize,
    /// A process stops for a while, and then goes on as if no time had passed.
    pub pauses: usize,
    /// A process has no connection for a while.
    pub cuts: usize,
    /// A watch ends and lists again.
    pub relists: usize,
}

impl Profile {
    /// The profile that `make test` uses.
    #[must_use]
    pub const fn usual() -> Self {
        Self {
            requests: RequestFaults { lost: 60, unanswered: 60, late: 60, doubled: 60, refused: 60 },
            processes: ProcessFaults { crashes: 40, pauses: 40, cuts: 40, relists: 100 },
            lag_ms: 3_000,
            planted: None,
        }
    }

    /// The profile that `make test` uses, with a planted bug.
    #[must_use]
    pub const fn with(planted: Planted) -> Self {
        Self { planted: Some(planted), ..Self::usual() }
    }

    /// The faults of one run: a quarter of all runs has no faults, and any other run has about half of the kinds of faults, each with a random strength.
    pub(super) fn draw(&self, dice: &mut Dice) -> Drawn {
        if dice.below(4) == 0 {
            return Drawn::healed();
        }
        let mut share = |most: usize| if dice.coin() { 0 } else { dice.below(most + 1) };
        let requests = RequestFaults {
            lost: share(self.requests.lost),
            unanswered: share(self.requests.unanswered),
            late: share(self.requests.late),
            doubled: share(self.requests.doubled),
            refused: share(self.requests.refused),
        };
        let processes = ProcessFaults {
            crashes: share(self.processes.crashes),
            pauses: share(self.processes.pauses),
            cuts: share(self.processes.cuts),
            relists: share(self.processes.relists),
        };
        let lag_ms = if dice.coin() { 50 } else { dice.millis(50, self.lag_ms) };
        Drawn { requests, processes, lag_ms }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requests, processes) = (&self.requests, &self.processes);
        write!(
            f,
            "of 1000 requests at most {} lost, {} unanswered, {} late, {} doubled, {} refused; of 1000 events at most {} with a crash, {} with a \
             pause, {} with a cut, {} with a relist; watches up to {} ms late",
            requests.lost,
            requests.unanswered,
            requests.late,
            requests.doubled,
            requests.refused,
            processes.crashes,
            processes.pauses,
            processes.cuts,
            processes.relists,
            self.lag_ms
        )
    }
}

/// The faults of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Shares of requests with each fault, per thousand.
    pub requests: RequestFaults,
    /// Shares of external events with faults of a process, per thousand.
    pub processes: ProcessFaults,
    /// Longest delay of a watch, in milliseconds.
    pub lag_ms: u64,
}

impl Drawn {
    /// The faults at the end of a run: no fault at all.
    pub(super) fn healed() -> Self {
        Self { lag_ms: 50, ..Self::default() }
    }
}
