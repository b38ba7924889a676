//! Kinds of API objects, from which URLs are made.

use berth_api::{GROUP, VERSION, berth};
use berth_jobs::JobType;

/// Kinds of objects that Berth reads or writes by their URL. [`crate::object::Kind`] has more kinds, which control decides about without an API object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A kind of job that can be suspended.
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
    /// PodTemplate of the core group.
    PodTemplate,
    /// QueuePolicy of berth.dev.
    QueuePolicy,
    /// TrainingJob of berth.dev.
    TrainingJob,
    /// Service of the core group.
    Service,
    /// ConfigMap of the core group.
    ConfigMap,
    /// Pod of the core group.
    Pod,
    /// Deployment of apps/v1.
    Deployment,
    /// StatefulSet of apps/v1.
    StatefulSet,
    /// Node of the core group.
    Node,
}

impl ResourceKind {
    /// API group (empty for the core group), version and plural, as in the URL of an object.
    #[must_use]
    pub const fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Job(kind) => (kind.info().group, kind.info().version, kind.info().plural),
            Self::Workload => (GROUP, VERSION, "workloads"),
            Self::ClusterQueue => (GROUP, VERSION, "clusterqueues"),
            Self::LocalQueue => (GROUP, VERSION, "localqueues"),
            Self::Cohort => (GROUP, VERSION, "cohorts"),
            Self::ResourceFlavor => (GROUP, VERSION, "resourceflavors"),
            Self::AdmissionCheck => (GROUP, VERSION, "admissionchecks"),
            Self::ProvisioningRequest => ("autoscaling.x-k8s.io", "v1", "provisioningrequests"),
            Self::PodTemplate => ("", "v1", "podtemplates"),
            Self::QueuePolicy => (berth::GROUP, berth::VERSION, "queuepolicies"),
            Self::TrainingJob => (berth::GROUP, berth::VERSION, "trainingjobs"),
            Self::Service => ("", "v1", "services"),
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::Pod => ("", "v1", "pods"),
            Self::Deployment => ("apps", "v1", "deployments"),
            Self::StatefulSet => ("apps", "v1", "statefulsets"),
            Self::Node => ("", "v1", "nodes"),
        }
    }

    /// The name of the kind, as in the field `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job(kind) => kind.info().kind,
            Self::Workload => "Workload",
            Self::ClusterQueue => "ClusterQueue",
            Self::LocalQueue => "LocalQueue",
            Self::Cohort => "Cohort",
            Self::ResourceFlavor => "ResourceFlavor",
            Self::AdmissionCheck => "AdmissionCheck",
            Self::ProvisioningRequest => "ProvisioningRequest",
            Self::PodTemplate => "PodTemplate",
            Self::QueuePolicy => "QueuePolicy",
            Self::TrainingJob => "TrainingJob",
            Self::Service => "Service",
            Self::ConfigMap => "ConfigMap",
            Self::Pod => "Pod",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::Node => "Node",
        }
    }

    /// Group and version, as in the field `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> String {
        let (group, version, _) = self.resource();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }
}
