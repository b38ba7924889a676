//! Berth's own reasons of conditions and events, and the condition types and phases of TrainingJobs.

/// Berth's own reasons of conditions and of events.
pub mod own_reasons {
    strings! {
        /// Workload QuotaReserved=False: the workload would exceed an admission limit of the queue's policy.
        ADMISSION_LIMIT = "AdmissionLimit";
        /// Workload QuotaReserved=False: quota is free, but its flavor is out of stock.
        OUT_OF_STOCK = "OutOfStock";
        /// Workload Evicted=True: its nodes were never created.
        STOCK_OUT = "StockOut";
        /// Workload Evicted=True: the job lost nodes and gets no replacements.
        CAPACITY_RECLAIMED = "CapacityReclaimed";
        /// Workload Evicted=True or QuotaReserved=False: its admission does not fit its pod sets.
        INVALID_ADMISSION = "InvalidAdmission";
        /// Workload Evicted=True: the job now requests other pods than the Workload holds quota for.
        SPEC_CHANGED = "SpecChanged";
        /// Workload Evicted=True, and event: a Job was created with other pods than the Workload holds quota for.
        JOB_ALTERED = "JobAltered";
        /// Workload Evicted=True, and event: the job cannot be started as it was admitted now, but perhaps later.
        PLACEMENT_FAILED = "PlacementFailed";
        /// Workload Evicted=True: a pod requests more than the Workload holds quota for.
        POD_RESIZED = "PodResized";
        /// Workload Evicted=True: for a while more than twice as many pods of the job ran as the Workload holds quota for.
        PODS_BEYOND_QUOTA = "PodsBeyondQuota";
        /// Event: a job starts again within the same admission, after a stop that was not an eviction.
        REPEATED_START = "RepeatedStart";
        /// Event: a LocalQueue is named in a field that has no effect.
        QUEUE_MISPLACED = "QueueMisplaced";
        /// Workload Evicted=True: the job moves back to a better tier.
        CLIMBED_BACK = "ClimbedBack";
        /// Workload Finished=True: the workload waited longer than its TrainingJob allows.
        MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded";

        /// QueuePolicy Active=False: a selector of the policy cannot be read.
        INVALID_SELECTOR = "InvalidSelector";
        /// QueuePolicy Active=False: another policy governs the same ClusterQueue.
        CONFLICT = "Conflict";
        /// QueuePolicy Active=False: the policy names a ClusterQueue that does not exist.
        CLUSTER_QUEUE_NOT_FOUND = "ClusterQueueNotFound";
        /// AdmissionCheck Active=False: the cluster does not serve ProvisioningRequests.
        NOT_SERVED = "NotServed";

        /// TrainingJob Stalled=True, and event: no job can be built from its spec.
        INVALID_SPEC = "InvalidSpec";
        /// TrainingJob Stalled=True, and event: its CheckpointStore does not exist.
        CHECKPOINT_STORE_NOT_FOUND = "CheckpointStoreNotFound";
        /// TrainingJob Queued=True: no more precise reason for waiting is known yet.
        QUEUED = "Queued";
        /// TrainingJob Queued=False: the TrainingJob has no Workload.
        NOT_QUEUED = "NotQueued";
        /// TrainingJob Running=False: not all pods are ready yet.
        PODS_STARTING = "PodsStarting";
        /// TrainingJob Running=False: the TrainingJob is between two runs.
        RESTARTED = "Restarted";
        /// TrainingJob Running=False: its pods start again with another number of workers.
        RESCALING = "Rescaling";
        /// TrainingJob Running=False: a Job is missing, although all pods of the run were ready before.
        JOB_GONE = "JobGone";
        /// TrainingJob Running=False: a Job with a name that the TrainingJob needs exists already.
        NAME_TAKEN = "NameTaken";
        /// TrainingJob Running=False, and event as in Kueue: the API server refuses an object that Berth creates for the TrainingJob.
        FAILED_CREATE = "FailedCreate";
        /// TrainingJob Suspended=True: the user has set `suspend`.
        REQUESTED = "Requested";
        /// TrainingJob Suspended=True: its Workload was deactivated.
        WORKLOAD_DEACTIVATED = "WorkloadDeactivated";
        /// TrainingJob Suspended=False: the TrainingJob may be queued.
        RESUMED = "Resumed";
        /// TrainingJob SchedulingTimeout=True: the pods of the TrainingJob were not all ready in time.
        PODS_NOT_READY = "PodsNotReady";
        /// TrainingJob SchedulingTimeout=False: the TrainingJob was admitted again.
        ADMITTED_AGAIN = "AdmittedAgain";
        /// TrainingJob CheckpointRequested=True, and event: the TrainingJob gives workers back.
        SCALING_DOWN = "ScalingDown";
        /// TrainingJob CheckpointRequested=True, and event: the TrainingJob restarts with more workers.
        SCALING_UP = "ScalingUp";
        /// TrainingJob CheckpointRequested=False: the TrainingJob has saved a checkpoint.
        CHECKPOINT_SAVED = "CheckpointSaved";
        /// TrainingJob CheckpointRequested=False: the TrainingJob has not saved a checkpoint in time.
        NO_CHECKPOINT_IN_TIME = "NoCheckpointInTime";
        /// TrainingJob CheckpointRequested=False: the stop was withdrawn, and the TrainingJob may continue.
        WITHDRAWN = "Withdrawn";
        /// TrainingJob CheckpointOverdue=True: the TrainingJob has not saved a checkpoint within its interval.
        INTERVAL_MISSED = "IntervalMissed";
        /// TrainingJob CheckpointOverdue=False: the TrainingJob saves checkpoints within its interval.
        INTERVAL_KEPT = "IntervalKept";
        /// TrainingJob CheckpointOverdue=False: the TrainingJob does not run.
        NOT_RUNNING = "NotRunning";
        /// TrainingJob CheckpointStoreUnavailable=True: the last request to the TrainingJob's CheckpointStore failed.
        REQUEST_FAILED = "RequestFailed";
        /// TrainingJob CheckpointStoreUnavailable=False: the TrainingJob's CheckpointStore answers.
        AVAILABLE = "Available";
        /// TrainingJob Elastic=True: the message has the bounds, steps and pauses of the number of workers.
        SCALE_POLICY = "ScalePolicy";
        /// TrainingJob Elastic=False: partial admission is switched off.
        PARTIAL_ADMISSION_OFF = "PartialAdmissionOff";
        /// TrainingJob Elastic=True: a running job can lose workers, but gets no more, because it saves no checkpoints.
        SHRINKS_ONLY = "ShrinksOnly";

        /// Event: another client suspended a running job, and Berth starts the job again.
        SUSPENSION_UNDONE = "SuspensionUndone";
        /// Event: a Workload with quota has an owner of a kind that Berth does not know.
        OWNER_KIND_UNKNOWN = "OwnerKindUnknown";
        /// Event: a Workload keeps its quota although Berth does not manage its job any more.
        NOT_MANAGED = "NotManaged";
        /// Event: an amount of reserved quota cannot be read.
        UNREADABLE_USAGE = "UnreadableUsage";
        /// Event: a label of a job has a value for which no policy has a priority class.
        PRIORITY_LABEL_UNKNOWN = "PriorityLabelUnknown";
        /// Event: a priority class does not exist.
        WORKLOAD_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound";
        /// Event: an object that is being deleted waits for the objects that use it.
        DELETION_WAITS = "DeletionWaits";
        /// Event: the API server refuses a change by Berth.
        WRITE_REFUSED = "WriteRefused";
        /// Event: a pod runs that was created while Berth did not answer; Berth lets the pod run if it can get quota, and stops it otherwise.
        NOT_REVIEWED = "NotReviewed";
        /// Event, and Pod TerminationTarget=True: no pod set of the pod's Workload is for that pod.
        ROLE_NOT_FOUND = "RoleNotFound";
        /// Event, and Pod TerminationTarget=True: the pod is beyond the number of pods with which its group was admitted.
        EXCESS_POD = "ExcessPod";
        /// Event: an elastic job got more workers.
        SCALED_UP = "ScaledUp";
        /// Event: an elastic job has fewer workers.
        SCALED_DOWN = "ScaledDown";
    }
}

/// Condition types of Workloads that Kueue does not have.
pub mod own_types {
    strings! {
        /// Type of the condition whose message names the capacity tiers of the flavors in which the Workload has its quota.
        CAPACITY_TIER = "CapacityTier";
    }
}

/// Condition types of TrainingJobs besides `Admitted`.
pub mod training_types {
    strings! {
        /// Queued=True: the job waits in its queue.
        QUEUED = "Queued";
        /// Running=True: all pods of the job's last admission have been ready.
        RUNNING = "Running";
        /// Suspended=True: the job is suspended.
        SUSPENDED = "Suspended";
        /// Stalled=True: the TrainingJob makes no progress until a user changes something.
        STALLED = "Stalled";
        /// Succeeded=True: the job has succeeded.
        SUCCEEDED = "Succeeded";
        /// Failed=True: the job has failed.
        FAILED = "Failed";
        /// Elastic=True: the number of the job's workers may change; the message says how.
        ELASTIC = "Elastic";
        /// SchedulingTimeout=True: the job's pods were not ready in time; also the reason of that eviction and of an event.
        SCHEDULING_TIMEOUT = "SchedulingTimeout";
        /// CheckpointRequested=True: the job is to save its work before Berth stops the job; also the reason of an event.
        CHECKPOINT_REQUESTED = "CheckpointRequested";
        /// CheckpointOverdue=True: the job has not saved a checkpoint within its interval.
        CHECKPOINT_OVERDUE = "CheckpointOverdue";
        /// CheckpointStoreUnavailable=True: the job's CheckpointStore does not answer.
        CHECKPOINT_STORE_UNAVAILABLE = "CheckpointStoreUnavailable";
    }
}

/// Phases of TrainingJobs.
pub mod phases {
    strings! {
        /// Phase of a TrainingJob that is not in a queue yet, or is admitted with pods that are not all ready.
        PENDING = "Pending";
        /// Phase of a TrainingJob that waits in its queue.
        QUEUED = "Queued";
        /// Phase of a TrainingJob whose pods are all ready.
        RUNNING = "Running";
        /// Phase of a TrainingJob that has ended with success.
        SUCCEEDED = "Succeeded";
        /// Phase of a TrainingJob that has ended without success.
        FAILED = "Failed";
        /// Phase of a TrainingJob that is suspended.
        SUSPENDED = "Suspended";
    }
}
