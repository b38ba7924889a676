//! Scaling of an elastic TrainingJob. Quota comes before pods: to grow, the TrainingJob gets a new slice, and its Job is resized when that slice has replaced
//! the older slice. To shrink, the Job of the TrainingJob's workers is resized first, and the count of its Workload is lowered when the pods have gone. If all
//! pods restart for a change of the number of workers, the new number is noted on the Workload, and `restart` continues from there.

use berth_api::conditions::{event_reasons, own_reasons, types};
use berth_engine::model::PodSetSpec;
use berth_jobs::training::{Past, Rescale, RoleState, Scale, WORKER, slice_workload, training_workload};
use berth_jobs::{ObjectApply, Priority};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

use super::TrainingCase;
use super::conditions::{CHECKPOINT_REQUESTED, Words};
use crate::capacity::watch::no_nodes_for_added;
use crate::decision::{Decision, Draft};
use crate::job::grace::SCALING_DOWN;
use crate::training_job::elastic::{PATIENCE_SECONDS, REPLACED, Run, granted, is_replaced, run_under, runs_since};
use crate::workload::evictions::times_evicted;
use crate::workload::names::create;
use crate::workload::preempt::preemptor_words;
use crate::workload::status::{KIND, since};
use crate::workload::{REPORTER, has_finalizer, notice, object_write, remove_finalizer, status_write};
use crate::write::{EventType, Kind, Notice, Purpose, Query, SCHEDULER, Subresource, Write, key};
use berth_api::labels;
use berth_cache::WorkloadView;
use berth_cache::moments::after;

/// Field manager of the number of pods of a Workload that gave up workers.
const MANAGER: &str = "berth-elastic";
/// Milliseconds until the next decision about Jobs whose statuses count more pods than are left.
const LOOK_MS: i64 = 1_000;

impl TrainingCase<'_> {
    /// Decides about the slices of the TrainingJob other than its present Workload; a [`Decision::Wait`] leaves the job itself to be decided about.
    pub(super) fn beside(&self, current: &WorkloadView, owned: &[&WorkloadView]) -> Option<Decision> {
        let mut wait = None;
        for other in owned.iter().filter(|other| other.uid != current.uid) {
            let takes_over = current.replaces.as_deref() == Some(&other.key()) && current.is(types::ADMITTED);
            let decision = if other.is_finished() {
                (is_replaced(other) && has_finalizer(other)).then(|| Decision::write(remove_finalizer(other)))
            } else if takes_over {
                Some(self.replaced(other, current))
            } else if other.deleting && current.is(types::ADMITTED) {
                // The pods of the deleted slice, if there are any, run under the other slice.
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

    /// Time until which a new slice may wait to replace the slice that stands for the job, `None` if the new slice is not wanted.
    fn may_wait(&self, new: &WorkloadView, current: &WorkloadView) -> Option<Timestamp> {
        let run = run_under(self.ctx.view, current)?;
        let asked = self.ctx.notes_of(current).scale().gives_up().is_some();
        let size = new.size(WORKER);
        let fits = new.replaces.as_deref() == Some(&current.key())
            && size > granted(current)
            && size <= run.bounds.1
            && run.workers == granted(current);
        // A slice with quota waits for an admission check that its queue did not have before. The wait of the new slice is short, because no workload may
        // preempt the slice meanwhile.
        let begun = since(&new.status.conditions, types::QUOTA_RESERVED, "True").unwrap_or(new.created);
        let until = self.ctx.view.timeline().after_seconds(begun, PATIENCE_SECONDS);
        let stands = !new.is(types::EVICTED) && new.active;
        (fits && until > self.now && stands && !asked).then_some(until)
    }

    /// Finishes a slice whose successor is admitted: from now on the successor holds the quota of both slices.
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

    /// The next step towards the wanted number of workers; a [`Decision::Wait`] leaves the rest of the job to be decided about.
    pub(super) fn scale(&self, workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> Option<Decision> {
        let run = run_under(self.ctx.view, workload)?;
        let have = granted(workload);
        if run.shrinks(workload) {
            let lower = || Decision::write(self.lower(workload, run.workers, ""));
            return Some(self.surplus_left(workload, run.workers, pods_with(&run, states)).unwrap_or_else(lower));
        }
        let gives_up = self.give_up(workload, &run, states);
        // No job restarts for workers that the job is to give up again.
        if run.workers != have && !(run.by_restart() && gives_up.is_some()) {
            return Some(self.catch_up(workload, &run, states));
        }
        if gives_up.is_some() {
            return gives_up;
        }
        let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
        if have > run.bounds.1.max(run.bounds.0) {
            let due = run.due(admitted, run.rules.down_cooldown_seconds);
            if due > self.now {
                return Some(Decision::Wait(due));
            }
            // A job that restarts to scale comes down to its maximum in one step, so that the job restarts once.
            let step = if run.by_restart() { have } else { run.rules.down_step };
            let keeps = have.saturating_sub(step).max(run.bounds.1).max(run.bounds.0);
            let words = format!("from {have} to {keeps} workers: at most {} are asked for", run.bounds.1);
            return Some(self.saved_first(workload, &run, keeps, (SCALING_DOWN, words), states));
        }
        self.late(workload, &run).or_else(|| self.grown(workload, &run))
    }

    /// The next step towards giving up workers for a preemptor, `None` if no preemptor needs them.
    fn give_up(
        &self,
        workload: &WorkloadView,
        run: &Run<'_>,
        states: &BTreeMap<String, RoleState>,
    ) -> Option<Decision> {
        let asked = self.ctx.notes_of(workload).scale().gives_up()?;
        let (have, keeps) = (granted(workload), asked.keeps.max(run.bounds.0));
        if keeps >= have {
            return None;
        }
        let whom = self.ctx.view.workloads().by_uid(&asked.eviction.preemptor);
        let whom = preemptor_words(self.ctx, whom);
        let words = format!("from {have} to {keeps} workers: {whom} needs quota ({})", asked.eviction.reason);
        Some(self.saved_first(workload, run, keeps, (SCALING_DOWN, words), states))
    }

    /// The next step towards giving up workers, for a TrainingJob whose Jobs are not all created: Jobs that are still to be created need no resize.
    pub(super) fn give_up_unmade(
        &self,
        workload: &WorkloadView,
        states: &BTreeMap<String, RoleState>,
    ) -> Option<Decision> {
        let run = run_under(self.ctx.view, workload).filter(Run::by_restart)?;
        self.give_up(workload, &run, states)
    }

    /// Brings the number of workers to the number for which there is quota.
    fn catch_up(&self, workload: &WorkloadView, run: &Run<'_>, states: &BTreeMap<String, RoleState>) -> Decision {
        let (have, most) = (granted(workload), run.bounds.1.max(run.bounds.0));
        let words = format!("from {} to {have} workers, for which quota is reserved", run.workers);
        // A client may have set more workers than the quota covers.
        let grows = run.workers < have;
        match (run.by_restart(), grows) {
            (false, true) => self.resize(workload, run, have, (own_reasons::SCALED_UP, words)),
            (false, false) => self.resize(workload, run, have, (SCALING_DOWN, words)),
            (true, _) if most < have => {
                let words = format!("from {have} to {most} workers: at most {most} are asked for");
                self.saved_first(workload, run, most, (SCALING_DOWN, words), states)
            }
            (true, true) => self.saved_first(workload, run, have, (own_reasons::SCALING_UP, words), states),
            (true, false) => self.saved_first(workload, run, have, (SCALING_DOWN, words), states),
        }
    }

    /// Gives up added workers again that get no nodes, or are not ready in time.
    fn late(&self, workload: &WorkloadView, run: &Run<'_>) -> Option<Decision> {
        let added = self.ctx.added_to(workload)?;
        let have = granted(workload);
        let give_up = |keeps: i32, why: String| {
            let words = format!("from {have} to {keeps} workers: {why}");
            self.resize(workload, run, keeps, (SCALING_DOWN, words))
        };
        if let Some((keeps, why)) = added.keeps().zip(no_nodes_for_added(self.ctx, workload)) {
            return Some(give_up(keeps, why));
        }
        let limit = self.view.facts.scheduling_timeout_seconds?;
        let due = self.ctx.view.timeline().after_seconds(added.since, limit);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        let keeps = added.ready.max(added.least);
        (keeps < have).then(|| give_up(keeps, format!("the others were not ready within {limit}s")))
    }

    /// The new slice of a scale-up, if there is idle quota for it.
    fn grown(&self, workload: &WorkloadView, run: &Run<'_>) -> Option<Decision> {
        let workers = self.ctx.notes.jobs().of(&self.view.uid).training().wanted()?;
        let alone = self.ctx.view.workloads_of(&self.view.uid);
        let alone = alone.iter().all(|one| one.uid == workload.uid || one.is_finished());
        if !alone || workers <= granted(workload) || workers > run.bounds.1 || !self.view.asks_as(workload) {
            return None;
        }
        if self.ctx.in_flight.creations_full() {
            return Some(Decision::WaitForCreations);
        }
        let settings = &self.ctx.settings;
        let (object, copied) = (self.view.decode().ok()?, &settings.label_keys_to_copy);
        let object = training_workload(&object, &settings.accelerators, Priority::default(), copied).ok()?;
        let object = self.ctx.with_priority(object, self.classes()).ok()?;
        let first = workload.rare.as_ref().and_then(|rare| rare.slice.clone()).unwrap_or_else(|| workload.name.clone());
        let past = Past { queued: workload.queued_first(), admitted: runs_since(workload)? };
        let new = slice_workload(object, (&workload.name, &workload.uid), &first, past, workers)?;
        let asker = key(Kind::TrainingJob, self.name);
        Some(create(self.ctx, &asker, &new, |message| {
            self.notice(EventType::Normal, event_reasons::CREATED_WORKLOAD, message)
        }))
    }

    /// Removes workers of a run, or stops all workers for a restart, after the job has saved its work: the next run resumes from that checkpoint. A job that
    /// lacks pods cannot save.
    fn saved_first(
        &self,
        workload: &WorkloadView,
        run: &Run<'_>,
        workers: i32,
        (reason, words): (&str, String),
        states: &BTreeMap<String, RoleState>,
    ) -> Decision {
        if run.by_restart() && workers == run.workers {
            // If the number of running workers stays the same, no pod is stopped, and the run continues unchanged.
            let reported = self.notice(EventType::Normal, reason, words);
            let lower = || Decision::write(self.lower(workload, workers, "").with_event(reported));
            return self.surplus_left(workload, workers, pods_with(run, states)).unwrap_or_else(lower);
        }
        let asked = self.ctx.asked_to_save(workload, self.now);
        let (grace, reported) = match asked {
            Some((grace, reported)) => (Some(grace), reported),
            None => (self.ctx.time_to_save(workload, self.now, (reason, words.as_str())), false),
        };
        if let Some(grace) = grace.as_ref().filter(|grace| self.all_ready(states) && grace.lasts(self.now)) {
            if reported {
                return Decision::Wait(grace.until);
            }
            let notice = self.notice(EventType::Normal, CHECKPOINT_REQUESTED, grace.request());
            let how = (Purpose::AskToSave, [labels::SAVE_BY, labels::SAVE_REASON]);
            return grace.notify(self.ctx, workload, how, notice);
        }
        let words = match grace.filter(|grace| reported || grace.saved) {
            Some(grace) => format!("{words}; {}", self.what_was_saved(&grace)),
            None => words,
        };
        self.resize(workload, run, workers, (reason, words))
    }

    /// Sets the number of workers in the Job of the workers, or notes that all Jobs are to be created again with the new number.
    fn resize(
        &self,
        workload: &WorkloadView,
        run: &Run<'_>,
        workers: i32,
        (reason, words): (&str, String),
    ) -> Decision {
        let mut scale = Scale { workers, at: self.now, workload: workload.uid.clone(), evictions: 0 };
        if run.by_restart() {
            scale.evictions = times_evicted(workload);
            let words = format!("{words}; all its pods start again with that number");
            let draft = object_write(workload, Purpose::ScaleTraining, |patch| patch.with(|patch| scale.note(patch)));
            return Decision::write(draft.with_event(self.notice(EventType::Normal, reason, words)));
        }
        let Some(job) = run.job else { return Decision::Done };
        let patch = scale.patch(&job.uid, job.version);
        let draft = Draft::merge(Purpose::ScaleTraining, self.child_key(WORKER), patch, job.version);
        Decision::write(draft.managed_by(MANAGER).with_event(self.notice(EventType::Normal, reason, words)))
    }

    /// Queries whether more pods are left than the `most` that stay with this number of workers, `None` if no more pods are known to be left. The answer to the
    /// query for remaining pods may be newer than the statuses of the Jobs. The quota of removed workers is held until the Jobs' statuses count no more pods
    /// either: otherwise the remaining pods would be charged as usage beyond quota for a moment, and the job would be evicted for the preemptors to which its
    /// workers gave way.
    pub(super) fn surplus_left(&self, workload: &WorkloadView, workers: i32, most: i32) -> Option<Decision> {
        let parts = self.ctx.view.jobs().controlled_by(&workload.namespace, &self.view.uid);
        let counted = parts.map(|(_, part)| part.pods).fold(0, i32::saturating_add);
        if counted > most {
            return Some(Decision::Wait(after(self.now, LOOK_MS)));
        }
        if self.ctx.notes_of(workload).scale().has_shrunk_to(workers) {
            return None;
        }
        if let Some(until) = self.creation_until() {
            return Some(Decision::Wait(until));
        }
        let (pods, most) = (self.ctx.training.pods_of(workload), usize::try_from(most).unwrap_or(0));
        let (object, query) = (workload.object_key(), Query::ProbePods { pods, most });
        Some(Decision::write(Draft::ask(Purpose::ProbeSurplus, object, query)))
    }

    /// Releases the quota of workers that have gone; `then` is a text about the workers that stay.
    pub(super) fn lower(&self, workload: &WorkloadView, workers: i32, then: &str) -> Draft {
        let pods = |set: &PodSetSpec| if set.name == WORKER { i64::from(workers) } else { set.count };
        let body = ObjectApply::of_version(KIND, &workload.identity())
            .annotations(self.ctx.size_of_workload(workload, pods))
            .spec(json!({"podSets": [{"name": WORKER, "count": workers}]}));
        let words = format!("{workers} of {} workers are left, and their quota{then}", granted(workload));
        Draft {
            purpose: Purpose::LowerCount,
            key: workload.object_key(),
            action: Write::Apply { manager: MANAGER, subresource: Subresource::None, body: body.into() }.into(),
            based_on: workload.version(),
            notices: vec![self.notice(EventType::Normal, own_reasons::SCALED_DOWN, words)],
        }
    }

    /// How the number of workers may change, `None` for a job that is not elastic. A run whose pods started with other limits keeps those limits until the run
    /// ends.
    pub(super) fn elasticity(&self, workload: Option<&WorkloadView>) -> Option<Words> {
        let rules = self.view.facts.elastic?;
        let (min, max) = (rules.min, rules.max);
        if !self.ctx.settings.engine.partial_admission {
            let message =
                format!("{max} workers: with the gate PartialAdmission off a job is admitted whole or not at all");
            return Some((false, own_reasons::PARTIAL_ADMISSION_OFF.to_owned(), message));
        }
        let (up, down) = (rules.up_step, rules.down_step);
        let (after_up, after_down) = (rules.up_cooldown_seconds, rules.down_cooldown_seconds);
        let kind = &self.view.facts.job_type;
        let restarts = format!("{min} to {max} workers; all pods of a {kind} start again when their number changes");
        let takes = format!("takes {down} at once, {after_down}s after a change");
        let (reason, message) = match rules.rescale {
            Rescale::InPlace => {
                let adds = format!("adds {up} at once, {after_up}s after its start or a change");
                let run = workload.and_then(|workload| run_under(self.ctx.view, workload)).map(|run| run.bounds);
                let bounds = match run.filter(|bounds| *bounds != (min, max)) {
                    Some((least, most)) => format!(
                        "{least} to {most} workers in this run, as its pods were told at its start; {min} to {max} from the next start"
                    ),
                    None => format!("{min} to {max} workers"),
                };
                (own_reasons::SCALE_POLICY, format!("{bounds}; {adds}, and {takes}"))
            }
            Rescale::ByRestart if self.view.facts.saves => {
                let adds = format!(
                    "adds {up} at once, {after_up}s after its start or a change, when it has saved since quota is idle"
                );
                (own_reasons::SCALE_POLICY, format!("{restarts}: {adds}, and {takes}"))
            }
            Rescale::ByRestart => {
                let stays =
                    "adds none while it runs, as it saves no checkpoints (spec.checkpoint) and would lose its work";
                (own_reasons::SHRINKS_ONLY, format!("{restarts}: {stays}, and {takes}"))
            }
        };
        Some((true, reason.to_owned(), message))
    }
}

/// Number of pods of a run with its intended number of workers.
fn pods_with(run: &Run<'_>, states: &BTreeMap<String, RoleState>) -> i32 {
    let others = states.iter().filter(|(role, _)| *role != WORKER).map(|(_, state)| state.wanted);
    others.fold(run.workers, i32::saturating_add)
}

/// Deletes a slice that is not to replace another slice any more.
pub(super) fn discard(slice: &WorkloadView) -> Decision {
    let message = "The workload slice is out of sync with its parent job".to_owned();
    let reported: Notice = notice(slice, EventType::Normal, event_reasons::DELETED, message, REPORTER);
    let draft = Draft::delete(Purpose::DeleteWorkload, slice.object_key(), &slice.uid);
    Decision::write(draft.with_event(reported))
}

#[cfg(test)]
mod tests;
