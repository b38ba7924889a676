//! What becomes of a head that issued preemptions (kueue.md 6.7, step 11).

use crate::steps::queue::Outcome;

/// Preemptions that a head issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Issued {
    /// How many workloads are on their way out for it, whoever sent them.
    pub preempted: usize,
    /// How many could not be evicted.
    pub failed: usize,
}

impl Issued {
    /// Where the head waits.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self { preempted: 0, failed: 0 } => Outcome::Generic,
            Self { preempted: 0, .. } => Outcome::PreemptionFailed,
            _ => Outcome::PendingPreemption,
        }
    }

    /// Whether its next scan over flavors begins anew: who leaves may make the first one fit.
    #[must_use]
    pub const fn scans_anew(self) -> bool {
        true
    }

    /// What the head is told, after why it is not a plain fit.
    #[must_use]
    pub fn told(self, unfit: String) -> String {
        unfit + &self.suffix()
    }

    /// That without why it is not a plain fit.
    #[must_use]
    pub fn suffix(self) -> String {
        match self.outcome() {
            Outcome::PendingPreemption => format!(". Pending the preemption of {} workload(s)", self.preempted),
            Outcome::PreemptionFailed => format!(". Preempting {} workload(s) failed, will retry.", self.failed),
            _ => String::new(),
        }
    }
}
