//! Start and run of a TrainingJob: its children are created one by one, and its pods have a limited time to become ready.

use std::collections::BTreeMap;

use berth_api as api;
use berth_api::conditions::{own_reasons, reasons, training_types};
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;
use berth_cache::tier_reasons::SPEC_CHANGED;
use berth_jobs::PlacementError;
use berth_jobs::training::{Child, ChildKind, Continuation, RoleState, RunError, Saved, children};
use jiff::Timestamp;

use super::{TrainingCase, status};
use crate::capacity::watch::{at_timeout, find_stuck, have_nodes, lacks_unwatched, leave_unwatched};
use crate::decision::{Decision, Draft};
use crate::job::altered::next_pause;
use crate::job::overgrown::overgrown;
use crate::job::placement::placements;
use crate::job::starts;
use crate::training_job::elastic::{granted, run_under};
use crate::training_job::restarts::{reported_start, runs_on, scaled};
use crate::workload::pods_ready;
use crate::workload::status::{find, seconds};
use crate::workload::{cannot_start, evict, evict_for_seconds, status_write};
use crate::write::{Body, EventType, Kind, Notice, ObjectKey, Purpose, Subresource, Write, key};

/// Field manager of the objects that a start applies.
const MANAGER: &str = "berth-training";
/// Pause in seconds while a foreign Job, or a Job that is being deleted, has the name of a child.
const NAME_TAKEN_SECONDS: i64 = 10;

/// Pause in seconds between two decisions about a gang that has its nodes but whose pods are late.
const NODES_SECONDS: i64 = 30;

impl TrainingCase<'_> {
    /// Decides about an admitted job: all objects that run the job exist, and its pods become ready in time.
    pub(super) fn running(&self, workload: &WorkloadView) -> Decision {
        let overgrown = overgrown(self.ctx, &key(Kind::TrainingJob, self.name), workload, self.now);
        Decision::first_or_earliest(overgrown, || self.restarts_or_runs(workload))
    }

    fn restarts_or_runs(&self, workload: &WorkloadView) -> Decision {
        if let Some(decision) = self.restarting(workload) {
            return decision;
        }
        if let Some(decision) = self.undo_alterations(workload) {
            return decision;
        }
        let decision = self.going_on(workload);
        match self.rests_until(workload) {
            Some(until) => decision.not_later_than(until),
            None => decision,
        }
    }

    /// The next step of a running job whose Jobs are unchanged, or suspended for an allowed time.
    fn going_on(&self, workload: &WorkloadView) -> Decision {
        let states = self.states();
        if self.lacks_jobs(&states) {
            let otherwise = || self.within_time(workload).or_else(|| self.start(workload));
            return self.give_up_unmade(workload, &states).unwrap_or_else(otherwise);
        }
        if let Some(decision) = self.follow(workload) {
            return decision;
        }
        let ready = self.all_ready(&states) || (runs_on(workload) && self.is_up(workload, &states));
        if let Some(draft) = pods_ready::follow(self.ctx, workload, ready, self.now) {
            return Decision::write(draft);
        }
        if let Some(draft) = self.forget_time_outs(workload, &states) {
            return Decision::write(draft);
        }
        let scaling = self.scale(workload, &states);
        if self.is_up(workload, &states) {
            // When the next checkpoint of the TrainingJob is overdue, the status shows the user that the save is late.
            let due = self.ctx.save_due(self.name, self.view).filter(|due| *due > self.now);
            let reported_by = || due.map_or(Decision::Done, Decision::Wait);
            return Decision::first_or_earliest(scaling, || {
                Decision::first_or_earliest(self.without_nodes(workload), reported_by)
            });
        }
        match scaling {
            None | Some(Decision::Wait(_)) => self.within_time(workload),
            Some(decision) => decision,
        }
    }

    /// The next object to create for the start of an admitted TrainingJob.
    fn start(&self, workload: &WorkloadView) -> Decision {
        match &self.view.asked {
            Err(fault) => return self.never_starts(workload, fault),
            Ok(_) if !self.view.asks_as(workload) || self.is_out_of_bounds(workload) => {
                return self.spec_changed(workload);
            }
            Ok(_) => {}
        }
        if let Some(decision) = self.look_first(workload) {
            return decision;
        }
        let accelerators = &self.ctx.settings.accelerators;
        let save_to = self.ctx.place_of(self.name, self.view).map(|place| place.uri());
        let saved = self.ctx.saved_of(self.name, self.view);
        let reported = Continuation { save_to: save_to.as_deref(), saved: saved.as_ref() };
        let made = placements(self.ctx, workload)
            .map_err(RunError::from)
            .and_then(|placements| children(&self.view.decode()?, accelerators, &placements, reported));
        let all = match made {
            Ok(all) => all,
            Err(RunError::Placement(error)) if error.passes() => return self.cannot_start(workload, &error),
            Err(error) => return self.never_starts(workload, &error.to_string()),
        };
        let notes = self.ctx.notes.jobs().of(&self.view.uid).training();
        for child in all {
            let name = (self.name.0.clone(), child.name.clone());
            let object = match child.kind {
                ChildKind::Service => key(Kind::Service, &name),
                ChildKind::ConfigMap => key(Kind::ConfigMap, &name),
                ChildKind::Job => key(Kind::JOB, &name),
            };
            let there = match child.kind {
                ChildKind::Service | ChildKind::ConfigMap => notes.is_prepared(&object),
                ChildKind::Job => match self.ctx.view.jobs().get(&object) {
                    Some(job) if self.is_ours(job) && !job.deleting => true,
                    Some(_) => return self.name_taken(),
                    None => false,
                },
            };
            if there {
                continue;
            }
            let again = starts::again(self.ctx.notes.jobs(), &self.view.uid, &object.name, workload);
            let again = again.filter(|_| child.kind == ChildKind::Job);
            if let Some(again) = again.filter(|again| again.due > self.now) {
                return Decision::Wait(again.due);
            }
            if let Some(until) = self.ctx.in_flight.backing_off(&object, self.now) {
                // A decision that is due before the end of the back-off is made first.
                return Decision::Wait(until);
            }
            let reported = again.map(|again| {
                self.notice(
                    EventType::Warning,
                    own_reasons::REPEATED_START,
                    format!("Job {}: {}", object.name, again.words(self.now)),
                )
            });
            return self.create(workload, object, child, (saved.as_ref(), reported));
        }
        Decision::Done
    }

    /// Whether the job would begin with more, or fewer, workers than its spec allows now. After the first Job of a run was created, the run keeps its number of
    /// workers.
    fn is_out_of_bounds(&self, workload: &WorkloadView) -> bool {
        let there = || self.roles().iter().any(|role| self.child(role).is_some());
        let begun = scaled(workload).is_some() || there() || self.gone_since(workload).is_some();
        !begun && !self.view.begins_with(granted(workload))
    }

    /// Answer of the API server to the last refused creation of an object that the job needs, as reason and message.
    fn refusal(&self) -> Option<(String, String)> {
        let (object, text) = self.ctx.in_flight.refusal(&key(Kind::TrainingJob, self.name))?;
        let what = format!("{} {}", object.kind.name(), object.name);
        Some((own_reasons::FAILED_CREATE.to_owned(), format!("the API server refused {what}: {text}")))
    }

    /// Obstacle that keeps the TrainingJob from having all its Jobs, as reason and message.
    pub(super) fn obstacle(&self) -> Option<(String, String)> {
        let jobs = self.ctx.view.jobs();
        let taken = self.roles().into_iter().map(|role| self.child_key(&role)).find_map(|object| {
            let job = jobs.get(&object).filter(|job| job.deleting || !self.is_ours(job))?;
            let ObjectKey { namespace, name, .. } = &object;
            Some(if job.deleting {
                format!("Job {namespace}/{name} is being deleted; it starts anew when that is gone")
            } else {
                format!("Job {namespace}/{name} exists and belongs to somebody else; delete or rename it")
            })
        });
        let taken = taken.map(|message| (own_reasons::NAME_TAKEN.to_owned(), message));
        let store = || self.missing_store().map(|fault| (status::STORE_NOT_FOUND.to_owned(), fault));
        taken.or_else(|| self.refusal()).or_else(|| store().filter(|_| self.lacks_jobs(&self.states())))
    }

    /// Ends a job from whose spec no objects can be created, once no pod of the job runs.
    fn never_starts(&self, workload: &WorkloadView, fault: &str) -> Decision {
        self.clear(workload).unwrap_or_else(|| {
            Decision::write(status_write(workload, Purpose::FinishWorkload, self.now, |edit| {
                edit.finish(reasons::FAILED_TO_START, fault);
            }))
        })
    }

    /// Handles an object of an administrator that is missing, or differs from the object for which quota was reserved.
    fn cannot_start(&self, workload: &WorkloadView, error: &PlacementError) -> Decision {
        let to_notice = |reason: &str, text| self.notice(EventType::Warning, reason, text);
        Decision::write(cannot_start(workload, self.now, error, to_notice))
    }

    /// Releases quota that was reserved for other pods than would be created now: the job is queued again with its present spec.
    fn spec_changed(&self, workload: &WorkloadView) -> Decision {
        let message = "spec was changed after quota was reserved; the job is queued again with what it asks for now";
        let mut draft = evict(workload, self.now, (SPEC_CHANGED, ""), message);
        draft.notices.push(self.notice(EventType::Normal, SPEC_CHANGED, message.to_owned()));
        Decision::write(draft)
    }

    /// Waits while the name of a child is taken; `obstacle` reports the conflict in the status.
    fn name_taken(&self) -> Decision {
        let again = after_seconds(self.now, NAME_TAKEN_SECONDS);
        Decision::Wait(again)
    }

    fn create(
        &self,
        workload: &WorkloadView,
        object: ObjectKey,
        child: Child,
        (saved, again): (Option<&Saved>, Option<Notice>),
    ) -> Decision {
        let (write, purpose) = match child.kind {
            // No other object uses the names of a TrainingJob's Service and ConfigMap, and the host file in the ConfigMap differs from start to start.
            ChildKind::Service | ChildKind::ConfigMap => (
                Write::Apply { manager: MANAGER, subresource: Subresource::None, body: Body::of_new(child.body) },
                Purpose::PrepareTraining,
            ),
            ChildKind::Job => (Write::Create(Body::of_new(child.body)), Purpose::StartTraining),
        };
        let admission = workload.status.admission.as_ref();
        let queue = admission.and_then(|admission| admission.cluster_queue.as_deref()).unwrap_or_default();
        let mut notices = match child.kind {
            ChildKind::Job => {
                let from = saved.map(resumption).unwrap_or_default();
                let given = status::given(self.ctx, workload);
                let message = format!("Created Job {}, admitted by clusterQueue {queue}: {given}{from}", child.name);
                vec![self.notice(EventType::Normal, reasons::STARTED, message)]
            }
            _ => Vec::new(),
        };
        notices.extend(again);
        Decision::write(Draft { purpose, key: object, action: write.into(), based_on: 0, notices })
    }

    /// Evicts a gang whose pods have not all got nodes in time; the gang is tried again after a pause. A gang whose pods have nodes, and pull images or mount
    /// volumes, is not evicted.
    fn within_time(&self, workload: &WorkloadView) -> Decision {
        let started = self.pods_come_since(workload);
        let (Some(limit), Some(started)) = (self.view.facts.scheduling_timeout_seconds, started) else {
            return Decision::Done;
        };
        let gone = self.gone_since(workload);
        let begun = gone.unwrap_or(started);
        // Workers that were added by a restart are given up first.
        let added = self.ctx.added_to(workload).filter(|_| scaled(workload).is_some());
        let begun = added.map_or(begun, |added| added.since.max(begun));
        let due = self.ctx.view.timeline().after_seconds(begun, limit);
        if due > self.now {
            return Decision::Wait(due);
        }
        if let Some(decision) = at_timeout(self.ctx, workload, (begun, due), self.now) {
            return decision;
        }
        let states = self.states();
        if !self.lacks_jobs(&states) && states.values().all(RoleState::has_all_pods) {
            match have_nodes(self.ctx, workload, due, self.now) {
                None => return find_stuck(self.ctx, workload),
                Some(true) => return Decision::Wait(after_seconds(self.now, NODES_SECONDS)),
                Some(false) => {}
            }
        }
        let from = match gone {
            Some(_) => "a Job of it was gone",
            None if scaled(workload).is_some() => "it restarted with another number of workers",
            None => "the admission",
        };
        let words = format!("not all pods had nodes {limit}s after {from}");
        self.release(workload, &words, self.obstacle().map(|(_, text)| text))
    }

    /// Time since when a run that was up lacks a Job, or pods that were created again after a Job was gone. The status of the TrainingJob records the time
    /// since when the run lacks a Job or pods, so that every leader knows the time.
    pub(super) fn gone_since(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let begun = reported_start(workload)?;
        let condition = find(&self.view.status.conditions, training_types::RUNNING)?;
        let at = condition.last_transition_time.0;
        let of_this_run = runs_on(workload) || at >= begun;
        match (condition.status.as_str(), condition.reason.as_str()) {
            ("True", _) => Some(self.now).filter(|_| of_this_run),
            (_, status::JOB_GONE) => Some(at).filter(|_| of_this_run),
            _ => None,
        }
    }

    /// Evicts a gang that had all its pods and has lacked some pods for its full time, if one of the pods gets no node, unless the capacity fallback evicts the
    /// gang. Pods that fail, pull images or mount volumes are left to the Job's backoff limit.
    fn without_nodes(&self, workload: &WorkloadView) -> Option<Decision> {
        let limit = self.view.facts.scheduling_timeout_seconds?;
        let run = run_under(self.ctx.view, workload).filter(|run| !run.by_restart());
        if run.is_some_and(|run| run.role().is_some_and(|role| role.ready >= run.bounds.0)) {
            // Enough pods of the elastic job continue the training.
            return None;
        }
        let due = self.ctx.view.timeline().after_seconds(lacks_unwatched(self.ctx, workload)?, limit);
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        Some(leave_unwatched(self.ctx, workload, (due, self.now), |pod| {
            let words = format!("pods lost their nodes and had no others within {limit}s");
            self.release(workload, &words, Some(pod).filter(|pod| !pod.is_empty()))
        }))
    }

    /// Evicts a gang that is out of time; the gang is queued again after a pause.
    fn release(&self, workload: &WorkloadView, words: &str, obstacle: Option<String>) -> Decision {
        let (count, delay) = next_pause(self.ctx, workload);
        let mut message = format!("{words}; tried again after {delay}s");
        if let Some(obstacle) = obstacle {
            message = format!("{message}: {obstacle}");
        }
        let why = (status::SCHEDULING_TIMEOUT, "");
        // The status of the job reports the time-out, with an event.
        Decision::write(evict_for_seconds(workload, self.now, why, &message, (count, delay)))
    }

    /// Resets the consecutive time-outs of a gang that runs; the time-outs of `waitForPodsReady` stay counted over the gang's life, as in Kueue.
    fn forget_time_outs(&self, workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> Option<Draft> {
        let count = workload.status.requeue_state.as_ref()?.count?;
        let left = pods_ready::time_outs(workload);
        (left < count && self.is_up(workload, states)).then(|| {
            status_write(workload, Purpose::SetPodsReady, self.now, |edit| {
                let state = api::RequeueState { count: Some(left), requeue_at: None };
                edit.status.requeue_state = (left > 0).then_some(state);
            })
        })
    }
}

/// Text about the checkpoint from which the run resumes, for the event of a start. A job cannot find a checkpoint without a step and a URI.
fn resumption(saved: &Saved) -> String {
    match (saved.step, &saved.uri) {
        (Some(step), _) => format!("; it goes on from its checkpoint of step {step}"),
        (None, Some(_)) => format!("; it goes on from its checkpoint of {}", seconds(saved.at)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests;
