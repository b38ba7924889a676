//! The roles of a TrainingJob, the number of pods of each, and the pod of each.

use berth_api::PodSet;
use berth_api::berth::{TrainingJob, TrainingRole};
use berth_api::validation::FieldError;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::compose::compose;
use crate::pod_set::{IndexLabels, pod_set_of};

/// The role that every framework has.
pub const WORKER: &str = "worker";
/// The role that starts the processes of an MPIJob.
pub(super) const LAUNCHER: &str = "launcher";
/// The role that decides about a TFJob that has it.
pub(super) const CHIEF: &str = "chief";
/// The roles that any framework has.
pub const ROLES: [&str; 5] = [WORKER, LAUNCHER, CHIEF, "ps", "evaluator"];
/// Label that the Job controller puts on the pods of an Indexed Job.
const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

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

/// Roles beside the workers, with the launcher that every MPIJob has.
fn beside(job: &TrainingJob) -> Vec<TrainingRole> {
    let mut all = job.spec.roles.clone();
    if job.spec.job_type == "MPIJob" && all.is_empty() {
        all.push(TrainingRole { name: LAUNCHER.to_owned(), ..TrainingRole::default() });
    }
    all
}

/// Names of all roles, workers first.
#[must_use]
pub fn role_names(job: &TrainingJob) -> Vec<String> {
    [WORKER.to_owned()].into_iter().chain(beside(job).into_iter().map(|role| role.name)).collect()
}

/// The role whose end is the job's end.
#[must_use]
pub fn deciding_role<'a>(names: impl IntoIterator<Item = &'a str>) -> &'static str {
    let names: Vec<&str> = names.into_iter().collect();
    [LAUNCHER, CHIEF].into_iter().find(|decides| names.contains(decides)).unwrap_or(WORKER)
}

/// The roles of a TrainingJob, workers first.
///
/// # Errors
/// Everything that keeps their pods from being made, each with its field.
pub fn roles(job: &TrainingJob, cards: &Cards) -> Result<Vec<Role>, Vec<FieldError>> {
    let spec = &job.spec;
    let mut errors = Vec::new();
    let mut found = Vec::new();
    let (least, most) = worker_bounds(job);
    match compose(job, WORKER, (&spec.template, "spec.template"), spec.resources.replica_resources.as_ref(), cards) {
        Ok(template) => found.push(Role {
            name: WORKER.to_owned(),
            count: most,
            min_count: (least < most).then_some(least),
            template,
        }),
        Err(more) => errors.extend(more),
    }
    for (index, role) in beside(job).into_iter().enumerate() {
        let path = format!("spec.roles[{index}].template");
        let template = match &role.template {
            Some(own) => (own, path.as_str()),
            None => (&spec.template, "spec.template"),
        };
        let of_workers = spec.resources.replica_resources.as_ref().filter(|_| role.name != LAUNCHER);
        match compose(job, &role.name, template, role.replica_resources.as_ref().or(of_workers), cards) {
            Ok(template) => {
                found.push(Role { name: role.name, count: role.replicas.unwrap_or(1), min_count: None, template })
            }
            Err(more) => errors.extend(more.into_iter().filter(|error| !errors.contains(error)).collect::<Vec<_>>()),
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// The pod sets of its Workload: one per role.
///
/// # Errors
/// As [`roles`], and an annotation about topology that cannot be read.
pub fn training_pod_sets(job: &TrainingJob, cards: &Cards) -> Result<Vec<PodSet>, Vec<FieldError>> {
    let index = IndexLabels { pod: Some(INDEX_LABEL.to_owned()), ..IndexLabels::default() };
    let set = |role: &Role| {
        pod_set_of(&role.name, &role.template, role.count, role.min_count, &index)
            .map_err(|problem| vec![FieldError::new("spec.template.metadata.annotations", "", problem)])
    };
    roles(job, cards)?.iter().map(set).collect()
}
