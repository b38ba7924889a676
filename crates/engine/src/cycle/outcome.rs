//! The outcome of a head's cycle, and the place of the head after it.

use crate::model::PendingReason;

/// The place of a head after its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    Admitted,
    /// Parked with its class, or by itself if the gate `park_equals` is off.
    NoRoom,
    /// Back at once.
    Retry,
    /// Back at once, and it stays first while its victims leave.
    PendingPreemption,
    /// Parked by itself.
    Park,
    /// Parked until its namespace or queue changes.
    Mismatch,
}

/// The outcome of a head's cycle, which decides the place where it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The head was not nominated, for a reason without a name of its own.
    Generic,
    /// No flavor has room: it is parked with its equals.
    NoFit,
    /// Preemption would help, but there are no candidates: parked with its equals.
    PreemptionNoCandidates,
    /// The head was nominated and lost against others in the cycle.
    FailedAfterNomination,
    /// The head's namespace does not match the queue.
    NamespaceMismatch,
    /// The head issued preemptions and stays first.
    PendingPreemption,
    /// Preemptions of the head could not be issued.
    PreemptionFailed,
    /// A preemption gate of the head is closed.
    PreemptionGated,
}

impl Outcome {
    /// Kueue's word for it, empty for the one without a name.
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

    /// The place of the head after its cycle.
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
