//! Restart of a TrainingJob with another number of workers, where its pods learn that number once. The new number is noted on its Workload (see
//! `scale`). Then the Jobs with another number are deleted, their pods are waited for, quota of workers that do not come back is freed, and the usual
//! start makes the Jobs with the new number. Each step follows from the objects that are there, whichever replica leads by then.

use berth_api::labels;
use berth_jobs::JobState;
use berth_jobs::training::{Rescale, Scale, WORKER};
use jiff::Timestamp;

use super::TrainingCase;
use crate::cache::WorkloadView;
use crate::decision::Decision;
use crate::training_job::elastic::{granted, granted_to};
use crate::training_job::growth::resumes_from;
use crate::training_job::restarts::{noted, told_from, told_workers};

impl TrainingCase<'_> {
    /// The next step of a restart that was noted, `None` when the usual start goes on from here, or has.
    pub(super) fn restarting(&self, workload: &WorkloadView) -> Option<Decision> {
        let scale = noted(workload)?;
        let words = format!("Restarts with {} workers", scale.workers);
        if let Some(decision) = self.delete_where(&words, |job| !self.was_told(job, scale)) {
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
        // A job whose Jobs went after it was up again has restarted: it is like any other then.
        let begins = left.is_empty() && self.gone_since(workload).is_none();
        if begins { self.surplus_left(workload, scale.workers, most) } else { None }
    }

    /// The pods for which a restart that was noted waits before it makes its Jobs, in words; `None` when it waits for none. Such pods may
    /// be on a node that is gone: they stay there for ever.
    pub(super) fn waits_for_pods(&self, workload: &WorkloadView) -> Option<String> {
        let scale = noted(workload)?;
        let roles = self.roles();
        let mut there = roles.iter().filter_map(|role| self.child(role)).filter(|job| !job.deleting);
        let made = there.any(|job| self.was_told(job, scale));
        let known = self.ctx.notes_of(workload).scale().has_shrunk_to(scale.workers);
        let waits = !made && !known && self.gone_since(workload).is_none();
        waits.then(|| self.pods_left())
    }

    /// Text that its pods have to be gone first, and how to find them.
    pub(super) fn pods_left(&self) -> String {
        let roles = self.roles();
        let jobs: Vec<String> = roles.iter().map(|role| self.child_key(role).name).collect();
        let several = if jobs.len() > 1 { "Jobs" } else { "Job" };
        let find = format!("kubectl get pods -n {} -l {}={}", self.name.0, labels::TRAINING_JOB, self.name.1);
        format!("waits until the pods of {several} {} are gone ({find})", jobs.join(", "))
    }

    fn was_told(&self, job: &JobState, scale: &Scale) -> bool {
        told_workers(job, self.child(WORKER)) == Some(scale.workers)
    }

    /// Whether a restart was noted and Jobs of before it are there still: the readiness of their pods says nothing of the run to come.
    pub(super) fn is_yet_to_restart(&self, workload: &WorkloadView) -> bool {
        let old = |scale: &Scale| {
            self.roles().iter().filter_map(|role| self.child(role)).any(|job| !self.was_told(job, scale))
        };
        noted(workload).is_some_and(old)
    }

    /// Time from which pods of a run may come: after a restart not before the old pods are gone, as far as that was seen. Another leader sees that
    /// Jobs were made then.
    pub(super) fn pods_come_since(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let begun = told_from(workload)?;
        if noted(workload).is_none() {
            return Some(begun);
        }
        let made = self.roles().iter().filter_map(|role| self.child(role)).map(|job| job.created).min();
        let made = made.and_then(|made| Timestamp::from_millisecond(made).ok());
        let gone = resumes_from(&self.ctx.notes.workloads, workload);
        Some([made, gone].into_iter().flatten().fold(begun, Timestamp::max))
    }

    /// Number of pods of its role for which a Job is meant: for workers that are yet to start again with more, the number with which they started.
    pub(super) fn meant_for(&self, workload: &WorkloadView, role: &str, job: &JobState) -> i32 {
        let given = granted_to(workload, role);
        let restarts = self.view.facts.elastic.is_some_and(|elastic| elastic.rescale == Rescale::ByRestart);
        let told = told_workers(job, Some(job)).filter(|told| restarts && role == WORKER && *told > 0);
        told.map_or(given, |told| told.min(given))
    }
}

#[cfg(test)]
mod tests;
