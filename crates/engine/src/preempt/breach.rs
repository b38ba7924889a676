//! Rules that a set of victims can break.

/// The rule that a set of victims breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A victim holds no quota, is in the set twice, or gives up pods that are not surplus.
    NoVictim,
    /// A victim was evicted already for another head of the cycle, or eviction history protects it.
    Barred,
    /// A victim is of another cohort tree, of a queue that may not admit, or holds nothing in a cell that lacks quota.
    Elsewhere,
    /// A victim is a slice whose old or replacement slice holds quota, too.
    HandingOver,
    /// `withinClusterQueue` or `reclaimWithinCohort` protects a victim.
    Policy,
    /// The priority of a victim is too near.
    TooNear,
    /// A victim began a short while ago or cannot be stopped.
    Protected,
    /// A victim is preempted by a right that the workload does not have: `borrowWithinCohort`, its threshold, or its own quota.
    Right,
    /// The queue of a victim, or a cohort above it, is within its quota.
    WithinQuota,
    /// The side of a victim has a smaller share than the side of the preemptor.
    Share,
    /// The victims are more, or hold more, than the queue's policy allows.
    Bounds,
    /// The workload does not fit when the victims have left, or only by borrowing that is not allowed.
    NotEnough,
}

impl Breach {
    /// Message in the workload's verdict.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NoVictim => "Preemption was refused: a chosen workload holds nothing that it could give up",
            Self::Barred => "Preemption was refused: a chosen workload must not be preempted for this one",
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
