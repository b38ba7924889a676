//! The roles of a TrainingJob, with the number of pods and the pod template of each.

use berth_api::PodSet;
use berth_api::berth::{TrainingJob, TrainingRole};
use berth_api::validation::FieldError;

use super::compose::compose;
use super::role::{Accelerators, LAUNCHER, Role, WORKER, worker_bounds};
use crate::pod_set::{IndexLabels, pod_set_of};

/// Label that the Job controller adds to the pods of an Indexed Job.
const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// Roles of the TrainingJob other than the workers, including the launcher that every MPIJob has.
fn beside(job: &TrainingJob) -> Vec<TrainingRole> {
    let mut all = job.spec.roles.clone();
    if job.spec.job_type == "MPIJob" && all.is_empty() {
        all.push(TrainingRole { name: LAUNCHER.to_owned(), ..TrainingRole::default() });
    }
    all
}

/// Names of all roles of a TrainingJob, workers first.
#[must_use]
pub fn role_names(job: &TrainingJob) -> Vec<String> {
    [WORKER.to_owned()].into_iter().chain(beside(job).into_iter().map(|role| role.name)).collect()
}

/// The roles of a TrainingJob, workers first.
///
/// # Errors
/// The list has every fault of the spec that prevents the pods of a role, with its field.
pub fn roles(job: &TrainingJob, accelerators: &Accelerators) -> Result<Vec<Role>, Vec<FieldError>> {
    let spec = &job.spec;
    let mut errors = Vec::new();
    let mut found = Vec::new();
    let (least, most) = worker_bounds(job);
    match compose(
        job,
        WORKER,
        (&spec.template, "spec.template"),
        spec.resources.replica_resources.as_ref(),
        accelerators,
    ) {
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
        match compose(job, &role.name, template, role.replica_resources.as_ref().or(of_workers), accelerators) {
            Ok(template) => {
                found.push(Role { name: role.name, count: role.replicas.unwrap_or(1), min_count: None, template })
            }
            Err(more) => errors.extend(more.into_iter().filter(|error| !errors.contains(error)).collect::<Vec<_>>()),
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// The pod sets of a TrainingJob's Workload: one per role.
///
/// # Errors
/// The spec has a fault as in [`roles`], or a topology annotation cannot be read.
pub fn training_pod_sets(job: &TrainingJob, accelerators: &Accelerators) -> Result<Vec<PodSet>, Vec<FieldError>> {
    let index = IndexLabels { pod: Some(INDEX_LABEL.to_owned()), ..IndexLabels::default() };
    let set = |role: &Role| {
        pod_set_of(&role.name, &role.template, role.count, role.min_count, &index)
            .map_err(|problem| vec![FieldError::new("spec.template.metadata.annotations", "", problem.to_string())])
    };
    roles(job, accelerators)?.iter().map(set).collect()
}
