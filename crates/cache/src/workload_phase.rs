//! The phase of a Workload: its conditions, its admission and `spec.active`, read once when the Workload is observed.

use berth_api as api;
use berth_api::conditions::{is_true, types};

/// The phase of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadPhase {
    /// The Workload waits for quota, or for the end of a state in which it cannot get quota.
    Pending,
    /// The Workload holds quota, and waits for its admission checks.
    Reserved,
    /// The Workload holds quota, and its pods may run.
    Admitted,
    /// The Workload is evicted, and holds its quota until none of its pods runs.
    Evicting {
        /// True if the pods of the Workload may have been started.
        was_admitted: bool,
    },
    /// The Workload has ended. A finished Workload may have kept its admission, and holds no quota.
    Finished,
    /// The Workload is deactivated, and holds no quota.
    Inactive,
    /// The Workload is admitted without a reservation of quota.
    Inconsistent,
}

impl WorkloadPhase {
    /// The phase of a Workload with the given `spec.active` and status.
    pub fn of(active: bool, status: &api::WorkloadStatus) -> Self {
        let is = |kind: &str| is_true(&status.conditions, kind);
        let is_admitted = is(types::ADMITTED);
        if is(types::FINISHED) {
            return Self::Finished;
        }
        if is(types::QUOTA_RESERVED) && status.admission.is_some() {
            return match (is(types::EVICTED), is_admitted) {
                (true, was_admitted) => Self::Evicting { was_admitted },
                (false, true) => Self::Admitted,
                (false, false) => Self::Reserved,
            };
        }
        match (is_admitted, active) {
            (true, _) => Self::Inconsistent,
            (false, true) => Self::Pending,
            (false, false) => Self::Inactive,
        }
    }

    /// Whether the Workload counts in the usage of a ClusterQueue.
    pub fn holds_quota(self) -> bool {
        match self {
            Self::Reserved | Self::Admitted | Self::Evicting { .. } => true,
            Self::Pending | Self::Finished | Self::Inactive | Self::Inconsistent => false,
        }
    }

    /// Whether the Workload holds quota that it is not about to give back.
    pub fn keeps_quota(self) -> bool {
        matches!(self, Self::Reserved | Self::Admitted)
    }

    /// Whether the Workload holds quota by which its pods may have been started.
    pub fn was_admitted(self) -> bool {
        matches!(self, Self::Admitted | Self::Evicting { was_admitted: true })
    }

    /// Whether the Workload is evicted and still holds its quota.
    pub fn is_evicting(self) -> bool {
        matches!(self, Self::Evicting { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// The phase of an active Workload with the given conditions, with an admission or without one.
    fn phase(conditions: &[&str], has_admission: bool) -> WorkloadPhase {
        let conditions = conditions.iter().map(|kind| {
            json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        });
        let mut status = json!({"conditions": conditions.collect::<Vec<_>>()});
        if has_admission {
            status["admission"] = json!({"clusterQueue": "q", "podSetAssignments": []});
        }
        WorkloadPhase::of(true, &from_value(status).expect("a status"))
    }

    #[test]
    fn workload_phase_follows_conditions_and_admission() {
        assert_eq!(phase(&[], false), WorkloadPhase::Pending);
        assert_eq!(phase(&["QuotaReserved"], true), WorkloadPhase::Reserved);
        assert_eq!(phase(&["QuotaReserved", "Admitted"], true), WorkloadPhase::Admitted);
        let evicted = phase(&["QuotaReserved", "Admitted", "Evicted"], true);
        assert_eq!(evicted, WorkloadPhase::Evicting { was_admitted: true });
        assert_eq!(phase(&["QuotaReserved", "Evicted"], true), WorkloadPhase::Evicting { was_admitted: false });
        assert_eq!(phase(&["QuotaReserved", "Admitted", "Evicted", "Finished"], true), WorkloadPhase::Finished);
        assert_eq!(WorkloadPhase::of(false, &api::WorkloadStatus::default()), WorkloadPhase::Inactive);
    }

    #[test]
    fn workload_without_reservation_holds_no_quota_whatever_its_conditions_say() {
        assert_eq!(phase(&["Admitted"], false), WorkloadPhase::Inconsistent);
        assert_eq!(phase(&["QuotaReserved", "Admitted"], false), WorkloadPhase::Inconsistent);
        assert_eq!(phase(&["QuotaReserved"], false), WorkloadPhase::Pending);
        assert_eq!(phase(&["Evicted"], false), WorkloadPhase::Pending, "it was evicted, and waits again");
        assert!(!phase(&["Admitted"], false).holds_quota() && !phase(&["Evicted"], false).holds_quota());
    }
}
