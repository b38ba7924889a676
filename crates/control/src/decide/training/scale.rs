//! How an elastic TrainingJob grows and shrinks. Quota comes before pods: it grows by a new slice, and its Job follows when that
//! has taken the place of the older one; it shrinks by its Job first, and its Workload's count follows when the pods have gone.

use berth_api::conditions::{event_reasons, own_reasons, training_types, types};
use berth_jobs::Priority;
use berth_jobs::training::{Past, RoleState, Scale, WORKER, slice_workload, training_workload};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

use super::Case;
use super::status::{CHECKPOINT_REQUESTED, Words};
use crate::core::{after_seconds, key};
use crate::decide::grace::SCALING_DOWN;
use crate::decide::preempt::preemptor_words;
use crate::decide::workload::{REPORTER, create, has_finalizer, notice, remove_finalizer, status_write};
use crate::elastic::{PATIENCE_SECONDS, REPLACED, Run, granted, is_replaced, runs_since};
use crate::flight::{Decision, Draft};
use crate::ladder::watch::no_nodes_for_added;
use crate::status::since;
use crate::view::WorkloadView;
use crate::write::{EventType, Kind, Notice, Purpose, Question, Request, SCHEDULER, Subresource};
use berth_api::labels;

/// Field manager of the number of pods of a Workload that gave some up.
const MANAGER: &str = "berth-elastic";
/// Condition that says how the number of workers may change.
pub(super) const ELASTIC: &str = training_types::ELASTIC;

impl Case<'_> {
    /// What becomes of the slices beside the one that stands for the job; a [`Decision::Wait`] leaves that to be decided about.
    pub(super) fn beside(&self, current: &WorkloadView, owned: &[&WorkloadView]) -> Option<Decision> {
        let mut wait = None;
        for other in owned.iter().filter(|other| other.uid != current.uid) {
            let takes_over = current.replaces.as_deref() == Some(&other.key()) && current.is(types::ADMITTED);
            let decision = if other.is(types::FINISHED) {
                (is_replaced(other) && has_finalizer(other)).then(|| Decision::write(remove_finalizer(other)))
            } else if takes_over {
                Some(self.replaced(other, current))
            } else if other.deleting && current.is(types::ADMITTED) {
                // Its pods, if it has any, run under the other one.
                has_finalizer(other).then(|| Decision::write(remove_finalizer(other)))
            } else if other.deleting {
                has_finalizer(other).then(|| self.leaving(other))
            } else if let Some(until) = self.may_wait(other, current) {
                wait = Some(Decision::Wait(until));
                None
            } else {
                other.replaces.is_some().then(|| discard(other))
            };
            if decision.is_some() {
                return decision;
            }
        }
        wait
    }

    /// Until when a new slice may wait to take the place of the one that stands for the job, `None` when it is not wanted.
    fn may_wait(&self, new: &WorkloadView, current: &WorkloadView) -> Option<Timestamp> {
        let run = self.control.run_under(current)?;
        let asked = self.control.growth.gives_up.contains_key(&current.uid);
        let size = new.size(WORKER);
        let fits = new.replaces.as_deref() == Some(&current.key())
            && size > granted(current)
            && size <= run.bounds.1
            && run.workers == granted(current);
        // With its quota it waits for a check that its queue did not have before: not for long, as nobody may preempt it meanwhile.
        let begun = since(&new.status.conditions, types::QUOTA_RESERVED, "True").unwrap_or(new.created);
        let until = after_seconds(begun, PATIENCE_SECONDS);
        let stands = !new.is(types::EVICTED) && new.active;
        (fits && until > self.now && stands && !asked).then_some(until)
    }

    /// The new slice is admitted: from here on it holds the quota of both.
    fn replaced(&self, older: &WorkloadView, new: &WorkloadView) -> Decision {
        let job = new.job_uid.as_deref().unwrap_or("UNKNOWN");
        let message = format!(
            "Replaced to accommodate a workload (UID: {}, JobUID: {job}) due to workload slice aggregation",
            new.uid
        );
        let mut draft = status_write(older, Purpose::FinishWorkload, self.now, |edit| edit.finish(REPLACED, &message));
        draft.notices.push(notice(older, EventType::Normal, REPLACED, message, SCHEDULER));
        Decision::write(draft)
    }

    /// The next step towards the number of workers that it is to have; a [`Decision::Wait`] leaves the rest to be decided about.
    pub(super) fn scale(&self, workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> Option<Decision> {
        let run = self.control.run_under(workload)?;
        let have = granted(workload);
        if run.shrinks(workload) {
            return Some(self.lower(workload, &run, states));
        }
        if run.workers != have {
            let words = format!("from {} to {have} workers, for which quota is reserved", run.workers);
            // Somebody may have asked for more than it has quota for.
            let reason = if run.workers < have { own_reasons::SCALED_UP } else { SCALING_DOWN };
            return Some(self.resize(workload, &run, have, (reason, words)));
        }
        if let Some(asked) = self.control.growth.gives_up.get(&workload.uid) {
            let keeps = asked.keeps.max(run.bounds.0);
            if keeps < have {
                let whom = self.control.view.workloads.by_uid(&asked.eviction.preemptor);
                let whom = preemptor_words(self.control, whom);
                let words = format!("from {have} to {keeps} workers: {whom} needs quota ({})", asked.eviction.reason);
                return Some(self.shrink(workload, &run, keeps, words, states));
            }
        }
        let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
        if have > run.bounds.1.max(run.bounds.0) {
            let due = run.due(admitted, run.rules.down_cooldown_seconds);
            if due > self.now {
                return Some(Decision::Wait(due));
            }
            let keeps = have.saturating_sub(run.rules.down_step).max(run.bounds.1).max(run.bounds.0);
            let words = format!("from {have} to {keeps} workers: at most {} are asked for", run.bounds.1);
            return Some(self.shrink(workload, &run, keeps, words, states));
        }
        self.late(workload, &run).or_else(|| self.grown(workload, &run))
    }

    /// Workers that were added are given up again when they get no nodes, or are not ready in time.
    fn late(&self, workload: &WorkloadView, run: &Run<'_>) -> Option<Decision> {
        let added = self.control.added_to(workload)?;
        let have = granted(workload);
        let give_up = |keeps: i32, why: String| {
            let words = format!("from {have} to {keeps} workers: {why}");
            self.resize(workload, run, keeps, (SCALING_DOWN, words))
        };
        if let Some((keeps, why)) = added.keeps().zip(no_nodes_for_added(self.control, workload)) {
            return Some(give_up(keeps, why));
        }
        let limit = self.view.facts.scheduling_timeout_seconds?;
        let due = after_seconds(added.since, limit);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        let keeps = added.ready.max(added.least);
        (keeps < have).then(|| give_up(keeps, format!("the others were not ready within {limit}s")))
    }

    /// The new slice, when there is idle quota for one.
    fn grown(&self, workload: &WorkloadView, run: &Run<'_>) -> Option<Decision> {
        let workers = *self.control.growth.wanted.get(&self.view.uid)?;
        let alone = self.control.view.workloads_of(&self.view.uid);
        let alone = alone.iter().all(|one| one.uid == workload.uid || one.is(types::FINISHED));
        if !alone || workers <= granted(workload) || workers > run.bounds.1 || !self.view.asks_as(workload) {
            return None;
        }
        if self.control.flights.creations_full() {
            return Some(Decision::WaitForCreations);
        }
        let settings = &self.control.settings;
        let (whole, copied) = (self.view.whole(), &settings.label_keys_to_copy);
        let whole = training_workload(&whole, &settings.cards, Priority::default(), copied).ok()?;
        let whole = self.control.with_priority(whole, self.classes()).ok()?;
        let first = workload.rare.as_ref().and_then(|rare| rare.slice.clone()).unwrap_or_else(|| workload.name.clone());
        let past = Past { queued: workload.queued_first(), admitted: runs_since(workload)? };
        let new = slice_workload(whole, (&workload.name, &workload.uid), &first, past, workers)?;
        Some(create(&new, |message| self.notice(EventType::Normal, event_reasons::CREATED_WORKLOAD, message)))
    }

    /// Takes workers of a run, once it has saved its work: those that stay go on from there. Whoever lacks pods cannot save.
    fn shrink(
        &self,
        workload: &WorkloadView,
        run: &Run<'_>,
        workers: i32,
        words: String,
        states: &BTreeMap<String, RoleState>,
    ) -> Decision {
        let asked = self.control.asked_to_save(workload, self.now);
        let (grace, told) = match asked {
            Some((grace, told)) => (Some(grace), told),
            None => (self.control.time_to_save(workload, self.now, &words), false),
        };
        if let Some(grace) = grace.as_ref().filter(|grace| self.all_ready(states) && grace.lasts(self.now)) {
            if told {
                return Decision::Wait(grace.until);
            }
            let notice = self.notice(EventType::Normal, CHECKPOINT_REQUESTED, grace.request());
            let how = (Purpose::AskToSave, [labels::SAVE_BY, labels::SAVE_REASON]);
            return grace.tell(self.control, workload, how, notice);
        }
        let words = match grace.filter(|grace| told || grace.saved) {
            Some(grace) => format!("{words}; {}", self.what_was_saved(&grace)),
            None => words,
        };
        self.resize(workload, run, workers, (SCALING_DOWN, words))
    }

    /// Brings the Job of the workers to their number.
    fn resize(
        &self,
        workload: &WorkloadView,
        run: &Run<'_>,
        workers: i32,
        (reason, words): (&str, String),
    ) -> Decision {
        let scale = Scale { workers, at: self.now, workload: workload.uid.clone() };
        let mut body = scale.patch();
        if let Some(metadata) = body.get_mut("metadata") {
            metadata["uid"] = run.job.uid.clone().into();
            metadata["resourceVersion"] = run.job.version.to_string().into();
        }
        Decision::write(Draft {
            purpose: Purpose::ScaleTraining,
            key: self.child_key(WORKER),
            request: Request::Merge { manager: MANAGER, subresource: Subresource::None, body },
            based_on: run.job.version,
            notices: vec![self.notice(EventType::Normal, reason, words)],
        })
    }

    /// Gives back the quota of workers that have gone.
    fn lower(&self, workload: &WorkloadView, run: &Run<'_>, states: &BTreeMap<String, RoleState>) -> Decision {
        if self.control.growth.shrunk.get(&workload.uid) != Some(&run.workers) {
            let others = states.iter().filter(|(role, _)| *role != WORKER).map(|(_, state)| state.wanted);
            let most = others.fold(run.workers, i32::saturating_add);
            let (pods, most) = (self.control.pods_of(workload), usize::try_from(most).unwrap_or(0));
            let (object, question) = (key(Kind::Workload, &workload.key()), Question::ProbePods { pods, most });
            return Decision::write(Draft::ask(Purpose::ProbeSurplus, object, question));
        }
        let body = json!({
            "apiVersion": berth_api::API_VERSION,
            "kind": "Workload",
            "metadata": workload.identity().metadata(),
            "spec": {"podSets": [{"name": WORKER, "count": run.workers}]},
        });
        let words = format!("{} of {} workers are left, and their quota", run.workers, granted(workload));
        Decision::write(Draft {
            purpose: Purpose::LowerCount,
            key: key(Kind::Workload, &workload.key()),
            request: Request::Apply { manager: MANAGER, subresource: Subresource::None, body },
            based_on: workload.version(),
            notices: vec![self.notice(EventType::Normal, own_reasons::SCALED_DOWN, words)],
        })
    }

    /// How the number of workers may change, `None` for a job that is not elastic.
    pub(super) fn elasticity(&self) -> Option<Words> {
        let rules = self.view.facts.elastic?;
        let (min, max) = (rules.min, rules.max);
        if !self.control.settings.engine.partial_admission {
            let message =
                format!("{max} workers: with the gate PartialAdmission off a job is admitted whole or not at all");
            return Some((false, own_reasons::PARTIAL_ADMISSION_OFF.to_owned(), message));
        }
        if !rules.rescales {
            let kind = &self.view.facts.job_type;
            let message = format!(
                "{min} to {max} workers, chosen at each admission: while it runs, only a PyTorchJob changes their number, not a {kind}"
            );
            return Some((false, own_reasons::FIXED_WHILE_RUNNING.to_owned(), message));
        }
        let (up, down) = (rules.up_step, rules.down_step);
        let (after_up, after_down) = (rules.up_cooldown_seconds, rules.down_cooldown_seconds);
        let message = format!(
            "{min} to {max} workers; adds {up} at once, {after_up}s after its start or a change, and takes {down} at once, {after_down}s after a change"
        );
        Some((true, own_reasons::SCALE_POLICY.to_owned(), message))
    }
}

/// Takes back a slice that is not to take anybody's place any more.
pub(super) fn discard(slice: &WorkloadView) -> Decision {
    let message = "The workload slice is out of sync with its parent job".to_owned();
    let told: Notice = notice(slice, EventType::Normal, event_reasons::DELETED, message, REPORTER);
    let draft = Draft::delete(Purpose::DeleteWorkload, key(Kind::Workload, &slice.key()), &slice.uid);
    Decision::write(draft.telling(told))
}
