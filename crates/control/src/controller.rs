//! The facade of control: observations and outcomes of tasks come in, and tasks go out; see [`Control`].

mod digest;
mod failures;
mod observe;
mod outcomes;
mod planning;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_cache::View;
use berth_cache::settings::Settings;
use berth_engine::World;
use berth_engine::model as engine;
use berth_reconcile::capacity::CapacityFallback;
use berth_reconcile::context::Context;
use berth_reconcile::decide;
use berth_reconcile::decision::{Decision, Draft};
use berth_reconcile::job::grace;
use berth_reconcile::measure::{Figures, Measure, TierMove};
use berth_reconcile::notes::Notes;
use berth_reconcile::observe::pod_change::PodChange;
use berth_reconcile::observe::pods;
use berth_reconcile::observe::quota_rules::QuotaRules;
use berth_reconcile::state::in_flight::InFlightWrites;
use berth_reconcile::state::plans;
use berth_reconcile::state::work_queue::WorkQueue;
use berth_reconcile::state::{Quota, Reports, Session};
use berth_reconcile::training_job::trainings::Trainings;
use berth_reconcile::training_job::{elastic, growth};
use berth_reconcile::workload::explain::{PendingReport, explain};
use berth_reconcile::workload::reason_limiter;
use berth_reconcile::write::{Action, Kind, Notice, ObjectKey, Purpose, Task, Term, Write, cluster_key};
use jiff::Timestamp;
use serde_json::Value;

use crate::controller::digest::Digest;
use crate::controller::planning::Planning;

/// The result of one step.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Step {
    /// Tasks that the runtime has to perform, at most one per object.
    pub tasks: Vec<Task>,
    /// Events to publish.
    pub notices: Vec<Notice>,
    /// Changes of the capacity tiers of jobs in this step, for the log.
    pub moves: Vec<TierMove>,
    /// Time at which the next step of control is due, even if nothing is observed until that time.
    pub wake_at: Option<Timestamp>,
    /// True while a Workload waits for quota, so that writes that free quota are urgent.
    pub quota_is_wanted: bool,
    /// Number of objects about which this step of control has decided.
    pub decided: u64,
}

/// The state of control: the view of the cluster, the engine's world, and everything else that decisions about writes read. Control has no I/O and no clock:
/// the caller passes `now`.
#[derive(Debug)]
pub struct Control {
    settings: Settings,
    session: Session,
    /// The observed objects, with their indexes.
    view: View,
    /// The engine's world and plans, and the usage beyond quota.
    quota: Quota,
    /// Writes under way.
    in_flight: InFlightWrites,
    work: WorkQueue,
    /// Notes of control about objects, which no watch shows.
    notes: Notes,
    reports: Reports,
    training: Trainings,
    capacity: CapacityFallback,
}

impl Control {
    /// Control with an empty view.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let (quota, reports) = (Quota::new(&settings), Reports::new(&settings));
        Self {
            settings,
            session: Session::default(),
            view: View::default(),
            quota,
            in_flight: InFlightWrites::default(),
            work: WorkQueue::default(),
            notes: Notes::default(),
            reports,
            training: Trainings::default(),
            capacity: CapacityFallback::default(),
        }
    }

    /// Control without an API server. Control without an API server writes statuses and reasons at once, because no API server has to be spared.
    pub(crate) fn offline(settings: Settings) -> Self {
        let mut control = Self::new(settings);
        control.session.go_offline();
        control
    }

    /// Leaves the lists of admission checks unchanged from now on, because the caller wants only the decisions of scheduling cycles.
    pub(crate) fn schedule_only(&mut self) {
        self.session.schedule_only();
    }

    /// Takes the Kubernetes events that control has noted for publication outside of a step; events that a step makes are in its [`Step`].
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        self.reports.drain_notices().collect()
    }

    /// The state that decisions read.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            settings: &self.settings,
            session: &self.session,
            view: &self.view,
            quota: &self.quota,
            in_flight: &self.in_flight,
            notes: &self.notes,
            reports: &self.reports,
            training: &self.training,
            capacity: &self.capacity,
        }
    }

    /// The state that a digest shows.
    fn digest(&self) -> Digest<'_> {
        Digest { view: &self.view, quota: &self.quota }
    }

    /// The owners of the state that a plan changes.
    fn planning(&mut self) -> Planning<'_> {
        Planning {
            settings: &self.settings,
            is_offline: self.session.is_offline(),
            view: &self.view,
            in_flight: &mut self.in_flight,
            quota: &mut self.quota,
            notes: &mut self.notes,
            work: &mut self.work,
            reports: &mut self.reports,
        }
    }

    /// The owners of the state that a pod changes.
    fn pod_change(&mut self) -> PodChange<'_> {
        PodChange {
            settings: &self.settings,
            leads: self.session.leads(),
            view: &mut self.view,
            overruns: self.quota.overruns_mut(),
            in_flight: &mut self.in_flight,
            work: &mut self.work,
            reports: &mut self.reports,
        }
    }

    /// The owners of the state that a queue or another rule about quota changes.
    fn quota_rules(&mut self) -> QuotaRules<'_> {
        QuotaRules {
            settings: &self.settings,
            leads: self.session.leads(),
            view: &mut self.view,
            quota: &mut self.quota,
            in_flight: &mut self.in_flight,
            work: &mut self.work,
            reports: &mut self.reports,
        }
    }

    /// Sets the creation time from which pods without the label of managed pods are counted; with `None`, no such pod is counted. The creation time from which
    /// pods count must be set before pods are observed.
    pub fn count_pods_since(&mut self, since: Option<Timestamp>) {
        self.session.count_pods_since(since);
    }

    /// Begins or ends leadership: `term` is `Some` once the leadership was claimed and all objects were listed after the claim, and `None` when the
    /// leadership ends. Without leadership, control decides nothing, but the view stays up to date.
    pub fn lead(&mut self, term: Option<Term>) {
        if self.session.term() == term {
            return;
        }
        self.session.set_term(term);
        // Unwritten plans of an earlier term are void, and the engine follows the observed objects again.
        let planned = plans::take_planned(self.notes.workloads_mut());
        let asked = growth::begin_term(&mut self.notes);
        self.capacity.begin_term(self.notes.workloads_mut());
        for uid in planned.into_iter().chain(asked) {
            self.unplan(&uid);
        }
        self.quota.plan_again();
        if term.is_some() {
            // A priority class may have got its value while this replica did not lead, so a new leader computes all priorities again.
            self.view.reprice(None);
            self.everything_dirty();
            self.in_flight.note_unresolved_starts(&self.view);
            self.quota.overruns_mut().charge_again();
            self.pod_change().count_all_ending_pods();
            self.quota.overruns_mut().note_all(&self.view);
            self.quota.clear_trials();
        }
    }

    /// Takes a reading of the time of day and of a monotonic clock. Without readings of a monotonic clock, control trusts the time of day that the caller
    /// passes.
    pub fn tick(&mut self, now: Timestamp, steady: Duration) {
        if self.view.tick(now, steady) && self.session.leads() {
            // After a jump of the time of day, every wait ends at another time of day.
            self.everything_dirty();
        }
    }

    /// Marks every object for a new decision.
    fn everything_dirty(&mut self) {
        self.work.touch_all(&self.view);
        self.work.extend(self.capacity.leaving_nodes().map(|name| cluster_key(Kind::Node, name)));
    }

    /// Decides which writes to send now, and when the next step is due.
    pub fn step(&mut self, now: Timestamp) -> Step {
        self.step_cycles(now, u64::MAX)
    }

    /// Makes a step like [`Control::step`], with at most `cycles` scheduling cycles.
    pub fn step_cycles(&mut self, now: Timestamp, cycles: u64) -> Step {
        let mut step = Step::default();
        if let Some(term) = self.session.term() {
            self.fire_timers(now);
            let (quota, in_flight) = (&mut self.quota, &mut self.in_flight);
            let found = planning::sweep(&self.view, quota, in_flight, &mut self.work, now);
            self.reports.note_swept(found);
            self.look_at_overruns(now);
            self.begin_trials(now);
            self.decide_dirty(term, now, &mut step);
            if self.planning().plan(now, cycles) {
                self.note_changed(now);
            }
            self.promote(now);
            self.grow(now);
            self.decide_dirty(term, now, &mut step);
            self.write_reasons(term, now, &mut step);
            self.reports.publish_due_job_events(&self.view, now);
            self.write_statuses(term, now, &mut step);
            step.wake_at = self.wake_at(now);
        } else {
            // A new leader marks every object, so a replica that does not lead remembers no marks.
            self.work.clear();
            self.view.pods_mut().take_crowded();
        }
        step.notices.extend(self.reports.drain_notices());
        step.moves.extend(self.capacity.drain_moves());
        step.quota_is_wanted = self.quota.world().quota_is_wanted();
        step
    }

    /// Schedules the status writes of objects whose figures have changed.
    fn note_changed(&mut self, now: Timestamp) {
        for object in self.work.take_statuses() {
            self.reports.schedule_mut().mark_key(&object, now);
        }
        let (changed, shares) = (self.quota.world_mut().take_changed(), self.settings.engine.fair_sharing.is_some());
        self.reports.schedule_mut().mark_changed(&self.view, changed, shares, now);
    }

    fn decide_dirty(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        pods::touch_crowded(&mut self.view, &mut self.work);
        while let Some(object) = self.work.pop().or_else(|| self.in_flight.next_held_back()) {
            let own = object.kind != Kind::TrainingJob;
            if let Some(until) = self.in_flight.backing_off_from_writes(&object, now).filter(|_| own) {
                self.work.add_at(object, until);
                continue;
            }
            step.decided = step.decided.saturating_add(1);
            let decision = self.context().timed(decide::decide(&self.context(), &object, now), now);
            // The complete object of a large job was read for this decision only, so the view now keeps the reduced job.
            if object.kind.is_job() {
                self.view.lighten_job(&object);
            }
            if object.kind == Kind::Workload && !matches!(decision, Decision::Write(_)) {
                self.give_plan_up(&object);
            }
            match decision {
                Decision::Done => {}
                Decision::Wait(until) => self.work.add_at(object, until),
                Decision::WaitForCreations => self.in_flight.hold_back(object),
                Decision::WaitFor(other) => self.work.block(other, object),
                Decision::Write(draft) => {
                    self.issue(*draft, &object, term, now, step);
                }
                Decision::Event(notice) => {
                    if self.reports.is_news(&object, &notice) {
                        step.notices.push(*notice);
                        // After the event, control decides about the object again, because further events or writes may be due for it.
                        self.work.add(object);
                    }
                }
            }
        }
    }

    /// Gives a task to the runtime, unless the task's object is busy. If the object is busy, control decides about `origin`, the object whose decision asked
    /// for the task, again when the task under way ends.
    fn issue(&mut self, mut draft: Draft, origin: &ObjectKey, term: Term, now: Timestamp, step: &mut Step) -> bool {
        if self.in_flight.busy(&draft.key) {
            if draft.key != *origin {
                self.work.block(draft.key, origin.clone());
            }
            return false;
        }
        let holds_up = match draft.action.spares_its_object() {
            true => self.in_flight.backing_off(&draft.key, now),
            false => self.in_flight.backing_off_from_writes(&draft.key, now),
        };
        if let Some(until) = holds_up {
            self.work.add_at(origin.clone(), until);
            return false;
        }
        self.context().say_older_reasons(&mut draft);
        self.reports.add_job_event(&self.view, &mut draft, now);
        let id = self.in_flight.start(&mut draft, origin.clone());
        if let Some((uid, noted)) = grace::noted(&self.context(), &draft, now) {
            self.notes.workloads_mut().change(&uid, |notes| notes.save_mut().note(noted));
        }
        if let Some(end) = self.context().end_of_grace(&draft.key, draft.purpose) {
            // At the end of the job's grace period, control decides about `origin` again, even if another write is under way.
            self.work.add_at(origin.clone(), end);
        }
        if draft.purpose == Purpose::ScaleTraining
            && let Some((job, added)) =
                elastic::failed_scale_up(&self.context(), &(origin.namespace.clone(), origin.name.clone()))
        {
            self.notes.jobs_mut().change(&job, |notes| notes.training_mut().note_scaling(added));
        }
        let action = draft.action.pack();
        if let Action::Write(Write::Create(body) | Write::Merge { body, .. }) = &action {
            self.in_flight.weigh(&draft.key, body.as_str().len());
        }
        step.tasks.push(Task { id, term, purpose: draft.purpose, key: draft.key, action });
        true
    }

    fn write_reasons(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        if plans::under_way(self.notes.workloads()) > 0 {
            return;
        }
        let mut blocked = Vec::new();
        while let Some(verdict) =
            self.reports.reason_limiter_mut().next(self.notes.workloads_mut(), now, self.session.is_offline())
        {
            let Some(workload) = self.view.workloads().by_uid(&verdict.uid) else { continue };
            if workload.reserved() {
                continue;
            }
            let object = workload.object_key();
            if self.in_flight.busy(&object) {
                blocked.push(verdict);
                continue;
            }
            let Some(reason) = self.reports.reason_limiter().reason_to_report(&verdict) else { continue };
            let draft = explain(workload, &PendingReport::of(&verdict, reason), now);
            self.issue(draft, &object, term, now, step);
        }
        for verdict in blocked {
            reason_limiter::put_back(self.notes.workloads_mut(), verdict);
        }
    }

    fn write_statuses(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        self.note_changed(now);
        let mut later = Vec::new();
        while let Some(object) = self.reports.schedule_mut().next(now, self.session.is_offline()) {
            if self.in_flight.busy(&object) {
                later.push(object);
                continue;
            }
            if let Some(draft) = decide::status(&self.context(), &object, now)
                && !self.issue(draft, &object, term, now, step)
            {
                later.push(object);
            }
        }
        for object in later {
            self.reports.schedule_mut().mark_key(&object, now);
        }
    }

    /// The engine's world, for queries that do not change the view.
    pub fn world(&mut self) -> &mut World {
        self.quota.world_mut()
    }

    /// The time of the next retry of a failed write, if a retry is due.
    #[must_use]
    pub fn retry_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.in_flight.next_retry(now)
    }

    /// Whether this process leads, so that writes may be decided.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.session.leads()
    }

    /// A digest of the view, its indexes and the engine's accounting: the digest has `objects` by kind and name, and the `problems` that the engine finds in
    /// its own accounting. The cost of the digest grows with the number of all observed objects.
    #[must_use]
    pub fn recompute(&self) -> Value {
        self.digest().recompute()
    }

    /// The quota that queues and cohorts hold, the number of Workloads, and the `problems` of the engine's accounting. The digest of held quota costs much less
    /// than [`Self::recompute`], whose digest has an entry for each job, pod and Workload.
    #[must_use]
    pub fn held(&self) -> Value {
        self.digest().held()
    }

    /// The gauges of all queues, and the figures of control's own health. The cost of the gauges grows with the number of Workloads.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.context().figures()
    }

    /// Takes the counts and histogram values for metrics since the last call; before these, the list has the metric series to remove. The list has no measures
    /// of removed objects.
    #[must_use]
    pub fn drain_measures(&mut self) -> Vec<Measure> {
        self.reports.drain_measures(&self.view)
    }

    /// Preempts, with the next step, the victims that the engine chooses for a Workload that would use `usage` in a ClusterQueue whose quota is too small for
    /// the flavors and resources of `needs`. The victims are `None` if the Workload or the ClusterQueue is unknown.
    pub fn preempt_for(
        &mut self,
        uid: &str,
        cluster_queue: &str,
        needs: &[engine::FlavorResource],
        usage: &BTreeMap<engine::FlavorResource, engine::Amount>,
    ) -> Option<Vec<engine::Eviction>> {
        let evictions = self.quota.world_mut().evictions_for(uid, cluster_queue, needs, usage)?;
        for eviction in &evictions {
            planning::evict_with_next_step(&self.view, &mut self.notes, &mut self.work, eviction.clone());
        }
        Some(evictions)
    }

    /// Makes a new plan with the next step, even if nothing was observed.
    pub fn look_again(&mut self) {
        self.quota.plan_again();
    }

    /// A ClusterQueue in the form in which the engine gets it; `None` if no such ClusterQueue exists.
    #[must_use]
    pub fn cluster_queue_spec(&self, name: &str) -> Option<engine::ClusterQueueSpec> {
        self.context().cluster_queue_spec(name)
    }

    /// A LocalQueue in the form in which the engine gets it; without a LocalQueue object, the form has only the name.
    #[must_use]
    pub fn local_queue_spec(&self, namespace: &str, name: &str) -> engine::LocalQueueSpec {
        self.context().local_queue_spec(namespace, name)
    }

    /// A Cohort in the form in which the engine gets it; without a Cohort object, the form has only the name.
    #[must_use]
    pub fn cohort_spec(&self, name: &str) -> engine::CohortSpec {
        self.context().cohort_spec(name)
    }

    /// The cohorts for which a Cohort object exists, or which one of the given ClusterQueues or another Cohort names. Cohorts below a cycle of Cohorts are left
    /// out.
    #[must_use]
    pub fn cohorts_above(&self, cluster_queues: &[String]) -> BTreeSet<String> {
        self.context().cohorts_above(cluster_queues)
    }

    /// A Workload in the form in which the engine gets it; `None` if the Workload is unknown.
    #[must_use]
    pub fn workload_spec(&self, namespace: &str, name: &str) -> Option<engine::WorkloadSpec> {
        self.context().workload_spec(namespace, name)
    }

    /// Names of the admission checks that apply to a Workload in a ClusterQueue; `None` if either is unknown.
    #[must_use]
    pub fn checks_of(&self, namespace: &str, name: &str, cluster_queue: &str) -> Option<Vec<String>> {
        self.context().checks_of(namespace, name, cluster_queue)
    }
}
