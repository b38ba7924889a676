//! Stop of a TrainingJob: its Jobs are deleted, its pods are waited for, then its quota is released. The spec of a TrainingJob keeps all facts for the next
//! start, so that no template has to be restored after a stop.

use super::{TrainingCase, has_finalizer, status};
use crate::decision::{Decision, Draft};
use crate::job::grace::Grace;
use crate::job::left;
use crate::workload::orphan::probe_pods;
use crate::workload::status::find;
use crate::workload::stops::{let_go, release, release_for_good};
use crate::write::{EventType, Kind, ObjectKey, Purpose, key};
use berth_api::conditions::{reasons, types};
use berth_cache::{WorkloadPhase, WorkloadView};
use berth_jobs::JobState;
use berth_jobs::training::training_end;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Order in which a Job and its pods are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The Job is deleted before its pods.
    JobFirst,
    /// The pods are deleted before their Job.
    PodsFirst,
}

impl TrainingCase<'_> {
    /// Stops an evicted job: no pod of the job may run when its quota is released.
    pub(super) fn stop(&self, workload: &WorkloadView) -> Decision {
        if let Some(decision) = self.halt(workload) {
            return decision;
        }
        // The quota is released even if the API server refuses the status of the TrainingJob.
        let silent = self.ctx.in_flight.backing_off(&key(Kind::TrainingJob, self.name), self.now).is_some();
        let last_status = || status::status_with_answer(self).or_else(|| status::status_with_timeout(self));
        if let Some(last_status) = last_status().filter(|_| !silent) {
            return Decision::write(last_status);
        }
        if self.wait_ends(workload).is_some_and(|due| due <= self.now) {
            // After the return of an evicted TrainingJob to its queue, the job could be admitted again before its longest wait is checked.
            return self.waited_too_long(workload);
        }
        release(workload, self.now)
    }

    /// Handles a job for which no objects are created any more, because a finalizer keeps the deleted job, or its namespace is not managed now. Quota that no
    /// pod uses is released, and so is the quota of a run that is evicted, has ended, or lacks a Job.
    pub(super) fn going(&self, workload: &WorkloadView, message: &str) -> Decision {
        if !workload.holds_quota() {
            return Decision::Done;
        }
        let states = self.states();
        if let Some(end) = training_end(&states) {
            return self.finish(workload, &end);
        }
        if workload.phase == WorkloadPhase::Admitted && !self.lacks_jobs(&states) {
            return Decision::Done;
        }
        let next = if workload.phase.is_evicting() { self.halt(workload) } else { self.clear_away(workload, message) };
        next.unwrap_or_else(|| release_for_good(workload, message, self.now))
    }

    /// Stops a job whose namespace is being deleted: the TrainingJob itself is deleted only after all pods of the namespace. The Jobs would keep failed pods
    /// until other pods replaced them, which cannot be created in a namespace that is being deleted: the Jobs are deleted, and the quota is released with the
    /// last pod.
    pub(super) fn ending(&self, workload: &WorkloadView) -> Decision {
        if workload.is_finished() {
            return self.with_workload(workload);
        }
        if let Some(end) = training_end(&self.states()) {
            return self.finish(workload, &end);
        }
        let message = "its namespace is being deleted";
        if !workload.reserved() {
            return self.delete_children(message).unwrap_or(Decision::Done);
        }
        self.clear_away(workload, message).unwrap_or_else(|| release_for_good(workload, message, self.now))
    }

    /// The next step to stop all pods of an evicted job, `None` if no pod runs.
    fn halt(&self, workload: &WorkloadView) -> Option<Decision> {
        if let Some(decision) = self.time_to_save(workload) {
            return Some(decision);
        }
        let message = find(&workload.status.conditions, types::EVICTED).map(|condition| condition.message.as_str());
        let message = message.unwrap_or_default();
        let knew = self.ctx.notes_of(workload).save().notified();
        let why =
            self.ctx.grace_of(workload).filter(|grace| knew.is_some_and(|last_status| last_status.pods || grace.saved));
        let why = why.map_or_else(|| message.to_owned(), |grace| format!("{message}; {}", self.what_was_saved(&grace)));
        self.clear_away(workload, &why)
    }

    /// The next step to stop all pods of the job, without time to save.
    fn clear_away(&self, workload: &WorkloadView, why: &str) -> Option<Decision> {
        self.delete_children(why).or_else(|| self.probe(workload))
    }

    /// The next step while the job may save its work; a job that lacks pods cannot save.
    fn time_to_save(&self, workload: &WorkloadView) -> Option<Decision> {
        let grace = self.ctx.grace_of(workload).filter(|grace| grace.lasts(self.now))?;
        let all_ready_now = self.all_ready(&self.states());
        let notice = self.notice(EventType::Normal, status::CHECKPOINT_REQUESTED, grace.request());
        all_ready_now.then(|| grace.wait(self.ctx, workload, notice))
    }

    /// Text about the result of a request to save.
    pub(super) fn what_was_saved(&self, grace: &Grace) -> String {
        let step = self.ctx.saved_of(self.name, self.view).and_then(|saved| saved.step);
        match (grace.saved, step) {
            (true, Some(step)) => format!("saved its checkpoint of step {step}"),
            (true, None) => "saved a checkpoint".to_owned(),
            (false, _) => "saved no checkpoint after it was asked to".to_owned(),
        }
    }

    /// Handles a Workload that is being deleted: the run stops, then the Workload's finalizer is removed.
    pub(super) fn leaving(&self, workload: &WorkloadView) -> Decision {
        if !has_finalizer(workload) && !workload.reserved() {
            return Decision::Done;
        }
        let stopped = self.delete_unfinished("Workload is deleted");
        stopped
            .or_else(|| if workload.reserved() { self.probe(workload) } else { None })
            .unwrap_or_else(|| let_go(workload, self.now))
    }

    /// The next step of deleting all Jobs, `None` if there are no Jobs.
    pub(super) fn delete_children(&self, why: &str) -> Option<Decision> {
        self.delete_where(why, |_| true)
    }

    /// The next step of deleting the Jobs that have not finished, `None` if there are no such Jobs: finished Jobs keep their logs.
    pub(super) fn delete_unfinished(&self, why: &str) -> Option<Decision> {
        self.delete_where(why, |job| job.finished.is_none())
    }

    /// The next step of deleting the selected Jobs before their pods, `None` if there are no such Jobs.
    pub(super) fn delete_where(&self, why: &str, wanted: impl Fn(&JobState) -> bool) -> Option<Decision> {
        self.delete_in_order(Order::JobFirst, why, wanted)
    }

    /// The next step of deleting the selected Jobs after their pods: the Job counts its pods until they have ended, and its name stays taken until then.
    pub(super) fn drive_out_where(&self, why: &str, wanted: impl Fn(&JobState) -> bool) -> Option<Decision> {
        self.delete_in_order(Order::PodsFirst, why, wanted)
    }

    fn delete_in_order(&self, order: Order, why: &str, wanted: impl Fn(&JobState) -> bool) -> Option<Decision> {
        let children = self.ctx.view.children_of(self.name, &self.view.uid);
        let known = self.roles().into_iter().chain(self.view.roles.iter().cloned()).map(|role| self.child_key(&role));
        // Jobs of roles that the spec does not have any more are included.
        let known: BTreeSet<ObjectKey> = known.collect();
        let others: BTreeSet<ObjectKey> = children.filter(|child| !known.contains(*child)).cloned().collect();
        for object in known.iter().chain(&others) {
            if self.ctx.in_flight.busy(object) {
                // A creation of the TrainingJob's Job may be under way.
                return Some(Decision::Done);
            }
            // A TrainingJob that is deleted without its Jobs does not control them any more.
            let is_taken = |job: &JobState| !self.view.leaves_pods && self.is_taken_from_us(job);
            let ours = |job: &&JobState| self.is_ours(job) || is_taken(job);
            let ours = self.ctx.view.jobs().get(object).filter(ours);
            let Some(job) = ours.filter(|job| wanted(job)) else { continue };
            // A finalizer may keep the Job forever, and its pods run as long as the Job exists: the pods are deleted before the Job.
            let kept = job.deleting && known.contains(object);
            if job.deleting && (!kept || self.ctx.notes.jobs().of(&job.uid).is_rid_of_pods()) {
                // The pods of a Job that is being deleted are found by a query.
                continue;
            }
            let role = object.name.get(self.name.1.len().saturating_add(1)..).unwrap_or_default();
            let notice = self.notice(EventType::Normal, reasons::STOPPED, format!("{role}: {why}"));
            let owned_first = kept || order == Order::PodsFirst;
            let delete = if owned_first { Draft::delete_owned_first } else { Draft::delete };
            return Some(Decision::write(delete(Purpose::StopTraining, object.clone(), &job.uid).with_event(notice)));
        }
        None
    }

    /// Time until which a creation with a lost answer may still create a Job of the TrainingJob.
    pub(super) fn creation_until(&self) -> Option<Timestamp> {
        let known = self.roles().into_iter().chain(self.view.roles.iter().cloned()).map(|role| self.child_key(&role));
        known.filter_map(|object| self.ctx.in_flight.unresolved().creation_until(&object, self.now)).max()
    }

    /// Queries whether pods of the job are left, `None` if no pods are known to be left.
    pub(super) fn probe(&self, workload: &WorkloadView) -> Option<Decision> {
        if let Some(until) = self.creation_until() {
            return Some(Decision::Wait(until));
        }
        if self.ctx.notes_of(workload).pods().are_gone() {
            return None;
        }
        if self.view.leaves_pods && workload.is(types::ADMITTED) {
            // The Jobs of a TrainingJob that is deleted without its Jobs have no owner by now, and go on.
            return Some(left::of_leaving(self.ctx, workload, self.now));
        }
        Some(probe_pods(self.ctx, workload, self.now))
    }
}

#[cfg(test)]
mod tests;
