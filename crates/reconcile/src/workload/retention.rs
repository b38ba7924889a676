//! Workloads that have ended, or were deactivated, and are deleted when their retention time is over.

use berth_api::conditions::reasons::DEACTIVATED_DUE_TO_PREFIX;
use berth_api::conditions::{event_reasons, types};
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::blocked::unasked;
use crate::workload::status::{find, since};
use crate::workload::{REPORTER, has_finalizer, notice, remove_finalizer};
use crate::write::{EventType, Kind, Notice, Purpose};

/// Pause in seconds between two decisions about a finished Workload whose TrainingJob does not show its end yet; a change of the TrainingJob is observed
/// immediately.
const UNREPORTED_SECONDS: i64 = 60;

/// Decides about a Workload that has finished.
pub(crate) fn finished(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let unsent_event = ctx.end_is_unreported(workload).then(|| Decision::Wait(after_seconds(now, UNREPORTED_SECONDS)));
    if workload.deleting {
        let goes =
            || if has_finalizer(workload) { Decision::write(remove_finalizer(workload)) } else { Decision::Done };
        return unsent_event.unwrap_or_else(goes);
    }
    let (Some(keep), Some(at)) =
        (ctx.settings.retain_finished_ms, since(&workload.status.conditions, types::FINISHED, "True"))
    else {
        return Decision::Done;
    };
    let due = ctx.view.timeline().after(at, keep);
    if due > now {
        return Decision::Wait(due);
    }
    if let Some(decision) = unsent_event {
        return decision;
    }
    let message = "Deleted finished workload due to elapsed retention".to_owned();
    let deletion_event = notice(workload, EventType::Normal, event_reasons::DELETED, message, REPORTER);
    let draft = Draft::delete(Purpose::DeleteWorkload, workload.object_key(), &workload.uid);
    Decision::write(draft.with_event(deletion_event))
}

/// Deletes the job of a workload that Kueue or Berth itself deactivated, together with the workload, when the retention time is over.
pub(crate) fn retention(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let evicted = find(&workload.status.conditions, types::EVICTED);
    let deactivated = evicted.filter(|condition| condition.reason.starts_with(DEACTIVATED_DUE_TO_PREFIX));
    let (Some(keep), Some(condition)) = (ctx.settings.retain_deactivated_ms, deactivated) else {
        return Decision::Done;
    };
    if workload.reserved() || unasked(ctx, workload).is_some() {
        return Decision::Done;
    }
    let Some((job, owner)) = workload.owner_key().zip(workload.owner.as_ref()) else {
        // A workload without a job that Berth knows is left to the workload's own controller, as in Kueue.
        return Decision::Done;
    };
    let at = condition.last_transition_time.0;
    let due = ctx.view.timeline().after(at, keep);
    if due > now {
        return Decision::Wait(due);
    }
    let to_notice =
        |message: &str| notice(workload, EventType::Normal, event_reasons::DELETED, message.to_owned(), REPORTER);
    Decision::write(if job.kind == Kind::PodGroup {
        // A pod group is no object: its pods are deleted with its Workload.
        let deletion_event = to_notice("Deleted deactivated workload due to elapsed retention");
        Draft::delete(Purpose::DeleteWorkload, workload.object_key(), &workload.uid).with_event(deletion_event)
    } else {
        let (key, uid, reporter) = (job.clone(), owner.uid.clone(), job.kind.reporter());
        let deletion_event = to_notice("Deleted job: deactivation retention period expired");
        Draft::delete(Purpose::DeleteJob, job, &owner.uid).with_event(Notice { key, uid, reporter, ..deletion_event })
    })
}

impl Context<'_> {
    /// Whether only a finished Workload shows the end of its TrainingJob: without the Workload the job would run again. A deletion of the TrainingJob does not
    /// wait for a status that the API server refuses.
    pub(crate) fn end_is_unreported(&self, workload: &WorkloadView) -> bool {
        let Some((name, owner)) = workload.training_job().zip(workload.owner.as_ref()) else { return false };
        let view = self.view.training().get(&name).filter(|view| view.uid == owner.uid);
        let runs_on = view.filter(|view| !view.deleting && !view.is_over());
        runs_on.and_then(|view| self.view.slice_of(&view.uid)).is_some_and(|slice| slice.uid == workload.uid)
    }
}

#[cfg(test)]
mod tests;
