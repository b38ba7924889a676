//! The ways in which a workload can get a flavor.

/// The way in which a workload can get a flavor; later variants are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Not at all for now.
    NoFit,
    /// The workload gets the flavor only if other workloads are preempted.
    Preempt,
    /// The workload gets the flavor when preemptions issued in this cycle for other workloads are done.
    DeferredFit,
    /// At once.
    Fit,
}

impl Mode {
    /// Name as Kueue prints it. Cost: constant.
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

/// Result of a search for victims for one quota cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionPossibility {
    /// No victims.
    NoCandidates,
    /// The search found victims, and some of them are in the workload's own queue.
    Preempt,
    /// The search found victims, all of them in other queues.
    Reclaim,
}

impl PreemptionPossibility {
    /// Name as Kueue prints it. Cost: constant.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// The way in which a workload can get a flavor, with the kinds of preemption distinguished, the worst variant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Granular {
    /// No way.
    NoFit,
    /// The flavor fits only with preemption, and there are no candidates for preemption.
    NoCandidates,
    /// The workload preempts in its own queue.
    Preempt,
    /// The workload reclaims quota from other queues.
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
