//! Tasks of the runtime: writes with their preconditions, queries, and what both name.

mod body;
mod checkpoint;
mod lane;
mod pods;
mod purpose;
mod query;
mod resource;
mod task;

use berth_api::labels;
use berth_jobs::pods::{DEPLOYMENT_FRAMEWORK, POD_FRAMEWORK, POD_REPORTER, STATEFUL_SET_FRAMEWORK};
use berth_jobs::{BatchJob, JobKind, JobType, KINDS};
use std::fmt;

pub use berth_lease::Term;
pub(crate) use body::Body;
pub use checkpoint::{Checkpoint, CheckpointPlace, Rank, rank};
pub use lane::Lane;
pub use pods::{LeftPod, PodOnNode, PodsOf};
pub use purpose::Purpose;
pub use query::{PodsLeft, Query, QueryAnswer, QueryFailure, QueryKind};
pub use resource::ResourceKind;
pub use task::{Action, Packed, Subresource, Task, TaskId, TaskOutcome, Write, WriteOutcome};

/// Reporter of events about admission.
pub(crate) const SCHEDULER: &str = labels::FIELD_MANAGER_ADMISSION;
/// Reporter of other events about Workloads.
pub(crate) const WORKLOADS: &str = "kueue-workload-controller";
/// Reporter of events about TrainingJobs.
pub(crate) const TRAINING_REPORTER: &str = "berth-training-job-controller";

/// Kinds of what control decides about: objects of the API, and what has no object of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A kind of job that can be suspended: its Workloads are ours to make.
    Job(JobType),
    /// kueue.x-k8s.io Workload.
    Workload,
    /// kueue.x-k8s.io ClusterQueue.
    ClusterQueue,
    /// kueue.x-k8s.io LocalQueue.
    LocalQueue,
    /// kueue.x-k8s.io Cohort.
    Cohort,
    /// kueue.x-k8s.io ResourceFlavor.
    ResourceFlavor,
    /// kueue.x-k8s.io AdmissionCheck.
    AdmissionCheck,
    /// autoscaling.x-k8s.io/v1 ProvisioningRequest.
    ProvisioningRequest,
    /// PodTemplate of a ProvisioningRequest.
    PodTemplate,
    /// berth.dev QueuePolicy.
    QueuePolicy,
    /// berth.dev TrainingJob.
    TrainingJob,
    /// Service.
    Service,
    /// ConfigMap.
    ConfigMap,
    /// The checkpoints of a TrainingJob of that name in its store: no object of the API.
    Checkpoints,
    /// Pod, managed by itself or in a group.
    Pod,
    /// Pod of a job for which its Job does not answer, or that may have been resized.
    JobPod,
    /// The pods that name a group. No object of the API: decisions about it are written to its Workload and its pods.
    PodGroup,
    /// apps/v1 Deployment: admitted through its pods, never written.
    Deployment,
    /// apps/v1 StatefulSet: admitted as the group of its pods, never written.
    StatefulSet,
    /// Node that is being taken away: its pods are asked for, nothing is written.
    Node,
}

impl Kind {
    /// batch/v1 Job.
    pub const JOB: Self = Self::Job(JobType::JOB);
    /// jobset.x-k8s.io JobSet.
    pub const JOB_SET: Self = Self::Job(JobType::JOB_SET);

    /// The kinds of job that can be suspended.
    pub fn jobs() -> impl Iterator<Item = Self> {
        KINDS.into_iter().map(Self::Job)
    }

    /// The kind that Kueue's configuration knows by that name of an integration.
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
    pub(crate) const fn is_admitted_with_pods(self) -> bool {
        self.is_job() || matches!(self, Self::TrainingJob)
    }

    /// Whether it is a kind of job that can be suspended.
    pub(crate) const fn is_job(self) -> bool {
        matches!(self, Self::Job(_))
    }

    /// The kind of job that an owner reference names.
    #[must_use]
    pub(crate) fn of_job(name: &str) -> Option<Self> {
        Self::jobs().find(|kind| kind.name() == name)
    }

    /// The kind of that name, if its objects may control a Workload, or a Job that is part of it.
    pub(crate) fn of_whole(name: &str) -> Option<Self> {
        let others = [Self::TrainingJob, Self::Pod, Self::PodGroup];
        Self::of_job(name).or_else(|| others.into_iter().find(|kind| kind.name() == name))
    }

    /// Whether the view knows objects of this kind by their uid, as long as they are there.
    pub(crate) const fn has_uid(self) -> bool {
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

    /// Whether a job of this kind is pods that are written themselves.
    pub(crate) const fn is_pods(self) -> bool {
        matches!(self, Self::Pod | Self::PodGroup)
    }

    /// Whether a job of this kind is made of Jobs.
    pub(crate) const fn is_made_of_jobs(self) -> bool {
        match self {
            Self::Job(kind) => kind.info().made_of_jobs,
            _ => matches!(self, Self::TrainingJob),
        }
    }

    /// See [`JobKind::TAKES_AFFINITY`]; objects that are made anew at a start take whatever they are given.
    pub(crate) const fn takes_affinity(self) -> bool {
        match self {
            Self::Job(kind) => kind.info().takes_affinity,
            _ => true,
        }
    }

    /// Label by which the pods of a job of this kind name its uid.
    pub(crate) const fn uid_label(self) -> &'static str {
        match self {
            Self::Job(kind) => kind.info().uid_label,
            Self::TrainingJob => labels::TRAINING_JOB_UID,
            _ => BatchJob::UID_LABEL,
        }
    }

    /// Kind of the object of the API that a key of this kind names: what is read or written there. `None` where the API has no such object.
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

    /// Reporter of events about a job of that kind.
    pub(crate) const fn reporter(self) -> &'static str {
        match self {
            Self::Job(kind) => kind.info().reporter,
            Self::TrainingJob => TRAINING_REPORTER,
            Self::Pod | Self::PodGroup => POD_REPORTER,
            _ => WORKLOADS,
        }
    }

    /// The kind's name, as in `kind:`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.resource_kind() {
            Some(kind) => kind.name(),
            None if matches!(self, Self::PodGroup) => "PodGroup",
            None => "Checkpoints",
        }
    }
}

/// Key of what is decided about: kind, namespace (empty for cluster scope) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: Kind,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// A pod that the scheduler found no node for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckPod {
    /// Its pod set.
    pub pod_set: String,
    /// The scheduler's message.
    pub message: String,
    /// Message of an autoscaler that gets no node for it; `None` if none says that, or none was asked.
    pub refused: Option<String>,
}

/// Type of a Kubernetes event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Normal.
    Normal,
    /// Warning.
    Warning,
}

/// A Kubernetes event to publish: lowest priority, may be dropped (and counted).
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Object concerned.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Normal or Warning.
    pub event_type: EventType,
    /// Reason.
    pub reason: String,
    /// Message; cut at 1024 bytes by the sink.
    pub message: String,
    /// Reporting controller, Kueue's name.
    pub reporter: &'static str,
}

impl Notice {
    /// Whether the event says why a Workload or its job waits: once that is over, it is of no use.
    #[must_use]
    pub fn explains_waiting(&self) -> bool {
        // The scheduler's event about a job is why it waits; its events about flavors and Cohorts report faults.
        let is_told = match self.key.kind {
            Kind::Workload => self.event_type == EventType::Warning,
            Kind::ResourceFlavor | Kind::Cohort | Kind::AdmissionCheck | Kind::ClusterQueue => false,
            _ => true,
        };
        self.reporter == SCHEDULER && is_told
    }
}

/// The key of an object by its namespace and name.
pub(crate) fn key(kind: Kind, name: &(String, String)) -> ObjectKey {
    ObjectKey { kind, namespace: name.0.clone(), name: name.1.clone() }
}

/// The key of an object without a namespace.
pub(crate) fn cluster_key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: String::new(), name: name.to_owned() }
}
