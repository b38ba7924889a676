//! Jobs and pods that Berth manages, according to the configuration and to their own labels.

use berth_api as api;
use berth_cache::shed::above;
use berth_cache::slim::request_context;
use berth_jobs::pods::PodState;
use berth_jobs::{JobState, PodSetNeeds};

use crate::context::Context;
use crate::write::Kind;

impl Context<'_> {
    /// Whether a job of a kind is managed, as far as management depends on the job itself.
    pub(crate) fn manages_job(&self, kind: Kind, job: &JobState) -> bool {
        let settings = &self.settings;
        settings.job_kinds.contains(&kind) && (job.queue_name.is_some() || settings.manage_jobs_without_queue_name)
    }

    /// Whether control makes no decision about a job of a kind, whatever else is observed. Only a change of the job itself can make it a job that Berth
    /// manages, and the watch reports such a change with the complete job. To stop a started job, which may still hold quota, Berth needs the complete job.
    pub fn passes_over(&self, kind: Kind, job: &JobState) -> bool {
        !self.manages_job(kind, job) && above(job).is_none() && !job.placed && !job.stopping
    }

    /// The requests of pod sets of a namespace that belong to no Workload.
    pub(crate) fn needs_of(&self, namespace: &str, pod_sets: &[api::PodSet]) -> Vec<PodSetNeeds> {
        request_context(self.view, self.settings, namespace).needs_of(pod_sets).pod_sets
    }

    /// Whether a pod, or the StatefulSet of the pod, names a LocalQueue.
    pub(crate) fn names_a_queue(&self, pod: &PodState) -> bool {
        self.settings.names_a_queue(pod)
    }
}
