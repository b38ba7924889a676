//! Rendezvous of the pods of a training: the environment and files that each framework documents, for the first container.
//!
//! A pod's rank is its completion index. The first variable carries it, so that those after it may refer to it. A variable that
//! the user sets in the template is left as it is.

mod frameworks;
mod mpi;
mod size;

use berth_api::berth::TrainingJob;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use serde_json::Value;
use std::fmt::Display;

use super::roles::{Cards, Role, WORKER, worker_bounds};
use super::saved::{Continuation, checkpoint_variables};

pub(super) use size::too_many_workers;

/// Variable with the index of a pod; the Job controller leaves one that is there alone.
const INDEX: &str = "JOB_COMPLETION_INDEX";
const INDEX_ANNOTATION: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

/// The roles and pods of one run.
pub(super) struct Party<'a> {
    job: &'a TrainingJob,
    service: &'a str,
    /// Name and pods of every role.
    roles: Vec<(String, i32)>,
    /// GPUs of one worker.
    gpus: i32,
    /// Variables with its checkpoint settings.
    checkpoints: Vec<(&'static str, String)>,
}

impl<'a> Party<'a> {
    pub(super) fn new(job: &'a TrainingJob, service: &'a str, roles: &[Role], cards: &Cards) -> Self {
        let worker = roles.iter().find(|role| role.name == WORKER);
        let resources = worker
            .and_then(|role| role.template.spec.as_ref()?.containers.first()?.resources.as_ref()?.limits.as_ref());
        let gpus = resources.and_then(|limits| limits.get(&cards.resource)?.0.parse().ok()).unwrap_or(0);
        let roles = roles.iter().map(|role| (role.name.clone(), role.count)).collect();
        Self { job, service, roles, gpus, checkpoints: Vec::new() }
    }

    /// The same with checkpoint settings.
    pub(super) fn knowing(self, told: Continuation<'_>) -> Self {
        Self { checkpoints: checkpoint_variables(told), ..self }
    }

    /// Host name of a pod within its namespace.
    fn host(&self, role: &str, index: impl Display) -> String {
        format!("{}-{role}-{index}.{}", self.job.name(), self.service)
    }

    /// Host name of the pod that reads it.
    fn own_host(&self, role: &str) -> String {
        self.host(role, index())
    }

    /// Host names of a role, in the order of their ranks.
    fn hosts(&self, role: &str) -> Vec<String> {
        (0..self.count(role)).map(|index| self.host(role, index)).collect()
    }

    fn count(&self, role: &str) -> i32 {
        self.roles.iter().find(|(name, _)| name == role).map_or(0, |(_, count)| *count)
    }

    /// Sets another number of workers.
    fn set_workers(&mut self, workers: i32) {
        self.roles.iter_mut().filter(|(name, _)| name == WORKER).for_each(|(_, count)| *count = workers);
    }

    /// Host name of the worker that the others connect to.
    fn leader(&self) -> String {
        self.host(WORKER, 0)
    }

    /// Bounds of the number of workers, where it may change.
    fn elastic(&self) -> Option<(i32, i32)> {
        let elastic = self.job.spec.elastic_config.as_ref()?;
        (elastic.enabled == Some(true)).then(|| worker_bounds(self.job))
    }

    /// Data of the ConfigMap with the host file, for a framework that has one.
    pub(super) fn host_file(&self) -> Option<Value> {
        (self.job.spec.job_type == "MPIJob").then(|| mpi::host_file(self))
    }

    /// Name of that ConfigMap.
    pub(super) fn host_map(&self) -> String {
        format!("{}-hosts", self.service)
    }
}

/// A role with its rendezvous.
pub(super) fn prepare(party: &Party<'_>, mut role: Role) -> Role {
    let wanted = match party.job.spec.job_type.as_str() {
        "PyTorchJob" => frameworks::torch(party),
        "TFJob" => frameworks::tensorflow(party, &role.name),
        "MPIJob" => mpi::variables(&role.name),
        "XGBoostJob" => frameworks::xgboost(party),
        "PaddleJob" => frameworks::paddle(party),
        _ => frameworks::jax(party),
    };
    let wanted = wanted.into_iter().chain(party.checkpoints.iter().cloned());
    if party.job.spec.job_type == "MPIJob" {
        mpi::mount(party, &mut role);
    }
    let spec = role.template.spec.get_or_insert_default();
    spec.subdomain = Some(party.service.to_owned());
    if let Some((main, _)) = spec.containers.split_first_mut() {
        let own = main.env.take().unwrap_or_default();
        let is_ours = |name: &str| !own.iter().any(|variable| variable.name == name);
        let ours = wanted.filter(|(name, _)| is_ours(name)).map(|(name, value)| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        });
        let index = is_ours(INDEX).then(index_variable);
        main.env = Some(index.into_iter().chain(ours).chain(own.clone()).collect());
    }
    role
}

fn index_variable() -> EnvVar {
    let field = ObjectFieldSelector { api_version: None, field_path: INDEX_ANNOTATION.to_owned() };
    EnvVar {
        name: INDEX.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    }
}

/// The value of the index in other variables.
fn index() -> String {
    format!("$({INDEX})")
}
