//! The stop of a job: the job is suspended, comes to rest, and gets the user's template back; then its quota is given back.

use berth_api::conditions::{reasons, training_types, types};
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;

use super::JobCase;
use super::owners::{Named, alteration, part_of};
use crate::decision::Decision;
use crate::job::altered::runs_beyond_quota;
use crate::workload::orphan::probe_pods;
use crate::workload::status::{find, since};
use crate::workload::stops::{release, take_back};
use crate::write::{EventType, Purpose};

/// Time in seconds in which the job controller observes a start; a start that was not observed by then never is, because the stop has overtaken the start.
const UNSEEN_START_SECONDS: i64 = 3;
/// Time in seconds for the controller of a JobSet to report that the JobSet has stopped. A Job of another owner that has the name of a part of the JobSet may
/// keep the JobSet controller from reporting a stop.
const SILENT_SECONDS: i64 = 5;

impl JobCase<'_> {
    /// Stops an evicted job: suspends the job, restores the user's template, and gives the quota back when the pods are gone.
    pub(super) fn stop(&self, workload: &WorkloadView) -> Decision {
        if !self.job.suspended {
            if let Some(decision) = self.time_to_save(workload) {
                return decision;
            }
            let message = find(&workload.status.conditions, types::EVICTED).map(|condition| condition.message.clone());
            return self.suspend(&message.unwrap_or_default());
        }
        if !workload.reserved() {
            return Decision::Done;
        }
        if let Some(decision) = self.unrest(workload).or_else(|| self.restore(workload)) {
            return decision;
        }
        // At the next start, Jobs of the JobSet with an old placement would run on their old nodes, and a foreign Job with the name of a part would be started
        // in place of the part.
        let is_other = |part: Named<'_>| {
            part_of(self.job, &self.key.name, &part.0.name).is_some()
                && alteration(self.ctx, (self.key, self.job), part, workload).is_some()
        };
        if let Some(decision) = self.take_parts(|part| part.1.placed || is_other(part)) {
            return decision;
        }
        release(workload, self.now)
    }

    /// The next step for a job that was not evicted and is not to run on its quota: the quota is given back with the reason `why` once no pod of the job
    /// runs.
    pub(super) fn without_quota(&self, workload: &WorkloadView, why: &str) -> Decision {
        let next = self.unrest(workload).or_else(|| self.restore(workload));
        // At the next start, Jobs of the JobSet with an old placement would run on their old nodes.
        next.or_else(|| self.take_parts(|(_, part)| part.placed))
            .unwrap_or_else(|| take_back(workload, (reasons::PENDING_EVALUATION, why), self.now))
    }

    /// The wait for a job to save a checkpoint: the QueuePolicy of its ClusterQueue sets a grace period, and the job has reported saves and has all its pods.
    pub(super) fn time_to_save(&self, workload: &WorkloadView) -> Option<Decision> {
        if find(&workload.status.conditions, types::EVICTED).is_some_and(|evicted| runs_beyond_quota(&evicted.reason)) {
            return None;
        }
        // A job that has never reported a save gets no time to save.
        self.ctx.saved_at(workload)?;
        let grace = self.ctx.grace_within(workload, self.ctx.grace_ms(workload)?)?;
        let notice = self.notice(EventType::Normal, training_types::CHECKPOINT_REQUESTED, grace.request());
        let waits = self.job.ready && grace.lasts(self.now);
        waits.then(|| grace.wait(self.ctx, workload, notice))
    }

    /// The next wait or probe before a suspended job counts as stopped; `None` if no pod of the job can run any more. A job that is stopped right after its
    /// start may have pods that its status does not count yet (invariant L4). If the job controller was not observed to act on both the start and the stop,
    /// the pods are probed after a while.
    pub(super) fn unrest(&self, workload: &WorkloadView) -> Option<Decision> {
        if let Some(decision) = self.withdraw_start().or_else(|| self.drive_out_part()) {
            return Some(decision);
        }
        if self.job.active {
            return self.silence(workload);
        }
        let known =
            self.ctx.notes.jobs().of(&self.job.uid).is_at_rest() || self.ctx.notes_of(workload).pods().are_gone();
        if known || !workload.reserved() {
            return None;
        }
        if !self.job.placed {
            // Jobs of a JobSet without a placement that still run have run since before the first suspension of the JobSet.
            return self.has_moving_parts().then_some(Decision::Done);
        }
        if self.job.seen_start {
            // The job controller reports in the job's status that the job has stopped, and control decides about the job again then.
            return (!self.job.at_rest).then_some(Decision::Done);
        }
        let conditions = &workload.status.conditions;
        let last = since(conditions, types::ADMITTED, "True").max(since(conditions, types::EVICTED, "True"))?;
        let due = after_seconds(last, UNSEEN_START_SECONDS);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        Some(probe_pods(self.ctx, workload, self.now))
    }

    /// The next step for a job whose status says that the job runs; `None` if the Jobs of a JobSet stopped a while ago and no pod of the JobSet is left.
    fn silence(&self, workload: &WorkloadView) -> Option<Decision> {
        let evicted = since(&workload.status.conditions, types::EVICTED, "True");
        let Some(evicted) = evicted.filter(|_| self.key.kind.is_made_of_jobs() && !self.has_moving_parts()) else {
            return Some(Decision::Done);
        };
        let due = self.ctx.view.timeline().after_seconds(evicted, SILENT_SECONDS);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        (!self.ctx.notes_of(workload).pods().are_gone()).then(|| probe_pods(self.ctx, workload, self.now))
    }

    /// The write after which no unresolved start of the job can be applied; `None` if there is no unresolved start. A job that looks as if it had never been
    /// started is stopped all the same (see `state/unresolved.rs`). The later restore of the user's template removes the marker of the stop from the job.
    pub(super) fn withdraw_start(&self) -> Option<Decision> {
        let feared = self.ctx.in_flight.unresolved().may_apply(self.key) && self.job.is_suspended();
        let patch = self.job.decode().filter(|_| feared)?.stop_patch();
        Some(self.write(Purpose::WithdrawStart, patch, Vec::new()))
    }

    /// The next step to restore the user's template; `None` if the template is the user's.
    pub(super) fn restore(&self, workload: &WorkloadView) -> Option<Decision> {
        if !self.job.needs_restore(&workload.shape.originals) {
            return None;
        }
        // The template of a job may change only when no pod is left, and control decides about the job again when the job changes.
        let silence = if self.job.active { self.silence(workload) } else { None };
        if silence.is_some() {
            return silence;
        }
        // A JobSet controller that does not report a stop does not act on the stop either, so the placement is removed by deleting the Jobs that have a
        // placement.
        if !self.job.may_change_template && !self.job.active {
            return Some(self.unlock());
        }
        let patch = self.job.decode()?.restore_patch(&workload.shape.originals)?;
        Some(self.write(Purpose::RestoreTemplate, patch, Vec::new()))
    }

    /// Makes the template of the job changeable; if no write can, control waits for a change of the job.
    pub(super) fn unlock(&self) -> Decision {
        match self.job.decode().and_then(|job| job.unlock_patch()) {
            Some(patch) => self.write(Purpose::ClearStartTime, patch, Vec::new()),
            None => Decision::Done,
        }
    }
}

#[cfg(test)]
mod tests;
