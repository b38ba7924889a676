//! Settings: the configuration file, reduced to the fields that control acts on. The crate `configuration` parses the file.

use crate::object::Kind;
use berth_jobs::pods::PodState;
use std::collections::BTreeSet;

/// The settings `waitForPodsReady` of the configuration file, with its time-outs in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// `waitForPodsReady.timeout`: time in milliseconds within which all pods of a Workload must be ready.
    pub timeout_ms: i64,
    /// `waitForPodsReady.recoveryTimeout` in milliseconds; `None` switches the recovery time-out off.
    pub recovery_timeout_ms: Option<i64>,
    /// `waitForPodsReady.blockAdmission`: true if admissions wait until the pods of all admitted Workloads are ready.
    pub block_admission: bool,
    /// True if `requeuingStrategy.timestamp` is `Creation`, and false for `Eviction`.
    pub order_by_creation: bool,
    /// `requeuingStrategy.backoffLimitCount`; `None` allows any number of retries.
    pub backoff_limit_count: Option<i32>,
    /// `requeuingStrategy.backoffBaseSeconds`: delay before the first retry.
    pub backoff_base_seconds: i64,
    /// `requeuingStrategy.backoffMaxSeconds`: longest delay before a retry.
    pub backoff_max_seconds: i64,
}

/// The settings of control.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `integrations.frameworks`: the job kinds that Berth manages. Berth ignores job kinds that `integrations.frameworks` does not name.
    pub job_kinds: BTreeSet<Kind>,
    /// `manageJobsWithoutQueueName`: true if Berth manages jobs that name no LocalQueue.
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`, as a label selector in the engine's form.
    pub managed_namespaces: berth_engine::model::Selector,
    /// `integrations.labelKeysToCopy`: keys of the labels that a Workload gets from its job.
    pub label_keys_to_copy: BTreeSet<String>,
    /// `waitForPodsReady`; `None` if the feature is off.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// `resources.excludeResourcePrefixes`: prefixes of the resources that quota does not count.
    pub exclude_resource_prefixes: Vec<String>,
    /// `resources.transformations`: rules that convert requested resources into resources with quota.
    pub transformations: Vec<berth_jobs::Transformation>,
    /// The resource by which TrainingJobs request accelerators, and the node label of the accelerator type.
    pub accelerators: berth_jobs::training::Accelerators,
    /// Options of the engine: fair sharing, `resources.quotaCheckStrategy`, feature gates, and the compatibility profile, which control follows, too.
    pub engine: berth_engine::Options,
    /// True if control ignores stored objects that fail validation, and ClusterQueues and Workloads with fields that Berth does not support yet. The setting
    /// `refuse_invalid` is off if the objects are not stored in an API server.
    pub refuse_invalid: bool,
    /// Gate `ConcurrentAdmission`: true if the annotation that names the allowed flavors has an effect.
    pub allowed_flavors: bool,
    /// Gate `AdmissionGatedBy`: true if the annotation of that name keeps a Workload from being tried.
    pub admission_gates: bool,
    /// Gate `MultiKueueOrchestratedPreemption`: true if a Workload with a closed preemption gate preempts no other Workload.
    pub preemption_gates: bool,
    /// Gate `UnadmittedWorkloadsObservability`: true if unadmitted Workloads get precise reasons, and are counted by reason.
    pub observe_unadmitted: bool,
    /// Gate `MetricForWorkloadCreationLatency`: true if the time until a job gets its Workload is measured.
    pub creation_latency_metric: bool,
    /// Gate `PriorityBoost`: true if the annotation `kueue.x-k8s.io/priority-boost` has an effect.
    pub priority_boost: bool,
    /// Gate `ReclaimablePods`: true if pods that will not run again give their quota back.
    pub reclaimable_pods: bool,
    /// Gate `CleanupProvisioningRequestsOnEviction`: true if the ProvisioningRequests of an evicted Workload are deleted.
    pub cleanup_provisioning_requests: bool,
    /// `objectRetentionPolicies.workloads.afterFinished` in milliseconds; `None` keeps finished Workloads.
    pub retain_finished_ms: Option<i64>,
    /// `objectRetentionPolicies.workloads.afterDeactivatedByKueue` in milliseconds; `None` keeps deactivated Workloads.
    pub retain_deactivated_ms: Option<i64>,
    /// `metrics.localQueueMetrics.enable`: true if LocalQueues have metrics.
    pub local_queue_metrics: bool,
    /// Gate `MetricsForCohorts`: true if cohorts have metrics.
    pub cohort_metrics: bool,
    /// `metrics.enableClusterQueueResources`: true if the resources of ClusterQueues have metrics.
    pub queue_resource_metrics: bool,
    /// Keys of the taints by which a cloud announces that a node is taken back.
    pub reclaim_taints: BTreeSet<String>,
    /// Largest number of planned admissions that the API server has not acknowledged yet.
    pub max_unacknowledged: usize,
}

impl Default for Settings {
    /// Default settings; `waitForPodsReady` is off, because its default depends on the version of the configuration file.
    fn default() -> Self {
        Self {
            job_kinds: Kind::jobs().collect(),
            manage_jobs_without_queue_name: false,
            managed_namespaces: berth_engine::model::Selector::default(),
            label_keys_to_copy: BTreeSet::new(),
            wait_for_pods_ready: None,
            exclude_resource_prefixes: Vec::new(),
            transformations: Vec::new(),
            accelerators: berth_jobs::training::Accelerators::default(),
            engine: berth_engine::Options::default(),
            refuse_invalid: true,
            allowed_flavors: false,
            admission_gates: true,
            preemption_gates: false,
            observe_unadmitted: true,
            creation_latency_metric: true,
            priority_boost: false,
            reclaimable_pods: true,
            cleanup_provisioning_requests: true,
            retain_finished_ms: None,
            retain_deactivated_ms: None,
            local_queue_metrics: false,
            cohort_metrics: true,
            queue_resource_metrics: false,
            reclaim_taints: berth_api::node::RECLAIM_TAINTS.map(str::to_owned).into(),
            // A late job of high priority must not queue behind thousands of unwritten admissions.
            max_unacknowledged: 256,
        }
    }
}

impl Settings {
    /// Whether a pod, or the StatefulSet of the pod, names a LocalQueue.
    pub fn names_a_queue(&self, pod: &PodState) -> bool {
        let through_set = pod.is_of_set() && self.job_kinds.contains(&Kind::StatefulSet);
        pod.queue_name.is_some() || through_set || self.manage_jobs_without_queue_name
    }
}
