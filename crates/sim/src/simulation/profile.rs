//! Faults of a run: the profile says how strong each may be, and each run draws its own from it.

use std::fmt;

use super::planted::Planted;
use crate::dice::Dice;

/// Largest share of each fault, and the planted bug, if any.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Largest shares of requests, of a thousand each.
    pub requests: RequestFaults,
    /// Largest shares of events, of a thousand each.
    pub processes: ProcessFaults,
    /// Longest delay of a watch, in milliseconds.
    pub lag_ms: u64,
    /// A bug in what control sees or sends.
    pub planted: Option<Planted>,
}

/// Shares of requests of which something goes wrong, of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFaults {
    /// The request never arrives.
    pub lost: usize,
    /// The request is performed, and its answer never arrives.
    pub unanswered: usize,
    /// The request arrives seconds later.
    pub late: usize,
    /// The request arrives twice.
    pub doubled: usize,
    /// The request is refused for good, for now, or by a conflict.
    pub refused: usize,
}

/// Shares of events before which something happens to a process or its connection, of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessFaults {
    /// A replica ends, and begins again after a while.
    pub crashes: usize,
    /// A replica does nothing for a while, and goes on as if no time had passed.
    pub pauses: usize,
    /// A replica has no connection for a while.
    pub cuts: usize,
    /// A watch ends and lists again.
    pub relists: usize,
}

impl Profile {
    /// The profile of `make test`.
    #[must_use]
    pub const fn usual() -> Self {
        Self {
            requests: RequestFaults { lost: 60, unanswered: 60, late: 60, doubled: 60, refused: 60 },
            processes: ProcessFaults { crashes: 40, pauses: 40, cuts: 40, relists: 100 },
            lag_ms: 3_000,
            planted: None,
        }
    }

    /// The profile of `make test`, with a planted bug.
    #[must_use]
    pub const fn with(planted: Planted) -> Self {
        Self { planted: Some(planted), ..Self::usual() }
    }

    /// The faults of one run: none in one of four runs, otherwise about half of the kinds, each with a strength of its own.
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
    /// Shares of requests.
    pub requests: RequestFaults,
    /// Shares of events.
    pub processes: ProcessFaults,
    /// Longest delay of a watch, in milliseconds.
    pub lag_ms: u64,
}

impl Drawn {
    /// No fault at all: the end of a run.
    pub(super) fn healed() -> Self {
        Self { lag_ms: 50, ..Self::default() }
    }
}
