//! Preemption settings of queues and workloads.

/// Preemption policies: the values of `withinClusterQueue` and `reclaimWithinCohort` in one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// Never preempt.
    #[default]
    Never,
    /// The empty preemption policy, which the API's defaults rule out. The empty preemption policy allows no victims. Under fair sharing, a queue that would
    /// have to borrow may search victims if its `reclaimWithinCohort` is empty, and may not if it is `Never`.
    Unset,
    /// Preemption policy that only workloads of lower priority may be preempted.
    LowerPriority,
    /// Preemption policy that workloads of lower priority, and newer workloads of equal priority, may be preempted.
    LowerOrNewerEqualPriority,
    /// Any workload.
    Any,
}

impl std::str::FromStr for PreemptionPolicy {
    type Err = String;

    /// The preemption policy that has the name `name` in Kueue.
    ///
    /// # Errors
    /// Returns a message with the allowed names if no policy has this name.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "Never" => Ok(Self::Never),
            "" => Ok(Self::Unset),
            "LowerPriority" => Ok(Self::LowerPriority),
            "LowerOrNewerEqualPriority" => Ok(Self::LowerOrNewerEqualPriority),
            "Any" => Ok(Self::Any),
            other => Err(format!(
                "unknown policy `{other}`; allowed are Never, LowerPriority, LowerOrNewerEqualPriority and Any"
            )),
        }
    }
}

/// Preemption scope of a workload, within the queue's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempts {
    /// The workload preempts victims as the queue's policy allows.
    #[default]
    AsQueue,
    /// The workload preempts victims as the queue's policy allows, if their priority is lower.
    Lower,
    /// No victims.
    Nobody,
}

impl Preempts {
    /// The preemption policy `policy`, narrowed to this preemption scope. Cost: constant.
    #[must_use]
    pub const fn narrow(self, policy: PreemptionPolicy) -> PreemptionPolicy {
        match (self, policy) {
            (Self::Lower, PreemptionPolicy::LowerOrNewerEqualPriority | PreemptionPolicy::Any) => {
                PreemptionPolicy::LowerPriority
            }
            (Self::Nobody, _) => PreemptionPolicy::Never,
            _ => policy,
        }
    }
}

/// `spec.preemption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// `withinClusterQueue`.
    pub within_cluster_queue: PreemptionPolicy,
    /// `reclaimWithinCohort`.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// True if `borrowWithinCohort.policy` is `LowerPriority`: workloads of the queue may preempt while the queue borrows.
    pub borrow_within_cohort: bool,
    /// Highest priority of workloads that may be preempted while the queue borrows (`borrowWithinCohort.maxPriorityThreshold`).
    pub max_priority_threshold: Option<i32>,
}

impl Preemption {
    /// The preemption settings of a queue for a workload with the preemption scope `preempts`. Cost: constant.
    #[must_use]
    pub const fn of(self, preempts: Preempts) -> Self {
        Self {
            within_cluster_queue: preempts.narrow(self.within_cluster_queue),
            reclaim_within_cohort: preempts.narrow(self.reclaim_within_cohort),
            ..self
        }
    }
}

/// Bounds of preemption; by default there are no bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionGuard {
    /// Workloads of the queue preempt only workloads whose priority is lower by at least this difference.
    pub min_priority_difference: i32,
    /// Time in milliseconds after the reservation of quota during which workloads of the queue are not preempted.
    pub protected_ms: i64,
    /// Largest number of workloads that one workload of the queue may preempt.
    pub max_victims: Option<u32>,
    /// Largest amount of a contested resource that the victims may hold, in per cent of the preemptor's request.
    pub max_evicted_percent: Option<u32>,
}
