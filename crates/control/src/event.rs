//! All input of control: observations of objects, and outcomes of its own writes.

use berth_api as api;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;

use crate::write::Kind;
pub use berth_jobs::{JobPod, JobType, KINDS as JOB_TYPES, SharedJob};

/// A change of one kind of object, as a watch reports it.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// Created or modified.
    Apply(T),
    /// Deleted: the last state seen.
    Delete(T),
    /// The complete list after a (re)list: what is not in it is gone.
    Reset(Vec<T>),
    /// End of a (re)list whose objects came before it, one by one: namespace and name of each. Objects that are not in it are gone.
    Only(Vec<(String, String)>),
}

/// A report of the runtime to control about the world.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A job of a kind that can be suspended.
    Job(JobType, Change<SharedJob>),
    /// Workload.
    Workload(Change<Box<api::Workload>>),
    /// ClusterQueue.
    ClusterQueue(Change<Box<api::ClusterQueue>>),
    /// LocalQueue.
    LocalQueue(Change<Box<api::LocalQueue>>),
    /// Cohort.
    Cohort(Change<Box<api::Cohort>>),
    /// ResourceFlavor.
    ResourceFlavor(Change<Box<api::ResourceFlavor>>),
    /// WorkloadPriorityClass.
    WorkloadPriorityClass(Change<Box<api::WorkloadPriorityClass>>),
    /// scheduling.k8s.io PriorityClass.
    PriorityClass(Change<Box<PriorityClass>>),
    /// Namespace.
    Namespace(Change<Box<Namespace>>),
    /// LimitRange.
    LimitRange(Change<Box<LimitRange>>),
    /// AdmissionCheck.
    AdmissionCheck(Change<Box<api::AdmissionCheck>>),
    /// True where the cluster serves ProvisioningRequests.
    ServesProvisioningRequests(bool),
    /// ProvisioningRequestConfig.
    ProvisioningRequestConfig(Change<Box<api::ProvisioningRequestConfig>>),
    /// autoscaling.x-k8s.io/v1 ProvisioningRequest.
    ProvisioningRequest(Change<Box<api::autoscaling::ProvisioningRequest>>),
    /// PodTemplate of a ProvisioningRequest.
    PodTemplate(Change<Box<PodTemplate>>),
    /// QueuePolicy.
    QueuePolicy(Change<Box<api::berth::QueuePolicy>>),
    /// CheckpointStore.
    CheckpointStore(Change<Box<api::berth::CheckpointStore>>),
    /// TrainingJob of berth.dev.
    TrainingJob(Change<Box<api::berth::TrainingJob>>),
    /// Node.
    Node(Change<Box<api::node::Node>>),
    /// RuntimeClass.
    RuntimeClass(Change<Box<RuntimeClass>>),
    /// Pod with the label of managed pods.
    Pod(Change<Box<Pod>>),
    /// Pod without that label that may have to wait for quota. A pod that gets the label is told as gone here, and as there by the watch of managed
    /// pods, in any order.
    UnmarkedPod(FoundBy, Change<Box<Pod>>),
    /// Pod with the name of its pod set, by its metadata alone. Its deletion is reported with the last state that had that name, also where the pod
    /// has only lost the name.
    JobPod(Change<Box<JobPod>>),
    /// apps/v1 StatefulSet with a queue.
    StatefulSet(Change<Box<StatefulSet>>),
    /// A resource that Berth can do without cannot be listed, or can be again.
    Unlisted(Unlisted),
}

/// The label by which a pod is found that has none of managed pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The pod names a queue.
    Queue,
    /// The pod names none, and is one of a StatefulSet.
    StatefulSet,
}

/// Report whether the objects of a resource are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// The resource, as the API calls it.
    pub resource: String,
    /// The kind of object that depends on it, where one does.
    pub kind: Option<Kind>,
    /// Why the resource cannot be listed; `None` if it can be, and all objects that are there were reported.
    pub why: Option<String>,
}
