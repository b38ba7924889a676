//! Restart of a TrainingJob whose pods learn the number of workers only at their start. The new number of workers of a restart is noted on the Workload (see
//! `scale`). After the note, the Jobs with another number of workers are deleted, their pods are waited for, quota of workers that do not come back is
//! released, and the usual start creates the Jobs with the new number. Each step of the restart follows from the existing objects, so that another replica can
//! continue the restart.

use berth_api::labels;
use berth_cache::WorkloadView;
use berth_jobs::JobState;
use berth_jobs::training::{Rescale, Scale, WORKER};
use jiff::Timestamp;

use super::TrainingCase;
use crate::decision::Decision;
use crate::training_job::elastic::{granted, granted_to};
use crate::training_job::growth::resumes_from;
use crate::training_job::restarts::{annotated_workers, noted, reported_start};

impl TrainingCase<'_> {
    /// The next step of a noted restart of the TrainingJob; `None` if no restart is noted, or if only the usual start of the TrainingJob remains to be done.
    pub(super) fn restarting(&self, workload: &WorkloadView) -> Option<Decision> {
        let scale = noted(workload)?;
        let words = format!("Restarts with {} workers", scale.workers);
        if let Some(decision) = self.delete_where(&words, |job| !self.has_worker_count(job, scale)) {
            return Some(decision);
        }
        let roles = self.roles();
        let left: Vec<&JobState> =
            roles.iter().filter_map(|role| self.child(role)).filter(|job| !job.deleting).collect();
        let pods = left.iter().filter_map(|job| job.role.as_deref()).map(|role| role.wanted);
        let most = pods.fold(0, i32::saturating_add);
        if scale.workers < granted(workload) {
            let lower = || Decision::write(self.lower(workload, scale.workers, "; they start again"));
            return Some(self.surplus_left(workload, scale.workers, most).unwrap_or_else(lower));
        }
        // A TrainingJob whose Jobs were deleted after the run was up again has completed its restart.
        let begins = left.is_empty() && self.gone_since(workload).is_none();
        if begins { self.surplus_left(workload, scale.workers, most) } else { None }
    }

    /// The pods for which a noted restart waits before it creates Jobs, in words; `None` if the restart waits for no pods. Pods on a lost node may exist
    /// forever.
    pub(super) fn waits_for_pods(&self, workload: &WorkloadView) -> Option<String> {
        let scale = noted(workload)?;
        let roles = self.roles();
        let mut there = roles.iter().filter_map(|role| self.child(role)).filter(|job| !job.deleting);
        let made = there.any(|job| self.has_worker_count(job, scale));
        let known = self.ctx.notes_of(workload).scale().has_shrunk_to(scale.workers);
        let waits = !made && !known && self.gone_since(workload).is_none();
        waits.then(|| self.pods_left())
    }

    /// Text that the job's old pods must be gone first, and how to find these pods.
    pub(super) fn pods_left(&self) -> String {
        let roles = self.roles();
        let jobs: Vec<String> = roles.iter().map(|role| self.child_key(role).name).collect();
        let several = if jobs.len() > 1 { "Jobs" } else { "Job" };
        let find = format!("kubectl get pods -n {} -l {}={}", self.name.0, labels::TRAINING_JOB, self.name.1);
        format!("waits until the pods of {several} {} are gone ({find})", jobs.join(", "))
    }

    fn has_worker_count(&self, job: &JobState, scale: &Scale) -> bool {
        annotated_workers(job, self.child(WORKER)) == Some(scale.workers)
    }

    /// Whether a restart was noted and Jobs of the previous run still exist: the readiness of their pods says nothing about the next run.
    pub(super) fn is_yet_to_restart(&self, workload: &WorkloadView) -> bool {
        let old = |scale: &Scale| {
            self.roles().iter().filter_map(|role| self.child(role)).any(|job| !self.has_worker_count(job, scale))
        };
        noted(workload).is_some_and(old)
    }

    /// Time from which pods of a run may be created: after a restart not before the old pods were observed to be gone. If this process did not observe the end
    /// of the old pods, the creation times of the Jobs decide.
    pub(super) fn pods_come_since(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let begun = reported_start(workload)?;
        if noted(workload).is_none() {
            return Some(begun);
        }
        let made = self.roles().iter().filter_map(|role| self.child(role)).map(|job| job.created).min();
        let made = made.and_then(|made| Timestamp::from_millisecond(made).ok());
        let gone = resumes_from(self.ctx.notes.workloads(), workload);
        Some([made, gone].into_iter().flatten().fold(begun, Timestamp::max))
    }

    /// Number of pods of a role for which a Job is meant: for workers that have yet to restart with more workers, the number with which they started.
    pub(super) fn meant_for(&self, workload: &WorkloadView, role: &str, job: &JobState) -> i32 {
        let given = granted_to(workload, role);
        let restarts = self.view.facts.elastic.is_some_and(|elastic| elastic.rescale == Rescale::ByRestart);
        let workers = annotated_workers(job, Some(job)).filter(|workers| restarts && role == WORKER && *workers > 0);
        workers.map_or(given, |workers| workers.min(given))
    }
}

#[cfg(test)]
mod tests;
