//! The pods of one run of a TrainingJob, and their host names.

use berth_api::berth::TrainingJob;
use std::fmt::Display;

use crate::training::role::{Accelerators, Role, WORKER, worker_bounds};
use crate::training::saved::{Continuation, checkpoint_variables};

/// Variable with the index of a pod; the Job controller keeps a value that the template sets.
pub(super) const INDEX: &str = "JOB_COMPLETION_INDEX";

/// Names and values of environment variables.
pub(super) type Variables = Vec<(&'static str, String)>;

/// The roles and pods of one run.
pub(in crate::training) struct Party<'a> {
    pub(super) job: &'a TrainingJob,
    pub(super) service: &'a str,
    /// Name and number of pods of every role.
    pub(super) roles: Vec<(String, i32)>,
    /// Number of GPUs of one worker.
    pub(super) gpus: i32,
    /// Variables with the run's checkpoint settings.
    pub(super) checkpoints: Vec<(&'static str, String)>,
}

impl<'a> Party<'a> {
    pub(in crate::training) fn new(
        job: &'a TrainingJob,
        service: &'a str,
        roles: &[Role],
        accelerators: &Accelerators,
    ) -> Self {
        let worker = roles.iter().find(|role| role.name == WORKER);
        let resources = worker
            .and_then(|role| role.template.spec.as_ref()?.containers.first()?.resources.as_ref()?.limits.as_ref());
        // The number of GPUs is read as a quantity, so that `8000m` counts as 8; the rules of TrainingJobs refuse a text that is no quantity.
        let given = resources.and_then(|limits| limits.get(&accelerators.resource));
        let gpus = given.and_then(|given| berth_quantity::value(&accelerators.resource, &given.0).ok());
        let gpus = gpus.map_or(0, |gpus| i32::try_from(gpus.get()).unwrap_or(i32::MAX));
        let roles = roles.iter().map(|role| (role.name.clone(), role.count)).collect();
        Self { job, service, roles, gpus, checkpoints: Vec::new() }
    }

    /// Adds the variables with the checkpoint settings.
    pub(in crate::training) fn knowing(self, continuation: Continuation<'_>) -> Self {
        Self { checkpoints: checkpoint_variables(continuation), ..self }
    }

    /// Host name of a pod within its namespace.
    pub(super) fn host(&self, role: &str, index: impl Display) -> String {
        format!("{}-{role}-{index}.{}", self.job.name(), self.service)
    }

    /// Host name of the pod whose environment has this text; the kubelet inserts the pod's index.
    pub(super) fn own_host(&self, role: &str) -> String {
        self.host(role, index())
    }

    /// Host names of a role's pods, in the order of their ranks.
    pub(super) fn hosts(&self, role: &str) -> Vec<String> {
        (0..self.count(role)).map(|index| self.host(role, index)).collect()
    }

    pub(super) fn count(&self, role: &str) -> i32 {
        self.roles.iter().find(|(name, _)| name == role).map_or(0, |(_, count)| *count)
    }

    /// Sets another number of workers.
    pub(super) fn set_workers(&mut self, workers: i32) {
        self.roles.iter_mut().filter(|(name, _)| name == WORKER).for_each(|(_, count)| *count = workers);
    }

    /// Host name of the worker to which the others connect.
    pub(super) fn leader(&self) -> String {
        self.host(WORKER, 0)
    }

    /// Limits of the number of workers, if the job is elastic.
    pub(super) fn elastic(&self) -> Option<(i32, i32)> {
        let elastic = self.job.spec.elastic_config.as_ref()?;
        (elastic.enabled == Some(true)).then(|| worker_bounds(self.job))
    }

    /// Name of the ConfigMap with the host file.
    pub(in crate::training) fn host_map(&self) -> String {
        format!("{}-hosts", self.service)
    }
}

/// Reference to the index variable, for the values of other variables.
pub(super) fn index() -> String {
    format!("$({INDEX})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::training::roles::roles;

    #[test]
    fn worker_with_gpus_in_any_notation_has_their_number() {
        let accelerators = Accelerators::default();
        for (amount, gpus) in [("8", 8), ("8000m", 8), ("1k", 1000)] {
            let container =
                json!({"name": "c", "image": "i", "resources": {"limits": {accelerators.resource.as_str(): amount}}});
            let spec = json!({"jobType": "PyTorchJob", "resources": {"maxReplicas": 2}, "schedulingConfig": {"queue": "lq"},
                "template": {"spec": {"containers": [container]}}});
            let job: TrainingJob =
                serde_json::from_value(json!({"metadata": {"name": "t", "namespace": "a"}, "spec": spec}))
                    .expect("a job");
            let roles = roles(&job, &accelerators).expect("its roles");
            assert_eq!(Party::new(&job, "s", &roles, &accelerators).gpus, gpus, "{amount}");
        }
    }
}
