//! The facade: observations and outcomes in, writes out. See `Control`.

pub(crate) mod ask;
pub(crate) mod decide;
pub(crate) mod digest;
pub(crate) mod flight;
mod forward_b1;
mod forward_b2;
pub(crate) mod outcomes;
pub(crate) mod planning;
pub(crate) mod plans;
pub(crate) mod relations;
pub(crate) mod state;
pub(crate) mod strays;
pub(crate) mod work_queue;
mod write_events;

use std::time::Duration;

use berth_api::conditions::types;
use jiff::Timestamp;

use crate::cache::{Name, View, WorkloadView};
use crate::capacity::Ladder;
use crate::context::Context;
use crate::controller::flight::{Decision, Draft, Flights};
use crate::controller::state::{Quota, Reports, Session};
use crate::controller::work_queue::WorkQueue;
use crate::job::grace;
use crate::job::remains::Remains;
use crate::measure::TierMove;
pub(crate) use crate::moments::{after, after_seconds, millis, millis_between, seconds_between};
use crate::settings::Settings;
use crate::training_job::elastic;
use crate::training_job::growth::Candidate;
use crate::training_job::trainings::Trainings;
use crate::workload::explain::{Told, explain};
use crate::workload::older_reasons;
use crate::write::{Kind, Notice, ObjectKey, Purpose, Request, Term, Write};
pub(crate) use crate::write::{cluster_key, key};

/// Result of one step.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Step {
    /// Writes to perform, at most one per object.
    pub writes: Vec<Write>,
    /// Events to publish.
    pub notices: Vec<Notice>,
    /// Changes of capacity tier, for the log.
    pub moves: Vec<TierMove>,
    /// Call again at that time even if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// True while a workload waits for quota: writes that give quota back are urgent then.
    pub quota_is_wanted: bool,
    /// Number of objects about which the step has decided.
    pub decided: u64,
}

/// Control: the view of the cluster, the engine's world, and the decisions about the next writes. It has no I/O and no clock: callers pass `now`.
#[derive(Debug)]
pub struct Control {
    pub(crate) settings: Settings,
    pub(crate) session: Session,
    /// Observed objects, with their indexes.
    pub(crate) view: View,
    /// The engine's world, its plans, and usage beyond quota.
    pub(crate) quota: Quota,
    /// Writes under way.
    pub(crate) flights: Flights,
    pub(crate) work: WorkQueue,
    pub(crate) remains: Remains,
    pub(crate) reports: Reports,
    pub(crate) training: Trainings,
    pub(crate) capacity: Ladder,
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
            flights: Flights::default(),
            work: WorkQueue::default(),
            remains: Remains::default(),
            reports,
            training: Trainings::default(),
            capacity: Ladder::default(),
        }
    }

    /// The state that decisions read.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            settings: &self.settings,
            session: &self.session,
            view: &self.view,
            quota: &self.quota,
            flights: &self.flights,
            remains: &self.remains,
            reports: &self.reports,
            training: &self.training,
            capacity: &self.capacity,
        }
    }

    /// Leadership: `Some` after a claim and a quorum list taken after it, `None` when it ends. Without it nothing is
    /// decided, but the view stays warm.
    pub fn lead(&mut self, term: Option<Term>) {
        if self.session.term == term {
            return;
        }
        self.session.term = term;
        // Plans of an earlier term that were not written are void: the engine follows the objects again.
        let planned = self.quota.plans.take();
        self.training.growth.wanted.clear();
        self.training.growth.idle.clear();
        // Free capacity in better tiers was not observed meanwhile.
        self.capacity.better.clear();
        self.capacity.climbers.clear();
        let asked = std::mem::take(&mut self.training.growth.gives_up);
        for uid in planned.into_iter().chain(asked.into_keys()) {
            self.unplan(&uid);
        }
        self.quota.plan_again();
        if term.is_some() {
            // A priority class may have got its value while this replica did not lead.
            self.view.reprice(None);
            self.everything_dirty();
            self.doubt_starts();
            self.find_overruns();
            self.quota.trials.clear();
        }
    }

    /// Takes a reading of the time of day and of a monotonic clock. A control without readings believes times of day.
    pub fn tick(&mut self, now: Timestamp, steady: Duration) {
        if self.view.timeline.tick(now, steady) && self.context().leads() {
            // Every wait ends at another time of day.
            self.everything_dirty();
        }
    }

    /// Marks everything that is decided about.
    pub(crate) fn everything_dirty(&mut self) {
        self.work.touch_all(&self.view);
        self.work.extend(self.capacity.reclaims.nodes().map(|name| cluster_key(Kind::Node, name)));
    }

    /// Takes the plan for a workload back in the engine, so that the workload's own state counts again. A plan that has come true is replaced by the
    /// observed state: nothing is freed, and no workload is woken.
    pub(crate) fn unplan(&mut self, uid: &str) {
        let workload = self.view.workloads.by_uid(uid);
        let name = workload.map(WorkloadView::key);
        let reserved = workload.is_some_and(WorkloadView::reserved);
        let leaving = workload.is_some_and(|workload| workload.is(types::EVICTED));
        if leaving || !reserved {
            self.quota.plans.evicts_no_longer(uid);
        }
        self.training.growth.note_given_up(&self.view, uid);
        if let (true, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        let stays = !leaving && !self.quota.plans.evicts(uid) && !self.training.growth.gives_up.contains_key(uid);
        if !reserved || stays {
            self.quota.take_back(uid.to_owned());
        }
        if let (false, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        self.quota.plan_again();
    }

    /// Takes back the plan for a workload when a decision about it did not write that plan: nothing else would take it back.
    fn give_plan_up(&mut self, object: &ObjectKey) {
        if self.quota.plans.is_empty() || self.flights.busy(object) || self.flights.strays.may_land(object) {
            return;
        }
        let Some(uid) = self.context().uid_of(object) else { return };
        if self.quota.plans.remove(&uid) {
            self.unplan(&uid);
        }
    }

    /// Lets the observed state of a workload count, when no write or plan of ours is pending on it.
    pub(crate) fn settle(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads.get(name) else { return };
        let uid = workload.uid.clone();
        if workload.reserved() && self.flights.flying(&key(Kind::Workload, name)).is_none() {
            // The reservation was seen: the admission is no longer a plan, whatever became of the answer.
            self.quota.plans.remove(&uid);
        }
        if !self.quota.plans.contains(&uid) && !self.flights.busy(&key(Kind::Workload, name)) {
            self.unplan(&uid);
        }
    }

    /// Decides which writes to send now, and when the next step is due.
    pub fn step(&mut self, now: Timestamp) -> Step {
        self.step_cycles(now, u64::MAX)
    }

    /// Like [`Control::step`], with that many scheduling cycles at most.
    pub fn step_cycles(&mut self, now: Timestamp, cycles: u64) -> Step {
        let mut step = Step::default();
        if let Some(term) = self.session.term {
            self.fire_timers(now);
            self.sweep(now);
            self.look_at_overruns(now);
            self.begin_trials(now);
            self.decide_dirty(term, now, &mut step);
            self.plan(now, cycles);
            self.climb(now);
            self.grow(now);
            self.decide_dirty(term, now, &mut step);
            self.write_reasons(term, now, &mut step);
            let later = self.reports.job_events.due(&self.view, now);
            self.reports.notices.extend(later);
            self.write_statuses(term, now, &mut step);
            step.wake_at = self.wake_at(now);
        } else {
            // A replica that comes to lead looks at everything, so nothing that is seen meanwhile has to be remembered for that.
            self.work.clear();
            self.view.pods.take_crowded();
        }
        step.notices.append(&mut self.reports.notices);
        step.moves.append(&mut self.capacity.moves);
        step.quota_is_wanted = self.quota.world.quota_is_wanted();
        step
    }

    /// Lets running jobs grow into idle quota, from time to time.
    fn grow(&mut self, now: Timestamp) {
        if !self.training.growth.begin_look(now) {
            return;
        }
        let candidates = elastic::candidates(&self.context(), now);
        let world = &mut self.quota.world;
        let fits = |job: &Candidate| world.could_grow(&job.workload, &job.counts, &job.given);
        for name in self.training.growth.offer(candidates, fits) {
            self.touch(key(Kind::TrainingJob, &name));
        }
    }

    fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let work = self.work.next_time();
        let ladder = self.capacity.next_climb;
        let growth = self.training.growth.next_look.filter(|_| !self.training.growth.jobs.is_empty());
        let waits = [self.reports.ration.wake_at(now), self.reports.job_events.wake_at()];
        let times = [work, self.reports.schedule.wake_at(), ladder, growth].into_iter().chain(waits);
        times.flatten().min()
    }

    fn fire_timers(&mut self, now: Timestamp) {
        while let Some(keys) = self.work.take_due(now) {
            self.quota.plan_again();
            for object in keys {
                if self.flights.give_up(&object, now) {
                    self.touch_related(&object);
                }
                if object.kind == Kind::Workload {
                    // A back-off may be over: the engine gets the workload anew.
                    self.flights.forget_old_refusal(&object, now);
                    let name = (object.namespace.clone(), object.name.clone());
                    self.mirror(&name);
                }
                self.touch(object);
            }
        }
    }

    /// Schedules status writes of objects whose figures changed.
    pub(crate) fn note_changed(&mut self, now: Timestamp) {
        for object in self.work.take_statuses() {
            self.reports.schedule.mark_key(&object, now);
        }
        let changed = self.quota.world.take_changed();
        for name in changed.cluster_queues {
            for policy in self.view.claims.get(&*name).iter().flat_map(|claim| &claim.of) {
                self.reports.schedule.mark(Kind::QueuePolicy, "", policy, now);
            }
            self.reports.schedule.mark(Kind::ClusterQueue, "", &name, now);
        }
        for (namespace, name) in changed.local_queues {
            self.reports.schedule.mark(Kind::LocalQueue, &namespace, &name, now);
        }
        if self.settings.engine.fair_sharing.is_some() {
            // A fair share depends on lending and usage in the complete cohort tree.
            for name in changed.cohorts {
                self.reports.schedule.mark(Kind::Cohort, "", &name, now);
            }
        }
    }

    fn decide_dirty(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        self.touch_crowded();
        while let Some(object) = self.work.pop().or_else(|| self.flights.next_held_back()) {
            let own = object.kind != Kind::TrainingJob;
            if let Some(until) = self.flights.backing_off_from_writes(&object, now).filter(|_| own) {
                self.wait(object, until);
                continue;
            }
            step.decided = step.decided.saturating_add(1);
            let decision = self.context().timed(decide::decide(&self.context(), &object, now), now);
            // The text of a large job was read for this decision, and no later one needs it.
            if object.kind.is_job() {
                self.view.jobs.lighten(&object);
            }
            if object.kind == Kind::Workload && !matches!(decision, Decision::Write(_)) {
                self.give_plan_up(&object);
            }
            match decision {
                Decision::Done => {}
                Decision::Wait(until) => self.wait(object, until),
                Decision::WaitForCreations => self.flights.hold_back(object),
                Decision::WaitFor(other) => self.work.block(other, object),
                Decision::Write(draft) => {
                    self.issue(*draft, &object, term, now, step);
                }
                Decision::Tell(notice) => {
                    if self.reports.is_news(&object, &notice) {
                        step.notices.push(*notice);
                        // There may be more to report or to do.
                        self.work.add(object);
                    }
                }
            }
        }
    }

    /// Hands a write over, unless its object is busy: the end of the write under way brings the decision back here.
    fn issue(&mut self, mut draft: Draft, origin: &ObjectKey, term: Term, now: Timestamp, step: &mut Step) -> bool {
        if self.flights.busy(&draft.key) {
            if draft.key != *origin {
                self.work.block(draft.key, origin.clone());
            }
            return false;
        }
        let holds_up = match draft.purpose.spares_its_object() {
            true => self.flights.backing_off(&draft.key, now),
            false => self.flights.backing_off_from_writes(&draft.key, now),
        };
        if let Some(until) = holds_up {
            self.wait(origin.clone(), until);
            return false;
        }
        self.context().say_older_reasons(&mut draft);
        self.reports.job_events.tell(&self.view, &mut draft, now);
        let id = self.flights.start(&mut draft, origin.clone());
        if let Some((uid, noted)) = grace::noted(&self.context(), &draft, now) {
            self.training.saving.note(uid, noted);
        }
        if let Some(end) = self.context().end_of_grace(&draft.key, draft.purpose) {
            // Whatever is under way then: the grace period ends.
            self.wait(origin.clone(), end);
        }
        if draft.purpose == Purpose::ScaleTraining
            && let Some((job, added)) =
                elastic::grown_in_vain(&self.context(), &(origin.namespace.clone(), origin.name.clone()))
        {
            self.training.growth.note_scaling(job, added);
        }
        let request = draft.request.pack();
        if let Request::Create(body) | Request::Merge { body, .. } = &request {
            self.flights.weigh(&draft.key, body.as_str().len());
        }
        step.writes.push(Write { id, term, purpose: draft.purpose, key: draft.key, request });
        true
    }

    fn write_reasons(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        if self.quota.plans.under_way() > 0 {
            return;
        }
        let mut blocked = Vec::new();
        while let Some(verdict) = self.reports.ration.next(now, self.session.is_offline) {
            let Some(workload) = self.view.workloads.by_uid(&verdict.uid) else { continue };
            if workload.reserved() {
                continue;
            }
            let object = key(Kind::Workload, &workload.key());
            if self.flights.busy(&object) {
                blocked.push(verdict);
                continue;
            }
            let Some(reason) = self.reports.ration.told_as(&verdict) else { continue };
            let draft = explain(workload, &Told::of(&verdict, reason), now);
            self.issue(draft, &object, term, now, step);
        }
        for verdict in blocked {
            self.reports.ration.put_back(verdict);
        }
    }

    fn write_statuses(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        self.note_changed(now);
        let mut later = Vec::new();
        while let Some(object) = self.reports.schedule.next(now, self.session.is_offline) {
            if self.flights.busy(&object) {
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
            self.reports.schedule.mark_key(&object, now);
        }
    }
}

impl Context<'_> {
    pub(crate) fn say_older_reasons(&self, draft: &mut Draft) {
        if self.settings.observe_unadmitted {
            return;
        }
        let name = (draft.key.namespace.clone(), draft.key.name.clone());
        if let (Kind::Workload, Some(workload)) = (draft.key.kind, self.view.workloads.get(&name)) {
            older_reasons::reword(draft, &workload.status);
        }
    }
}
