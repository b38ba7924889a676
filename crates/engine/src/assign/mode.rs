//! The ways in which a flavor can be had.

/// The way in which a flavor can be had; later is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Not at all for now.
    NoFit,
    /// Only if workloads are preempted.
    Preempt,
    /// Once preemptions issued in this cycle for others are done.
    DeferredFit,
    /// At once.
    Fit,
}

impl Mode {
    /// Name as Kueue prints it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFit => "NoFit",
            Self::Preempt => "Preempt",
            Self::DeferredFit => "DeferredFit",
            Self::Fit => "Fit",
        }
    }
}

/// Result of a preemption search for one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionPossibility {
    /// No victims.
    NoCandidates,
    /// Victims, some of them in the workload's own queue.
    Preempt,
    /// Victims in other queues only.
    Reclaim,
}

impl PreemptionPossibility {
    /// Name as Kueue prints it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// The engine's finer mode, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Granular {
    /// No way.
    NoFit,
    /// Needs preemption, and there are no candidates.
    NoCandidates,
    /// Preempts in its own queue.
    Preempt,
    /// Takes back from other queues.
    Reclaim,
    /// Fits.
    Fit,
}

impl Granular {
    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }

    pub(crate) const fn possibility(self) -> Option<PreemptionPossibility> {
        match self {
            Self::NoFit | Self::Fit => None,
            Self::NoCandidates => Some(PreemptionPossibility::NoCandidates),
            Self::Preempt => Some(PreemptionPossibility::Preempt),
            Self::Reclaim => Some(PreemptionPossibility::Reclaim),
        }
    }
}
