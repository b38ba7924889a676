//! Rules that a set of victims can break.

/// The rule that a set of victims breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A victim holds no quota, is in the set twice, or gives up pods that are not surplus.
    NoVictim,
    /// A victim was already evicted for another head of the cycle, or eviction history protects the victim.
    NotPreemptible,
    /// A victim is in another cohort tree or in a queue that may not admit, or holds no quota of a cell that lacks quota.
    Elsewhere,
    /// A victim is a workload slice whose old or replacement slice holds quota, too.
    HandingOver,
    /// `withinClusterQueue` or `reclaimWithinCohort` protects a victim.
    Policy,
    /// The priority of a victim is too near to the priority of the preemptor.
    TooNear,
    /// A victim began a short while ago or cannot be stopped.
    Protected,
    /// A victim is preempted by a right that the preemptor does not have: by `borrowWithinCohort`, below its priority threshold, or within the preemptor's own
    /// quota.
    Right,
    /// The queue of a victim, or a cohort above it, is within its quota.
    WithinQuota,
    /// The side of the cohort tree with the victim has a smaller share than the side with the preemptor.
    Share,
    /// The victims are more, or hold more quota, than the queue's policy allows.
    Bounds,
    /// The preemptor does not fit when the victims have left, or fits only by borrowing that is not allowed.
    NotEnough,
}

impl Breach {
    /// Message about the broken rule in the workload's verdict.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NoVictim => "Preemption was refused: a chosen workload holds nothing that it could give up",
            Self::NotPreemptible => "Preemption was refused: a chosen workload must not be preempted for this one",
            Self::Elsewhere => "Preemption was refused: a chosen workload holds nothing that would help",
            Self::HandingOver => "Preemption was refused: a chosen workload is being replaced",
            Self::Policy => "Preemption was refused: the preemption policy protects a chosen workload",
            Self::TooNear => "Preemption was refused: a chosen workload has a priority too near",
            Self::Protected => "Preemption was refused: a chosen workload began a short while ago",
            Self::Right => "Preemption was refused: the workload has no right to preempt a chosen one",
            Self::WithinQuota => "Preemption was refused: a chosen workload's queue is within its quota",
            Self::Share => "Preemption was refused: a chosen workload's queue has the smaller share",
            Self::Bounds => "Preemption was refused: too many workloads, or too much quota, would be preempted",
            Self::NotEnough => "Preemption was refused: the workload would not fit after it",
        }
    }
}
