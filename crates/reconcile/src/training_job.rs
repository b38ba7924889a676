//! Life of a TrainingJob: the TrainingJob gets one Workload, its children are created when the Workload is admitted and deleted when it is evicted, and the end
//! of the children ends the TrainingJob. Each decision about a TrainingJob asks for at most one write. `start` starts a TrainingJob, `stop` stops it, `altered`
//! handles Jobs that another client has changed, and `status` computes the status.

mod altered;
mod case;
pub mod checkpoints;
pub(crate) mod children;
mod conditions;
pub mod elastic;
pub mod growth;
pub(crate) mod listing;
pub mod nodes;
mod restart;
pub(crate) mod restarts;
mod run;
pub(crate) mod save_notes;
pub mod saves;
mod saving;
mod scale;
pub(crate) mod scale_notes;
mod slices;
mod start;
pub(crate) mod status;
mod stop;
pub(crate) mod stored;
pub mod training_figures;
pub(crate) mod training_notes;
pub mod trainings;

use std::collections::BTreeMap;

use berth_api::conditions::{event_reasons, own_reasons, reasons, training_types, types};
use berth_api::labels;
use berth_jobs::training::{
    RoleState, TrainingEnd, child_job_name, training_end, training_finish, training_pod_sets, training_workload,
};
use berth_jobs::{Finish, JobState, PodSetDigest, Priority};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::context::Context;
use crate::decision::Decision;
use crate::job::UNMANAGED_NAMESPACE;
use crate::policies::{NamedClasses, no_class};
use crate::training_job::restarts::{jobs_since, reported_start, runs_on, scaled};
use crate::workload::columns::Annotations;
use crate::workload::follow::{DesiredFields, follow};
use crate::workload::names::create;
use crate::workload::orphan::lost_by;
use crate::workload::status::{find, find_true, is_true, since};
use crate::workload::{has_finalizer, object_write, remove_finalizer, status_write};
pub use crate::write::TRAINING_REPORTER as REPORTER;
use crate::write::{EventType, Kind, Notice, ObjectKey, Purpose, key};
use berth_cache::{Name, WorkloadPhase, WorkloadView};
pub(crate) use case::TrainingCase;

/// Message of a TrainingJob whose quota is released while a finalizer keeps the object.
const GOING: &str = "TrainingJob is being deleted";

/// Largest expected difference in seconds between the clocks of Berth and of the Job controller.
const CLOCKS_DIFFER_SECONDS: i64 = 5;

/// Decides about one TrainingJob.
pub fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let Some(view) = ctx.view.training().get(name) else { return Decision::Done };
    let case = TrainingCase { ctx, name, view, now };
    let owned = ctx.view.workloads_of(&view.uid);
    let changing = |workload: &&WorkloadView| ctx.in_flight.changing(&workload.object_key());
    if owned.iter().any(changing) || owned.iter().any(|workload| workload.unreadable) {
        return Decision::Done;
    }
    if !case.managed() {
        return case.kept(&owned);
    }
    let next = |workload: &WorkloadView| match view.deleting {
        true => case.going(workload, GOING),
        false if ctx.is_ending(&name.0) => case.ending(workload),
        false => case.with_workload(workload),
    };
    let decision = match ctx.view.slice_of(&view.uid) {
        Some(workload) => Decision::first_or_earliest(case.beside(workload, &owned), || next(workload)),
        // Garbage collection deletes the children of the TrainingJob, unless a finalizer keeps the TrainingJob; the module `orphan` handles a Workload that is
        // deleted with its TrainingJob.
        None if view.deleting => {
            let leaving = owned.iter().find(|workload| workload.deleting);
            leaving.map_or(Decision::Done, |workload| case.leaving(workload))
        }
        None => case.without_workload(&owned),
    };
    match decision {
        Decision::Done | Decision::Wait(_) if !view.deleting => {
            let status_write = status::urgent_status(&case).map(Decision::write);
            status_write.or_else(|| case.count_nodes()).unwrap_or(decision)
        }
        decision => decision,
    }
}

impl<'a> TrainingCase<'a> {
    fn managed(&self) -> bool {
        self.ctx.manages(&self.name.0)
    }

    fn notice(&self, event_type: EventType, reason: &str, message: String) -> Notice {
        Notice {
            key: key(Kind::TrainingJob, self.name),
            uid: self.view.uid.clone(),
            event_type,
            reason: reason.to_owned(),
            message,
            reporter: REPORTER,
        }
    }

    fn child_key(&self, role: &str) -> ObjectKey {
        key(Kind::JOB, &(self.name.0.clone(), child_job_name(&self.name.1, role)))
    }

    /// The Job that runs a role, if the Job exists and belongs to this TrainingJob.
    fn child(&self, role: &str) -> Option<&'a JobState> {
        self.ctx.view.child_of(self.name, &self.view.uid, role)
    }

    fn is_ours(&self, job: &JobState) -> bool {
        job.owner.as_ref().is_some_and(|owner| *owner.uid == *self.view.uid)
    }

    /// Whether a Job with the name of a child was created for this TrainingJob, and now has another controller, or none.
    fn is_taken_from_us(&self, job: &JobState) -> bool {
        !self.is_ours(job) && job.training.as_deref() == Some(&*self.view.uid)
    }

    /// The roles of the TrainingJob's Workload: an edit of the spec takes effect with the next start.
    fn roles(&self) -> Vec<String> {
        match self.ctx.view.slice_of(&self.view.uid) {
            Some(workload) => workload.shape.digests.iter().map(|set| set.name.clone()).collect(),
            None => self.view.roles.clone(),
        }
    }

    /// States of all roles; a role without a Job has an empty state.
    fn states(&self) -> BTreeMap<String, RoleState> {
        self.states_under(self.ctx.view.slice_of(&self.view.uid))
    }

    /// States of all roles under the given Workload of the job. A failure of a role that does not belong to the run of that Workload is ignored, and an end of
    /// the TrainingJob that is recorded on the Workload counts.
    fn states_under(&self, workload: Option<&WorkloadView>) -> BTreeMap<String, RoleState> {
        let apart = workload.and_then(|workload| self.taken_apart_since(workload));
        let begun = workload.and_then(jobs_since);
        let roles = self.roles();
        let noted = workload.and_then(noted_end).filter(|end| roles.contains(&end.role));
        let state = |role: String| {
            let job = self.child(&role);
            let mut state = job.and_then(|job| Some(job.role.as_deref()?.clone())).unwrap_or_default();
            // The remaining Jobs of the TrainingJob fail because their peers were deleted, and their failure is ignored.
            let for_want = apart.is_some_and(|since| !failed_before(&state, since));
            // A finalizer may keep a Job of the previous run, or of a restart before the last restart.
            let of_old = job.is_some_and(|job| job.deleting && begun.is_some_and(|begun| was_made_before(job, begun)));
            if for_want || of_old {
                state.finish = state.finish.take().filter(|finish| finish.success);
            }
            if let Some(end) = noted {
                // The Job that decided the recorded end of the TrainingJob may be deleted by now. If an end of the TrainingJob is recorded, the results of Jobs
                // of other roles do not end the TrainingJob.
                state.finish = (role == end.role).then(|| end.of_role());
            }
            (role, state)
        };
        roles.iter().cloned().map(state).collect()
    }

    fn without_workload(&self, owned: &[&WorkloadView]) -> Decision {
        if let Some(workload) = owned.iter().find(|workload| workload.deleting) {
            return self.ends_or_leaves(workload);
        }
        if let Some(slice) = owned.first() {
            // Only replaced slices are left: the next Workload gets the name of the first slice.
            return scale::discard(slice);
        }
        if self.view.is_over() || self.lost().is_some() {
            return Decision::Done;
        }
        if let Some(decision) = self.delete_children("Missing Workload") {
            return decision;
        }
        if self.ctx.is_ending(&self.name.0) {
            return Decision::Done;
        }
        if let Err(fault) = &self.view.asked {
            return Decision::event(self.notice(EventType::Warning, own_reasons::INVALID_SPEC, fault.clone()));
        }
        if let Some(fault) = self.missing_store() {
            return Decision::event(self.notice(EventType::Warning, status::STORE_NOT_FOUND, fault));
        }
        if self.ctx.in_flight.creations_full() {
            return Decision::WaitForCreations;
        }
        self.create_workload()
    }

    /// Handles a Workload that is being deleted. An end of the job is written before the Workload is deleted, because no other object records the end.
    fn ends_or_leaves(&self, workload: &WorkloadView) -> Decision {
        let runs = workload.is(types::ADMITTED) && !workload.is_finished();
        match training_end(&self.states_under(Some(workload))).filter(|_| runs) {
            Some(end) => self.finish(workload, &end),
            None => self.leaving(workload),
        }
    }

    /// The Workload from which the owner reference to the TrainingJob was removed; Berth restores that reference.
    fn lost(&self) -> Option<&WorkloadView> {
        let kind = Kind::TrainingJob.name();
        let name = berth_jobs::workload_name(kind, berth_api::berth::GROUP, &self.name.1, &self.view.uid);
        let found = lost_by(self.ctx, &(self.name.0.clone(), name), &self.view.uid)?;
        (!found.is_finished()).then_some(found)
    }

    /// Handles a job whose namespace is not managed any more: no object is created for the job, and a Workload with quota is handled until its end.
    fn kept(&self, owned: &[&WorkloadView]) -> Decision {
        let leaves = |workload: &&&WorkloadView| workload.deleting && !workload.is_finished();
        if let Some(workload) = owned.iter().find(leaves) {
            return self.ends_or_leaves(workload);
        }
        let Some(workload) = self.ctx.view.slice_of(&self.view.uid) else { return Decision::Done };
        if workload.is_finished() {
            return self.with_workload(workload);
        }
        Decision::first_or_earliest(self.beside(workload, owned), || self.going(workload, UNMANAGED_NAMESPACE))
    }

    fn create_workload(&self) -> Decision {
        let settings = &self.ctx.settings;
        let copied = &settings.label_keys_to_copy;
        // An object that cannot be read or is invalid was reported before, by `asked`.
        let Ok(object) = self.view.decode() else { return Decision::Done };
        let Ok(made) = training_workload(&object, &settings.accelerators, Priority::default(), copied) else {
            return Decision::Done;
        };
        match self.ctx.with_priority(made, self.classes()) {
            Ok(workload) => create(self.ctx, &key(Kind::TrainingJob, self.name), &workload, |message| {
                self.notice(EventType::Normal, event_reasons::CREATED_WORKLOAD, message)
            }),
            Err(class) => {
                let (reason, text) = no_class(&class, "the job");
                Decision::event(self.notice(EventType::Warning, reason, text))
            }
        }
    }

    /// The priority classes that the TrainingJob names.
    fn classes(&self) -> NamedClasses<'_> {
        let of_pods = self.view.pod_priority_class.as_deref().filter(|class| !class.is_empty());
        (self.view.facts.priority_class.as_deref(), of_pods)
    }

    fn with_workload(&self, workload: &WorkloadView) -> Decision {
        if workload.is_finished() {
            if let Some(decision) = self.delete_unfinished("Workload is finished") {
                return decision;
            }
            let done = has_finalizer(workload) && self.view.is_over();
            return if done { Decision::write(remove_finalizer(workload)) } else { Decision::Done };
        }
        if let Some(end) = training_end(&self.states()) {
            return self.finish(workload, &end);
        }
        let object = key(Kind::TrainingJob, self.name);
        if let Some((reason, text)) = self.ctx.unsent_event(&object, workload, self.classes()) {
            return Decision::event(self.notice(EventType::Warning, reason, text));
        }
        if let Some(decision) = self.follow_suspension(workload) {
            return decision;
        }
        match workload.phase {
            WorkloadPhase::Evicting { .. } => self.stop(workload),
            WorkloadPhase::Admitted if workload.may_run() => self.running(workload),
            // An admission that does not fit the Workload is evicted; no object is created for it.
            WorkloadPhase::Admitted => Decision::Done,
            WorkloadPhase::Pending
            | WorkloadPhase::Reserved
            | WorkloadPhase::Finished
            | WorkloadPhase::Inactive
            | WorkloadPhase::Inconsistent => {
                self.delete_children("Not admitted by cluster queue").unwrap_or_else(|| self.waiting(workload))
            }
        }
    }

    /// Deactivates the Workload of a suspended TrainingJob, with a mark that names the cause. A Workload that another client has deactivated stays unchanged.
    fn follow_suspension(&self, workload: &WorkloadView) -> Option<Decision> {
        let suspended = self.view.facts.suspended;
        let silent = self.ctx.in_flight.keeps_failing(&key(Kind::TrainingJob, self.name), self.now);
        if suspended
            && workload.active
            && !status::asked(self.view)
            && !silent
            && let Some(status_write) = status::urgent_status(self)
        {
            // The TrainingJob's status is written before its Workload is deactivated. A status that the API server refuses delays the suspension by no more
            // than a few tries.
            return Some(Decision::write(status_write));
        }
        let marked = workload.suspended_with_job();
        let (active, purpose, mark) = match (suspended, workload.active) {
            (true, true) => (false, Purpose::Deactivate, Some("true")),
            // A user who suspends a deactivated job asks for another try when the job is resumed.
            (true, false) if !marked && altered::is_given_up(workload) => {
                (false, Purpose::UpdateWorkload, Some("true"))
            }
            (false, false) if status::sleeps(self.view, workload) => (true, Purpose::Requeue, None),
            (false, false) if altered::is_given_up(workload) => return self.tried_anew(workload),
            // Another client has activated the Workload: the next deactivation of the Workload has other reasons.
            (false, true) if marked => (true, Purpose::UpdateWorkload, None),
            _ => return None,
        };
        Some(Decision::write(object_write(workload, purpose, |patch| {
            patch.active(active).annotation(labels::SUSPENDED_WITH_JOB, mark)
        })))
    }

    /// Decides about a job that is not admitted: its Workload follows the TrainingJob's spec, and the job ends after its longest wait.
    fn waiting(&self, workload: &WorkloadView) -> Decision {
        if let Some(decision) = self.follow(workload) {
            return decision;
        }
        let Some(due) = self.wait_ends(workload).filter(|_| !workload.reserved()) else { return Decision::Done };
        if due > self.now { Decision::Wait(due) } else { self.waited_too_long(workload) }
    }

    /// Time at which the longest wait of the job is over. The job waits until all of its pods are ready, with quota or without: otherwise a job that each tier
    /// releases would begin its wait again with each tier.
    fn wait_ends(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let limit = self.view.facts.max_wait_seconds.filter(|_| workload.active)?;
        let conditions = &workload.status.conditions;
        let left = if workload.reserved() {
            find_true(conditions, types::EVICTED)
        } else {
            find(conditions, types::REQUEUED).filter(|condition| condition.status == "False")
        };
        if left.is_some_and(|condition| condition.reason.starts_with(reasons::DEACTIVATED)) {
            // The TrainingJob was just resumed, and its Workload does not wait in its ClusterQueue again yet.
            return None;
        }
        let status_write = &self.view.status.conditions;
        let ended = find(status_write, training_types::RUNNING).and_then(|running| match running.status.as_str() {
            // The status of the TrainingJob does not say yet that the job has stopped running.
            "True" => since(conditions, types::EVICTED, "True"),
            _ => Some(running.last_transition_time.0),
        });
        // Time of suspension does not count as a wait.
        let woken = find_true(conditions, types::REQUEUED).filter(|condition| condition.reason == reasons::REACTIVATED);
        let woken = woken.map(|condition| condition.last_transition_time.0);
        let resumed = since(status_write, training_types::SUSPENDED, "False");
        let begun = [ended, woken, resumed].into_iter().flatten().fold(workload.created, Timestamp::max);
        Some(self.ctx.view.timeline().after_seconds(begun, limit))
    }

    /// Ends the TrainingJob after its longest wait.
    fn waited_too_long(&self, workload: &WorkloadView) -> Decision {
        let limit = self.view.facts.max_wait_seconds.unwrap_or_default();
        let message =
            format!("waited longer than spec.schedulingConfig.maxWaitTime, {limit}s, for all its pods to run");
        let mut draft = status_write(workload, Purpose::FinishWorkload, self.now, |edit| {
            edit.finish(status::MAX_WAIT_TIME_EXCEEDED, &message);
        });
        draft.notices.push(self.notice(EventType::Warning, status::MAX_WAIT_TIME_EXCEEDED, message));
        Decision::write(draft)
    }

    /// Updates the Workload to its TrainingJob: pods, LocalQueue, priority and longest execution time without quota, and only the priority with quota.
    fn follow(&self, workload: &WorkloadView) -> Option<Decision> {
        let facts = &self.view.facts;
        let annotations = &self.view.own_annotations;
        let says =
            |key: &str| annotations.iter().find(|(name, _)| *name == key).and_then(|(_, message)| message.as_deref());
        let desired = DesiredFields {
            pod_sets: self.other_pod_sets(workload),
            queue: Some(&facts.queue),
            priority: self.ctx.wanted_priority(workload, self.classes()).ok(),
            gated_by: self.view.admission_gates.as_deref(),
            tiers: says(labels::CAPACITY_TIERS),
            limit: Some(json!(facts.max_execution_seconds)),
            preempts: Some(json!(says(labels::PREEMPTION_POLICY))),
            prebuilt: false,
        };
        follow(workload, desired)
    }

    /// Pod sets that a Workload without quota has to request, if they differ from the Workload's present pod sets.
    fn other_pod_sets(&self, workload: &WorkloadView) -> Option<(Value, Annotations)> {
        let differs = |asked: &Vec<PodSetDigest>| !berth_jobs::pod_sets_identical(asked, &workload.shape.digests);
        if workload.reserved() || !self.view.asked.as_ref().is_ok_and(differs) {
            return None;
        }
        let sets = training_pod_sets(&self.view.decode().ok()?, &self.ctx.settings.accelerators).ok()?;
        Some(self.ctx.other_pod_sets(&self.name.0, &sets))
    }

    /// Whether a Job of the TrainingJob is missing or being deleted although the TrainingJob has not ended.
    fn lacks_jobs(&self, states: &BTreeMap<String, RoleState>) -> bool {
        training_finish(states).is_none() && states.keys().any(|role| self.child(role).is_none_or(|job| job.deleting))
    }

    /// Time since when Jobs of the TrainingJob are deleted to stop or restart it, if some Jobs are gone or being deleted; the earliest time if no object shows
    /// the time.
    fn taken_apart_since(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let some = self.roles().iter().any(|role| self.child(role).is_none_or(|job| job.deleting));
        if !some || workload.is_finished() {
            return None;
        }
        if workload.deleting || !workload.reserved() {
            return Some(Timestamp::MIN);
        }
        let evicted = since(&workload.status.conditions, types::EVICTED, "True");
        let restarts = scaled(workload).filter(|_| self.is_yet_to_restart(workload)).map(|scale| scale.at);
        [evicted, restarts].into_iter().flatten().min()
    }

    /// Whether all pods of this admission have been ready at once, and all Jobs exist: a pod that fails later is left to the Job's backoff limit.
    fn is_up(&self, workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> bool {
        if self.lacks_jobs(states) || self.is_yet_to_restart(workload) {
            return false;
        }
        if runs_on(workload) && is_true(&self.view.status.conditions, training_types::RUNNING) {
            // The run goes on with its present pods while more pods are added.
            return true;
        }
        let conditions = &self.view.status.conditions;
        let was_up = reported_start(workload)
            .is_some_and(|begun| since(conditions, training_types::RUNNING, "True").is_some_and(|at| at >= begun));
        was_up || self.all_ready(states)
    }

    fn all_ready(&self, states: &BTreeMap<String, RoleState>) -> bool {
        states.iter().all(|(role, state)| self.child(role).is_some() && state.is_up())
    }

    /// The next step that ends the running Jobs and pods before the quota is released, `None` if none is left.
    fn clear(&self, workload: &WorkloadView) -> Option<Decision> {
        if let Some(decision) = self.delete_unfinished("The training has ended") {
            return Some(decision);
        }
        let gone = self.roles().iter().any(|role| self.child(role).is_none_or(|job| job.deleting));
        self.probe(workload).filter(|_| gone && workload.reserved())
    }

    /// Ends the TrainingJob together with its Workload. While pods still run, the end of the TrainingJob is noted on its Workload first, because the Job that
    /// shows the end may be deleted meanwhile.
    fn finish(&self, workload: &WorkloadView, end: &TrainingEnd) -> Decision {
        if let Some(decision) = self.clear(workload) {
            let note = || {
                Decision::write(object_write(workload, Purpose::UpdateWorkload, |patch| {
                    patch.with(|patch| end.note(patch))
                }))
            };
            return if noted_end(workload).is_some() { decision } else { note() };
        }
        let Finish { success, message, .. } = end.finish();
        let reason = if success { reasons::SUCCEEDED } else { reasons::FAILED };
        let mut draft = status_write(workload, Purpose::FinishWorkload, self.now, |edit| edit.finish(reason, &message));
        let kind = if success { EventType::Normal } else { EventType::Warning };
        draft.notices.push(self.notice(kind, reason, message));
        Decision::write(draft)
    }
}

/// The end of a Workload's TrainingJob (role, success and message), if the end was noted on the Workload.
fn noted_end(workload: &WorkloadView) -> Option<&TrainingEnd> {
    workload.rare.as_ref()?.end.as_ref()
}

/// Whether a role certainly failed before a time, even if the clocks of Berth and the Job controller differ.
fn failed_before(state: &RoleState, since: Timestamp) -> bool {
    state.ended.is_some_and(|at| at.saturating_add(CLOCKS_DIFFER_SECONDS) <= since.as_second())
}

fn was_made_before(job: &JobState, begun: Timestamp) -> bool {
    Timestamp::from_millisecond(job.created).is_ok_and(|made| made < begun)
}

#[cfg(test)]
mod tests;
