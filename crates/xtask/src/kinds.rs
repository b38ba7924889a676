//! The API kinds of Berth's CustomResourceDefinitions: names, scope, schema sources and printer columns.

use berth_api as api;
use berth_api::v1beta1;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// The facts about an API kind that the Rust type of the kind does not have.
pub(crate) struct Kind {
    /// API group of the kind.
    pub(crate) group: &'static str,
    /// Storage version of the API kind.
    pub(crate) version: &'static str,
    /// Name of the kind, in singular and CamelCase.
    pub(crate) kind: &'static str,
    /// Name of the kind's resource: the plural in lower case.
    pub(crate) plural: &'static str,
    /// Short names of the resource for kubectl.
    pub(crate) short_names: &'static [&'static str],
    /// True if objects of the kind are namespaced.
    pub(crate) namespaced: bool,
    /// Description of the kind in its CRD.
    pub(crate) description: &'static str,
    /// Makes the JSON schema of the kind's spec, or of the complete object if `rooted` is true.
    pub(crate) spec: fn() -> Value,
    /// Makes the JSON schema of the kind's status; a kind with a status gets the status subresource.
    pub(crate) status: Option<fn() -> Value>,
    /// True if the fields of the kind's spec are at the root of the object, without a field `spec`.
    pub(crate) rooted: bool,
    /// Printer columns of the kind: name, type, path, priority.
    pub(crate) columns: &'static [(&'static str, &'static str, &'static str, i32)],
    /// The schemas of the kind's version v1beta1 if its fields differ from v1beta2. A v1beta1 version with other fields is served only if conversion between
    /// the versions exists.
    pub(crate) older: Option<Older>,
    /// True if the CRD marks v1beta1 of the kind as deprecated, so that the API server warns users of v1beta1.
    pub(crate) deprecated: bool,
    /// CEL rules over the complete object of the kind: (rule, message).
    pub(crate) rules: fn() -> Vec<(String, &'static str)>,
    /// The field of the spec that can be neither changed nor removed; empty if the kind has no such field.
    pub(crate) fixed: &'static str,
}

impl Kind {
    /// Whether the kind is in Kueue's API group, and so has the version v1beta1 beside its storage version.
    pub(crate) fn is_kueues(&self) -> bool {
        self.group == api::GROUP
    }
}

/// JSON schemas of a kind's spec and status in the version v1beta1.
pub(crate) struct Older {
    pub(crate) spec: fn() -> Value,
    pub(crate) status: fn() -> Value,
}

const PLAIN: Kind = Kind {
    group: api::GROUP,
    version: api::VERSION,
    kind: "",
    plural: "",
    short_names: &[],
    namespaced: false,
    description: "",
    spec: document::<api::CohortSpec>,
    status: None,
    rooted: false,
    columns: &[],
    older: None,
    deprecated: true,
    rules: Vec::new,
    fixed: "",
};

/// The default facts about a kind of Berth's own API group.
const OWN: Kind = Kind { group: api::berth::GROUP, version: api::berth::VERSION, deprecated: false, ..PLAIN };

/// All API kinds of Kueue's and Berth's API groups, sorted by plural.
pub(crate) const ALL: &[Kind] = &[
    Kind {
        kind: "AdmissionCheck",
        plural: "admissionchecks",
        short_names: &["ac"],
        description: "A further condition for admission that a controller answers for each workload.",
        spec: document::<api::AdmissionCheckSpec>,
        status: Some(document::<api::AdmissionCheckStatus>),
        fixed: "controllerName",
        ..PLAIN
    },
    Kind {
        kind: "ClusterQueue",
        plural: "clusterqueues",
        short_names: &["cq"],
        description: "A pool of quota with its own queue of workloads.",
        spec: document::<api::ClusterQueueSpec>,
        status: Some(document::<api::ClusterQueueStatus>),
        columns: &[
            ("Cohort", "string", ".spec.cohortName", 0),
            ("Strategy", "string", ".spec.queueingStrategy", 1),
            ("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads", 1),
            ("Active", "string", ".status.conditions[?(@.type=='Active')].status", 0),
            ("Reason", "string", ".status.conditions[?(@.type=='Active')].reason", 1),
            ("Used", "string", ".status.berthUsed", 0),
        ],
        older: Some(Older {
            spec: document::<v1beta1::ClusterQueueSpec>,
            status: document::<v1beta1::ClusterQueueStatus>,
        }),
        ..PLAIN
    },
    Kind {
        kind: "Cohort",
        plural: "cohorts",
        short_names: &["co"],
        description: "A node of the cohort forest, whose queues lend each other unused quota.",
        spec: document::<api::CohortSpec>,
        status: Some(document::<api::CohortStatus>),
        older: Some(Older { spec: document::<v1beta1::CohortSpec>, status: document::<v1beta1::CohortStatus> }),
        ..PLAIN
    },
    Kind {
        kind: "LocalQueue",
        plural: "localqueues",
        short_names: &["queue", "queues", "lq"],
        namespaced: true,
        description: "The queue of a namespace; its workloads compete in one ClusterQueue.",
        spec: document::<api::LocalQueueSpec>,
        status: Some(document::<api::LocalQueueStatus>),
        columns: &[
            ("ClusterQueue", "string", ".spec.clusterQueue", 0),
            ("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads", 0),
            ("Active", "string", ".status.conditions[?(@.type=='Active')].status", 1),
            ("Reason", "string", ".status.conditions[?(@.type=='Active')].reason", 1),
        ],
        older: Some(Older { spec: document::<api::LocalQueueSpec>, status: document::<v1beta1::LocalQueueStatus> }),
        fixed: "clusterQueue",
        ..PLAIN
    },
    Kind {
        kind: "MultiKueueCluster",
        plural: "multikueueclusters",
        short_names: &["mkc"],
        description: "Connection to one worker cluster.",
        spec: document::<api::MultiKueueClusterSpec>,
        status: Some(document::<api::MultiKueueClusterStatus>),
        columns: &[
            ("Connected", "string", ".status.conditions[?(@.type=='Active')].status", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ],
        older: Some(Older {
            spec: document::<v1beta1::MultiKueueClusterSpec>,
            status: document::<v1beta1::MultiKueueClusterStatus>,
        }),
        ..PLAIN
    },
    Kind {
        kind: "MultiKueueConfig",
        plural: "multikueueconfigs",
        short_names: &["mkconf"],
        description: "The worker clusters of an admission check.",
        spec: document::<api::MultiKueueConfigSpec>,
        deprecated: false,
        ..PLAIN
    },
    Kind {
        kind: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        short_names: &["prc"],
        description: "Settings of the ProvisioningRequests by which Berth asks an autoscaler for the capacity of a workload.",
        spec: document::<api::ProvisioningRequestConfigSpec>,
        ..PLAIN
    },
    Kind {
        kind: "CheckpointStore",
        plural: "checkpointstores",
        short_names: &["cps"],
        description: "A CheckpointStore declares where TrainingJobs keep their checkpoints.",
        spec: document::<api::berth::CheckpointStoreSpec>,
        columns: &[("Prefix", "string", ".spec.prefix", 0), ("Age", "date", ".metadata.creationTimestamp", 0)],
        ..OWN
    },
    Kind {
        kind: "QueuePolicy",
        plural: "queuepolicies",
        short_names: &["qp"],
        description: "A QueuePolicy sets capacity tiers, admission limits and bounds of preemption for some ClusterQueues.",
        spec: document::<api::berth::QueuePolicySpec>,
        status: Some(document::<api::berth::QueuePolicyStatus>),
        columns: &[
            ("Active", "string", ".status.conditions[?(@.type=='Active')].status", 0),
            ("Queues", "string", ".status.clusterQueues", 0),
            ("Tiers", "string", ".spec.capacityTiers.default", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ],
        ..OWN
    },
    Kind {
        kind: "ResourceFlavor",
        plural: "resourceflavors",
        short_names: &["flavor", "flavors", "rf"],
        description: "A kind of capacity, described by the labels and taints of its nodes.",
        spec: document::<api::ResourceFlavorSpec>,
        fixed: "topologyName",
        ..PLAIN
    },
    Kind {
        kind: "Topology",
        plural: "topologies",
        short_names: &["topo"],
        description: "The levels of a data centre, from the widest domain to the narrowest.",
        spec: document::<api::TopologySpec>,
        fixed: "levels",
        ..PLAIN
    },
    Kind {
        kind: "TrainingJob",
        plural: "trainingjobs",
        short_names: &["tj"],
        namespaced: true,
        description: "A TrainingJob is a distributed training that Berth queues, admits, runs and resumes as a unit.",
        spec: document::<api::berth::TrainingJobSpec>,
        status: Some(document::<api::berth::TrainingJobStatus>),
        columns: &[
            ("Type", "string", ".spec.jobType", 0),
            ("Queue", "string", ".spec.schedulingConfig.queue", 0),
            ("Phase", "string", ".status.phase", 0),
            ("Workers", "string", ".status.workers", 0),
            ("Tier", "string", ".status.capacityTier", 0),
            ("Flavor", "string", ".status.flavors", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            ("Reason", "string", ".status.conditions[?(@.type=='Queued')].reason", 0),
            ("Accelerators", "integer", ".status.accelerators", 1),
        ],
        rules: api::berth::training_job_rules,
        fixed: "jobType",
        ..OWN
    },
    Kind {
        kind: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        short_names: &["wpc"],
        description: "A named priority for queueing, independent of the priority of pods.",
        spec: document::<api::WorkloadPriorityClass>,
        rooted: true,
        columns: &[("Value", "integer", ".value", 0)],
        ..PLAIN
    },
    Kind {
        kind: "Workload",
        plural: "workloads",
        short_names: &["kwl", "kueueworkload", "kueueworkloads"],
        namespaced: true,
        description: "A request of a job for quota, and the state of its admission.",
        spec: document::<api::WorkloadSpec>,
        status: Some(document::<api::WorkloadStatus>),
        columns: &[
            ("Queue", "string", ".spec.queueName", 0),
            ("Reserved in", "string", ".status.admission.clusterQueue", 0),
            ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status", 0),
            ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            ("Reason", "string", ".status.conditions[?(@.type=='QuotaReserved')].reason", 0),
            ("Job", "string", ".metadata.ownerReferences[0].name", 1),
            ("Priority", "integer", ".spec.priority", 1),
            ("Size", "string", ".metadata.annotations.berth\\.dev/size", 1),
            ("Tier", "string", ".status.conditions[?(@.type=='CapacityTier')].message", 1),
        ],
        rules: api::workload_rules,
        older: Some(Older { spec: document::<v1beta1::WorkloadSpec>, status: document::<v1beta1::WorkloadStatus> }),
        ..PLAIN
    },
];

/// The printer columns of a kind in the CRD's format.
pub(crate) fn columns(kind: &Kind) -> Vec<Value> {
    kind.columns
        .iter()
        .map(|(name, type_, path, priority)| {
            let mut column = json!({"name": name, "type": type_, "jsonPath": path});
            if *priority != 0 {
                column["priority"] = json!(priority);
            }
            column
        })
        .collect()
}

/// The JSON schema of a Rust type with the schema's definitions, as schemars generates it.
fn document<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .with(|s| s.meta_schema = None)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}
