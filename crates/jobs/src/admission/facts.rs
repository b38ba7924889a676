//! Facts about the cluster that a review of a job needs, and the changes that a review makes.

/// Name of the default LocalQueue and of the default WorkloadPriorityClass, for jobs that name none.
pub const DEFAULT_NAME: &str = "default";

/// Facts about the cluster that a review of a job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on one another")]
pub struct Facts {
    /// Berth manages jobs of this namespace.
    pub managed_namespace: bool,
    /// Berth also manages jobs without a queue name (`manageJobsWithoutQueueName`).
    pub without_queue_name: bool,
    /// The namespace has a LocalQueue called [`DEFAULT_NAME`].
    pub default_queue: bool,
    /// A WorkloadPriorityClass called [`DEFAULT_NAME`] exists.
    pub default_priority_class: bool,
    /// The job has an owner that Berth manages and that decides when the job runs.
    pub governed: bool,
    /// Berth manages pods.
    pub pods: bool,
    /// Berth manages the pods of Deployments.
    pub deployments: bool,
    /// Berth manages the pods of StatefulSets.
    pub stateful_sets: bool,
    /// Berth does not manage jobs of this kind, because the configuration does not name the kind.
    pub unmanaged_kind: bool,
}

/// Defaults that a job gets at its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The job gets the queue name [`DEFAULT_NAME`].
    pub queue_name: bool,
    /// The job gets the priority class [`DEFAULT_NAME`].
    pub priority_class: bool,
    /// The job gets suspended.
    pub suspend: bool,
}

/// The value of `spec.suspend` that a review sets in a job's update by another client than Berth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSuspend {
    /// The value that the field `spec.suspend` gets.
    pub suspend: bool,
    /// True if the update stops the job: the job gets the annotation of a running stop, and Berth then restores the job's template.
    pub stopping: bool,
    /// Warning to the user that `spec.suspend` keeps its value or is set to true.
    pub warning: String,
}
