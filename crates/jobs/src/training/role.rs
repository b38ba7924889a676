//! A role of a TrainingJob, and the accelerators that its pods use.

use berth_api::berth::TrainingJob;
use k8s_openapi::api::core::v1::PodTemplateSpec;

/// The role that every framework has.
pub const WORKER: &str = "worker";
/// The role that starts the processes of an MPIJob.
pub(super) const LAUNCHER: &str = "launcher";
/// The role that decides about a TFJob that has it.
pub(super) const CHIEF: &str = "chief";
/// The roles that any framework has.
pub const ROLES: [&str; 5] = [WORKER, LAUNCHER, CHIEF, "ps", "evaluator"];

/// Resource and label of the cluster's accelerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cards {
    /// Resource that counts them.
    pub resource: String,
    /// Node label whose value is the type of the accelerator.
    pub type_label: String,
}

impl Cards {
    /// Whether a resource counts accelerators: the configured one, and any vendor's resource that is called a GPU.
    #[must_use]
    pub fn counts(&self, resource: &str) -> bool {
        resource == self.resource || resource.ends_with("/gpu")
    }
}

impl Default for Cards {
    fn default() -> Self {
        Self { resource: "nvidia.com/gpu".to_owned(), type_label: "nvidia.com/gpu.product".to_owned() }
    }
}

/// A role: equal pods with an index each.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Name, also of its pod set.
    pub name: String,
    /// Wanted pods.
    pub count: i32,
    /// Fewest pods, where that is less.
    pub min_count: Option<i32>,
    /// The pod with everything but rendezvous and placement.
    pub template: PodTemplateSpec,
}

/// Fewest and wanted workers.
pub(super) fn worker_bounds(job: &TrainingJob) -> (i32, i32) {
    let resources = &job.spec.resources;
    let most = resources.max_replicas.or(resources.min_replicas).unwrap_or(1);
    let least = resources.min_replicas.unwrap_or(most);
    match job.spec.elastic_config.as_ref().filter(|elastic| elastic.enabled == Some(true)) {
        Some(elastic) => (elastic.min_workers.unwrap_or(least), elastic.max_workers.unwrap_or(most)),
        None => (least, most),
    }
}

/// The role whose end is the job's end.
#[must_use]
pub fn deciding_role<'a>(names: impl IntoIterator<Item = &'a str>) -> &'static str {
    let names: Vec<&str> = names.into_iter().collect();
    [LAUNCHER, CHIEF].into_iter().find(|decides| names.contains(decides)).unwrap_or(WORKER)
}
