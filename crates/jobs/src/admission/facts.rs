//! Facts about the cluster that a review of a job needs, and the fields that it sets.

/// Name of the LocalQueue and of the WorkloadPriorityClass for jobs that name none.
pub const DEFAULT_NAME: &str = "default";

/// Facts about the cluster beside the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on one another")]
pub struct Facts {
    /// The job's namespace is among those whose jobs are managed.
    pub managed_namespace: bool,
    /// Jobs without a queue name are managed too (`manageJobsWithoutQueueName`).
    pub without_queue_name: bool,
    /// The namespace has a LocalQueue of the name [`DEFAULT_NAME`].
    pub default_queue: bool,
    /// A WorkloadPriorityClass of the name [`DEFAULT_NAME`] exists.
    pub default_priority_class: bool,
    /// The owner of the job is managed itself, and decides when the job runs.
    pub governed: bool,
    /// Pods are managed.
    pub pods: bool,
    /// Pods of Deployments are managed.
    pub deployments: bool,
    /// Pods of StatefulSets are managed.
    pub stateful_sets: bool,
    /// Jobs of this kind are not managed: the configuration does not name the kind.
    pub unmanaged_kind: bool,
}

/// Defaults that a job gets at its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The queue name [`DEFAULT_NAME`].
    pub queue_name: bool,
    /// The priority class [`DEFAULT_NAME`].
    pub priority_class: bool,
    /// The job is suspended.
    pub suspend: bool,
}

/// `spec.suspend` as a review sets it in a change by another client than Berth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSuspend {
    /// The value of the field.
    pub suspend: bool,
    /// The job is stopped by this write: it gets the annotation of a stop, after which its template is restored.
    pub stopping: bool,
    /// Warning to the user.
    pub warning: String,
}
