//! How a job stops: suspended, at rest, with the user's template back; then its quota is released.

use berth_api::conditions::{reasons, training_types, types};

use super::JobCase;
use super::owners::{Named, alteration, part_of};
use crate::cache::WorkloadView;
use crate::decision::Decision;
use crate::job::altered::runs_beyond_quota;
use crate::moments::after_seconds;
use crate::workload::orphan::probe_pods;
use crate::workload::status::{find, since};
use crate::workload::stops::{release, take_back};
use crate::write::{EventType, Purpose};

/// Time in which the job controller takes note of a start, or never will because the stop overtook it.
const UNSEEN_START_SECONDS: i64 = 3;
/// Time in seconds for the controller of a job that is made of Jobs to report that it has stopped. A Job in its way may keep it from any report.
const SILENT_SECONDS: i64 = 5;

impl JobCase<'_> {
    /// Stops an evicted job: suspends it, gives the user's template back, and releases the quota when the pods are gone.
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
        // Placed Jobs would go on where they were placed, and a foreign Job with the name of a part would be started in its place.
        let is_other = |part: Named<'_>| {
            part_of(self.job, &self.key.name, &part.0.name).is_some()
                && alteration(self.ctx, (self.key, self.job), part, workload).is_some()
        };
        if let Some(decision) = self.take_parts(|part| part.1.placed || is_other(part)) {
            return decision;
        }
        release(workload, self.now)
    }

    /// The next step for a job that was not evicted and is not to run by its quota: the quota goes back for that reason once nothing of the job runs.
    pub(super) fn without_quota(&self, workload: &WorkloadView, why: &str) -> Decision {
        let next = self.unrest(workload).or_else(|| self.restore(workload));
        // Placed Jobs would go on where they were placed.
        next.or_else(|| self.take_parts(|(_, part)| part.placed))
            .unwrap_or_else(|| take_back(workload, (reasons::PENDING_EVALUATION, why), self.now))
    }

    /// The wait for a job to save its work: the policy of its queue gives time for that, and the job reports its saves and has all its pods.
    pub(super) fn time_to_save(&self, workload: &WorkloadView) -> Option<Decision> {
        if find(&workload.status.conditions, types::EVICTED).is_some_and(|evicted| runs_beyond_quota(&evicted.reason)) {
            return None;
        }
        // A job that has never reported a save is not waited for.
        self.ctx.saved_at(workload)?;
        let grace = self.ctx.grace_within(workload, self.ctx.grace_ms(workload)?)?;
        let notice = self.notice(EventType::Normal, training_types::CHECKPOINT_REQUESTED, grace.request());
        let waits = self.job.ready && grace.lasts(self.now);
        waits.then(|| grace.wait(self.ctx, workload, notice))
    }

    /// The next wait or probe before a suspended job counts as stopped, `None` when nothing of it can run any more. A job that is stopped right after
    /// its start may have pods of which its status does not know yet (invariant L4). Unless its controller was seen to take note of both, its pods
    /// are probed after a while.
    pub(super) fn unrest(&self, workload: &WorkloadView) -> Option<Decision> {
        if let Some(decision) = self.withdraw_start().or_else(|| self.drive_out_part()) {
            return Some(decision);
        }
        if self.job.active {
            return self.silence(workload);
        }
        let known = self.ctx.notes.jobs.of(&self.job.uid).is_at_rest() || self.ctx.notes_of(workload).pods().are_gone();
        if known || !workload.reserved() {
            return None;
        }
        if !self.job.placed {
            // Jobs that may run have run since before the first suspension.
            return self.has_moving_parts().then_some(Decision::Done);
        }
        if self.job.seen_start {
            // The controller writes the end of the stop into the job's status, which brings the decision back.
            return (!self.job.at_rest).then_some(Decision::Done);
        }
        let conditions = &workload.status.conditions;
        let last = since(conditions, types::ADMITTED, "True").max(since(conditions, types::EVICTED, "True"))?;
        let due = after_seconds(last, UNSEEN_START_SECONDS);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        Some(probe_pods(self.ctx, workload))
    }

    /// The next step where the job's status says that it runs; `None` when nothing of it does all the same: the Jobs of a job that is made of Jobs
    /// have stopped for a while, and no pod of them is left.
    fn silence(&self, workload: &WorkloadView) -> Option<Decision> {
        let evicted = since(&workload.status.conditions, types::EVICTED, "True");
        let Some(evicted) = evicted.filter(|_| self.key.kind.is_made_of_jobs() && !self.has_moving_parts()) else {
            return Some(Decision::Done);
        };
        let due = self.ctx.view.timeline.after_seconds(evicted, SILENT_SECONDS);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        (!self.ctx.notes_of(workload).pods().are_gone()).then(|| probe_pods(self.ctx, workload))
    }

    /// The write after which no start with a lost answer can be applied any more, `None` when there is no such start. A job that looks as if it had
    /// never been started is stopped all the same; see `strays`. The marker of the stop goes with the restored template.
    pub(super) fn withdraw_start(&self) -> Option<Decision> {
        let feared = self.ctx.flights.strays.may_land(self.key) && self.job.is_suspended();
        let patch = self.job.whole().filter(|_| feared)?.stop_patch();
        Some(self.write(Purpose::WithdrawStart, patch, Vec::new()))
    }

    /// The next step towards the user's template, `None` when it is as the user wrote it.
    pub(super) fn restore(&self, workload: &WorkloadView) -> Option<Decision> {
        if !self.job.needs_restore(&workload.shape.originals) {
            return None;
        }
        // The template may change only when no pod is left; the job's own change brings the decision back.
        let silence = if self.job.active { self.silence(workload) } else { None };
        if silence.is_some() {
            return silence;
        }
        // A silent controller does not take note of the stop either: the placement goes with the Jobs that carry it.
        if !self.job.may_change_template && !self.job.active {
            return Some(self.unlock());
        }
        let patch = self.job.whole()?.restore_patch(&workload.shape.originals)?;
        Some(self.write(Purpose::RestoreTemplate, patch, Vec::new()))
    }

    /// Makes the template changeable; without such a step the job's own change is waited for.
    pub(super) fn unlock(&self) -> Decision {
        match self.job.whole().and_then(|job| job.unlock_patch()) {
            Some(patch) => self.write(Purpose::ClearStartTime, patch, Vec::new()),
            None => Decision::Done,
        }
    }
}

#[cfg(test)]
mod tests;
