//! Words that Kueue does not have: Berth's own reasons, and the conditions and phases of TrainingJobs.

/// Reasons of Berth's own, of conditions and of events.
pub mod own_reasons {
    strings! {
        /// Workload QuotaReserved=False: a limit of the queue's policy is reached.
        ADMISSION_LIMIT = "AdmissionLimit";
        /// Workload QuotaReserved=False: quota is free, but its flavor is out of stock.
        OUT_OF_STOCK = "OutOfStock";
        /// Workload Evicted=True: the nodes for it never came.
        STOCK_OUT = "StockOut";
        /// Workload Evicted=True: it lost nodes and gets no others.
        CAPACITY_RECLAIMED = "CapacityReclaimed";
        /// Workload Evicted=True or QuotaReserved=False: its admission is for other pods than its pod sets have.
        INVALID_ADMISSION = "InvalidAdmission";
        /// Workload Evicted=True: its job has other pods than the ones that it holds quota for.
        SPEC_CHANGED = "SpecChanged";
        /// Workload Evicted=True, and event: a Job of it was made with other pods than hold quota.
        JOB_ALTERED = "JobAltered";
        /// Workload Evicted=True, and event: it cannot be started as it was admitted, and that may pass.
        PLACEMENT_FAILED = "PlacementFailed";
        /// Workload Evicted=True: its pod asks for more than it has quota for.
        POD_RESIZED = "PodResized";
        /// Workload Evicted=True: for a while more than twice the pods of its job have run for which it holds quota.
        PODS_BEYOND_QUOTA = "PodsBeyondQuota";
        /// Event: a job is started that was stopped in the same admission, and not by an eviction.
        REPEATED_START = "RepeatedStart";
        /// Event: a queue is named in a field that has no effect.
        QUEUE_MISPLACED = "QueueMisplaced";
        /// Workload Evicted=True: it goes to a better tier.
        CLIMBED_BACK = "ClimbedBack";
        /// Workload Finished=True: it has waited longer than its TrainingJob allows.
        MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded";

        /// QueuePolicy Active=False: a selector cannot be read.
        INVALID_SELECTOR = "InvalidSelector";
        /// QueuePolicy Active=False: another policy governs the same ClusterQueue.
        CONFLICT = "Conflict";
        /// QueuePolicy Active=False: it names a ClusterQueue that does not exist.
        CLUSTER_QUEUE_NOT_FOUND = "ClusterQueueNotFound";
        /// AdmissionCheck Active=False: the cluster does not serve what it asks for.
        NOT_SERVED = "NotServed";

        /// TrainingJob Stalled=True, and event: its spec makes no sense.
        INVALID_SPEC = "InvalidSpec";
        /// TrainingJob Stalled=True, and event: its store does not exist.
        CHECKPOINT_STORE_NOT_FOUND = "CheckpointStoreNotFound";
        /// TrainingJob Queued=True: nothing more is known yet.
        QUEUED = "Queued";
        /// TrainingJob Queued=False: it has no Workload.
        NOT_QUEUED = "NotQueued";
        /// TrainingJob Running=False: not all pods are ready yet.
        PODS_STARTING = "PodsStarting";
        /// TrainingJob Running=False between two runs.
        RESTARTED = "Restarted";
        /// TrainingJob Running=False: its pods start again with another number of workers.
        RESCALING = "Rescaling";
        /// TrainingJob Running=False: a Job of a run that was up is gone.
        JOB_GONE = "JobGone";
        /// TrainingJob Running=False: a Job of that name exists already.
        NAME_TAKEN = "NameTaken";
        /// TrainingJob Running=False, and event as in Kueue: the API server refuses what is to be created.
        FAILED_CREATE = "FailedCreate";
        /// TrainingJob Suspended=True: the user asks for it.
        REQUESTED = "Requested";
        /// TrainingJob Suspended=True: its Workload was deactivated.
        WORKLOAD_DEACTIVATED = "WorkloadDeactivated";
        /// TrainingJob Suspended=False.
        RESUMED = "Resumed";
        /// TrainingJob SchedulingTimeout=True.
        PODS_NOT_READY = "PodsNotReady";
        /// TrainingJob SchedulingTimeout=False: it is tried again.
        ADMITTED_AGAIN = "AdmittedAgain";
        /// TrainingJob CheckpointRequested=True, and event: it gives workers back.
        SCALING_DOWN = "ScalingDown";
        /// TrainingJob CheckpointRequested=True, and event: it restarts with more workers.
        SCALING_UP = "ScalingUp";
        /// TrainingJob CheckpointRequested=False: it has saved.
        CHECKPOINT_SAVED = "CheckpointSaved";
        /// TrainingJob CheckpointRequested=False: it has not saved in time.
        NO_CHECKPOINT_IN_TIME = "NoCheckpointInTime";
        /// TrainingJob CheckpointRequested=False: it may go on.
        WITHDRAWN = "Withdrawn";
        /// TrainingJob CheckpointOverdue=True.
        INTERVAL_MISSED = "IntervalMissed";
        /// TrainingJob CheckpointOverdue=False.
        INTERVAL_KEPT = "IntervalKept";
        /// TrainingJob CheckpointOverdue=False: it does not run.
        NOT_RUNNING = "NotRunning";
        /// TrainingJob CheckpointStoreUnavailable=True.
        REQUEST_FAILED = "RequestFailed";
        /// TrainingJob CheckpointStoreUnavailable=False.
        AVAILABLE = "Available";
        /// TrainingJob Elastic=True: the message has the bounds, steps and pauses of the number of workers.
        SCALE_POLICY = "ScalePolicy";
        /// TrainingJob Elastic=False: partial admission is off.
        PARTIAL_ADMISSION_OFF = "PartialAdmissionOff";
        /// TrainingJob Elastic=True: it gives workers up while it runs, and takes none, as it saves no checkpoints.
        SHRINKS_ONLY = "ShrinksOnly";

        /// Event: another client has suspended a job that runs, and it is started again.
        SUSPENSION_UNDONE = "SuspensionUndone";
        /// Event: a workload with quota has an owner of a kind that Berth does not know.
        OWNER_KIND_UNKNOWN = "OwnerKindUnknown";
        /// Event: a workload with quota has a job that is not managed by it any more.
        NOT_MANAGED = "NotManaged";
        /// Event: the amount of some quota cannot be read.
        UNREADABLE_USAGE = "UnreadableUsage";
        /// Event: a label has a value to which no policy gives a class.
        PRIORITY_LABEL_UNKNOWN = "PriorityLabelUnknown";
        /// Event: a priority class does not exist.
        WORKLOAD_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound";
        /// Event: an object that is being deleted waits for the objects that use it.
        DELETION_WAITS = "DeletionWaits";
        /// Event: the API server refuses a change.
        WRITE_REFUSED = "WriteRefused";
        /// Event: a pod runs that was created while Berth did not answer; it is tried, and stopped where there is no room for it.
        NOT_REVIEWED = "NotReviewed";
        /// Event, and Pod TerminationTarget=True: no pod set of its Workload is for that pod.
        ROLE_NOT_FOUND = "RoleNotFound";
        /// Event, and Pod TerminationTarget=True: the pod is one more than its group was admitted for.
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
        /// The capacity tiers of the flavors with which it has its quota are in the message.
        CAPACITY_TIER = "CapacityTier";
    }
}

/// Condition types of TrainingJobs beside `Admitted`.
pub mod training_types {
    strings! {
        /// Queued=True: the job waits in its queue.
        QUEUED = "Queued";
        /// Running=True: all pods of the job's last admission have been ready.
        RUNNING = "Running";
        /// Suspended=True: the job is suspended.
        SUSPENDED = "Suspended";
        /// The object makes no progress until a user changes something.
        STALLED = "Stalled";
        /// Succeeded=True: the job has succeeded.
        SUCCEEDED = "Succeeded";
        /// Failed=True: the job has failed.
        FAILED = "Failed";
        /// Elastic=True: the number of the job's workers may change; the message has the details.
        ELASTIC = "Elastic";
        /// SchedulingTimeout=True: the job's pods were not ready in time; also the reason of that eviction, and of an event.
        SCHEDULING_TIMEOUT = "SchedulingTimeout";
        /// CheckpointRequested=True: the job was asked to save its work before it is stopped; also the reason of an event.
        CHECKPOINT_REQUESTED = "CheckpointRequested";
        /// CheckpointOverdue=True: the job has not saved within its interval.
        CHECKPOINT_OVERDUE = "CheckpointOverdue";
        /// CheckpointStoreUnavailable=True: the CheckpointStore of the job does not answer.
        CHECKPOINT_STORE_UNAVAILABLE = "CheckpointStoreUnavailable";
    }
}

/// Phases of TrainingJobs.
pub mod phases {
    strings! {
        /// Not in a queue yet, or admitted and not up.
        PENDING = "Pending";
        /// Waits in its queue.
        QUEUED = "Queued";
        /// All pods are up.
        RUNNING = "Running";
        /// Over.
        SUCCEEDED = "Succeeded";
        /// Over, without success.
        FAILED = "Failed";
        /// Suspended.
        SUSPENDED = "Suspended";
    }
}
