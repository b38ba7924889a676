//! Purposes of tasks, and their lanes.

use super::Lane;

/// Purpose of a task: a closed set with one name per decision, used in logs, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Create the Workload of a job.
    CreateWorkload,
    /// Update a pending Workload's spec to its job, or note the end of the job on the Workload.
    UpdateWorkload,
    /// Take ownership of a prebuilt Workload.
    AdoptWorkload,
    /// Reserve quota, and admit the Workload if no admission check must be waited for.
    ReserveQuota,
    /// Write the reason why a workload is pending.
    ExplainPending,
    /// Write the reason why a workload is pending that no scheduling cycle tried: its LocalQueue or ClusterQueue cannot take the workload, or an equal workload
    /// found no room.
    ExplainUnseen,
    /// Set the condition `Admitted` after the admission checks.
    SetAdmitted,
    /// Update the list of a Workload's admission checks to its ClusterQueue.
    SyncAdmissionChecks,
    /// Update the list of a Workload's preemption gate states to its spec.
    SyncPreemptionGates,
    /// Set an admission check of Berth's own to Ready, Retry or Rejected.
    AnswerCheck,
    /// Set the condition `Active` of an admission check of Berth's own.
    ActivateCheck,
    /// Create a PodTemplate for a ProvisioningRequest, or make the ProvisioningRequest the template's owner.
    PreparePodTemplate,
    /// Delete a PodTemplate that was created for an earlier reservation.
    WithdrawPodTemplate,
    /// Create a ProvisioningRequest.
    RequestCapacity,
    /// Delete a ProvisioningRequest that is not needed any more.
    WithdrawRequest,
    /// Evict a Workload, so that its job must stop.
    Evict,
    /// Release quota after the job stopped.
    ReleaseQuota,
    /// Set `Requeued` to True after a back-off, restart or reactivation.
    Requeue,
    /// Set `spec.active` of a Workload to false.
    Deactivate,
    /// Set the condition `PodsReady`, and the count of time-outs.
    SetPodsReady,
    /// Write the reclaimable pods of a Workload.
    SetReclaimable,
    /// Set the condition `Finished` of a Workload.
    FinishWorkload,
    /// Suspend a job that runs without admission, and restore its template.
    SuspendJob,
    /// Clear a suspended job's start time, so that its template may change.
    ClearStartTime,
    /// Start a job: end its suspension, with node selectors for its placement.
    StartJob,
    /// Give a job or a pod a new version, so that a start with an unknown outcome cannot be applied any more.
    WithdrawStart,
    /// Write the placement into the template of a job that stays suspended, until the Jobs that were created from the user's template have gone.
    PlaceTemplate,
    /// Restore the user's template of a suspended job.
    RestoreTemplate,
    /// Write the status of a queue or cohort.
    QueueStatus,
    /// Add a finalizer to an object.
    AddFinalizer,
    /// Remove a finalizer that a deletion waits for.
    RemoveFinalizer,
    /// Remove the finalizer of a finished Workload, which no deletion waits for.
    LetFinishedGo,
    /// Delete a Workload.
    DeleteWorkload,
    /// Delete a job after its retention time.
    DeleteJob,
    /// Create the objects that a TrainingJob's pods need before they start.
    PrepareTraining,
    /// Create a Job that runs a role of a TrainingJob.
    StartTraining,
    /// Delete a Job that runs a role of a TrainingJob.
    StopTraining,
    /// Change the number of workers of a running TrainingJob.
    ScaleTraining,
    /// Query whether the pods of workers that were removed have gone.
    ProbeSurplus,
    /// Release the quota of workers that were removed.
    LowerCount,
    /// Write the status of a TrainingJob.
    TrainingStatus,
    /// Delete a Job that is part of a suspended job, because the Job would keep outdated node selectors, or delete the pods of a Job that a finalizer keeps
    /// while the Job is being deleted.
    DeleteChild,
    /// Query whether pods of a deleted job are left: the quota of the job is released only if no pod is left.
    ProbePods,
    /// Query the pods that are left of a job that was deleted without them: the pods hold the job's quota until they have ended.
    FindLeftPods,
    /// Read a large job completely, because the view keeps only a part of the job and a Workload must be created for it.
    ReadJob,
    /// Read a pod of a job that its Job does not count, or that may have been resized.
    ReadPod,
    /// List the checkpoints of a TrainingJob in its store.
    ListCheckpoints,
    /// Delete checkpoints in a store beyond the number that is kept.
    DeleteCheckpoints,
    /// Notify the pods of a job that the job is to stop, so that the pods save their work.
    NotifyPods,
    /// Ask the pods of a job to save their work before workers are removed.
    AskToSave,
    /// Query the pods of a started job that no node takes: capacity for the job may be missing.
    FindStuckPods,
    /// Query the pods on a node that is being taken away.
    FindPodsOnNode,
    /// Query the number of nodes on which the pods of a TrainingJob run.
    CountNodes,
    /// Write into the status of a pod that the pod will be deleted, and why.
    CondemnPod,
    /// Delete a pod that cannot wait again because it was started, or that its group has too many of.
    DeletePod,
    /// Mark a pod as managed that no webhook has reviewed, or notify a pod that it is admitted.
    MarkPod,
    /// Remove Berth's finalizer from a pod whose end has been recorded.
    ReleasePod,
    /// Add the pods that joined a group to the owners of the group's Workload.
    AddOwners,
    /// Set the condition that pods of a group are to be replaced.
    SetWaitingForPods,
}

impl Purpose {
    /// Whether the task writes a status only after the status was marked as changed: after a failed write the status must be marked again.
    pub const fn is_coalesced(self) -> bool {
        matches!(self, Self::QueueStatus | Self::TrainingStatus)
    }

    /// Whether a late application of a write with this purpose would use quota that another workload may hold by then.
    pub(crate) const fn uses_quota(self) -> bool {
        matches!(self, Self::ReserveQuota | Self::StartJob | Self::StartTraining)
    }

    /// Whether the task creates a Workload, or reads a job to create its Workload: only a limited number of such tasks are under way at a time.
    pub(crate) const fn creates(self) -> bool {
        matches!(self, Self::CreateWorkload | Self::ReadJob)
    }

    /// Whether the task asks pods to save their work. The object of a task that asks pods to save does not change by the task.
    pub(crate) const fn asks_to_save(self) -> bool {
        matches!(self, Self::NotifyPods | Self::AskToSave)
    }

    /// Whether the task deletes an object about which no decision is made until the object is gone.
    pub const fn withdraws(self) -> bool {
        matches!(self, Self::WithdrawRequest | Self::WithdrawPodTemplate)
    }

    /// Whether the object of the task does not exist yet: a refusal is reported at the object that needs the new object.
    pub const fn makes_anew(self) -> bool {
        matches!(self, Self::PreparePodTemplate | Self::RequestCapacity | Self::PrepareTraining | Self::StartTraining)
    }

    /// Lane of the tasks of this purpose.
    #[must_use]
    pub const fn lane(self) -> Lane {
        match self {
            Self::ReserveQuota
            | Self::SetAdmitted
            | Self::SyncAdmissionChecks
            | Self::SyncPreemptionGates
            | Self::AnswerCheck
            | Self::RequestCapacity
            | Self::PreparePodTemplate
            | Self::StartJob
            | Self::WithdrawStart
            | Self::PlaceTemplate
            | Self::SuspendJob
            | Self::PrepareTraining
            | Self::StartTraining
            | Self::StopTraining
            | Self::ScaleTraining
            | Self::LowerCount
            | Self::ClearStartTime
            | Self::FindPodsOnNode
            | Self::Evict
            | Self::MarkPod
            | Self::CondemnPod
            | Self::DeletePod
            | Self::ReleaseQuota => Lane::Jobs,
            Self::CreateWorkload
            | Self::UpdateWorkload
            | Self::AdoptWorkload
            | Self::Requeue
            | Self::Deactivate
            | Self::SetPodsReady
            | Self::SetReclaimable
            | Self::RestoreTemplate
            | Self::ActivateCheck
            | Self::WithdrawPodTemplate
            | Self::WithdrawRequest
            | Self::AddFinalizer
            | Self::RemoveFinalizer
            | Self::DeleteWorkload
            | Self::DeleteJob
            | Self::DeleteChild
            | Self::ReleasePod
            | Self::AddOwners
            | Self::SetWaitingForPods
            | Self::ProbePods
            | Self::FindLeftPods
            | Self::ReadPod
            | Self::ProbeSurplus
            | Self::ReadJob
            | Self::FindStuckPods => Lane::Upkeep,
            Self::ExplainPending | Self::ExplainUnseen | Self::TrainingStatus => Lane::Reasons,
            Self::QueueStatus | Self::CountNodes => Lane::Figures,
            Self::FinishWorkload => Lane::Ends,
            Self::LetFinishedGo => Lane::Cleanup,
            Self::ListCheckpoints => Lane::StoreListings,
            Self::DeleteCheckpoints => Lane::StoreDeletions,
            Self::NotifyPods | Self::AskToSave => Lane::Pods,
        }
    }
}
