//! Reasons that Kueue uses in events alone.

/// Kueue's reasons of events that are no reasons of conditions.
pub mod event_reasons {
    strings! {
        /// Job, and whatever else gets a Workload: it was made.
        CREATED_WORKLOAD = "CreatedWorkload";
        /// Job: its Workload follows it.
        UPDATED_WORKLOAD = "UpdatedWorkload";
        /// Job: a Workload that is not its own any more is deleted.
        DELETED_WORKLOAD = "DeletedWorkload";
        /// Job: its Workload has ended with it.
        FINISHED_WORKLOAD = "FinishedWorkload";
        /// Job: no Workload can be made of it.
        ERR_WORKLOAD_COMPOSE = "ErrWorkloadCompose";
        /// Pod of a group: a Workload of another owner has the name.
        WORKLOAD_NAME_CONFLICT = "WorkloadNameConflict";
        /// Job: what its pending checks say.
        UPDATED_ADMISSION_CHECK = "UpdatedAdmissionCheck";
        /// Pod: its group has more than it was admitted for.
        EXCESS_POD_DELETED = "ExcessPodDeleted";
        /// Workload of a pod group: pods that came own it, too.
        OWNER_REFERENCES_ADDED = "OwnerReferencesAdded";

        /// Workload: a check rejects it.
        ADMISSION_CHECK_REJECTED = "AdmissionCheckRejected";
        /// Workload: a check of Berth's own has another state.
        ADMISSION_CHECK_UPDATED = "AdmissionCheckUpdated";
        /// Workload: capacity is asked for.
        PROVISIONING_REQUEST_CREATED = "ProvisioningRequestCreated";
        /// Workload: its admission is not gated any more.
        ADMISSION_GATE_CLEARED = "AdmissionGateCleared";
        /// Workload: prefix before why it is evicted.
        EVICTED_DUE_TO_PREFIX = "EvictedDueTo";
        /// Workload: it took quota from another one.
        PREEMPTED_WORKLOAD = "PreemptedWorkload";
        /// Workload, or its job: its retention is over.
        DELETED = "Deleted";
    }
}
