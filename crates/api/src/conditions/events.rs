//! Reasons that Kueue uses for events, but not for conditions.

/// Kueue's reasons of events that are not reasons of conditions.
pub mod event_reasons {
    strings! {
        /// Job, or another object that gets a Workload: the Workload was created.
        CREATED_WORKLOAD = "CreatedWorkload";
        /// Job: its Workload was changed after a change of the job.
        UPDATED_WORKLOAD = "UpdatedWorkload";
        /// Job: a Workload that does not belong to the job any more was deleted.
        DELETED_WORKLOAD = "DeletedWorkload";
        /// Job: its Workload was finished because the job ended.
        FINISHED_WORKLOAD = "FinishedWorkload";
        /// Job: no Workload can be built from its spec.
        ERR_WORKLOAD_COMPOSE = "ErrWorkloadCompose";
        /// Pod of a group: a Workload of another owner has the name of the group's Workload.
        WORKLOAD_NAME_CONFLICT = "WorkloadNameConflict";
        /// Job: messages of its pending admission checks.
        UPDATED_ADMISSION_CHECK = "UpdatedAdmissionCheck";
        /// Pod: deleted because its group has more pods than were admitted.
        EXCESS_POD_DELETED = "ExcessPodDeleted";
        /// Workload of a pod group: new pods of the group were added as owners.
        OWNER_REFERENCES_ADDED = "OwnerReferencesAdded";

        /// Workload: an admission check rejects the Workload.
        ADMISSION_CHECK_REJECTED = "AdmissionCheckRejected";
        /// Workload: an admission check that Berth answers itself has a new state.
        ADMISSION_CHECK_UPDATED = "AdmissionCheckUpdated";
        /// Workload: a ProvisioningRequest for its capacity was created.
        PROVISIONING_REQUEST_CREATED = "ProvisioningRequestCreated";
        /// Workload: no admission gate is left in its annotation.
        ADMISSION_GATE_CLEARED = "AdmissionGateCleared";
        /// Workload: prefix of a reason, before the reason of the eviction.
        EVICTED_DUE_TO_PREFIX = "EvictedDueTo";
        /// Workload: it preempted another workload.
        PREEMPTED_WORKLOAD = "PreemptedWorkload";
        /// Workload or its job: deleted because its retention time is over.
        DELETED = "Deleted";
    }
}
