//! Who may preempt whom, as queues and workloads say it.

/// `withinClusterQueue` and `reclaimWithinCohort` in one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// Never preempt.
    #[default]
    Never,
    /// Empty, which the API's defaults rule out: allows nobody, and yet is not `Never` where a queue that could only borrow
    /// asks whether it may preempt at all.
    Unset,
    /// Only workloads of lower priority.
    LowerPriority,
    /// Lower priority, or equal priority and newer.
    LowerOrNewerEqualPriority,
    /// Any workload.
    Any,
}

impl std::str::FromStr for PreemptionPolicy {
    type Err = String;

    /// Kueue's name of a policy.
    ///
    /// # Errors
    /// Names what is allowed.
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

/// Whom a workload may preempt, within what its queue allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempts {
    /// Whom its queue lets it.
    #[default]
    AsQueue,
    /// Of those the ones of lower priority.
    Lower,
    /// Nobody.
    Nobody,
}

impl Preempts {
    /// What is left of a policy.
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
    /// `borrowWithinCohort.policy` is `LowerPriority`.
    pub borrow_within_cohort: bool,
    /// `borrowWithinCohort.maxPriorityThreshold`.
    pub max_priority_threshold: Option<i32>,
}

impl Preemption {
    /// As it holds for a workload that preempts so.
    #[must_use]
    pub const fn of(self, preempts: Preempts) -> Self {
        Self {
            within_cluster_queue: preempts.narrow(self.within_cluster_queue),
            reclaim_within_cohort: preempts.narrow(self.reclaim_within_cohort),
            ..self
        }
    }
}

/// Bounds of preemption; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionGuard {
    /// Who asks preempts only workloads whose priority is at least so much lower.
    pub min_priority_difference: i32,
    /// Workloads of the queue are not preempted for so many milliseconds after they reserved quota.
    pub protected_ms: i64,
    /// Most victims of one workload.
    pub max_victims: Option<u32>,
    /// Most that victims may hold of a contested resource, in per cent of what is asked for.
    pub max_evicted_percent: Option<u32>,
}
