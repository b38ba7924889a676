//! The effects of the outcome of a task, of timers, and of periodic looks at overruns, trials, capacity tiers and growth.

use berth_api::conditions::types;
use berth_cache::pods::group_uid;
use berth_cache::{Name, WorkloadView};
use berth_engine::model::Delta;
use berth_jobs::version_number;
use berth_reconcile::capacity::capacity_notes::Answer;
use berth_reconcile::capacity::figures::growth_measures;
use berth_reconcile::capacity::promotions::PromotionLook;
use berth_reconcile::capacity::watch::growth_without_nodes;
use berth_reconcile::capacity::{StockOuts, promotion, reclaim};
use berth_reconcile::job::{left, remains};
use berth_reconcile::notes::job::JobNotes;
use berth_reconcile::overruns;
use berth_reconcile::pod::let_in;
use berth_reconcile::state::in_flight::InFlightWrite;
use berth_reconcile::state::plans;
use berth_reconcile::training_job::growth::{self, GrowthCandidate};
use berth_reconcile::training_job::{elastic, nodes, saves, training_figures, trainings};
use berth_reconcile::workload::{reason_limiter, transitions};
use berth_reconcile::write::{
    Checkpoint, CheckpointPlace, Kind, ObjectKey, PodsLeft, Purpose, QueryAnswer, QueryFailure, StuckPod, TaskId,
    TaskOutcome, WriteOutcome, key,
};
use jiff::Timestamp;

use crate::controller::failures::Failures;
use crate::controller::{Control, planning};

/// Time in milliseconds after which control counts the pods of a job again, if too many pods of the job have not ended.
const PROBE_AGAIN_MS: u64 = 500;

impl Control {
    /// Takes the outcome of a task.
    pub fn outcome(&mut self, id: TaskId, outcome: impl Into<TaskOutcome>, now: Timestamp) {
        let Some((object, write)) = self.in_flight.take(id) else { return };
        self.work.touch_related(&self.view, &object);
        let (origin, purpose) = (write.origin.clone(), write.purpose);
        if origin.kind == Kind::TrainingJob && origin != object {
            // Among the objects that control creates for a TrainingJob, only Jobs mark the TrainingJob, so this line marks the TrainingJob when a task for
            // another object ends.
            self.work.touch(origin.clone());
        }
        if matches!(object.kind, Kind::PodTemplate | Kind::ProvisioningRequest) {
            // A PodTemplate or ProvisioningRequest that does not exist yet cannot name the object for which it is made, so this line marks the object for which
            // the task was made.
            self.work.touch(origin.clone());
        }
        match (write.query, outcome.into()) {
            (None, TaskOutcome::Written(outcome)) => self.take_write_outcome(object.clone(), write, outcome, now),
            (Some(kind), TaskOutcome::Answered(Ok(answer))) if answer.kind() == kind => {
                self.take_answer(object.clone(), write, answer, now);
            }
            (Some(_), TaskOutcome::Answered(Err(failure))) => self.take_query_failure(&object, &write, failure, now),
            // If the reported outcome does not belong to the task (such as an answer to another query), the task's own outcome is unknown.
            (_, other) => {
                self.failures().lost(&object, &write, &format!("not an outcome of this task: {other:?}"), now)
            }
        }
        self.mirror_stale();
        // The request to save a checkpoint ends with the grace period at the latest, and so does the back-off of the request.
        if let Some(end) = self.context().end_of_grace(&object, purpose) {
            self.in_flight.not_beyond(&object, end);
        }
        if let Some(until) = self.in_flight.backing_off(&object, now).filter(|_| origin != object) {
            self.work.add_at(origin, until);
        }
        if object.kind == Kind::Workload {
            // The watch may have shown the result of a write before the answer to the write came.
            self.settle(&(object.namespace, object.name));
        }
    }

    fn take_write_outcome(&mut self, object: ObjectKey, write: InFlightWrite, outcome: WriteOutcome, now: Timestamp) {
        let notes = &mut self.notes;
        if let Some(job) = trainings::note_outcome(notes, &self.view, &object, &write, &outcome, now) {
            self.work.touch(job);
        }
        let is_gone = matches!(outcome, WriteOutcome::Applied { .. } | WriteOutcome::Gone);
        if is_gone && remains::note_sent_off(self.notes.workloads_mut(), &self.view, &write.origin, &object) {
            self.work.touch(write.origin.clone());
        }
        if write.purpose.is_coalesced() && !matches!(outcome, WriteOutcome::Applied { .. }) {
            self.work.touch_status(object.clone());
        }
        match outcome {
            WriteOutcome::Applied { resource_version } => self.take_success(object, write, &resource_version, now),
            WriteOutcome::StoreFailed(fault) => self.take_listing(&object, write.place.as_deref(), Err(fault), now),
            WriteOutcome::Conflict => self.failures().conflict(&object, &write, now),
            WriteOutcome::AlreadyExists => self.failures().name_taken(&object, &write, now),
            WriteOutcome::Gone => self.take_gone(object, &write, now),
            WriteOutcome::Refused(text) => self.failures().refused(object, &write, &text, now),
            WriteOutcome::Busy(after) => self.failures().busy(object, &write, after, now),
            // After an unknown outcome, control makes the same decision again, and the precondition of the new write settles the outcome; `state/unresolved.rs`
            // has the other cases.
            WriteOutcome::Unknown(text) => self.failures().lost(&object, &write, &text, now),
            WriteOutcome::NotSent => self.failures().not_sent(object, now),
        }
    }

    fn take_query_failure(&mut self, object: &ObjectKey, write: &InFlightWrite, failure: QueryFailure, now: Timestamp) {
        match failure {
            QueryFailure::Gone => self.take_gone(object.clone(), write, now),
            QueryFailure::Refused(text) => self.failures().refused(object.clone(), write, &text, now),
            QueryFailure::Busy(after) => self.failures().busy(object.clone(), write, after, now),
            QueryFailure::Lost(text) => self.failures().lost(object, write, &text, now),
            QueryFailure::NotSent => self.failures().not_sent(object.clone(), now),
        }
    }

    fn take_answer(&mut self, object: ObjectKey, write: InFlightWrite, answer: QueryAnswer, now: Timestamp) {
        match answer {
            QueryAnswer::PodsLeft(PodsLeft::Allowed) => self.take_success(object, write, "", now),
            QueryAnswer::PodsLeft(PodsLeft::TooMany) => self.failures().busy(object, &write, PROBE_AGAIN_MS, now),
            QueryAnswer::Checkpoints(found) => self.take_listing(&object, write.place.as_deref(), found, now),
            QueryAnswer::Stuck(stuck) => {
                self.in_flight.succeeded(&object, &write.origin);
                self.take_stuck(&object, stuck, now);
            }
            QueryAnswer::Left(pods) => {
                self.in_flight.succeeded(&object, &write.origin);
                let pods = left::without_job(&self.context(), &object, pods);
                if let Some(uid) = self.view.uid_of(&object) {
                    self.notes.workloads_mut().change(&uid, |notes| notes.pods_mut().note_left(pods, now));
                    self.quota.overruns_mut().note(object.clone());
                    self.work.touch(object);
                }
            }
            QueryAnswer::Object(text) => {
                self.in_flight.succeeded(&object, &write.origin);
                self.note_read(&object, &text, now);
            }
            QueryAnswer::Nodes(nodes) => {
                self.in_flight.succeeded(&object, &object);
                let name = (object.namespace.clone(), object.name.clone());
                let counted = nodes::counted(&self.context(), &name, nodes, now);
                if self.view.note_counted_nodes(&name, counted) {
                    self.work.touch(object);
                }
            }
            QueryAnswer::OnNode(pods) => {
                self.in_flight.succeeded(&object, &write.origin);
                let lost = reclaim::lost_with(&self.context(), &pods);
                let workloads = self.notes.workloads_mut();
                for workload in self.capacity.note_pods_on_node(workloads, &object.name, lost, now) {
                    self.work.touch(key(Kind::Workload, &workload));
                }
            }
        }
    }

    /// Takes the outcome of a task whose object does not exist.
    fn take_gone(&mut self, object: ObjectKey, write: &InFlightWrite, now: Timestamp) {
        if object.kind == Kind::JobPod {
            self.in_flight.succeeded(&object, &write.origin);
            self.pod_change().forget_job_pod(&(object.namespace, object.name));
        } else {
            self.failures().gone(object, write, now);
        }
    }

    /// The owners of the state that a failed task changes.
    fn failures(&mut self) -> Failures<'_> {
        Failures {
            view: &self.view,
            notes: &mut self.notes,
            in_flight: &mut self.in_flight,
            work: &mut self.work,
            quota: &mut self.quota,
            reports: &mut self.reports,
        }
    }

    /// Takes an answer about the stuck pods of a Workload. Added workers of a TrainingJob that get no nodes are noted as a stock-out, although no Workload is
    /// evicted.
    fn take_stuck(&mut self, object: &ObjectKey, stuck: Vec<StuckPod>, now: Timestamp) {
        let name = (object.namespace.clone(), object.name.clone());
        let known = growth_without_nodes(&self.context(), &name).is_some();
        let Some(workload) = self.view.workloads().get(&name) else { return };
        let answer = Answer { at: now, stuck };
        self.notes.workloads_mut().change(&workload.uid, |notes| notes.capacity_mut().note_answer(answer));
        let Some((assignment, since, backoff)) = growth_without_nodes(&self.context(), &name) else { return };
        if !known {
            self.reports.add_measures(growth_measures(workload, assignment.tier, (since, now)));
        }
        let lost = StockOuts { assignments: vec![assignment], times: (since, now), backoff };
        let news = self.capacity.note_stock_out(lost);
        self.quota_rules().pass_on_stock(news, now);
    }

    /// Takes a listing of the checkpoints of a TrainingJob.
    fn take_listing(
        &mut self,
        object: &ObjectKey,
        place: Option<&CheckpointPlace>,
        found: Result<Vec<Checkpoint>, String>,
        now: Timestamp,
    ) {
        self.in_flight.succeeded(object, object);
        let name = (object.namespace.clone(), object.name.clone());
        let news = saves::note_listing(self.notes.jobs_mut(), &self.view, &name, place, found, now);
        let Some((job, news)) = self.view.training().get(&name).zip(news) else { return };
        if news.fresh > 0 {
            self.reports.add_measure(training_figures::saved(&name, &job.status, news.fresh));
        }
        if news.changed {
            let uid = job.uid.clone();
            self.work.mirror_owned_by(&self.view, &uid);
        }
        self.work.touch(key(Kind::TrainingJob, &name));
    }

    fn take_success(&mut self, object: ObjectKey, write: InFlightWrite, resource_version: &str, now: Timestamp) {
        self.in_flight.succeeded(&object, &write.origin);
        if self.quota.plans_mut().made(self.notes.workloads_mut()) {
            self.quota.plan_again();
        }
        self.note_done(&object, &write, now);
        self.reports.publish(write.notices);
        let version = if write.purpose.withdraws() { u64::MAX } else { version_number(resource_version) };
        if version > self.view.seen_version(&object) && !write.vanished {
            self.in_flight.expect(object, version);
        }
    }

    /// Notes the effects of a successful task that the watches do not show.
    fn note_done(&mut self, object: &ObjectKey, write: &InFlightWrite, now: Timestamp) {
        if let (true, Some(uid)) = (write.owned_first && !write.vanished, self.view.uid_of(object)) {
            self.notes.jobs_mut().change(&uid, JobNotes::note_rid_of_pods);
        }
        self.pod_change().note_sent_job_pod(object, write.purpose, now);
        match write.purpose {
            Purpose::ProbePods => {
                if let Some(uid) = self.view.uid_of(object) {
                    self.notes.workloads_mut().change(&uid, |notes| notes.pods_mut().note_gone());
                    self.quota.overruns_mut().note(object.clone());
                }
            }
            Purpose::SuspendJob => {
                if let Some(uid) = self.view.uid_of(object) {
                    self.notes.jobs_mut().change(&uid, |notes| notes.note_stopped(now));
                }
            }
            Purpose::ProbeSurplus => {
                let name = (object.namespace.clone(), object.name.clone());
                growth::note_shrunk(self.notes.workloads_mut(), &self.view, &name, now);
            }
            Purpose::SetReclaimable => {
                if let Some(uid) = self.view.uid_of(&write.origin) {
                    self.notes.jobs_mut().change_known(&uid, JobNotes::forget_ended);
                }
            }
            Purpose::CreateWorkload => {
                self.reports.add_measures(transitions::creation(&self.context(), &write.origin, now));
            }
            Purpose::PrepareTraining => {
                if let Some(uid) = self.view.uid_of(&write.origin) {
                    self.notes.jobs_mut().change(&uid, |notes| notes.training_mut().note_prepared(object.clone()));
                }
            }
            Purpose::ReserveQuota => {
                self.in_flight.forget_refused_reservation(object);
                if let Some(uid) = self.view.uid_of(object) {
                    plans::drop_admission(self.notes.workloads_mut(), &uid);
                    self.quota.plan_again();
                }
            }
            _ => {}
        }
    }

    /// Drops the plan for a Workload in the engine, so that the Workload's observed state counts again. If the observed Workload shows the planned state, the
    /// observed state replaces the plan without freeing quota in between, so that no other Workload is woken.
    pub(super) fn unplan(&mut self, uid: &str) {
        let workload = self.view.workloads().by_uid(uid);
        let name = workload.map(WorkloadView::key);
        let reserved = workload.is_some_and(WorkloadView::reserved);
        let leaving = workload.is_some_and(|workload| workload.is(types::EVICTED));
        if leaving || !reserved {
            self.notes.workloads_mut().change_known(uid, |notes| notes.plan_mut().evicts_no_longer());
        }
        growth::note_given_up(self.notes.workloads_mut(), &self.view, uid);
        if let (true, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        let notes = self.notes.workloads().of(uid);
        let stays = !leaving && notes.plan().eviction().is_none() && notes.scale().gives_up().is_none();
        if !reserved || stays {
            self.quota.take_back(uid.to_owned());
        }
        if let (false, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        self.quota.plan_again();
    }

    /// Drops the planned admission of a Workload if a decision about the Workload did not write the admission, because no later event would drop the plan.
    pub(super) fn give_plan_up(&mut self, object: &ObjectKey) {
        if plans::none_planned(self.notes.workloads())
            || self.in_flight.busy(object)
            || self.in_flight.unresolved().may_apply(object)
        {
            return;
        }
        let Some(uid) = self.view.uid_of(object) else { return };
        if plans::drop_admission(self.notes.workloads_mut(), &uid) {
            self.unplan(&uid);
        }
    }

    /// Makes the engine count a Workload by its observed state, if no write or plan for the Workload is under way.
    pub(super) fn settle(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads().get(name) else { return };
        let uid = workload.uid.clone();
        if workload.reserved() && self.in_flight.sent(&key(Kind::Workload, name)).is_none() {
            // The reservation was observed, so the admission is no longer a plan, even if the answer to its write is still to come.
            plans::drop_admission(self.notes.workloads_mut(), &uid);
        }
        let is_planned = self.notes.workloads().of(&uid).plan().admission().is_some();
        if !is_planned && !self.in_flight.busy(&key(Kind::Workload, name)) {
            self.unplan(&uid);
        }
    }

    /// Passes the Workloads that are marked as changed to the engine.
    pub(super) fn mirror_stale(&mut self) {
        for name in self.work.take_stale() {
            let Some(mirrored) = self.context().mirrored(&name) else { continue };
            if mirrored.is_settled {
                reason_limiter::forget(self.notes.workloads_mut(), &mirrored.uid);
            }
            self.quota.apply(mirrored.delta);
            if mirrored.is_over {
                planning::spare_victims_of(&mut self.quota, &mut self.notes, &mirrored.uid);
            }
        }
    }

    /// Passes the present state of a Workload to the engine.
    pub(super) fn mirror(&mut self, name: &Name) {
        self.work.mirror(name.clone());
        self.mirror_stale();
    }

    /// Computes the usage beyond quota of all jobs whose usage may have changed, and passes the usage to the engine.
    pub(super) fn look_at_overruns(&mut self, now: Timestamp) {
        for charge in self.quota.overruns_mut().end_outlived(&self.view, self.notes.workloads()) {
            self.quota.apply(Delta::Beyond(charge));
        }
        for object in self.quota.overruns_mut().take_unsure() {
            let ctx = self.context();
            let (usage, outlives) = (overruns::usage_of(&ctx, &object), overruns::outlives(&ctx, &object));
            let change = self.quota.overruns_mut().take(&object, usage, outlives, now);
            for charge in change.charges {
                self.quota.apply(Delta::Beyond(charge));
            }
            if change.waits_otherwise {
                // The engine may try the Workloads of the job, or not, depending on the usage beyond quota.
                let uid = match object.kind {
                    Kind::PodGroup => group_uid(&object.namespace, &object.name),
                    _ => self.view.uid_of(&object).unwrap_or_default(),
                };
                self.work.mirror_waiting_of(&self.view, &uid);
                self.mirror_stale();
                self.work.touch_owned_by(&self.view, &uid);
            }
            if change.is_decided_again {
                self.work.touch(object);
            }
        }
        // A resized pod may keep its larger requests as long as free quota covers them.
        for object in self.quota.look_for_room() {
            self.work.touch_job_pods(&self.view, &object.namespace);
            match object.kind {
                Kind::PodGroup => self.work.touch_members(&self.view, &(object.namespace, object.name)),
                _ => self.work.touch(object),
            }
        }
    }

    /// Begins the trials of pods that were let in without a review since the last step.
    pub(super) fn begin_trials(&mut self, now: Timestamp) {
        if !self.view.pods().has_let_in() && self.quota.trials().is_empty() {
            return;
        }
        let tried = let_in::tried(&self.context());
        for (pod, end) in self.quota.begin_trials(tried, now) {
            self.work.add_at(key(Kind::Pod, &pod), end);
        }
    }

    /// Looks periodically for a running Workload that could move back to a better capacity tier.
    pub(super) fn promote(&mut self, now: Timestamp) {
        if !self.capacity.begin_promotions(self.notes.workloads(), &self.view, now) {
            return;
        }
        for (queue, rules) in promotion::promoting(&self.view) {
            if !self.capacity.may_choose(self.quota.world(), &queue, now) {
                continue;
            }
            let candidates = promotion::candidates(&self.context(), &queue, rules, now);
            let world = self.quota.world_mut();
            let better = |uid: &str| world.better_tier(uid);
            let look = PromotionLook { queue: &queue, rules, timeline: self.view.timeline(), now };
            let chosen = self.capacity.choose(self.notes.workloads_mut(), &look, candidates, better);
            if let Some(name) = chosen {
                self.work.touch(key(Kind::Workload, &name));
            }
        }
    }

    /// Looks periodically for running TrainingJobs that can grow into idle quota.
    pub(super) fn grow(&mut self, now: Timestamp) {
        if !self.training.begin_look(&self.view, now) {
            return;
        }
        let candidates = elastic::candidates(&self.context(), now);
        let world = self.quota.world_mut();
        let fits = |job: &GrowthCandidate| world.could_grow(&job.workload, &job.counts, &job.given);
        for name in growth::offer(self.notes.jobs_mut(), candidates, fits) {
            self.work.touch(key(Kind::TrainingJob, &name));
        }
    }

    /// Handles the timers that are due.
    pub(super) fn fire_timers(&mut self, now: Timestamp) {
        while let Some(keys) = self.work.take_due(now) {
            self.quota.plan_again();
            for object in keys {
                if self.in_flight.give_up(&object, now) {
                    self.work.touch_related(&self.view, &object);
                }
                if object.kind == Kind::Workload {
                    // The back-off of the Workload may be over, so the engine gets the Workload again.
                    self.in_flight.forget_old_refusal(&object, now);
                    let name = (object.namespace.clone(), object.name.clone());
                    self.mirror(&name);
                }
                self.work.touch(object);
            }
        }
    }

    /// The time at which the next step is due, even if nothing is observed.
    pub(super) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let work = self.work.next_time();
        let looks = [self.capacity.wake_at(), self.training.wake_at(&self.view)];
        let reports = [reason_limiter::wake_at(self.notes.workloads(), now), self.reports.wake_at()];
        [work].into_iter().chain(looks).chain(reports).flatten().min()
    }
}
