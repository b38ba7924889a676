//! Rendezvous of a training's pods: the environment variables and files that each framework documents, for the first container.
//!
//! A pod's rank is its completion index. The pod's index is the first variable of the container, so that later variables may refer to it. A variable that the
//! user's template sets is not changed.

mod frameworks;
mod mpi;
mod party;
mod size;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use serde_json::Value;

use super::role::Role;
use party::INDEX;

pub(super) use party::Party;
pub(super) use size::too_many_workers;

const INDEX_ANNOTATION: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

/// Data of the ConfigMap with the host file, for a framework with a host file.
pub(super) fn host_file(party: &Party<'_>) -> Option<Value> {
    (party.job.spec.job_type == "MPIJob").then(|| mpi::host_file(party))
}

/// A role whose pods have the variables and files of their rendezvous.
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
