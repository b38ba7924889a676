//! Every label, annotation, finalizer and scheduling gate on which Kueue's users rely, and those of Berth.
//!
//! The values of labels and annotations are written out as literals, because manifests, dashboards and scripts depend on them. The module has all labels and
//! annotations of the group `kueue.x-k8s.io`, also those that have no effect in Berth: for each label and annotation, `make tidy` requires a row in
//! docs/compatibility.md.

macro_rules! strings {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $value;)*
    };
}

strings! {
    /// Label on jobs and pods: name of the LocalQueue that manages the object.
    QUEUE_NAME = "kueue.x-k8s.io/queue-name";
    /// Label on jobs and pods: name of the WorkloadPriorityClass; it takes precedence over the pods' priority.
    PRIORITY_CLASS = "kueue.x-k8s.io/priority-class";
    /// Label and annotation on jobs: name of an existing Workload that the job uses; the annotation takes precedence over the label.
    PREBUILT_WORKLOAD_NAME = "kueue.x-k8s.io/prebuilt-workload-name";
    /// Label on jobs: number of seconds that becomes `maximumExecutionTimeSeconds` of the Workload.
    MAX_EXEC_TIME_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds";
    /// Label on Workloads: UID of the owning job.
    JOB_UID = "kueue.x-k8s.io/job-uid";
    /// Label on pods and helper objects: the object is managed by the operator; also the finalizer on pods.
    MANAGED = "kueue.x-k8s.io/managed";
    /// Label on pods of a started job: name of their pod set.
    POD_SET = "kueue.x-k8s.io/podset";
    /// Label on pods: name of the ClusterQueue of the Workload.
    CLUSTER_QUEUE_NAME = "kueue.x-k8s.io/cluster-queue-name";
    /// Label on pods: name of the LocalQueue of the Workload.
    LOCAL_QUEUE_NAME = "kueue.x-k8s.io/local-queue-name";
    /// Label and annotation on pods: name of their pod group; the annotation takes precedence over the label.
    POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name";
    /// Label on pods: index of the pod in its group.
    POD_GROUP_POD_INDEX = "kueue.x-k8s.io/pod-group-pod-index";
    /// Label on MultiKueue's objects in worker clusters: id of the manager cluster.
    MULTIKUEUE_ORIGIN = "kueue.x-k8s.io/multikueue-origin";
    /// Label on pods in worker clusters: the pod was created through MultiKueue.
    MULTIKUEUE_WORKER_WORKLOAD_POD = "kueue.x-k8s.io/multikueue-worker-workload-pod";
    /// Label on Workloads that are variants for concurrent admission: name of the parent Workload.
    CONCURRENT_ADMISSION_PARENT = "kueue.x-k8s.io/concurrent-admission-parent";

    /// Annotation on pod templates: topology level of which one domain must hold all pods.
    POD_SET_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology";
    /// Annotation on pod templates: topology level of which one domain holds all pods if possible.
    POD_SET_PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology";
    /// Annotation on pod templates: the pods may be in any domains, and only the capacity of the nodes is checked.
    POD_SET_UNCONSTRAINED_TOPOLOGY = "kueue.x-k8s.io/podset-unconstrained-topology";
    /// Annotation on pod templates: topology level of which one domain must hold each slice.
    POD_SET_SLICE_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology";
    /// Annotation on pod templates: number of pods in a slice.
    POD_SET_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size";
    /// Annotation on pod templates: layers of nested slices, as JSON.
    POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
    /// Annotation on pod templates: name of a group of pod sets that are placed together.
    POD_SET_GROUP_NAME = "kueue.x-k8s.io/podset-group-name";
    /// Annotation on pods of a started job: name of the Workload.
    WORKLOAD = "kueue.x-k8s.io/workload";
    /// Annotation on the objects of an elastic job: name of its first workload slice.
    WORKLOAD_SLICE_NAME = "kueue.x-k8s.io/workload-slice-name";
    /// Annotation on Workloads: the `namespace/name` of the workload slice that the Workload replaces.
    WORKLOAD_SLICE_REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for";
    /// Annotation on jobs: the job uses workload slices; also a scheduling gate of pods.
    ELASTIC_JOB = "kueue.x-k8s.io/elastic-job";
    /// Annotation on pod templates: number that is subtracted from the pod index.
    POD_INDEX_OFFSET = "kueue.x-k8s.io/pod-index-offset";
    /// Annotation on pods: key of the label that holds the pod's index in its group.
    POD_GROUP_POD_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index-label";
    /// Annotation on MultiKueue's jobs in worker clusters: the UID of the owner in the manager cluster.
    MULTIKUEUE_ORIGIN_UID = "kueue.x-k8s.io/multikueue-origin-uid";
    /// Annotation on pods: the pod may be deleted by force when its node is lost.
    SAFE_TO_FORCEFULLY_DELETE = "kueue.x-k8s.io/safe-to-forcefully-delete";
    /// Annotation on Workloads: group, version and kind of the owner.
    JOB_OWNER_GVK = "kueue.x-k8s.io/job-owner-gvk";
    /// Annotation on Workloads: name of the owner.
    JOB_OWNER_NAME = "kueue.x-k8s.io/job-owner-name";
    /// Annotation on Workloads: index among the Workloads of one owner.
    COMPONENT_WORKLOAD_INDEX = "kueue.x-k8s.io/component-workload-index";
    /// Annotation on Workloads: number that is added to the priority.
    PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost";
    /// Annotation on Workloads: name of the only flavor that may be assigned.
    WORKLOAD_ALLOWED_RESOURCE_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors";
    /// Annotation on jobs and Workloads: admission gates; the object is not admitted until the list is empty.
    ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by";
    /// Annotation on Jobs: smallest number of pods, which allows partial admission.
    JOB_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism";
    /// Annotation on Jobs: the Job's `completions` changes together with its `parallelism`.
    JOB_COMPLETIONS_EQUAL_PARALLELISM = "kueue.x-k8s.io/job-completions-equal-parallelism";
    /// Annotation on Jobs: the Job is being stopped.
    STOPPING = "kueue.x-k8s.io/stopping";
    /// Annotation on Ray jobs: number of replicas of each pod set.
    RAYCLUSTER_POD_SET_REPLICA_SIZES = "kueue.x-k8s.io/raycluster-podset-replica-sizes";
    /// Annotation on Ray jobs: generation of the RayCluster that was last seen.
    RAYCLUSTER_GENERATION = "kueue.x-k8s.io/raycluster-generation";
    /// Annotation on pod templates: kind of the parent object whose pods wait for admission.
    POD_SUSPENDING_PARENT = "kueue.x-k8s.io/pod-suspending-parent";
    /// Annotation on pods: number of pods of their group.
    POD_GROUP_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count";
    /// Annotation on pods: the group's Workload is created as soon as the first pod exists.
    POD_GROUP_FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission";
    /// Annotation on pods: the group is a serving workload and never finishes.
    POD_GROUP_SERVING = "kueue.x-k8s.io/pod-group-serving";
    /// Annotation on pods: hash of the pod's shape, which is the name of its pod set.
    ROLE_HASH = "kueue.x-k8s.io/role-hash";
    /// Annotation on pods: with the value `false` the group fails when one pod fails.
    RETRIABLE_IN_GROUP = "kueue.x-k8s.io/retriable-in-group";
    /// Annotation on Workloads: the Workload was created for a pod group.
    IS_GROUP_WORKLOAD = "kueue.x-k8s.io/is-group-workload";
    /// Prefix of annotations that become parameters of ProvisioningRequests.
    PROVISIONING_REQUEST_PREFIX = "provreq.kueue.x-k8s.io/";
    /// Annotation on pods: name of the ProvisioningRequest whose capacity they use (a key of the autoscaler).
    CONSUME_PROVISIONING_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request";
    /// Annotation on pods: name of the provisioning class (a key of the autoscaler).
    PROVISIONING_CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name";
    /// Annotation on ProvisioningRequests and their PodTemplates, Berth's own: time of the Workload's reservation for which they were created, as RFC
    /// 3339.
    RESERVED_AT = "berth.dev/reserved-at";
    /// Label on ResourceFlavors, Berth's own: capacity tier of the flavor, `reserved`, `on-demand` or `spot`.
    CAPACITY_TIER = "berth.dev/capacity-tier";
    /// Annotation on jobs and Workloads, Berth's own: capacity tiers that the job accepts, best first.
    CAPACITY_TIERS = "berth.dev/capacity-tiers";
    /// Annotation on jobs, Berth's own: time at which the job last saved a checkpoint, as RFC 3339.
    LAST_CHECKPOINT_TIME = "berth.dev/last-checkpoint-time";
    /// Annotation on TrainingJobs: training step of the last checkpoint.
    LAST_CHECKPOINT_STEP = "berth.dev/last-checkpoint-step";
    /// Annotation on TrainingJobs: address of the last checkpoint.
    LAST_CHECKPOINT_URI = "berth.dev/last-checkpoint-uri";
    /// Annotation on Workloads: preemption policy of the TrainingJob, which limits the workloads that the Workload may preempt.
    PREEMPTION_POLICY = "berth.dev/preemption-policy";
    /// Annotation on the Job of a TrainingJob's workers whose number may change while it runs: smallest and largest number of workers, as `2:8`.
    ELASTIC_WORKERS = "berth.dev/elastic-workers";
    /// Annotation on the Job of an elastic TrainingJob's workers, or on the Workload if each change of the number restarts the TrainingJob: last
    /// change of the number of workers, with its time and the uid of the Workload at that time, as JSON.
    LAST_SCALE = "berth.dev/last-scale";
    /// Annotation on the Jobs of an elastic TrainingJob that restarts for each change of its number of workers: number of workers that the
    /// environment of the pods states.
    TOLD_WORKERS = "berth.dev/told-workers";
    /// Annotation on a Workload by which an elastic TrainingJob scales up: times since which the job was queued and its run was admitted, as JSON.
    BEFORE_GROWTH = "berth.dev/before-growth";
    /// Annotation on the Workload of a TrainingJob: the Workload is inactive because the TrainingJob is suspended, and for no other reason.
    SUSPENDED_WITH_JOB = "berth.dev/suspended-with-job";
    /// Annotation on the Workload of a TrainingJob that has ended while some of its pods still run: its result, and the role that decided the result,
    /// as JSON.
    TRAINING_END = "berth.dev/training-end";
    /// Annotation on pods that Berth will stop: time until which the pods may save their work, as RFC 3339.
    STOP_AT = "berth.dev/stop-at";
    /// Annotation on pods that Berth will stop: reason of the stop.
    STOP_REASON = "berth.dev/stop-reason";
    /// Annotation on pods of a job that will lose workers: time until which the pods may save their work, as RFC 3339.
    SAVE_BY = "berth.dev/save-by";
    /// Annotation on pods of a job that will lose workers: reason of the change.
    SAVE_REASON = "berth.dev/save-reason";
    /// Annotation on the Lease of Berth's replicas: time since which Berth queues pods, as RFC 3339. Berth does not touch pods that are older than the time in
    /// this annotation and were created without a scheduling gate.
    PODS_SINCE = "berth.dev/pods-since";
    /// Annotation on waiting pods, Berth's own: resourceVersion of the pod at which Berth withdrew a start whose result was unknown.
    START_WITHDRAWN = "berth.dev/start-withdrawn";
    /// Annotation on Jobs that run with fewer pods, Berth's own: the user's `parallelism`, if it is greater than `completions`.
    OWN_PARALLELISM = "berth.dev/own-parallelism";
    /// Annotation on ResourceFlavors, Berth's own: node labels that admitted pods must avoid.
    FORBIDDEN_NODE_LABELS = "berth.dev/forbidden-node-labels";
    /// Annotation on objects that a client reads in v1beta1, Berth's own and never stored: the fields that v1beta1 does not have, as JSON.
    NOT_IN_V1BETA1 = "berth.dev/not-in-v1beta1";
    /// Annotation on Workloads, Berth's own: number of pods and their requests together, for the columns of `kubectl get`.
    SIZE = "berth.dev/size";
    /// Mark on Workloads in memory, never stored: the stored object could not be decoded.
    UNREADABLE = "berth.dev/unreadable";

    /// Label on Jobs and pods of a TrainingJob: name of the TrainingJob.
    TRAINING_JOB = "berth.dev/training-job";
    /// Label on Jobs and pods of a TrainingJob: uid of the TrainingJob.
    TRAINING_JOB_UID = "berth.dev/training-job-uid";
    /// Label on pods of a TrainingJob: their role.
    TRAINING_ROLE = "berth.dev/training-role";

    /// Label of nodes: host name of the node, the lowest topology level.
    HOSTNAME = "kubernetes.io/hostname";
    /// Label of namespaces: name of the namespace itself.
    NAMESPACE_NAME = "kubernetes.io/metadata.name";

    /// Finalizer `kueue.x-k8s.io/resource-in-use` on objects that other objects use, for example on a ResourceFlavor.
    RESOURCE_IN_USE_FINALIZER = "kueue.x-k8s.io/resource-in-use";
    /// Pod scheduling gate of pods that wait for admission.
    ADMISSION_GATE = "kueue.x-k8s.io/admission";
    /// Pod scheduling gate of pods that wait for a placement in a topology.
    TOPOLOGY_GATE = "kueue.x-k8s.io/topology";
    /// Preemption gate of variants for concurrent admission.
    CONCURRENT_ADMISSION_GATE = "kueue.x-k8s.io/concurrent-admission";
    /// Name of MultiKueue as the controller of an admission check, as a preemption gate, and in `spec.managedBy`.
    MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue";
    /// Name of the admission check controller that creates ProvisioningRequests.
    PROVISIONING_REQUEST_CONTROLLER = "kueue.x-k8s.io/provisioning-request";
    /// MultiKueue dispatcher that nominates all worker clusters at once.
    DISPATCHER_ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
    /// MultiKueue dispatcher that nominates worker clusters step by step.
    DISPATCHER_INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental";

    /// Field manager and event source of admissions and evictions.
    FIELD_MANAGER_ADMISSION = "kueue-admission";
    /// Field manager of reclaimable pods.
    FIELD_MANAGER_RECLAIMABLE_PODS = "kueue-reclaimable-pods";

    /// Name of the leader's Lease, in the manager's namespace.
    LEADER_LEASE = "c1f6bfd2.kueue.x-k8s.io";
    /// API group of WorkloadPriorityClass references.
    GROUP_KUEUE = "kueue.x-k8s.io";
    /// API group of PriorityClass references.
    GROUP_SCHEDULING = "scheduling.k8s.io";
}
