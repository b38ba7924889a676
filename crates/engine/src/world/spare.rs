//! Surplus pods of a workload that holds quota; preemption takes them in `preempt/spare.rs`.

use crate::model::{PodSetAssignment, Surplus};
use crate::quota::balance::{Units, Usage};
use crate::world::ids::CellId;

/// Surplus pods of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pods: i64,
    /// At least 1.
    step: i64,
    /// Usage of one pod.
    pub(crate) each: Usage,
}

impl Spare {
    /// Surplus pods of the pod set that was given `given`; `usage` has the amounts of the pod set by cell.
    pub(crate) fn of(surplus: &Surplus, given: &PodSetAssignment, usage: &[(CellId, Units)]) -> Option<Self> {
        let (pods, count) = (surplus.pods.min(given.count), Units::from(given.count));
        let each = || usage.iter().map(|(cell, value)| (*cell, value.checked_div(count).unwrap_or(0))).collect();
        (pods > 0 && count > 0).then(|| Self { pods, step: surplus.step.max(1), each: each() })
    }

    /// Whether the workload has at least `pods` surplus pods.
    pub(crate) const fn has(&self, pods: i64) -> bool {
        pods > 0 && pods <= self.pods
    }

    /// Number of steps after which all surplus pods are given up.
    pub(crate) fn steps(&self) -> i64 {
        let full = self.pods.checked_div(self.step).unwrap_or(0);
        full.saturating_add(i64::from(full.saturating_mul(self.step) < self.pods))
    }

    pub(crate) fn after(&self, steps: i64) -> i64 {
        self.step.saturating_mul(steps).min(self.pods)
    }
}
