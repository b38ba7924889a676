//! Status of a TrainingJob, computed from its Workload and its Jobs. A status of a TrainingJob that has changed is written at once if the phase changes, and
//! otherwise as seldom as the statuses of queues, so that a TrainingJob does not cost a write for each pod.

use berth_cache::deltas::quantity;
use berth_cache::tier_reasons::{RECLAIMED, STOCK_OUT};
use berth_cache::training_view::{TrainingView, has_ended};
use berth_cache::{WorkloadPhase, WorkloadView};
use berth_jobs::ObjectPatch;
use std::collections::BTreeMap;

use berth_api::berth::{AllocatedResources, MAX_TRAINING_EVENTS, ReplicaStatus, TrainingEvent, TrainingJobStatus};
use berth_api::conditions::{own_reasons, phases, reasons, training_types, types};
use berth_api::json::to_value;
use berth_api::labels;
use berth_jobs::training::RoleState;
use berth_quantity::Amount;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::TrainingCase;
pub(crate) use super::conditions::{
    CHECKPOINT_REQUESTED, ELASTIC, JOB_GONE, MAX_WAIT_TIME_EXCEEDED, REQUESTED, SCHEDULING_TIMEOUT, STORE_NOT_FOUND,
    Words,
};
use crate::context::Context;
use crate::decision::Draft;
use crate::training_job::restarts::{reported_start, runs_on, scaled};
use crate::workload::status::{cut, find, find_true, is_true, seconds, set_in, since};
use crate::write::{EventType, Kind, ObjectKey, Purpose, key};

/// Largest size in bytes of an event's message.
const EVENT_LIMIT: usize = 1_024;

/// The status write of a TrainingJob, `None` if the computed status equals the stored status.
pub(crate) fn status(ctx: &Context<'_>, object: &ObjectKey, now: Timestamp) -> Option<Draft> {
    let name = (object.namespace.clone(), object.name.clone());
    let view = ctx.view.training().get(&name)?;
    let case = TrainingCase { ctx, name: &name, view, now };
    // In a namespace that is not managed any more, the status is written while a Workload stands for the job: no other object records the end of the job.
    let followed = case.managed() || ctx.view.slice_of(&view.uid).is_some();
    if view.deleting || !followed { None } else { draft(&case, |_| true) }
}

/// A status write if the phase, a request to save, or the answer to a request has changed: the status is written at once, before the answer stops the job.
pub(super) fn urgent_status(case: &TrainingCase<'_>) -> Option<Draft> {
    let old = &case.view.status;
    draft(case, |new| new.phase != old.phase || request_to_save(new) != request_to_save(old))
}

/// A status write if the status lacks the result of a request to save: no other object records the result after the quota is released.
pub(super) fn status_with_answer(case: &TrainingCase<'_>) -> Option<Draft> {
    let old = &case.view.status;
    draft(case, |new| request_to_save(new) != request_to_save(old))
}

/// A status write if the status does not say that the gang's time has ended: the job may be admitted to its next tier immediately.
pub(super) fn status_with_timeout(case: &TrainingCase<'_>) -> Option<Draft> {
    let late = |status: &TrainingJobStatus| is_true(&status.conditions, SCHEDULING_TIMEOUT);
    draft(case, |new| late(new) && !late(&case.view.status))
}

/// The condition about a request to save: its status, and the reason of the request or of its result.
fn request_to_save(status: &TrainingJobStatus) -> Option<(&str, &str)> {
    let condition = find(&status.conditions, CHECKPOINT_REQUESTED)?;
    Some((condition.status.as_str(), condition.reason.as_str()))
}

fn draft(case: &TrainingCase<'_>, wanted: impl Fn(&TrainingJobStatus) -> bool) -> Option<Draft> {
    let view = case.view;
    let workload = case.ctx.view.slice_of(&view.uid);
    let new = StatusWriter { case, workload, states: case.states() }.status().filter(wanted)?;
    let mut patch = berth_jobs::merge_diff(&to_value(&view.status), &to_value(&new))?;
    if let Some(workload) = workload {
        // The number of accelerators changes with the spec, whose generation is written anyway.
        let accelerators = case.ctx.accelerators_of(workload);
        patch.as_object_mut().map(|fields| fields.insert("accelerators".to_owned(), accelerators.into()));
    }
    let late = find_true(&new.conditions, SCHEDULING_TIMEOUT)
        .filter(|_| !is_true(&view.status.conditions, SCHEDULING_TIMEOUT));
    let late = late.map(|reported| case.notice(EventType::Warning, SCHEDULING_TIMEOUT, reported.message.clone()));
    let patch = ObjectPatch::of_version(&view.uid, view.resource_version.clone()).status(patch);
    let draft = Draft::merge(Purpose::TrainingStatus, key(Kind::TrainingJob, case.name), patch, view.version());
    Some(Draft { notices: late.into_iter().collect(), ..draft.managed_by("berth-training") })
}

struct StatusWriter<'a> {
    case: &'a TrainingCase<'a>,
    workload: Option<&'a WorkloadView>,
    states: BTreeMap<String, RoleState>,
}

impl StatusWriter<'_> {
    fn status(&self) -> Option<TrainingJobStatus> {
        let view = self.case.view;
        if self.workload.is_none() && view.is_over() {
            // The status of an ended TrainingJob without a Workload stays as it was written last.
            return None;
        }
        let mut status = view.status.clone();
        status.observed_generation = Some(view.generation);
        status.phase = self.phase().to_owned();
        self.conditions(&mut status);
        self.figures(&mut status);
        self.events(&mut status);
        Some(status)
    }

    fn admitted(&self) -> Option<&WorkloadView> {
        self.workload.filter(|workload| workload.phase == WorkloadPhase::Admitted)
    }

    fn is_up(&self) -> bool {
        self.admitted().is_some_and(|workload| self.case.is_up(workload, &self.states))
    }

    fn phase(&self) -> &'static str {
        let Some(workload) = self.workload else {
            return if self.case.view.facts.suspended { phases::SUSPENDED } else { phases::PENDING };
        };
        let finished = find_true(&workload.status.conditions, types::FINISHED);
        match finished {
            Some(condition) if condition.reason == reasons::SUCCEEDED => phases::SUCCEEDED,
            Some(_) => phases::FAILED,
            None if self.case.view.facts.suspended || !workload.active => phases::SUSPENDED,
            None if self.is_up() => phases::RUNNING,
            None if self.admitted().is_some() => phases::PENDING,
            None => phases::QUEUED,
        }
    }

    fn set(&self, status: &mut TrainingJobStatus, kind: &str, words: Words) {
        self.set_at(status, kind, words, self.case.now);
    }

    fn set_at(&self, status: &mut TrainingJobStatus, kind: &str, (holds, reason, message): Words, at: Timestamp) {
        let words = (holds, reason.as_str(), message.as_str());
        set_in(&mut status.conditions, kind, words, self.case.view.generation, at);
    }

    /// Sets a condition that is only shown if it is true, or was shown before.
    fn set_once_true(&self, status: &mut TrainingJobStatus, kind: &str, words: Words) {
        if words.0 || find(&status.conditions, kind).is_some() {
            self.set(status, kind, words);
        }
    }

    fn conditions(&self, status: &mut TrainingJobStatus) {
        match &self.case.view.asked {
            Err(fault) => {
                self.set(status, training_types::STALLED, (true, own_reasons::INVALID_SPEC.to_owned(), fault.clone()))
            }
            Ok(_) => match self.case.missing_store() {
                Some(fault) => self.set(status, training_types::STALLED, (true, STORE_NOT_FOUND.to_owned(), fault)),
                None => status.conditions.retain(|condition| condition.type_ != training_types::STALLED),
            },
        }
        let phase = status.phase.clone();
        self.set(status, training_types::QUEUED, self.queued(&phase));
        self.set(status, types::ADMITTED, self.admission());
        let running = self.running();
        let begun = self.admitted().filter(|workload| !runs_on(workload)).and_then(reported_start);
        // The clock of the replica that admitted the job may be ahead: no condition of a run gets a time before the admission.
        let at = begun.map_or(self.case.now, |begun| begun.max(self.case.now));
        if running.0 && since(&status.conditions, training_types::RUNNING, "True") < begun {
            // The job ran before, and the status never said that the job did not run between that run and this run.
            self.set_at(status, training_types::RUNNING, (false, own_reasons::RESTARTED.to_owned(), String::new()), at);
        }
        self.set_at(status, training_types::RUNNING, running, at);
        self.set_once_true(status, training_types::SUSPENDED, self.suspension());
        let conditions = self.workload.map(|workload| workload.status.conditions.as_slice()).unwrap_or_default();
        let of = |kind: &str| find(conditions, kind).filter(|condition| condition.status == "True");
        self.scheduling_timeout(status);
        match self.case.elasticity(self.workload) {
            Some(words) => self.set(status, ELASTIC, words),
            None => status.conditions.retain(|condition| condition.type_ != ELASTIC),
        }
        for (kind, words) in self.case.checkpoint_conditions(self.is_up()) {
            self.set_once_true(status, kind, words);
        }
        let request = self.checkpoint_request(status);
        let is_notified = |workload: &WorkloadView| self.case.ctx.notes_of(workload).save().notified().is_some();
        if self.workload.is_some_and(is_notified) {
            // The job may have saved before a status could show the request to save.
            self.set(status, CHECKPOINT_REQUESTED, request);
        } else {
            self.set_once_true(status, CHECKPOINT_REQUESTED, request);
        }
        if let Some(end) = of(types::FINISHED) {
            let kind =
                if end.reason == reasons::SUCCEEDED { training_types::SUCCEEDED } else { training_types::FAILED };
            self.set(status, kind, (true, end.reason.clone(), end.message.clone()));
        }
    }

    /// Sets the condition that the time of the gang has ended; the next admission gives the gang new time.
    fn scheduling_timeout(&self, status: &mut TrainingJobStatus) {
        let words = if let Some(message) = self.timed_out() {
            (true, own_reasons::PODS_NOT_READY.to_owned(), message)
        } else if self.is_up() {
            (false, reasons::PODS_READY.to_owned(), "All pods became ready".to_owned())
        } else if let Some(before) =
            find_true(&status.conditions, SCHEDULING_TIMEOUT).filter(|_| self.admitted().is_some())
        {
            (false, own_reasons::ADMITTED_AGAIN.to_owned(), format!("Previously: {}", before.message))
        } else {
            return;
        };
        self.set_once_true(status, SCHEDULING_TIMEOUT, words);
    }

    /// The reason why a gang was evicted that never had all its pods within its time. A gang that lacked nodes goes on to its next tier, and any other gang is
    /// tried again later.
    fn timed_out(&self) -> Option<String> {
        let conditions = &self.workload?.status.conditions;
        let evicted = find_true(conditions, types::EVICTED)?;
        let at = evicted.last_transition_time.0;
        let out_of_time = || {
            let limit = self.case.view.facts.scheduling_timeout_seconds?;
            let due = self.case.ctx.view.timeline().after_seconds(reported_start(self.workload?)?, limit);
            // A gang that ran until its eviction had all its pods, and then lost some of them.
            let running = find(&self.case.view.status.conditions, training_types::RUNNING);
            let ran =
                running.is_some_and(|reported| reported.status == "True" || reported.last_transition_time.0 >= at);
            Some(at >= due && !ran)
        };
        let late = match evicted.reason.as_str() {
            SCHEDULING_TIMEOUT => true,
            STOCK_OUT | RECLAIMED => out_of_time().unwrap_or_default(),
            _ => false,
        };
        late.then(|| evicted.message.clone())
    }

    /// The condition that the job is given time to save its work, with the result of the request. Even if the job saves at once, the status shows the request
    /// to save before the result of the request.
    fn checkpoint_request(&self, status: &TrainingJobStatus) -> Words {
        let before = find(&status.conditions, CHECKPOINT_REQUESTED);
        let asked = before.is_some_and(|before| before.status == "True");
        let holds = self.workload.is_some_and(WorkloadView::reserved);
        let ended = self.workload.is_some_and(|workload| workload.is_finished());
        let ctx = self.case.ctx;
        let notified = self.workload.and_then(|workload| ctx.notes_of(workload).save().notified());
        let reported = asked || notified.is_some();
        let to_stop = self.workload.filter(|_| reported).and_then(|workload| ctx.grace_of(workload));
        let to_shrink = self.workload.filter(|_| to_stop.is_none()).and_then(|workload| ctx.last_request(workload));
        let known = to_shrink.as_ref().map(|(_, request)| request.notified).or(notified);
        let shown = asked || ended || known.is_none_or(|reported| reported.user);
        if let (Some((_, request)), Some(before)) = (&to_shrink, before)
            && request.over
            && shown
            && before.status == "False"
        {
            // The result of the request to save is final: later checkpoints do not change the result.
            return (false, before.reason.clone(), before.message.clone());
        }
        let grace = to_stop.or(to_shrink.map(|(grace, _)| grace));
        match (grace, before) {
            (Some(grace), _) if holds && (!shown || grace.lasts(self.case.now)) => {
                (true, grace.reason.clone(), grace.request())
            }
            (Some(grace), _) => {
                let reason =
                    if grace.saved { own_reasons::CHECKPOINT_SAVED } else { own_reasons::NO_CHECKPOINT_IN_TIME };
                (false, reason.to_owned(), self.case.what_was_saved(&grace))
            }
            (None, Some(before)) if before.status == "False" => (false, before.reason.clone(), before.message.clone()),
            (None, _) if holds => (false, own_reasons::WITHDRAWN.to_owned(), "The job may go on".to_owned()),
            (None, _) => (false, reasons::STOPPED.to_owned(), "The job was stopped".to_owned()),
        }
    }

    fn queued(&self, phase: &str) -> Words {
        let waits = phase == phases::QUEUED;
        let found_condition =
            self.workload.and_then(|workload| find(&workload.status.conditions, types::QUOTA_RESERVED));
        let stops = self.workload.is_some_and(|workload| workload.phase.is_evicting());
        match found_condition.filter(|condition| waits && condition.status == "False") {
            Some(condition) => (true, condition.reason.clone(), condition.message.clone()),
            // The quota of the job is in use until its pods have gone.
            None if waits && stops => {
                (true, own_reasons::QUEUED.to_owned(), format!("Stops: {}", self.case.pods_left()))
            }
            None if waits => (true, own_reasons::QUEUED.to_owned(), "Waits in its queue".to_owned()),
            None if self.workload.is_none() => {
                (false, own_reasons::NOT_QUEUED.to_owned(), "Not in a queue yet".to_owned())
            }
            None => (false, phase.to_owned(), format!("The job is {}", phase.to_lowercase())),
        }
    }

    fn admission(&self) -> Words {
        if let Some(workload) = self.admitted() {
            let queue = workload.holds().unwrap_or_default();
            let given = given(self.case.ctx, workload);
            return (true, reasons::ADMITTED.to_owned(), format!("Admitted by ClusterQueue {queue}: {given}"));
        }
        let conditions = self.workload.map(|workload| workload.status.conditions.as_slice()).unwrap_or_default();
        for kind in [types::FINISHED, types::EVICTED] {
            if let Some(condition) = find(conditions, kind).filter(|condition| condition.status == "True") {
                return (false, condition.reason.clone(), condition.message.clone());
            }
        }
        (false, reasons::NO_RESERVATION.to_owned(), "The job has no quota".to_owned())
    }

    fn running(&self) -> Words {
        let Some(workload) = self.admitted() else {
            return (false, reasons::NOT_ADMITTED.to_owned(), "Nothing of the job runs".to_owned());
        };
        if self.is_up() {
            return (true, reasons::PODS_READY.to_owned(), "All pods have been ready".to_owned());
        }
        let ready = self.total(|state| state.ready.saturating_add(state.succeeded));
        let wanted = self.total(|state| state.wanted);
        let starting = || match scaled(workload) {
            Some(scale) => {
                let come = || format!("{ready} of {wanted} pods are ready");
                let words = self.case.waits_for_pods(workload).unwrap_or_else(come);
                (own_reasons::RESCALING.to_owned(), format!("Restarts with {} workers: {words}", scale.workers))
            }
            None => (own_reasons::PODS_STARTING.to_owned(), format!("{ready} of {wanted} pods are ready")),
        };
        let obstacle = self.case.obstacle();
        if self.case.gone_since(workload).is_none() {
            let (reason, message) = obstacle.unwrap_or_else(starting);
            return (false, reason, message);
        }
        let gone = self.states.keys().find(|role| self.case.child(role).is_none());
        let message = match (gone.map(|role| self.case.child_key(role)), obstacle) {
            (Some(job), Some((_, why))) => format!("Job {}/{} is gone: {why}", job.namespace, job.name),
            (Some(job), None) => format!("Job {}/{} is gone; it is made again", job.namespace, job.name),
            (None, obstacle) => obstacle.unwrap_or_else(starting).1,
        };
        (false, JOB_GONE.to_owned(), message)
    }

    /// Sum of a figure over all roles; the sum saturates, because any client may write any number into the status of a Job.
    fn total(&self, figure: impl Fn(&RoleState) -> i32) -> i32 {
        self.states.values().map(figure).fold(0, i32::saturating_add)
    }

    fn suspension(&self) -> Words {
        let view = self.case.view;
        match self.workload.filter(|workload| !workload.active) {
            Some(workload) if !sleeps(view, workload) => {
                let why = find(&workload.status.conditions, types::EVICTED).map(|condition| condition.message.clone());
                (true, own_reasons::WORKLOAD_DEACTIVATED.to_owned(), why.unwrap_or_default())
            }
            _ if view.facts.suspended => (true, REQUESTED.to_owned(), "spec.suspend is true".to_owned()),
            // The Workload of the resumed TrainingJob is activated next.
            Some(_) => (true, REQUESTED.to_owned(), "spec.suspend was true".to_owned()),
            None => (false, own_reasons::RESUMED.to_owned(), "The job may be queued".to_owned()),
        }
    }

    fn figures(&self, status: &mut TrainingJobStatus) {
        let admitted = self.admitted();
        status.checkpoint = self.case.checkpoint_status(status.checkpoint.take());
        status.allocated_resources = admitted.map(|workload| self.allocated(workload));
        let flavors = admitted.map(flavors_of).unwrap_or_default();
        let of_tier = |flavor: &String| {
            let object = self.case.ctx.view.flavors().get(flavor)?;
            object.metadata.labels.as_ref()?.get(labels::CAPACITY_TIER).cloned()
        };
        status.capacity_tier = flavors.iter().find_map(of_tier);
        status.flavors = (!flavors.is_empty()).then(|| flavors.join(","));
        let counts = |state: &RoleState| ReplicaStatus {
            running: state.ready,
            succeeded: state.succeeded,
            failed: state.failed,
            pending: state.pending,
        };
        if has_ended(status) {
            // The numbers of pods of the last run stay in the status after its Jobs are deleted.
            for (name, state) in &self.states {
                if self.case.child(name).is_some() {
                    status.replica_statuses.insert(name.clone(), counts(state));
                }
            }
            return;
        }
        let there = |(name, state): (&String, &RoleState)| {
            self.case.child(name).is_some().then(|| (name.clone(), counts(state)))
        };
        status.replica_statuses = self.states.iter().filter_map(there).collect();
        let worker = self.states.get("worker").filter(|state| admitted.is_some() && state.wanted > 0);
        status.workers = worker
            .map(|state| format!("{}/{}", state.ready.saturating_add(state.succeeded).min(state.wanted), state.wanted));
        let failed = self.total(|state| state.failed);
        status.restarts = (failed > 0).then_some(failed);
    }

    fn allocated(&self, workload: &WorkloadView) -> AllocatedResources {
        let sets = workload.status.admission.as_ref().map(|admission| admission.pod_set_assignments.as_slice());
        let mut sums = BTreeMap::<&str, Amount>::new();
        for set in sets.unwrap_or_default() {
            let given = set.count.unwrap_or_default();
            let left = workload.size(set.effective_name()).min(given);
            for (resource, amount) in &set.resource_usage {
                let Ok(amount) = berth_quantity::value(resource, &amount.0) else { continue };
                // The number of workers of an elastic job may have been lowered since the admission.
                let each = amount.get().checked_div(i64::from(given)).filter(|_| left < given);
                let amount = match each {
                    Some(each) => Amount::new(each.saturating_mul(i64::from(left))),
                    None => amount,
                };
                let sum = sums.entry(resource).or_insert(Amount::ZERO);
                *sum = sum.add(amount);
            }
        }
        let sum = |resource: &str| sums.get(resource).copied().unwrap_or(Amount::ZERO);
        let accelerators = &self.case.ctx.settings.accelerators;
        let gpus = sums.iter().filter(|(resource, _)| accelerators.counts(resource));
        AllocatedResources {
            gpus: gpus.fold(Amount::ZERO, |sum, (_, amount)| sum.add(*amount)).get(),
            cpu: quantity("cpu", sum("cpu")),
            memory: quantity("memory", sum("memory")),
            nodes: self.case.nodes(workload, &self.states),
        }
    }

    /// Adds an event for each condition that became true since the previous status, and for an admission that is over.
    fn events(&self, status: &mut TrainingJobStatus) {
        let before = &self.case.view.status.conditions;
        let is_news = |condition: &&Condition| {
            let old = find(before, &condition.type_).map(|old| old.status.as_str());
            let is_reported = [types::ADMITTED, CHECKPOINT_REQUESTED].contains(&condition.type_.as_str());
            let answered = old.is_none() && condition.type_ == CHECKPOINT_REQUESTED;
            let lost = is_reported && condition.status == "False" && (old == Some("True") || answered);
            lost || (condition.status == "True" && old != Some("True"))
        };
        let time = Time(seconds(self.case.now));
        let news: Vec<TrainingEvent> = status
            .conditions
            .iter()
            .filter(is_news)
            .map(|condition| TrainingEvent {
                time: time.clone(),
                reason: if condition.status == "True" { condition.type_.clone() } else { condition.reason.clone() },
                message: cut(&condition.message, EVENT_LIMIT),
            })
            .collect();
        status.events.extend(news);
        let surplus = status.events.len().saturating_sub(MAX_TRAINING_EVENTS);
        status.events.drain(..surplus);
    }
}

/// Whether the status says that the job is suspended at its user's request.
pub(super) fn asked(view: &TrainingView) -> bool {
    let found_condition = find(&view.status.conditions, training_types::SUSPENDED);
    found_condition.is_some_and(|condition| condition.status == "True" && condition.reason == REQUESTED)
}

/// Whether a Workload is inactive because its TrainingJob is, or was, suspended. An earlier version of Berth set no mark, and has the suspension in the status
/// only.
pub(super) fn sleeps(view: &TrainingView, workload: &WorkloadView) -> bool {
    !workload.active && (workload.suspended_with_job() || asked(view))
}

/// Names of the flavors of an admission, each once, in the order of pod sets and resources.
fn flavors_of(workload: &WorkloadView) -> Vec<String> {
    let mut names = Vec::new();
    for name in workload.given_flavors() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The flavors of an admission in words, with the capacity tier of each flavor that has a tier.
pub(super) fn given(ctx: &Context<'_>, workload: &WorkloadView) -> String {
    let words = flavors_of(workload).into_iter().map(|flavor| match ctx.capacity_tier_of(&flavor) {
        Some(tier) => format!("flavor {flavor} ({tier} capacity)"),
        None => format!("flavor {flavor}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
