//! Kinds and keys of the objects that control decides about, and the kinds of objects of the API.

mod resource;

use std::fmt;

use berth_api::labels;
use berth_jobs::pods::{DEPLOYMENT_FRAMEWORK, POD_FRAMEWORK, POD_REPORTER, STATEFUL_SET_FRAMEWORK};
use berth_jobs::{BatchJob, JobKind, JobType, KINDS};

pub use crate::object::resource::ResourceKind;

/// Reporting controller of those events about Workloads that have nothing to do with admission.
pub const WORKLOADS: &str = "kueue-workload-controller";
/// Reporting controller of events about TrainingJobs.
pub const TRAINING_REPORTER: &str = "berth-training-job-controller";

/// Kinds that control decides about: kinds of API objects, and kinds without an API object, such as a pod group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A kind of job that can be suspended, and whose Workloads Berth creates.
    Job(JobType),
    /// Workload of kueue.x-k8s.io.
    Workload,
    /// ClusterQueue of kueue.x-k8s.io.
    ClusterQueue,
    /// LocalQueue of kueue.x-k8s.io.
    LocalQueue,
    /// Cohort of kueue.x-k8s.io.
    Cohort,
    /// ResourceFlavor of kueue.x-k8s.io.
    ResourceFlavor,
    /// AdmissionCheck of kueue.x-k8s.io.
    AdmissionCheck,
    /// ProvisioningRequest of autoscaling.x-k8s.io/v1.
    ProvisioningRequest,
    /// PodTemplate of a ProvisioningRequest.
    PodTemplate,
    /// QueuePolicy of berth.dev.
    QueuePolicy,
    /// TrainingJob of berth.dev.
    TrainingJob,
    /// Service of a TrainingJob.
    Service,
    /// ConfigMap of a TrainingJob.
    ConfigMap,
    /// The checkpoints in a store of the TrainingJob with the key's name: no API object.
    Checkpoints,
    /// Pod that is managed by itself or in a group.
    Pod,
    /// Pod of a job that its Job does not count, or that may have been resized.
    JobPod,
    /// The pods that name a group. A group is no API object: decisions about a group are written to its Workload and its pods.
    PodGroup,
    /// Deployment of apps/v1, which is admitted through its pods and never written.
    Deployment,
    /// StatefulSet of apps/v1, which is admitted as the group of its pods and never written.
    StatefulSet,
    /// Node that is being taken away; Berth queries its pods and writes nothing.
    Node,
}

impl Kind {
    /// Job of batch/v1.
    pub const JOB: Self = Self::Job(JobType::JOB);
    /// JobSet of jobset.x-k8s.io.
    pub const JOB_SET: Self = Self::Job(JobType::JOB_SET);

    /// The kinds of job that can be suspended.
    pub fn jobs() -> impl Iterator<Item = Self> {
        KINDS.into_iter().map(Self::Job)
    }

    /// The kind for an integration's name in Kueue's configuration.
    #[must_use]
    pub fn of_framework(name: &str) -> Option<Self> {
        match name {
            POD_FRAMEWORK => Some(Self::Pod),
            DEPLOYMENT_FRAMEWORK => Some(Self::Deployment),
            STATEFUL_SET_FRAMEWORK => Some(Self::StatefulSet),
            _ => KINDS.into_iter().find(|kind| kind.info().framework == name).map(Self::Job),
        }
    }

    /// Whether objects of this kind are admitted with all their pods.
    pub const fn is_admitted_with_pods(self) -> bool {
        self.is_job() || matches!(self, Self::TrainingJob)
    }

    /// Whether this kind is a kind of job that can be suspended.
    pub const fn is_job(self) -> bool {
        matches!(self, Self::Job(_))
    }

    /// The kind of suspendable job with the given name.
    #[must_use]
    pub fn of_job(name: &str) -> Option<Self> {
        Self::jobs().find(|kind| kind.name() == name)
    }

    /// The kind with the given name, if objects of the kind may control a Workload, or a Job that is a part of another job.
    pub fn of_owner(name: &str) -> Option<Self> {
        let others = [Self::TrainingJob, Self::Pod, Self::PodGroup];
        Self::of_job(name).or_else(|| others.into_iter().find(|kind| kind.name() == name))
    }

    /// Whether the view finds existing objects of this kind by their uid.
    pub const fn has_uid(self) -> bool {
        matches!(
            self,
            Self::Job(_)
                | Self::Workload
                | Self::TrainingJob
                | Self::Pod
                | Self::AdmissionCheck
                | Self::ProvisioningRequest
        )
    }

    /// Whether a job of this kind consists of pods that Berth writes directly.
    pub const fn is_pods(self) -> bool {
        matches!(self, Self::Pod | Self::PodGroup)
    }

    /// Whether a job of this kind consists of Jobs.
    pub const fn is_made_of_jobs(self) -> bool {
        match self {
            Self::Job(kind) => kind.info().made_of_jobs,
            _ => matches!(self, Self::TrainingJob),
        }
    }

    /// Whether pods of this kind take node affinity from an admission, see [`JobKind::TAKES_AFFINITY`]; true for kinds whose objects are created at each start.
    pub const fn takes_affinity(self) -> bool {
        match self {
            Self::Job(kind) => kind.info().takes_affinity,
            _ => true,
        }
    }

    /// Label by which the pods of a job of this kind name the job's uid.
    pub const fn uid_label(self) -> &'static str {
        match self {
            Self::Job(kind) => kind.info().uid_label,
            Self::TrainingJob => labels::TRAINING_JOB_UID,
            _ => BatchJob::UID_LABEL,
        }
    }

    /// Kind of the API object that a key of this kind names, for reads and writes; `None` if there is no such API object.
    #[must_use]
    pub const fn resource_kind(self) -> Option<ResourceKind> {
        Some(match self {
            Self::Job(kind) => ResourceKind::Job(kind),
            Self::Workload => ResourceKind::Workload,
            Self::ClusterQueue => ResourceKind::ClusterQueue,
            Self::LocalQueue => ResourceKind::LocalQueue,
            Self::Cohort => ResourceKind::Cohort,
            Self::ResourceFlavor => ResourceKind::ResourceFlavor,
            Self::AdmissionCheck => ResourceKind::AdmissionCheck,
            Self::ProvisioningRequest => ResourceKind::ProvisioningRequest,
            Self::PodTemplate => ResourceKind::PodTemplate,
            Self::QueuePolicy => ResourceKind::QueuePolicy,
            Self::TrainingJob => ResourceKind::TrainingJob,
            Self::Service => ResourceKind::Service,
            Self::ConfigMap => ResourceKind::ConfigMap,
            Self::Pod | Self::JobPod => ResourceKind::Pod,
            Self::Deployment => ResourceKind::Deployment,
            Self::StatefulSet => ResourceKind::StatefulSet,
            Self::Node => ResourceKind::Node,
            Self::PodGroup | Self::Checkpoints => return None,
        })
    }

    /// Reporting controller of events about a job of this kind.
    pub const fn reporter(self) -> &'static str {
        match self {
            Self::Job(kind) => kind.info().reporter,
            Self::TrainingJob => TRAINING_REPORTER,
            Self::Pod | Self::PodGroup => POD_REPORTER,
            _ => WORKLOADS,
        }
    }

    /// The name of the kind, as in the field `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.resource_kind() {
            Some(kind) => kind.name(),
            None if matches!(self, Self::PodGroup) => "PodGroup",
            None => "Checkpoints",
        }
    }
}

/// Key of an object or group that control decides about: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind of the object or group that the key names.
    pub kind: Kind,
    /// Namespace of the object or group, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object or group that the key names.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// The key of an object by its namespace and name.
pub fn key(kind: Kind, name: &(String, String)) -> ObjectKey {
    ObjectKey { kind, namespace: name.0.clone(), name: name.1.clone() }
}

/// The key of an object without a namespace.
pub fn cluster_key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: String::new(), name: name.to_owned() }
}
