//! The outcome of a head's cycle, and the place of the head after the cycle.

use crate::model::PendingReason;

/// The place where a head waits after its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    Admitted,
    /// The head is parked with its class of equals, or without the class if the gate `park_equals` is off.
    NoRoom,
    /// Back at once.
    Retry,
    /// The head is tried again at once, and stays first while its victims leave.
    PendingPreemption,
    /// Parked by itself.
    Park,
    /// The head is parked until its namespace or its queue changes.
    Mismatch,
}

/// The outcome of a head's cycle, which decides the place where the head waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The head was not nominated, for a reason that has no name in Kueue.
    Generic,
    /// No flavor has room: the head is parked with its class of equals.
    NoFit,
    /// Preemption would help, but there are no candidates: the head is parked with its class of equals.
    PreemptionNoCandidates,
    /// The head was nominated and lost against other heads in the cycle.
    FailedAfterNomination,
    /// The head's namespace does not match the queue.
    NamespaceMismatch,
    /// The head issued preemptions and stays first in its queue.
    PendingPreemption,
    /// Preemptions of the head could not be issued.
    PreemptionFailed,
    /// A preemption gate of the head is closed.
    PreemptionGated,
}

impl Outcome {
    /// Kueue's name of the outcome; empty for `Generic`, which has no name in Kueue. Cost: constant.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Generic => "",
            Self::NoFit => "NoFit",
            Self::PreemptionNoCandidates => "PreemptionNoCandidates",
            Self::FailedAfterNomination => "FailedAfterNomination",
            Self::NamespaceMismatch => "NamespaceMismatch",
            Self::PendingPreemption => "PendingPreemption",
            Self::PreemptionFailed => "PreemptionFailed",
            Self::PreemptionGated => "PreemptionGated",
        }
    }

    /// The place of the head after its cycle, given by the outcome.
    pub(crate) const fn requeue(self) -> Requeue {
        match self {
            Self::Generic | Self::PreemptionGated => Requeue::Park,
            Self::NoFit | Self::PreemptionNoCandidates => Requeue::NoRoom,
            Self::FailedAfterNomination | Self::PreemptionFailed => Requeue::Retry,
            Self::NamespaceMismatch => Requeue::Mismatch,
            Self::PendingPreemption => Requeue::PendingPreemption,
        }
    }

    pub(crate) const fn reason(self) -> PendingReason {
        match self {
            Self::Generic => PendingReason::PendingEvaluation,
            Self::PreemptionGated => PendingReason::AdmissionGated,
            Self::NamespaceMismatch => PendingReason::Misconfigured,
            Self::PendingPreemption => PendingReason::WaitingForPreemptedWorkloads,
            Self::NoFit | Self::PreemptionNoCandidates | Self::FailedAfterNomination | Self::PreemptionFailed => {
                PendingReason::WaitingForQuota
            }
        }
    }
}
