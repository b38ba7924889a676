//! A role of a TrainingJob, and the accelerators that its pods use.

use berth_api::berth::TrainingJob;
use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Name of the role that every framework has.
pub const WORKER: &str = "worker";
/// Name of the role that starts the processes of an MPIJob.
pub(super) const LAUNCHER: &str = "launcher";
/// Name of the role that decides about the end of a TFJob, if the job has it.
pub(super) const CHIEF: &str = "chief";
/// Names of all roles that any framework has.
pub const ROLES: [&str; 5] = [WORKER, LAUNCHER, CHIEF, "ps", "evaluator"];

/// Resource and node label of the cluster's accelerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerators {
    /// Name of the resource that counts accelerators.
    pub resource: String,
    /// Node label with the type of the accelerator.
    pub type_label: String,
}

impl Accelerators {
    /// Whether a resource counts accelerators: the configured resource, and any vendor's resource whose name ends in `/gpu`.
    #[must_use]
    pub fn counts(&self, resource: &str) -> bool {
        resource == self.resource || resource.ends_with("/gpu")
    }
}

impl Default for Accelerators {
    fn default() -> Self {
        Self { resource: "nvidia.com/gpu".to_owned(), type_label: "nvidia.com/gpu.product".to_owned() }
    }
}

/// A role: equal pods, each with an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Name of the role and of its pod set.
    pub name: String,
    /// Wanted number of pods.
    pub count: i32,
    /// Smallest number of pods, if the role accepts fewer pods.
    pub min_count: Option<i32>,
    /// The pod template of the role, without rendezvous and placement.
    pub template: PodTemplateSpec,
}

/// Smallest and largest number of workers of a TrainingJob.
pub(super) fn worker_bounds(job: &TrainingJob) -> (i32, i32) {
    let resources = &job.spec.resources;
    let most = resources.max_replicas.or(resources.min_replicas).unwrap_or(1);
    let least = resources.min_replicas.unwrap_or(most);
    match job.spec.elastic_config.as_ref().filter(|elastic| elastic.enabled == Some(true)) {
        Some(elastic) => (elastic.min_workers.unwrap_or(least), elastic.max_workers.unwrap_or(most)),
        None => (least, most),
    }
}

/// The role whose success is the success of its TrainingJob: launcher, else chief, else worker.
#[must_use]
pub fn deciding_role<'a>(names: impl IntoIterator<Item = &'a str>) -> &'static str {
    let names: Vec<&str> = names.into_iter().collect();
    [LAUNCHER, CHIEF].into_iter().find(|decides| names.contains(decides)).unwrap_or(WORKER)
}
