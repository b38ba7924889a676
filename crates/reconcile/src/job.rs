//! The life of a job. A job gets one Workload, runs while the Workload is admitted, stops when the Workload is evicted, and ends together with the Workload.
//! Each decision about a job gives at most one write, and its steps have the order of Kueue.
//!
//! `stop.rs` has the stop of a job, `parts.rs` the Jobs of a JobSet, `going.rs` a job that is being deleted, `moved.rs` a job that another client suspends,
//! `kept.rs` a job that does not request quota through its Workload any more, and `owners.rs` a job that another object controls.

pub(crate) mod altered;
pub mod attempts;
mod build;
mod case;
mod going;
pub mod grace;
pub(crate) mod job_events;
mod kept;
pub mod left;
mod moved;
pub(crate) mod overgrown;
mod owners;
mod parts;
pub(crate) mod placement;
pub(crate) mod pods_notes;
pub mod remains;
mod same;
pub(crate) mod save_requests;
pub(crate) mod start_notes;
pub mod starts;
mod stop;

use berth_api as api;
use berth_api::conditions::{event_reasons, own_reasons, reasons, types};
use berth_api::json::to_value;
use berth_api::labels::{ADMISSION_GATED_BY, CAPACITY_TIERS, FIELD_MANAGER_RECLAIMABLE_PODS};
use berth_jobs::{JobState, ObjectPatch};
use jiff::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::placement::placements;
use crate::policies::NamedClasses;
use crate::workload::checks;
use crate::workload::follow::{DesiredFields, OUT_OF_SYNC, adopt, finish, follow_with_event, out_of_sync};
use crate::workload::names::{create, made_for_another, may_adopt};
use crate::workload::pods_ready;
use crate::workload::stops::let_go;
use crate::workload::{cannot_start, has_finalizer, object_write, remove_finalizer, separate_write};
use crate::write::{EventType, Kind, Notice, ObjectKey, Purpose, key};
use berth_cache::moments::after_seconds;
use berth_cache::{JobPhase, WorkloadPhase, WorkloadView};
use build::Unbuilt;
use case::JobCase;
use kept::{Asks, displaced};
pub(crate) use kept::{UNMANAGED_NAMESPACE, unasked};
use overgrown::overgrown;
use owners::RunsWith;
pub(crate) use owners::{is_started_by, unlisted_above};

/// Time in seconds for which the ends of further pods are awaited before the first ended pods are written.
const RECLAIM_SECONDS: i64 = 5;
/// Message of the suspension of a job that runs without a Workload.
const MISSING: &str = "Missing Workload; unable to restore pod templates";

/// Decides about one job.
pub fn decide(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Decision {
    let Some(job) = ctx.view.jobs().get(key) else { return Decision::Done };
    let case = JobCase { ctx, key, job, now };
    let owned = ctx.view.workloads_of(&job.uid);
    if owned.iter().any(|workload| ctx.in_flight.changing(&workload.object_key())) {
        // A write that is under way is about to change the Workload, and control decides about the job after the write.
        return Decision::Done;
    }
    if owned.iter().any(|workload| workload.unreadable) {
        // An unreadable Workload does not show whether the job may run, so the job is left unchanged.
        return Decision::Done;
    }
    let asks = case.asks();
    match &asks {
        Asks::Above(RunsWith::FreeJobSet(set)) => return case.left_alone(*set, &owned),
        Asks::Above(RunsWith::Unlisted) => return Decision::Done,
        _ => {}
    }
    if let Some(workload) = case.kept(&owned, &asks) {
        return case.decide_kept(workload, &asks);
    }
    match asks {
        Asks::Own if job.deleting => case.going(&owned),
        Asks::Own if ctx.is_ending(&key.namespace) && case.ends_with_namespace(&owned) => case.go_with_namespace(),
        Asks::Own => match &job.prebuilt_workload {
            Some(prebuilt) => case.prebuilt(prebuilt, &owned),
            None => case.ordinary(&owned),
        },
        Asks::Above(RunsWith::JobSet(set)) if !job.deleting => case.below(set),
        Asks::NoQueue => case.report_misplaced(),
        Asks::Above(_) | Asks::Unmanaged(_) => Decision::Done,
    }
}

/// The pods of the Workload's pod sets that will not run again. The job counts its ended pods relative to its own number of pods, which may be smaller than the
/// number in the Workload. As long as the job has at least as many pods left as its own number of pods, none of the Workload's pods counts as reclaimable.
fn ended_pods(
    ctx: &Context<'_>,
    (key, job): (&ObjectKey, &JobState),
    workload: &WorkloadView,
) -> Vec<api::ReclaimablePod> {
    let runs = job.asked();
    let of = |pods: &api::ReclaimablePod| {
        let all = workload.size(&pods.name);
        let own = runs.iter().flat_map(|sets| sets.iter()).find(|set| set.name == pods.name);
        let fewer = all.saturating_sub(own.map_or(all, |set| set.count)).max(0);
        api::ReclaimablePod { name: pods.name.clone(), count: pods.count.saturating_add(fewer).min(all) }
    };
    attempts::over_of(ctx.view, key, job).iter().map(of).collect()
}

/// Whether the status of a waiting Workload counts more ended pods than the job does. The count is from before an edit of the job, so that a reservation
/// would be for too few pods, and Berth writes the right count before the Workload may be tried.
pub(crate) fn counts_too_many_ended(ctx: &Context<'_>, workload: &WorkloadView) -> bool {
    let counted = &workload.status.reclaimable_pods;
    if counted.is_empty() || workload.reserved() || !ctx.settings.reclaimable_pods {
        return false;
    }
    // The ended pods of a JobSet that run again are known beside the count.
    let key = workload.job().filter(|key| !key.kind.is_made_of_jobs());
    let Some((key, job)) = key.zip(ctx.view.job_of(workload)) else { return false };
    let ended = ended_pods(ctx, (&key, job), workload);
    let is_less =
        |count: i32, name: &str| ended.iter().find(|pods| pods.name == name).is_none_or(|pods| pods.count < count);
    counted.iter().any(|pods| pods.count > 0 && is_less(pods.count, &pods.name))
}

impl JobCase<'_> {
    fn notice(&self, event_type: EventType, reason: &str, message: String) -> Notice {
        Notice {
            key: self.key.clone(),
            uid: self.job.uid.clone(),
            event_type,
            reason: reason.to_owned(),
            message,
            reporter: self.job.kind.info().reporter,
        }
    }

    /// A patch of the job.
    fn write(&self, purpose: Purpose, patch: ObjectPatch, notices: Vec<Notice>) -> Decision {
        Decision::write(Draft { notices, ..Draft::merge(purpose, self.key.clone(), patch, self.job.version) })
    }

    /// The wait before another stop of a job that Berth stopped recently and that another client has started again. The wait before another stop keeps two
    /// clients that disagree about the job from writing against each other without a pause.
    fn stopped_just_now(&self) -> Option<Decision> {
        self.ctx.notes.jobs().of(&self.job.uid).may_stop_at().filter(|due| *due > self.now).map(Decision::Wait)
    }

    fn suspend(&self, why: &str) -> Decision {
        if let Some(wait) = self.stopped_just_now() {
            return wait;
        }
        let notice = self.notice(EventType::Normal, reasons::STOPPED, why.to_owned());
        let patch = match self.job.decode() {
            Some(job) if self.job.placed => job.stop_patch(),
            Some(job) => job.suspend_patch(),
            // A job without a complete object can be suspended only if Berth has added no placement to its template.
            None if !self.job.placed => self.job.suspend_patch(),
            None => return Decision::Done,
        };
        self.write(Purpose::SuspendJob, patch, vec![notice])
    }

    fn prebuilt(&self, name: &str, owned: &[&WorkloadView]) -> Decision {
        let name = (self.key.namespace.clone(), name.to_owned());
        // As long as the prebuilt Workload names no owner, only the waiting job names the Workload.
        let later = Decision::WaitFor(key(Kind::Workload, &name));
        let Some(workload) = self.ctx.view.workloads().get(&name) else {
            return if self.job.suspended { later } else { self.suspend(MISSING) };
        };
        match &workload.owner {
            Some(owner) if owner.uid == self.job.uid && !workload.deleting && !self.same(workload) => {
                self.out_of_sync(workload)
            }
            Some(owner) if owner.uid == self.job.uid => match displaced(owned, workload) {
                Some(other) => self.delete(other),
                None => self.with_workload(workload),
            },
            None if may_adopt(workload, &self.job.uid) => self.adopt(workload),
            _ if !self.job.suspended => self.suspend(MISSING),
            _ => made_for_another(self.ctx, self.key, workload, |reason, text| {
                self.notice(EventType::Warning, reason, text)
            }),
        }
    }

    fn adopt(&self, workload: &WorkloadView) -> Decision {
        let info = self.job.kind.info();
        adopt(self.ctx, workload, (info.api_version, info.kind), (&self.key.name, &self.job.uid))
    }

    /// Handles a prebuilt Workload that requests other resources than its job: no pod of the job may run on the quota of the Workload.
    fn out_of_sync(&self, workload: &WorkloadView) -> Decision {
        if !self.job.suspended {
            return self.suspend(OUT_OF_SYNC);
        }
        if let Some(decision) = self.unrest(workload).or_else(|| self.restore(workload)) {
            return decision;
        }
        out_of_sync(workload, self.now, |kind, reason, text| self.notice(kind, reason, text))
    }

    fn ordinary(&self, owned: &[&WorkloadView]) -> Decision {
        let live: Vec<&WorkloadView> = owned.iter().copied().filter(|workload| !workload.deleting).collect();
        let same = live.iter().copied().find(|workload| self.same(workload));
        let surplus = live
            .iter()
            .copied()
            .find(|workload| same.is_none_or(|same| same.uid != workload.uid) && !workload.is_finished());
        match (same, surplus) {
            (Some(_), Some(surplus)) => self.delete(surplus),
            (Some(workload), None) => self.with_workload(workload),
            (None, Some(other)) => self.without_match(other),
            (None, None) => self.without_workload(owned),
        }
    }

    fn delete(&self, workload: &WorkloadView) -> Decision {
        let message = format!("Deleted not matching Workload: {}/{}", workload.namespace, workload.name);
        let notice = self.notice(EventType::Normal, event_reasons::DELETED_WORKLOAD, message);
        let draft = Draft::delete(Purpose::DeleteWorkload, workload.object_key(), &workload.uid);
        Decision::write(draft.with_event(notice))
    }

    fn without_match(&self, other: &WorkloadView) -> Decision {
        if !self.job.suspended {
            return self.suspend("No matching Workload; restoring pod templates according to existent Workload");
        }
        if other.reserved() {
            return self.with_other_quota(other);
        }
        let fresh = match self.build() {
            Ok(fresh) => fresh,
            // A deactivated Workload stays, because a new Workload would be active.
            Err(problem @ Unbuilt::Invalid(_)) if !other.active => return Decision::event(self.complaint(&problem)),
            // The event about a job of which no Workload can be made is sent once the job has no Workload.
            Err(Unbuilt::Invalid(_)) => return self.delete(other),
            Err(Unbuilt::NoClass(_)) => return Decision::Done,
            Err(Unbuilt::Lean) => return self.read(),
        };
        let spec = to_value(&fresh.spec);
        let size = self.ctx.size_of_pod_sets(&other.namespace, &fresh.spec.pod_sets);
        let fields = ["podSets", "queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds"];
        let fields = fields.map(|field| (field.to_owned(), spec.get(field).cloned().unwrap_or_default()));
        let mut draft = object_write(other, Purpose::UpdateWorkload, |patch| {
            patch.annotations(size).spec_fields(fields.into_iter().collect())
        });
        let message = format!("Updated not matching Workload for suspended job: {}/{}", other.namespace, other.name);
        draft.notices.push(self.notice(EventType::Normal, event_reasons::UPDATED_WORKLOAD, message));
        Decision::write(draft)
    }

    /// Decides about a suspended job whose Workload holds quota for another request. The Workload stays while the job stops, and takes over the job's new
    /// request when the quota was given back. A new Workload in its place would lose `spec.active`, the back-off and the place in the queue
    /// (`docs/departures/0065-edits-of-a-job-that-stops.md`).
    fn with_other_quota(&self, other: &WorkloadView) -> Decision {
        if other.is(types::EVICTED) {
            return self.stop(other);
        }
        let deactivated = !other.active || other.is(types::DEACTIVATION_TARGET);
        // A deactivated Workload is to be evicted next.
        if deactivated { Decision::Done } else { self.delete(other) }
    }

    fn without_workload(&self, owned: &[&WorkloadView]) -> Decision {
        if let Some(leaving) = owned.iter().find(|workload| workload.deleting) {
            return self.leaving(leaving);
        }
        if self.job.finished.is_some() {
            return Decision::Done;
        }
        if let Some(decision) = self.namesake() {
            return decision;
        }
        if !self.job.suspended {
            return self.suspend(MISSING);
        }
        if self.ctx.is_ending(&self.key.namespace) {
            return Decision::Done;
        }
        // A large job that was read must not wait until fewer Workloads are being created, because its complete object would stay in memory.
        if self.ctx.in_flight.creations_full() && !self.job.is_large() {
            return Decision::WaitForCreations;
        }
        let workload = match self.build() {
            Ok(workload) => workload,
            Err(Unbuilt::Lean) => return self.read(),
            // Control decides about the job again when its priority class, the limits of its namespace or the job itself changes.
            Err(problem) => return Decision::event(self.complaint(&problem)),
        };
        create(self.ctx, self.key, &workload, |message| {
            self.notice(EventType::Normal, event_reasons::CREATED_WORKLOAD, message)
        })
    }

    /// Decides about a job whose Workload is being deleted: the job stops, and then the finalizer of the Workload is removed.
    fn leaving(&self, workload: &WorkloadView) -> Decision {
        let finished = self.job.finished.is_some();
        if !self.job.suspended && !finished {
            return self.suspend("Workload is deleted");
        }
        if !finished && let Some(decision) = self.unrest(workload).or_else(|| self.restore(workload)) {
            return decision;
        }
        if finished || !self.job.active { let_go(workload, self.now) } else { Decision::Done }
    }

    fn with_workload(&self, workload: &WorkloadView) -> Decision {
        if workload.is_finished() {
            if has_finalizer(workload) && (self.job.finished.is_some() || workload.deleting) {
                return Decision::write(remove_finalizer(workload));
            }
            if JobPhase::of(self.job) == JobPhase::Running {
                return self.suspend("Workload is finished");
            }
            return Decision::Done;
        }
        if workload.deleting {
            return self.leaving(workload);
        }
        if let Some(end) = &self.job.finished {
            if self.has_moving_parts() {
                // A JobSet ends as soon as one of its Jobs decides that, and its other Jobs are stopped afterwards.
                return Decision::Done;
            }
            return self.finish(workload, end.success, &end.message);
        }
        if let Some((reason, text)) = self.ctx.unsent_event(self.key, workload, self.classes()) {
            return Decision::event(self.notice(EventType::Warning, reason, text));
        }
        match self.reclaimable(workload) {
            None | Some(Decision::Wait(_)) if workload.is(types::EVICTED) => self.stop(workload),
            reclaims => Decision::first_or_earliest(reclaims, || {
                if self.job.suspended { self.waiting(workload) } else { self.running(workload) }
            }),
        }
    }

    fn finish(&self, workload: &WorkloadView, success: bool, message: &str) -> Decision {
        finish(workload, self.now, (success, message), |kind, reason, text| Some(self.notice(kind, reason, text)))
    }

    /// Writes the number of pods that will not run again into the Workload's status (`status.reclaimablePods`). While the job runs, the quota of its
    /// reclaimable pods is given back, and their number only grows. While the job waits without quota, its Workload requests quota only for the remaining
    /// pods.
    fn reclaimable(&self, workload: &WorkloadView) -> Option<Decision> {
        let waits = !workload.reserved() && self.job.is_suspended() && !self.job.placed;
        let runs = workload.reserved() && !self.job.suspended;
        if !(waits || runs) || !self.ctx.settings.reclaimable_pods {
            return None;
        }
        let mut wanted = ended_pods(self.ctx, (self.key, self.job), workload);
        let old = &workload.status.reclaimable_pods;
        if waits {
            // The count of a pod set in `status.reclaimablePods` stays until another count is written, so the count of a pod set that is not counted any more
            // is set to 0.
            let silent = old.iter().filter(|old| wanted.iter().all(|pods| pods.name != old.name));
            let none: Vec<_> = silent.map(|old| api::ReclaimablePod { name: old.name.clone(), count: 0 }).collect();
            wanted.extend(none);
        }
        let differs = wanted.iter().any(|pods| {
            let before = old.iter().find(|old| old.name == pods.name).map_or(0, |old| old.count);
            pods.count > before || (waits && pods.count != before)
        });
        if !differs {
            return None;
        }
        let write = |pods: &[api::ReclaimablePod]| {
            let pods = json!({ "reclaimablePods": pods });
            separate_write(workload, Purpose::SetReclaimable, FIELD_MANAGER_RECLAIMABLE_PODS, pods)
        };
        if waits {
            return Some(write(&wanted));
        }
        // Pods of a job often end together. If no other Workload waits for the quota of ended pods, the counts of several ended pods are written once, or
        // never if the job ends with these pods.
        let ended = self.ctx.notes.jobs().of(&self.job.uid).ended_at().filter(|_| !self.ctx.session.is_offline());
        let due = ended.map(|ended| after_seconds(ended, RECLAIM_SECONDS)).filter(|due| *due > self.now);
        let given = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_deref());
        let waited_for = || given.is_some_and(|queue| self.ctx.quota.world().anyone_waits_beside(queue));
        if let Some(due) = due.filter(|_| !waited_for()) {
            return Some(Decision::Wait(due));
        }
        Some(write(&wanted))
    }

    /// Starts the suspended job of an admitted Workload; without an admission, the Workload follows changes of the job.
    fn waiting(&self, workload: &WorkloadView) -> Decision {
        if !workload.may_run() {
            return match self.restore(workload).unwrap_or_else(|| self.follow_queue(workload)) {
                Decision::Done => checks::check_event(workload, |kind, reason, text| self.notice(kind, reason, text)),
                decision => decision,
            };
        }
        if let Some(decision) = self.moved(workload) {
            return decision;
        }
        if !self.job.is_suspended() {
            // A stop of the job is under way, and must be completed before the job starts.
            return self.restore(workload).unwrap_or(Decision::Done);
        }
        if !self.job.may_change_template {
            return self.unlock();
        }
        if let Some(decision) = self.parts_unrest(workload) {
            return decision;
        }
        let again = starts::again(self.ctx.notes.jobs(), &self.job.uid, "", workload);
        if let Some(again) = again.filter(|again| again.due > self.now) {
            return Decision::Wait(again.due);
        }
        let Some(admission) = &workload.status.admission else { return Decision::Done };
        let queue = admission.cluster_queue.clone().unwrap_or_default();
        let Some(job) = self.job.decode() else { return Decision::Done };
        let placements = placements(self.ctx, workload);
        match placements.and_then(|placements| Ok((job.start_patch(&placements)?, placements))) {
            Ok((patch, placements)) => {
                if let Some(decision) = self.remake_parts(workload, &placements, &patch) {
                    return decision;
                }
                let text = format!("Admitted by clusterQueue {queue}");
                let started = self.notice(EventType::Normal, reasons::STARTED, text);
                let repeated = again
                    .map(|again| self.notice(EventType::Warning, own_reasons::REPEATED_START, again.words(self.now)));
                let notices = self.suspension_undone(workload).into_iter().chain([started]).chain(repeated).collect();
                self.write(Purpose::StartJob, patch, notices)
            }
            Err(error) => self.withdraw_start().unwrap_or_else(|| {
                let to_notice = |reason: &str, text| self.notice(EventType::Warning, reason, text);
                Decision::write(cannot_start(workload, self.now, &error, to_notice))
            }),
        }
    }

    /// Has the Workload follow its job. A pending Workload follows its job to another LocalQueue, other capacity tiers and fewer admission gates; a Workload
    /// with quota follows its job only to another priority class and fewer gates.
    fn follow_queue(&self, workload: &WorkloadView) -> Decision {
        let prebuilt = self.job.prebuilt_workload.is_some();
        let wanted = self.ctx.wanted_priority(workload, self.classes());
        let desired = DesiredFields {
            pod_sets: None,
            queue: Some(self.job.queue_name.as_deref().unwrap_or_default()),
            priority: wanted.ok().filter(|_| !prebuilt),
            gated_by: self.job.annotation(ADMISSION_GATED_BY),
            tiers: self.job.annotation(CAPACITY_TIERS),
            limit: None,
            preempts: None,
            prebuilt,
        };
        let to_notice = |message| Some(self.notice(EventType::Normal, event_reasons::UPDATED_WORKLOAD, message));
        follow_with_event(workload, desired, to_notice).unwrap_or(Decision::Done)
    }

    fn running(&self, workload: &WorkloadView) -> Decision {
        if workload.phase != WorkloadPhase::Admitted {
            return self.suspend("Not admitted by cluster queue");
        }
        if let Decision::Write(draft) = self.follow_queue(workload) {
            return Decision::Write(draft);
        }
        let overgrown = overgrown(self.ctx, self.key, workload, self.now);
        Decision::first_or_earliest(overgrown, || pods_ready::follow_job(self.ctx, workload, self.job, self.now))
    }

    /// The priority classes that the job names.
    fn classes(&self) -> NamedClasses<'_> {
        (self.job.workload_priority_class.as_deref(), self.job.pod_priority_class.as_deref())
    }
}

#[cfg(test)]
mod tests;
