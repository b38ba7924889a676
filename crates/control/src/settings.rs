//! Settings: the configuration file, reduced to the fields that control acts on. The manager parses it.

use crate::write::Kind;
use berth_jobs::pods::PodState;
use std::collections::BTreeSet;

/// `waitForPodsReady.requeuingStrategy` and time-outs, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// `timeout`.
    pub timeout_ms: i64,
    /// `recoveryTimeout`; `None` is switched off.
    pub recovery_timeout_ms: Option<i64>,
    /// `blockAdmission`.
    pub block_admission: bool,
    /// `requeuingStrategy.timestamp` is `Creation` (else `Eviction`).
    pub order_by_creation: bool,
    /// `backoffLimitCount`; `None` is endless.
    pub backoff_limit_count: Option<i32>,
    /// `backoffBaseSeconds`.
    pub backoff_base_seconds: i64,
    /// `backoffMaxSeconds`.
    pub backoff_max_seconds: i64,
}

/// Control's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `integrations.frameworks`: the kinds of job that are managed. Others are left alone.
    pub job_kinds: BTreeSet<Kind>,
    /// `manageJobsWithoutQueueName`.
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`, as a label selector in the engine's form.
    pub managed_namespaces: berth_engine::model::Selector,
    /// `integrations.labelKeysToCopy`.
    pub label_keys_to_copy: BTreeSet<String>,
    /// `waitForPodsReady`; `None` is off.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// `resources.excludeResourcePrefixes`.
    pub exclude_resource_prefixes: Vec<String>,
    /// `resources.transformations`.
    pub transformations: Vec<berth_jobs::Transformation>,
    /// The resource by which TrainingJobs ask for accelerators, and the node label of the accelerator type.
    pub cards: berth_jobs::training::Cards,
    /// Options of the engine: fair sharing, `resources.quotaCheckStrategy`, feature gates, and the compatibility profile, which control follows, too.
    pub engine: berth_engine::Options,
    /// Stored objects that the rules refuse take no part, nor do ClusterQueues and Workloads with fields that Berth does not act on yet. Off for
    /// objects that no server has stored.
    pub refuse_invalid: bool,
    /// Gate `ConcurrentAdmission`: the annotation that names the allowed flavors counts.
    pub allowed_flavors: bool,
    /// Gate `AdmissionGatedBy`: the annotation of that name keeps a Workload from being tried.
    pub admission_gates: bool,
    /// Gate `MultiKueueOrchestratedPreemption`: a Workload with a closed preemption gate preempts nobody.
    pub preemption_gates: bool,
    /// Gate `UnadmittedWorkloadsObservability`: unadmitted Workloads get precise reasons, and are counted by them.
    pub observe_unadmitted: bool,
    /// Gate `MetricForWorkloadCreationLatency`.
    pub creation_latency_metric: bool,
    /// Gate `PriorityBoost`: the annotation `kueue.x-k8s.io/priority-boost` counts.
    pub priority_boost: bool,
    /// Gate `ReclaimablePods`: pods that will not run again give their quota back.
    pub reclaimable_pods: bool,
    /// Gate `CleanupProvisioningRequestsOnEviction`: an evicted Workload keeps no ProvisioningRequest.
    pub cleanup_provisioning_requests: bool,
    /// `objectRetentionPolicies.workloads.afterFinished`.
    pub retain_finished_ms: Option<i64>,
    /// `objectRetentionPolicies.workloads.afterDeactivatedByKueue`.
    pub retain_deactivated_ms: Option<i64>,
    /// `metrics.localQueueMetrics.enable`.
    pub local_queue_metrics: bool,
    /// Gate `MetricsForCohorts`.
    pub cohort_metrics: bool,
    /// `metrics.enableClusterQueueResources`.
    pub queue_resource_metrics: bool,
    /// Keys of the taints that announce that a node is taken back.
    pub reclaim_taints: BTreeSet<String>,
    /// Admissions that may be unacknowledged at once.
    pub max_unacknowledged: usize,
}

impl Default for Settings {
    /// Default settings; `waitForPodsReady`, whose default depends on the file's version, is off.
    fn default() -> Self {
        Self {
            job_kinds: Kind::jobs().collect(),
            manage_jobs_without_queue_name: false,
            managed_namespaces: berth_engine::model::Selector::default(),
            label_keys_to_copy: BTreeSet::new(),
            wait_for_pods_ready: None,
            exclude_resource_prefixes: Vec::new(),
            transformations: Vec::new(),
            cards: berth_jobs::training::Cards::default(),
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
    /// Whether a pod says that it waits for a queue, or its StatefulSet does.
    pub(crate) fn names_a_queue(&self, pod: &PodState) -> bool {
        let through_set = pod.is_of_set() && self.job_kinds.contains(&Kind::StatefulSet);
        pod.queue_name.is_some() || through_set || self.manage_jobs_without_queue_name
    }
}
