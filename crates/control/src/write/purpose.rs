//! Purposes of tasks, and their lanes.

use super::Lane;

/// Why a task is given out: closed, one name per decision, used in logs, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Create the Workload of a job.
    CreateWorkload,
    /// Bring a pending Workload's spec in line with its job, or note on it how that ended.
    UpdateWorkload,
    /// Take ownership of a prebuilt Workload.
    AdoptWorkload,
    /// Reserve quota (and admit, when nothing else is needed).
    ReserveQuota,
    /// Write why a workload is pending.
    ExplainPending,
    /// Write why a workload is pending that no cycle looked at: its queue cannot take it, or an equal one found no room.
    ExplainUnseen,
    /// Set Admitted after its checks.
    SetAdmitted,
    /// The list of a Workload's admission checks follows its queue.
    SyncAdmissionChecks,
    /// The list of the states of its preemption gates follows its spec.
    SyncPreemptionGates,
    /// An admission check of Berth's own is ready, to be retried or rejected.
    AnswerCheck,
    /// Active condition of such a check.
    ActivateCheck,
    /// Make a PodTemplate for a ProvisioningRequest, or hand it over to that.
    PreparePodTemplate,
    /// Delete a PodTemplate that was made for an earlier reservation.
    WithdrawPodTemplate,
    /// Create a ProvisioningRequest.
    RequestCapacity,
    /// Delete a ProvisioningRequest that is not needed.
    WithdrawRequest,
    /// Evict: the job must stop.
    Evict,
    /// Give quota back after the job stopped.
    ReleaseQuota,
    /// Requeued=True after a back-off, restart or reactivation.
    Requeue,
    /// Set spec.active=false.
    Deactivate,
    /// PodsReady condition, and the count of time-outs.
    SetPodsReady,
    /// Reclaimable pods.
    SetReclaimable,
    /// Finished condition.
    FinishWorkload,
    /// Suspend a job that runs without admission, restoring its template.
    SuspendJob,
    /// Clear a suspended job's start time, so that its template may change.
    ClearStartTime,
    /// Start a job: unsuspend with placement.
    StartJob,
    /// Give a job or a pod another version, so that a start of unknown outcome can no longer be applied to it.
    WithdrawStart,
    /// Write its placement into the template of a job that stays suspended, until the Jobs that were made of the user's template have gone.
    PlaceTemplate,
    /// Bring back the user's template of a suspended job.
    RestoreTemplate,
    /// Status of a queue, cohort.
    QueueStatus,
    /// Add a finalizer.
    AddFinalizer,
    /// Remove a finalizer that a deletion waits for.
    RemoveFinalizer,
    /// Remove the finalizer of a finished Workload: nothing waits for it.
    LetFinishedGo,
    /// Delete a Workload.
    DeleteWorkload,
    /// Delete a job (retention).
    DeleteJob,
    /// Create the objects that a TrainingJob's pods need before they start.
    PrepareTraining,
    /// Create a Job that runs a role of a TrainingJob.
    StartTraining,
    /// Delete such a Job.
    StopTraining,
    /// Change the number of workers of a TrainingJob that runs.
    ScaleTraining,
    /// Ask whether the pods of workers that were taken have gone.
    ProbeSurplus,
    /// Give back the quota of such workers.
    LowerCount,
    /// Status of a TrainingJob.
    TrainingStatus,
    /// Delete a Job that a suspended job of another kind is made of: it would keep selectors that no longer hold. Or have the pods of a job
    /// go that is kept while it is being deleted.
    DeleteChild,
    /// Ask whether pods of a deleted job are left: its quota is free only when none is.
    ProbePods,
    /// Ask which pods a job has left behind that was deleted without them: they hold its quota until they have ended.
    FindLeftPods,
    /// Read a large job, of which only a part is kept: its Workload is to be made.
    ReadJob,
    /// Read a pod of a job for which its Job does not answer, or that may have been resized.
    ReadPod,
    /// List the checkpoints of a TrainingJob in its store.
    ListCheckpoints,
    /// Delete checkpoints there beyond those that are kept.
    DeleteCheckpoints,
    /// Notify the pods of a job that it is to stop, so that they save their work.
    NotifyPods,
    /// Ask the pods of a job that is to lose workers to save their work before.
    AskToSave,
    /// Ask which pods of a started job no node takes: its capacity may not have turned up.
    FindStuckPods,
    /// Ask which pods run on a node that is being taken away.
    FindPodsOnNode,
    /// Ask how many nodes the pods of a TrainingJob are on.
    CountNodes,
    /// Write into the status of a pod that and why it goes.
    CondemnPod,
    /// Delete a pod: it cannot wait again once it was started, or its group has too many.
    DeletePod,
    /// Mark a pod as managed that no review has gone over, or tell it that it is admitted.
    MarkPod,
    /// Remove our finalizer from a pod from which nothing more is to be learnt.
    ReleasePod,
    /// The pods that came to a group own its Workload too.
    AddOwners,
    /// Condition that pods of a group are to be replaced.
    SetWaitingForPods,
}

impl Purpose {
    /// Whether it is a status that is written when it is marked, and at no other time: one that failed has to be marked again.
    pub(crate) const fn is_coalesced(self) -> bool {
        matches!(self, Self::QueueStatus | Self::TrainingStatus)
    }

    /// Whether such a write, applied late, would use quota that another workload may hold by then.
    pub(crate) const fn uses_quota(self) -> bool {
        matches!(self, Self::ReserveQuota | Self::StartJob | Self::StartTraining)
    }

    /// Whether a Workload is made, or the job is read for that: only some of these are under way at a time.
    pub(crate) const fn creates(self) -> bool {
        matches!(self, Self::CreateWorkload | Self::ReadJob)
    }

    /// Whether pods are asked to save their work. The object of such a write does not change by it.
    pub(crate) const fn asks_to_save(self) -> bool {
        matches!(self, Self::NotifyPods | Self::AskToSave)
    }

    /// Whether it deletes an object that is not looked at again before it is gone.
    pub(crate) const fn withdraws(self) -> bool {
        matches!(self, Self::WithdrawRequest | Self::WithdrawPodTemplate)
    }

    /// Whether the object is not there yet: a refusal is reported at the object that wanted it.
    pub(crate) const fn makes_anew(self) -> bool {
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
