//! Input of control: observations of objects. `write/task.rs` defines the outcomes of control's own tasks.

use berth_api as api;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;

use crate::object::Kind;
pub use berth_jobs::{JobPod, JobType, KINDS as JOB_TYPES, SharedJob};

/// A change of one kind of object, as a watch reports it.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// An object was created or modified.
    Apply(T),
    /// An object was deleted, with its last observed state.
    Delete(T),
    /// The complete list of a kind after a (re)list: objects that are not in the list are gone.
    Reset(Vec<T>),
    /// End of a (re)list whose objects were reported before, one by one: namespace and name of each. Objects that are not in the complete list are gone.
    Only(Vec<(String, String)>),
}

/// An observation that the runtime reports to control.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A change of jobs of one kind that can be suspended.
    Job(JobType, Change<SharedJob>),
    /// A change of Workloads.
    Workload(Change<Box<api::Workload>>),
    /// A change of ClusterQueues.
    ClusterQueue(Change<Box<api::ClusterQueue>>),
    /// A change of LocalQueues.
    LocalQueue(Change<Box<api::LocalQueue>>),
    /// A change of Cohorts.
    Cohort(Change<Box<api::Cohort>>),
    /// A change of ResourceFlavors.
    ResourceFlavor(Change<Box<api::ResourceFlavor>>),
    /// A change of WorkloadPriorityClasses.
    WorkloadPriorityClass(Change<Box<api::WorkloadPriorityClass>>),
    /// A change of PriorityClasses of the group scheduling.k8s.io.
    PriorityClass(Change<Box<PriorityClass>>),
    /// A change of Namespaces.
    Namespace(Change<Box<Namespace>>),
    /// A change of LimitRanges.
    LimitRange(Change<Box<LimitRange>>),
    /// A change of AdmissionChecks.
    AdmissionCheck(Change<Box<api::AdmissionCheck>>),
    /// True if the cluster serves ProvisioningRequests.
    ServesProvisioningRequests(bool),
    /// A change of ProvisioningRequestConfigs.
    ProvisioningRequestConfig(Change<Box<api::ProvisioningRequestConfig>>),
    /// A change of ProvisioningRequests of autoscaling.x-k8s.io/v1.
    ProvisioningRequest(Change<Box<api::autoscaling::ProvisioningRequest>>),
    /// A change of PodTemplates that belong to ProvisioningRequests.
    PodTemplate(Change<Box<PodTemplate>>),
    /// A change of QueuePolicies.
    QueuePolicy(Change<Box<api::berth::QueuePolicy>>),
    /// A change of CheckpointStores.
    CheckpointStore(Change<Box<api::berth::CheckpointStore>>),
    /// A change of TrainingJobs of berth.dev.
    TrainingJob(Change<Box<api::berth::TrainingJob>>),
    /// A change of Nodes.
    Node(Change<Box<api::node::Node>>),
    /// A change of RuntimeClasses.
    RuntimeClass(Change<Box<RuntimeClass>>),
    /// A change of pods with the label of managed pods.
    Pod(Change<Box<Pod>>),
    /// A change of pods without the label of managed pods that may have to wait for quota. A pod that gets the label of managed pods is reported as gone by the
    /// watch of unlabelled pods and as created by the watch of managed pods, in any order.
    UnmarkedPod(FoundBy, Change<Box<Pod>>),
    /// A change of pods of jobs, which are observed by their metadata only, and only if they have the label with the name of their pod set. The deletion of a
    /// pod is reported with the last state in which the pod had the label with the name of its pod set, also if the pod has only lost that label.
    JobPod(Change<Box<JobPod>>),
    /// A change of StatefulSets of apps/v1 that name a LocalQueue.
    StatefulSet(Change<Box<StatefulSet>>),
    /// A resource that Berth can do without cannot be listed, or can be listed again.
    Unlisted(Unlisted),
}

/// The property by which a watch finds a pod that lacks the label of managed pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The watch selects pods that name a LocalQueue.
    Queue,
    /// The watch selects pods that name no LocalQueue and belong to a StatefulSet.
    StatefulSet,
}

/// Report about a resource whose objects cannot be listed, or can be listed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// The plural name of the resource in the API.
    pub resource: String,
    /// The kind of object that depends on the resource that the report is about, if there is one.
    pub kind: Option<Kind>,
    /// The reason why the resource cannot be listed; `None` if the resource can be listed, and all its objects were reported.
    pub why: Option<String>,
}
