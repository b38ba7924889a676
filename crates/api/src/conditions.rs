//! Condition types and reasons, and functions that read and set conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message of a condition in bytes; a longer message is cut.
pub const MAX_MESSAGE_BYTES: usize = 32768;
const CUT_MARK: &str = " ...";

macro_rules! strings {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $value;)*
    };
}

mod events;
mod own;

pub use events::event_reasons;
pub use own::{own_reasons, own_types, phases, training_types};

/// Kueue's condition types.
pub mod types {
    strings! {
        /// Workload: quota is reserved.
        QUOTA_RESERVED = "QuotaReserved";
        /// Workload: quota is reserved and all checks are ready.
        ADMITTED = "Admitted";
        /// Workload: no pod of the Workload runs any more, or will run.
        FINISHED = "Finished";
        /// Workload: all pods are ready or succeeded.
        PODS_READY = "PodsReady";
        /// Workload: the Workload must stop and give its quota back.
        EVICTED = "Evicted";
        /// Workload: evicted so that another Workload gets the quota.
        PREEMPTED = "Preempted";
        /// Workload: waits in its queue again.
        REQUEUED = "Requeued";
        /// Workload: the Workload is to be deactivated.
        DEACTIVATION_TARGET = "DeactivationTarget";
        /// Workload of a pod group: failed pods need replacement.
        WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods";
        /// Workload: it would have to preempt other workloads, but a preemption gate is closed.
        BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates";
        /// ClusterQueue, LocalQueue, AdmissionCheck, MultiKueueCluster: the object is usable.
        ACTIVE = "Active";
        /// Pod: the pod integration is about to delete the pod.
        TERMINATION_TARGET = "TerminationTarget";
    }
}

/// Kueue's reasons of conditions. A reason that several condition types or an event share is listed only once.
pub mod reasons {
    strings! {
        /// QuotaReserved=True; also the reason when Evicted, Preempted or BlockedOnPreemptionGates becomes False.
        QUOTA_RESERVED = "QuotaReserved";
        /// Admitted=True.
        ADMITTED = "Admitted";
        /// Admitted=False: no quota.
        NO_RESERVATION = "NoReservation";
        /// Admitted=False: some admission checks are not ready.
        UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks";
        /// Admitted=False: some admission checks are not ready; the name of this reason in Kueue without the gate `UnadmittedWorkloadsObservability`.
        UNSATISFIED_CHECKS = "UnsatisfiedChecks";
        /// Admitted=False: the workload has neither quota nor ready admission checks; a reason of Kueue without the gate `UnadmittedWorkloadsObservability`.
        NO_RESERVATION_UNSATISFIED_CHECKS = "NoReservationUnsatisfiedChecks";
        /// Admitted=False: the placement in the topology is still to be decided.
        PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests";

        /// QuotaReserved=False: no flavor suits.
        NO_MATCHING_FLAVOR = "NoMatchingFlavor";
        /// QuotaReserved=False: quota is in use.
        WAITING_FOR_QUOTA = "WaitingForQuota";
        /// QuotaReserved=False: the workload can never fit the quota.
        EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota";
        /// QuotaReserved=False: no place in the topology.
        TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed";
        /// QuotaReserved=False: victims are still stopping.
        WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads";
        /// QuotaReserved=False: the queue or the workload has an invalid spec.
        MISCONFIGURED = "Misconfigured";
        /// QuotaReserved=False: the queue is stopped.
        SUSPENDED = "Suspended";
        /// QuotaReserved=False: Berth has not tried the workload yet.
        PENDING_EVALUATION = "PendingEvaluation";
        /// QuotaReserved=False: other workloads must become ready first.
        WAITING_FOR_PODS_READY = "WaitingForPodsReady";
        /// QuotaReserved=False: the annotation admission-gated-by lists a gate.
        ADMISSION_GATED = "AdmissionGated";
        /// QuotaReserved=False: the owner of the workload wants no pods to run at present.
        ON_HOLD = "OnHold";
        /// QuotaReserved=False, Evicted=True: spec.active is false.
        DEACTIVATED = "Deactivated";
        /// QuotaReserved=False: the workload waits; the name of this reason in Kueue without the gate `UnadmittedWorkloadsObservability`.
        PENDING = "Pending";
        /// QuotaReserved=False and Requeued=False: the queue is stopped, or the queue or workload is misconfigured; the name of this reason in Kueue without
        /// the gate `UnadmittedWorkloadsObservability`.
        INADMISSIBLE = "Inadmissible";
        /// QuotaReserved=False: pods of other workloads must become ready first; the name of this reason in Kueue without the gate
        /// `UnadmittedWorkloadsObservability`.
        WAITING = "Waiting";

        /// Finished=True: the job succeeded.
        SUCCEEDED = "Succeeded";
        /// Finished=True: the job failed.
        FAILED = "Failed";
        /// Finished=True: a prebuilt workload does not match its job.
        OUT_OF_SYNC = "OutOfSync";
        /// Finished=True: the owner is gone.
        OWNER_NOT_FOUND = "OwnerNotFound";
        /// Finished=True: the job could not be started.
        FAILED_TO_START = "FailedToStart";
        /// Finished=True: another workload slice took over.
        WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced";

        /// PodsReady=False: the pods of the workload have not all been ready since it was admitted.
        WAIT_FOR_START = "WaitForStart";
        /// PodsReady=False: the pods of the workload were all ready before, and are not ready now.
        WAIT_FOR_RECOVERY = "WaitForRecovery";
        /// PodsReady=True: all pods of the workload are ready for the first time since it was admitted; also the reason of the event that a job or pod starts.
        STARTED = "Started";
        /// PodsReady=True again.
        RECOVERED = "Recovered";

        /// Evicted=True: another workload preempted the workload.
        PREEMPTED = "Preempted";
        /// Evicted=True: pods were not ready in time.
        PODS_READY_TIMEOUT = "PodsReadyTimeout";
        /// Evicted=True and DeactivationTarget=True: an admission check has the state Retry or Rejected.
        ADMISSION_CHECK = "AdmissionCheck";
        /// Evicted=True: the ClusterQueue drains.
        CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped";
        /// Evicted=True: the LocalQueue drains.
        LOCAL_QUEUE_STOPPED = "LocalQueueStopped";
        /// Evicted=True: prefix of the reason, before the cause of a deactivation.
        DEACTIVATED_DUE_TO_PREFIX = "DeactivatedDueTo";
        /// Evicted=True: nodes failed.
        NODE_FAILURES = "NodeFailures";
        /// Evicted=True: the workload moved to a better flavor.
        FLAVOR_MIGRATION = "FlavorMigration";
        /// Evicted=True on the parent Workload of variants for concurrent admission (`VariantEvicted`).
        VARIANT_EVICTED = "VariantEvicted";
        /// Evicted=True on the parent Workload of variants for concurrent admission (`ConcurrentAdmission`).
        CONCURRENT_ADMISSION = "ConcurrentAdmission";
        /// DeactivationTarget=True: requeued too often.
        REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded";
        /// DeactivationTarget=True: ran too long.
        MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded";
        /// DeactivationTarget=True: evicted on the manager cluster.
        EVICTED_ON_MANAGER_CLUSTER = "EvictedOnManagerCluster";

        /// Preempted=True by a workload of the same ClusterQueue.
        IN_CLUSTER_QUEUE = "InClusterQueue";
        /// Preempted=True to give back borrowed quota.
        IN_COHORT_RECLAMATION = "InCohortReclamation";
        /// Preempted=True for fairness.
        IN_COHORT_FAIR_SHARING = "InCohortFairSharing";
        /// Preempted=True by a workload of higher priority that borrows quota.
        IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing";

        /// Requeued=True: spec.active is true again.
        REACTIVATED = "Reactivated";
        /// Requeued=True: the back-off is over.
        BACKOFF_FINISHED = "BackoffFinished";
        /// Requeued=True: the ClusterQueue runs again.
        CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted";
        /// Requeued=True: the LocalQueue runs again.
        LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted";

        /// WaitingForReplacementPods=True: failed pods of a pod group need replacement.
        PODS_FAILED = "PodsFailed";
        /// WaitingForReplacementPods=False, and Running=True and SchedulingTimeout=False of a TrainingJob: all pods are ready, and none needs replacement.
        PODS_READY = "PodsReady";
        /// BlockedOnPreemptionGates=True: a preemption gate of the workload is closed.
        PREEMPTION_GATED = "PreemptionGated";

        /// Active=True of queues.
        READY = "Ready";
        /// Active=False: the queue is being deleted.
        TERMINATING = "Terminating";
        /// Active=False: the stop policy of the queue is Hold or HoldAndDrain.
        STOPPED = "Stopped";
        /// Active=False: a ResourceFlavor is missing.
        FLAVOR_NOT_FOUND = "FlavorNotFound";
        /// Active=False: a Topology is missing.
        TOPOLOGY_NOT_FOUND = "TopologyNotFound";
        /// Active=False: an AdmissionCheck is missing.
        ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound";
        /// Active=False: an AdmissionCheck of the queue is not active.
        ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive";
        /// Active=False: the queue has more than one MultiKueue check.
        MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS = "MultipleMultiKueueAdmissionChecks";
        /// Active=False: a MultiKueue check applies to some flavors only.
        MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor";
        /// Active=False: the queue has MultiKueue and ProvisioningRequest checks together.
        MULTIKUEUE_WITH_PROVISIONING_REQUEST = "MultiKueueWithProvisioningRequest";
        /// Active=False for another cause.
        UNKNOWN = "Unknown";
        /// Active=False of a LocalQueue: its ClusterQueue does not exist.
        CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist";
        /// Active=False of a LocalQueue: its ClusterQueue is not active.
        CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive";

        /// Active=True of AdmissionChecks and MultiKueueClusters.
        ACTIVE = "Active";
        /// Active=False: the parameters of the AdmissionCheck cannot be used.
        BAD_PARAMETERS_REF = "BadParametersRef";
        /// Active=False: the MultiKueueConfig cannot be used.
        BAD_CONFIG = "BadConfig";
        /// Active=True: some clusters of the check are not usable.
        SOME_ACTIVE_CLUSTERS = "SomeActiveClusters";
        /// Active=False: no cluster of the check is usable.
        NO_USABLE_CLUSTERS = "NoUsableClusters";
        /// Active=False of a MultiKueueCluster: its kubeconfig is not usable.
        BAD_KUBE_CONFIG = "BadKubeConfig";
        /// Active=False of a MultiKueueCluster: its kubeconfig is refused as unsafe.
        INSECURE_KUBE_CONFIG = "InsecureKubeConfig";
        /// Active=False of a MultiKueueCluster: its ClusterProfile is not usable.
        BAD_CLUSTER_PROFILE = "BadClusterProfile";
        /// Active=False of a MultiKueueCluster: its client settings are not usable.
        BAD_REST_CONFIG = "BadRestConfig";
        /// Active=False of a MultiKueueCluster: the feature of ClusterProfiles is switched off.
        MULTIKUEUE_CLUSTER_PROFILE_FEATURE_DISABLED = "MultiKueueClusterProfileFeatureDisabled";
        /// Active=False of a MultiKueueCluster: the worker cluster cannot be reached.
        CLIENT_CONNECTION_FAILED = "ClientConnectionFailed";
        /// MultiKueueManagerQuotaAutomation=True: MultiKueue sets the quota of the manager cluster.
        QUOTA_AUTOMATED = "QuotaAutomated";
        /// MultiKueueManagerQuotaAutomation=False: automatic quota was not requested.
        NOT_REQUESTED = "NotRequested";
        /// MultiKueueManagerQuotaAutomation=False: the configuration does not support automatic quota.
        UNSUPPORTED_CONFIGURATION = "UnsupportedConfiguration";
        /// TerminationTarget=True on a pod: its Workload is being deleted.
        WORKLOAD_DELETED = "WorkloadDeleted";
        /// TerminationTarget=True on a pod: it runs without a Workload.
        NO_MATCHING_WORKLOAD = "NoMatchingWorkload";
        /// TerminationTarget=True on a pod, and Running=False of a TrainingJob: its Workload is not admitted.
        NOT_ADMITTED = "NotAdmitted";
        /// TerminatedByKueue=True on a pod: the pod is unschedulable on the node that its placement names.
        UNSCHEDULABLE_ON_ASSIGNED_NODE = "UnschedulableOnAssignedNode";
        /// KueueFailureRecovery=True on a pod: Kueue deleted the pod by force, because its node was lost.
        KUEUE_FORCEFULLY_DELETED = "KueueForcefullyDeleted";
    }
}

/// Positions of a preemption gate.
pub mod gate_positions {
    strings! {
        /// Position of a preemption gate whose Workload preempts nobody.
        CLOSED = "Closed";
    }
}

/// States of an admission check.
pub mod check_states {
    strings! {
        /// State of an admission check that has no result yet.
        PENDING = "Pending";
        /// State of an admission check that has passed.
        READY = "Ready";
        /// State of an admission check by which the Workload is evicted and tries again.
        RETRY = "Retry";
        /// State of an admission check by which the Workload is evicted and deactivated.
        REJECTED = "Rejected";
    }
}

/// The condition of type `type_`, if present.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of type `type_` is present with status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// The condition of type `type_`, if it is present with status `True`.
pub fn find_true<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    find(conditions, type_).filter(|condition| condition.status == "True")
}

/// Time of the last transition of the condition of type `type_`, if it is present with status `status`.
pub fn since(conditions: &[Condition], type_: &str, status: &str) -> Option<Timestamp> {
    let found = find(conditions, type_).filter(|condition| condition.status == status);
    found.map(|condition| condition.last_transition_time.0)
}

/// Whether the condition of type `type_` is present with status `False`.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "False")
}

/// A condition to set.
#[derive(Clone, Copy, Debug)]
pub struct NewCondition<'a> {
    /// Type.
    pub type_: &'a str,
    /// Status: `True` or `False`.
    pub status: &'a str,
    /// Reason.
    pub reason: &'a str,
    /// Message of the condition, which [`set_condition`] cuts to the longest length.
    pub message: &'a str,
    /// Generation of the object that the condition is about.
    pub generation: Option<i64>,
}

/// Sets a condition, and returns true if anything except the times changed.
///
/// `lastTransitionTime` changes only when `status` changes, and has whole seconds, which is all that the API stores. The message of the condition is
/// cut with [`truncate`], and a new condition is added at the end of the list.
pub fn set_condition(conditions: &mut Vec<Condition>, new: NewCondition<'_>, now: Timestamp) -> bool {
    let NewCondition { type_, status, reason, message, generation } = new;
    let message = truncate(message, MAX_MESSAGE_BYTES);
    let now = whole_seconds(now);
    let Some(current) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: Time(now),
        });
        return true;
    };
    let flipped = current.status != status;
    let changed =
        flipped || current.reason != reason || current.message != message || current.observed_generation != generation;
    if flipped {
        current.status = status.to_owned();
        current.last_transition_time = Time(now);
    }
    if changed {
        current.reason = reason.to_owned();
        current.message = message;
        current.observed_generation = generation;
    }
    changed
}

/// The text cut to at most `limit` bytes, without splitting a character; a cut text ends in ` ...`.
pub fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(CUT_MARK.len());
    while end > 0 && !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT_MARK}", text.get(..end).unwrap_or_default())
}

/// The timestamp `time`, cut to whole seconds.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn transition_time_moves_only_when_status_flips() {
        let mut list = Vec::new();
        let mut set = |status: &str, message: &str, time: &str| {
            let new = NewCondition { type_: types::ADMITTED, status, reason: "R", message, generation: Some(1) };
            let changed = set_condition(&mut list, new, at(time));
            (changed, list.first().unwrap().last_transition_time.0.to_string(), list.len())
        };
        assert_eq!(set("False", "a", "2026-01-01T00:00:00.9Z"), (true, "2026-01-01T00:00:00Z".into(), 1));
        assert_eq!(set("False", "a", "2026-01-01T00:00:05Z"), (false, "2026-01-01T00:00:00Z".into(), 1));
        assert_eq!(set("False", "b", "2026-01-01T00:00:05Z"), (true, "2026-01-01T00:00:00Z".into(), 1));
        assert_eq!(set("True", "b", "2026-01-01T00:00:07.1Z"), (true, "2026-01-01T00:00:07Z".into(), 1));
    }

    #[test]
    fn long_condition_message_is_cut_at_character_boundary() {
        assert_eq!(truncate("short", 5), "short");
        assert_eq!(truncate("0123456789", 9), "01234 ...");
        assert_eq!(truncate("éééééé", 9), "éé ...");
        let mut list = Vec::new();
        let message = "x".repeat(40_000);
        let new = NewCondition { type_: "T", status: "True", reason: "R", message: &message, generation: None };
        set_condition(&mut list, new, Timestamp::UNIX_EPOCH);
        assert_eq!(list.first().unwrap().message.len(), MAX_MESSAGE_BYTES);
    }

    #[test]
    fn condition_is_found_by_type_and_false_only_once_set() {
        let mut list = Vec::new();
        assert!(!is_true(&list, types::ACTIVE) && !is_false(&list, types::ACTIVE));
        let (type_, reason) = (types::ACTIVE, reasons::STOPPED);
        let new = NewCondition { type_, status: "False", reason, message: "m", generation: None };
        set_condition(&mut list, new, Timestamp::UNIX_EPOCH);
        assert!(is_false(&list, types::ACTIVE) && !is_true(&list, types::ACTIVE));
        assert_eq!(find(&list, types::ACTIVE).map(|c| c.reason.as_str()), Some("Stopped"));
    }
}
