//! Every label, annotation, finalizer and gate that is part of the contract with Kueue's users.
//!
//! Values are literal because manifests, dashboards and scripts depend on them. All values of Kueue's group are here, also ones that Berth
//! does not act on: `make tidy` requires a row of docs/compatibility.md for each.

macro_rules! strings {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $value;)*
    };
}

strings! {
    /// Label on jobs and pods: LocalQueue that shall manage the object.
    QUEUE_NAME = "kueue.x-k8s.io/queue-name";
    /// Label on jobs and pods: WorkloadPriorityClass; wins over the pods' priority.
    PRIORITY_CLASS = "kueue.x-k8s.io/priority-class";
    /// Label and annotation on jobs: existing Workload to adopt; the annotation is preferred.
    PREBUILT_WORKLOAD_NAME = "kueue.x-k8s.io/prebuilt-workload-name";
    /// Label on jobs: seconds, becomes maximumExecutionTimeSeconds.
    MAX_EXEC_TIME_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds";
    /// Label on Workloads: UID of the owning job.
    JOB_UID = "kueue.x-k8s.io/job-uid";
    /// Label on pods and helper objects: managed by the operator; also the finalizer on pods.
    MANAGED = "kueue.x-k8s.io/managed";
    /// Label on pods of a started job: name of their pod set.
    POD_SET = "kueue.x-k8s.io/podset";
    /// Label on pods: ClusterQueue of the Workload.
    CLUSTER_QUEUE_NAME = "kueue.x-k8s.io/cluster-queue-name";
    /// Label on pods: LocalQueue of the Workload.
    LOCAL_QUEUE_NAME = "kueue.x-k8s.io/local-queue-name";
    /// Label and annotation on pods: group they belong to; the annotation is preferred.
    POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name";
    /// Label on pods: rank inside the group.
    POD_GROUP_POD_INDEX = "kueue.x-k8s.io/pod-group-pod-index";
    /// Label on remote objects: id of the manager cluster.
    MULTIKUEUE_ORIGIN = "kueue.x-k8s.io/multikueue-origin";
    /// Label on pods of worker clusters: made through MultiKueue.
    MULTIKUEUE_WORKER_WORKLOAD_POD = "kueue.x-k8s.io/multikueue-worker-workload-pod";
    /// Label on Workloads: parent of a family of variants.
    CONCURRENT_ADMISSION_PARENT = "kueue.x-k8s.io/concurrent-admission-parent";

    /// Annotation on pod templates: all pods in one domain of that level.
    POD_SET_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology";
    /// Annotation on pod templates: that level if possible.
    POD_SET_PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology";
    /// Annotation on pod templates: capacity is checked without a domain.
    POD_SET_UNCONSTRAINED_TOPOLOGY = "kueue.x-k8s.io/podset-unconstrained-topology";
    /// Annotation on pod templates: level in which each slice must fit.
    POD_SET_SLICE_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology";
    /// Annotation on pod templates: pods per slice.
    POD_SET_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size";
    /// Annotation on pod templates: nested slices as JSON.
    POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
    /// Annotation on pod templates: pod sets placed together.
    POD_SET_GROUP_NAME = "kueue.x-k8s.io/podset-group-name";
    /// Annotation on pods of a started job: name of the Workload.
    WORKLOAD = "kueue.x-k8s.io/workload";
    /// Annotation: name of the first slice of an elastic job.
    WORKLOAD_SLICE_NAME = "kueue.x-k8s.io/workload-slice-name";
    /// Annotation on Workloads: `namespace/name` of the slice that this one replaces.
    WORKLOAD_SLICE_REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for";
    /// Annotation on jobs: opt in to workload slices; also a pod scheduling gate.
    ELASTIC_JOB = "kueue.x-k8s.io/elastic-job";
    /// Annotation on pod templates: subtracted from the pod index.
    POD_INDEX_OFFSET = "kueue.x-k8s.io/pod-index-offset";
    /// Annotation on pods: label that holds the index in a group.
    POD_GROUP_POD_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index-label";
    /// Annotation on remote jobs: UID of the local owner.
    MULTIKUEUE_ORIGIN_UID = "kueue.x-k8s.io/multikueue-origin-uid";
    /// Annotation on pods: may be deleted by force when their node is lost.
    SAFE_TO_FORCEFULLY_DELETE = "kueue.x-k8s.io/safe-to-forcefully-delete";
    /// Annotation on Workloads: group, version and kind of the owner.
    JOB_OWNER_GVK = "kueue.x-k8s.io/job-owner-gvk";
    /// Annotation on Workloads: name of the owner.
    JOB_OWNER_NAME = "kueue.x-k8s.io/job-owner-name";
    /// Annotation on Workloads: index among the Workloads of one owner.
    COMPONENT_WORKLOAD_INDEX = "kueue.x-k8s.io/component-workload-index";
    /// Annotation on Workloads: added to the base priority.
    PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost";
    /// Annotation on Workloads: the only flavor that may be assigned.
    WORKLOAD_ALLOWED_RESOURCE_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors";
    /// Annotation on jobs and Workloads: names that keep it out of scheduling until the list is empty.
    ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by";
    /// Annotation on Jobs: fewest pods, allows partial admission.
    JOB_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism";
    /// Annotation on Jobs: completions follow parallelism.
    JOB_COMPLETIONS_EQUAL_PARALLELISM = "kueue.x-k8s.io/job-completions-equal-parallelism";
    /// Annotation on Jobs: a stop is in progress.
    STOPPING = "kueue.x-k8s.io/stopping";
    /// Annotation on Ray jobs: replica sizes per pod set.
    RAYCLUSTER_POD_SET_REPLICA_SIZES = "kueue.x-k8s.io/raycluster-podset-replica-sizes";
    /// Annotation on Ray jobs: generation that was seen.
    RAYCLUSTER_GENERATION = "kueue.x-k8s.io/raycluster-generation";
    /// Annotation on pod templates: parent kind whose pods are gated.
    POD_SUSPENDING_PARENT = "kueue.x-k8s.io/pod-suspending-parent";
    /// Annotation on pods: size of their group.
    POD_GROUP_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count";
    /// Annotation on pods: make the Workload when the first pod exists.
    POD_GROUP_FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission";
    /// Annotation on pods: the group serves and never finishes.
    POD_GROUP_SERVING = "kueue.x-k8s.io/pod-group-serving";
    /// Annotation on pods: hash of their shape, names the pod set.
    ROLE_HASH = "kueue.x-k8s.io/role-hash";
    /// Annotation on pods: `false` makes one failure fail the group.
    RETRIABLE_IN_GROUP = "kueue.x-k8s.io/retriable-in-group";
    /// Annotation on Workloads: made for a pod group.
    IS_GROUP_WORKLOAD = "kueue.x-k8s.io/is-group-workload";
    /// Prefix of annotations that become ProvisioningRequest parameters.
    PROVISIONING_REQUEST_PREFIX = "provreq.kueue.x-k8s.io/";
    /// Annotation on pods: ProvisioningRequest they consume (the autoscaler's key).
    CONSUME_PROVISIONING_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request";
    /// Annotation on pods: provisioning class (the autoscaler's key).
    PROVISIONING_CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name";
    /// Annotation on ProvisioningRequests and their PodTemplates, Berth's own: since when the Workload has the quota for which
    /// they were made, as RFC 3339.
    RESERVED_AT = "berth.dev/reserved-at";
    /// Label on ResourceFlavors, Berth's own: how the capacity is bought, `reserved`, `on-demand` or `spot`.
    CAPACITY_TIER = "berth.dev/capacity-tier";
    /// Annotation on jobs and Workloads, Berth's own: the capacity tiers that are accepted, best first.
    CAPACITY_TIERS = "berth.dev/capacity-tiers";
    /// Annotation on jobs, Berth's own: when the job saved a checkpoint last, as RFC 3339.
    LAST_CHECKPOINT_TIME = "berth.dev/last-checkpoint-time";
    /// Annotation on TrainingJobs: the step of that checkpoint.
    LAST_CHECKPOINT_STEP = "berth.dev/last-checkpoint-step";
    /// Annotation on TrainingJobs: where that checkpoint is.
    LAST_CHECKPOINT_URI = "berth.dev/last-checkpoint-uri";
    /// Annotation on Workloads: whom they may preempt, as TrainingJobs say it.
    PREEMPTION_POLICY = "berth.dev/preemption-policy";
    /// Annotation on the Job of a TrainingJob's workers whose number may change while it runs: fewest and most, as `2:8`.
    ELASTIC_WORKERS = "berth.dev/elastic-workers";
    /// Annotation on such a Job, or, of a TrainingJob that restarts for a change of their number, on its Workload: to how many workers
    /// it was brought last, when, and under which Workload, as JSON.
    LAST_SCALE = "berth.dev/last-scale";
    /// Annotation on the Jobs of an elastic TrainingJob that restarts for a change of its number of workers: what their pods were told it
    /// is.
    TOLD_WORKERS = "berth.dev/told-workers";
    /// Annotation on a Workload by which an elastic TrainingJob grows: since when the job is queued, and its run admitted, as JSON.
    BEFORE_GROWTH = "berth.dev/before-growth";
    /// Annotation on the Workload of a TrainingJob: it is inactive because that is suspended, and not because others want it so.
    SUSPENDED_WITH_JOB = "berth.dev/suspended-with-job";
    /// Annotation on the Workload of a TrainingJob that has ended while something of it runs still: how, and which role says so, as JSON.
    TRAINING_END = "berth.dev/training-end";
    /// Annotation on pods that are to stop: until when they may save their work, as RFC 3339.
    STOP_AT = "berth.dev/stop-at";
    /// Annotation on pods that are to stop: why.
    STOP_REASON = "berth.dev/stop-reason";
    /// Annotation on pods of a job that is to lose workers: until when they may save their work first, as RFC 3339.
    SAVE_BY = "berth.dev/save-by";
    /// Annotation on such pods: why.
    SAVE_REASON = "berth.dev/save-reason";
    /// Annotation on the Lease of Berth's replicas: since when pods are queued, as RFC 3339. Older pods that were not made to wait are left alone.
    PODS_SINCE = "berth.dev/pods-since";
    /// Annotation on pods that wait, Berth's own: the version at which a start of unknown outcome was withdrawn.
    START_WITHDRAWN = "berth.dev/start-withdrawn";
    /// Berth's annotation on Jobs that run with fewer pods: the user's parallelism, if it is more than the completions.
    OWN_PARALLELISM = "berth.dev/own-parallelism";
    /// Annotation on ResourceFlavors, Berth's own: node labels that admitted pods must avoid.
    FORBIDDEN_NODE_LABELS = "berth.dev/forbidden-node-labels";
    /// Annotation on objects read in v1beta1, Berth's own and never stored: what v1beta1 has no field for, as JSON.
    NOT_IN_V1BETA1 = "berth.dev/not-in-v1beta1";
    /// Annotation on Workloads, Berth's own: its pods and what they ask for together, for the columns of `kubectl get`.
    SIZE = "berth.dev/size";
    /// Mark on Workloads in memory, never stored: the stored object does not decode.
    UNREADABLE = "berth.dev/unreadable";

    /// Label on what runs a TrainingJob: its name.
    TRAINING_JOB = "berth.dev/training-job";
    /// Label on what runs a TrainingJob: its uid.
    TRAINING_JOB_UID = "berth.dev/training-job-uid";
    /// Label on pods of a TrainingJob: their role.
    TRAINING_ROLE = "berth.dev/training-role";

    /// Label of nodes: host name, the lowest topology level.
    HOSTNAME = "kubernetes.io/hostname";
    /// Label of namespaces: their own name.
    NAMESPACE_NAME = "kubernetes.io/metadata.name";

    /// Finalizer on objects in use.
    RESOURCE_IN_USE_FINALIZER = "kueue.x-k8s.io/resource-in-use";
    /// Pod scheduling gate of pods that wait for admission.
    ADMISSION_GATE = "kueue.x-k8s.io/admission";
    /// Pod scheduling gate of pods that wait for a place.
    TOPOLOGY_GATE = "kueue.x-k8s.io/topology";
    /// Preemption gate of variants.
    CONCURRENT_ADMISSION_GATE = "kueue.x-k8s.io/concurrent-admission";
    /// Admission check controller, preemption gate and `spec.managedBy` of MultiKueue.
    MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue";
    /// Admission check controller that asks an autoscaler.
    PROVISIONING_REQUEST_CONTROLLER = "kueue.x-k8s.io/provisioning-request";
    /// MultiKueue dispatcher that nominates all clusters.
    DISPATCHER_ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
    /// MultiKueue dispatcher that nominates step by step.
    DISPATCHER_INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental";

    /// Field manager and event source of admission and eviction.
    FIELD_MANAGER_ADMISSION = "kueue-admission";
    /// Field manager of reclaimable pods.
    FIELD_MANAGER_RECLAIMABLE_PODS = "kueue-reclaimable-pods";

    /// Lease of the leader, in the manager's namespace.
    LEADER_LEASE = "c1f6bfd2.kueue.x-k8s.io";
    /// API group of WorkloadPriorityClass references.
    GROUP_KUEUE = "kueue.x-k8s.io";
    /// API group of PriorityClass references.
    GROUP_SCHEDULING = "scheduling.k8s.io";
}
