//! A job that is being deleted. A job that is being deleted is usually gone at once. If a finalizer keeps a job that is being deleted, no controller stops
//! the pods of the job.

use berth_api::conditions::{reasons, types};
use berth_cache::WorkloadView;

use super::JobCase;
use crate::decision::{Decision, Draft};
use crate::job::left;
use crate::workload::orphan::probe_pods;
use crate::workload::status::find;
use crate::workload::stops::release_for_good;
use crate::write::{EventType, Kind, Purpose};

impl JobCase<'_> {
    /// Whether the job ends because its namespace is being deleted: the job holds quota or its pods run, and the job has not finished.
    pub(super) fn ends_with_namespace(&self, owned: &[&WorkloadView]) -> bool {
        let holds = |workload: &&WorkloadView| workload.holds_quota();
        self.job.finished.is_none() && (self.job.active || owned.iter().any(holds))
    }

    /// Deletes a job whose namespace is being deleted. The namespace controller deletes pods first, and their controllers only when no pod is left. A Job
    /// that keeps a failed pod until its replacement is created would never go, so Berth deletes the Job early.
    pub(super) fn go_with_namespace(&self) -> Decision {
        let notice = self.notice(EventType::Normal, reasons::STOPPED, "Its namespace is being deleted".to_owned());
        Decision::write(Draft::delete(Purpose::DeleteJob, self.key.clone(), &self.job.uid).with_event(notice))
    }

    /// Gives back quota that no pod of the deleted job uses, and stops an evicted job, because Workloads that wait for this quota might otherwise wait for
    /// ever.
    pub(super) fn going(&self, owned: &[&WorkloadView]) -> Decision {
        let holds = |workload: &&&WorkloadView| workload.holds_quota();
        let Some(workload) = owned.iter().find(holds) else { return Decision::Done };
        if workload.deleting {
            return self.going_with(workload);
        }
        if let Some(end) = &self.job.finished {
            return if self.has_moving_parts() {
                Decision::Done
            } else {
                self.finish(workload, end.success, &end.message)
            };
        }
        let evicted = workload.is(types::EVICTED);
        if !self.job.suspended {
            return if evicted { self.ask_to_leave(workload) } else { Decision::Done };
        }
        let next = self.withdraw_start().or_else(|| evicted.then(|| self.drive_out()).flatten());
        if let Some(decision) = next.or_else(|| self.remains(workload)) {
            return decision;
        }
        let message = format!("{} is being deleted", self.job.kind.info().kind);
        release_for_good(workload, &message, self.now)
    }

    /// Decides about a job that is deleted together with its Workload; the Workload's finalizer is removed once no pod of the job is left (see
    /// `workload/orphan.rs`). If a finalizer keeps a job that is being deleted, only Berth stops the pods of the job.
    fn going_with(&self, workload: &WorkloadView) -> Decision {
        if self.job.finished.is_some() || self.ctx.notes.jobs().of(&self.job.uid).is_rid_of_pods() {
            return Decision::Done;
        }
        if !self.job.suspended {
            return self.time_to_save(workload).unwrap_or_else(|| self.suspend("Workload is deleted"));
        }
        self.withdraw_start().or_else(|| self.drive_out()).unwrap_or(Decision::Done)
    }

    fn ask_to_leave(&self, workload: &WorkloadView) -> Decision {
        if let Some(decision) = self.time_to_save(workload) {
            return decision;
        }
        let message = find(&workload.status.conditions, types::EVICTED).map(|condition| condition.message.clone());
        self.suspend(&message.unwrap_or_default())
    }

    /// The next step to delete the pods of the job; `None` if nothing is left to do. A suspension does not stop the pods of the job, because the job
    /// controller does not act on a job that is being deleted. Since the job is being deleted already, its pods may be deleted before it.
    fn drive_out(&self) -> Option<Decision> {
        if let Some(decision) = self.take_parts(|_| true) {
            return Some(decision);
        }
        if self.key.kind != Kind::JOB || !self.job.active || self.ctx.notes.jobs().of(&self.job.uid).is_rid_of_pods() {
            return None;
        }
        let draft = Draft::delete_owned_first(Purpose::DeleteChild, self.key.clone(), &self.job.uid);
        Some(Decision::write(draft))
    }

    /// The next wait or probe until no pod of the job runs; `None` if none runs. The job controller does not report that a deleted job has stopped, so the pods
    /// of the job are probed.
    fn remains(&self, workload: &WorkloadView) -> Option<Decision> {
        let gone = self.ctx.notes_of(workload).pods().are_gone();
        if self.job.leaves_pods && workload.is(types::ADMITTED) {
            // The garbage collector orphans the pods before the deletion of the job, and the status of the job does not count orphaned pods.
            return (!gone).then(|| left::of_leaving(self.ctx, workload, self.now));
        }
        let known = gone || self.ctx.notes.jobs().of(&self.job.uid).is_at_rest();
        let never_ran = !self.job.placed && !self.job.active && !self.has_moving_parts();
        (!known && !never_ran).then(|| probe_pods(self.ctx, workload, self.now))
    }
}

#[cfg(test)]
mod tests;
