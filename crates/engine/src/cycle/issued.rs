//! The outcome for a head that issued preemptions, as Kueue defines it.

use crate::cycle::outcome::Outcome;

/// The preemptions that a head issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Issued {
    /// Number of workloads that are leaving for the preemptor, including workloads that another head evicted.
    pub preempted: usize,
    /// Number of workloads that could not be evicted.
    pub failed: usize,
}

impl Issued {
    /// The requeue outcome of the head. Cost: constant.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self { preempted: 0, failed: 0 } => Outcome::Generic,
            Self { preempted: 0, .. } => Outcome::PreemptionFailed,
            _ => Outcome::PendingPreemption,
        }
    }

    /// Whether the head's next scan over flavors begins at the first flavor: always, because victims that leave may make the first flavor fit. Cost: constant.
    #[must_use]
    pub const fn scans_anew(self) -> bool {
        true
    }

    /// Message for the head: the text `unfit`, which says why the assignment is not a plain fit, followed by the text about preemptions. Cost of `message`: the
    /// length of the message.
    #[must_use]
    pub fn message(self, unfit: String) -> String {
        unfit + &self.suffix()
    }

    /// The part of the head's message that is about preemptions. Cost: constant.
    #[must_use]
    pub fn suffix(self) -> String {
        match self.outcome() {
            Outcome::PendingPreemption => format!(". Pending the preemption of {} workload(s)", self.preempted),
            Outcome::PreemptionFailed => format!(". Preempting {} workload(s) failed, will retry.", self.failed),
            _ => String::new(),
        }
    }
}
