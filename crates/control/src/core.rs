//! The facade: observations and outcomes in, writes out. See `Control`.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_engine::World;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::checkpoints::Saving;
use crate::children::Children;
use crate::decide;
use crate::decide::explain::{Told, explain};
use crate::decide::left::Left;
use crate::elastic::Growth;
use crate::figures::Gone;
use crate::flight::{Decision, Draft, Flights};
use crate::job_events::JobEvents;
use crate::ladder::Ladder;
use crate::measure::{Measure, TierMove};
pub(crate) use crate::moments::{after, after_seconds, millis_between, seconds_between};
use crate::older_reasons;
use crate::overruns::Overruns;
use crate::plans::Plans;
use crate::ration::Ration;
use crate::schedule::QueueSchedule;
use crate::settings::Settings;
use crate::shape::Shapes;
use crate::starts::Starts;
use crate::view::{Name, View, WorkloadView};
use crate::write::{Kind, Notice, ObjectKey, Purpose, Request, Term, Write};

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
}

/// Control: the view of the cluster, the engine's world, and the decisions about the next writes. It has no I/O and no clock: callers pass `now`.
#[derive(Debug)]
pub struct Control {
    pub(crate) settings: Settings,
    pub(crate) view: View,
    pub(crate) shapes: Shapes,
    pub(crate) world: World,
    pub(crate) flights: Flights,
    pub(crate) dirty: BTreeSet<ObjectKey>,
    pub(crate) schedule: QueueSchedule,
    pub(crate) ration: Ration,
    pub(crate) job_events: JobEvents,
    pub(crate) measures: Vec<Measure>,
    pub(crate) gone: Gone,
    /// Admissions that the engine has charged and that are not acknowledged yet.
    pub(crate) planned: Plans,
    /// Preemptions still to be written: victim uid to eviction.
    pub(crate) evictions: BTreeMap<String, engine::Eviction>,
    /// Evictions among them that the API server refused, by victim uid.
    pub(crate) refused_evictions: BTreeSet<String>,
    /// Deleted workloads whose pods were seen gone, by uid.
    pub(crate) pods_gone: BTreeSet<String>,
    /// Pods that jobs have left behind, as last seen, by the uid of the job's Workload.
    pub(crate) left: BTreeMap<String, Left>,
    pub(crate) saving: Saving,
    pub(crate) growth: Growth,
    pub(crate) children: Children,
    /// Jobs that have come to rest since their last start, by uid.
    pub(crate) at_rest: BTreeSet<String>,
    /// Jobs that are being deleted and whose pods are, too, even if a finalizer keeps the Jobs themselves, by uid.
    pub(crate) rid_of_pods: BTreeSet<String>,
    /// Starts in a row of jobs that were stopped within one admission.
    pub(crate) starts: Starts,
    /// Usage beyond quota, by job.
    pub(crate) overruns: Overruns,
    pub(crate) ladder: Ladder,
    /// Objects that were applied for the present run of a TrainingJob, by its uid.
    pub(crate) prepared: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// TrainingJobs whose status may have to be written.
    pub(crate) untold: BTreeSet<ObjectKey>,
    /// Last event message that was sent about an object, by reason.
    pub(crate) told: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    pub(crate) next_sweep: Option<Timestamp>,
    /// Time at which a plan reached the limit of unacknowledged admissions and left a workload out.
    pub(crate) filled_at: Option<Timestamp>,
    /// Parked workloads that a sweep had to wake: must stay 0.
    pub(crate) sweep_found: u64,
    pub(crate) skipped_preemptions: BTreeMap<String, u32>,
    pub(crate) term: Option<Term>,
    pub(crate) timers: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) replan: bool,
    /// Leaves the lists of admission checks as they are, and admits no workload by the states of its checks: set offline, where only the decisions of
    /// cycles are wanted.
    pub(crate) schedules_only: bool,
    /// Set offline, where no API server has the objects. Statuses and reasons are written at once, since no server has to be spared. The caller
    /// decides about evicted jobs, since no controller would stop them.
    pub(crate) is_offline: bool,
}

impl Control {
    /// Control with an empty view.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let world = World::new(settings.engine.clone());
        let ration = Ration::new(!settings.observe_unadmitted);
        Self {
            settings,
            view: View::default(),
            shapes: Shapes::default(),
            world,
            flights: Flights::default(),
            dirty: BTreeSet::new(),
            schedule: QueueSchedule::default(),
            ration,
            job_events: JobEvents::default(),
            measures: Vec::new(),
            gone: Gone::default(),
            planned: Plans::default(),
            evictions: BTreeMap::new(),
            refused_evictions: BTreeSet::new(),
            pods_gone: BTreeSet::new(),
            left: BTreeMap::new(),
            saving: Saving::default(),
            growth: Growth::default(),
            children: Children::default(),
            at_rest: BTreeSet::new(),
            rid_of_pods: BTreeSet::new(),
            starts: Starts::default(),
            overruns: Overruns::default(),
            ladder: Ladder::default(),
            prepared: BTreeMap::new(),
            untold: BTreeSet::new(),
            told: BTreeMap::new(),
            next_sweep: None,
            filled_at: None,
            sweep_found: 0,
            skipped_preemptions: BTreeMap::new(),
            term: None,
            timers: BTreeMap::new(),
            notices: Vec::new(),
            replan: true,
            schedules_only: false,
            is_offline: false,
        }
    }

    /// Leadership: `Some` after a claim and a quorum list taken after it, `None` when it ends. Without it nothing is
    /// decided, but the view stays warm.
    pub fn lead(&mut self, term: Option<Term>) {
        if self.term == term {
            return;
        }
        self.term = term;
        // Plans of an earlier term that were not written are void: the engine follows the objects again.
        let planned = self.planned.take();
        self.evictions.clear();
        self.refused_evictions.clear();
        self.growth.wanted.clear();
        self.growth.idle.clear();
        // Free capacity in better tiers was not observed meanwhile.
        self.ladder.better.clear();
        self.ladder.climbers.clear();
        let asked = std::mem::take(&mut self.growth.gives_up);
        for uid in planned.into_iter().chain(asked.into_keys()) {
            self.unplan(&uid);
        }
        self.replan = true;
        if term.is_some() {
            // A priority class may have got its value while this replica did not lead.
            self.view.reprice(None);
            self.everything_dirty();
            self.doubt_starts();
            self.find_overruns();
        }
    }

    pub(crate) fn touch(&mut self, key: ObjectKey) {
        if key.kind == Kind::TrainingJob {
            self.touch_training(&key);
        }
        self.dirty.insert(key);
    }

    pub(crate) fn replan(&mut self) {
        self.replan = true;
    }

    pub(crate) fn wait(&mut self, key: ObjectKey, until: Timestamp) {
        self.timers.entry(until).or_default().insert(key);
    }

    /// Takes the plan for a workload back in the engine, so that the workload's own state counts again. A plan that has come true is replaced by the
    /// observed state: nothing is freed, and no workload is woken.
    pub(crate) fn unplan(&mut self, uid: &str) {
        let workload = self.view.workloads.by_uid(uid);
        let name = workload.map(WorkloadView::key);
        let reserved = workload.is_some_and(WorkloadView::reserved);
        let leaving = workload.is_some_and(|workload| workload.is(types::EVICTED));
        if leaving || !reserved {
            self.evictions.remove(uid);
            self.refused_evictions.remove(uid);
        }
        self.note_given_up(uid);
        if let (true, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        let stays = !leaving && !self.evictions.contains_key(uid) && !self.growth.gives_up.contains_key(uid);
        if !reserved || stays {
            // An unknown uid means that the workload has gone meanwhile: nothing is charged then.
            let _ = self.world.apply(engine::Delta::Forget(uid.to_owned()));
        }
        if let (false, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        self.replan = true;
    }

    /// Takes back the plan for a workload when a decision about it did not write that plan: nothing else would take it back.
    fn give_plan_up(&mut self, object: &ObjectKey) {
        if self.planned.is_empty() || self.flights.busy(object) || self.flights.strays.may_land(object) {
            return;
        }
        let Some(uid) = self.uid_of(object) else { return };
        if self.planned.remove(&uid) {
            self.unplan(&uid);
        }
    }

    /// Lets the observed state of a workload count, when no write or plan of ours is pending on it.
    pub(crate) fn settle(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads.get(name) else { return };
        let uid = workload.uid.clone();
        if workload.reserved() && self.flights.flying(&key(Kind::Workload, name)).is_none() {
            // The reservation was seen: the admission is no longer a plan, whatever became of the answer.
            self.planned.remove(&uid);
        }
        if !self.planned.contains(&uid) && !self.flights.busy(&key(Kind::Workload, name)) {
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
        if let Some(term) = self.term {
            self.fire_timers(now);
            self.sweep(now);
            self.look_at_overruns(now);
            self.decide_dirty(term, now, &mut step);
            self.plan(now, cycles);
            self.climb(now);
            self.grow(now);
            self.decide_dirty(term, now, &mut step);
            self.write_reasons(term, now, &mut step);
            self.tell_jobs_later(now);
            self.write_statuses(term, now, &mut step);
            step.wake_at = self.wake_at(now);
        } else {
            // A replica that comes to lead looks at everything, so nothing that is seen meanwhile has to be remembered for that.
            self.dirty.clear();
            // Statuses of TrainingJobs that were not written are marked again by the next term.
            self.untold.retain(|object| object.kind != Kind::TrainingJob);
            self.view.pods.take_crowded();
        }
        step.notices.append(&mut self.notices);
        step.moves.append(&mut self.ladder.moves);
        step.quota_is_wanted = self.world.quota_is_wanted();
        step
    }

    fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let timers = self.timers.keys().next().copied();
        let ladder = self.ladder.next_climb;
        let growth = self.growth.next_look.filter(|_| !self.growth.jobs.is_empty());
        let waits = [self.ration.wake_at(now), self.job_events.wake_at()];
        let times = [timers, self.schedule.wake_at(), self.next_sweep, ladder, growth].into_iter().chain(waits);
        times.flatten().min()
    }

    fn fire_timers(&mut self, now: Timestamp) {
        while let Some(entry) = self.timers.first_entry() {
            if *entry.key() > now {
                break;
            }
            let keys = entry.remove();
            self.replan = true;
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
        for object in std::mem::take(&mut self.untold) {
            self.schedule.mark_key(&object, now);
        }
        let changed = self.world.take_changed();
        for name in changed.cluster_queues {
            for policy in self.view.claims.get(&*name).iter().flat_map(|claim| &claim.of) {
                self.schedule.mark(Kind::QueuePolicy, "", policy, now);
            }
            self.schedule.mark(Kind::ClusterQueue, "", &name, now);
        }
        for (namespace, name) in changed.local_queues {
            self.schedule.mark(Kind::LocalQueue, &namespace, &name, now);
        }
        if self.settings.engine.fair_sharing.is_some() {
            // A fair share depends on lending and usage in the complete cohort tree.
            for name in changed.cohorts {
                self.schedule.mark(Kind::Cohort, "", &name, now);
            }
        }
    }

    fn decide_dirty(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        self.touch_crowded();
        while let Some(object) = self.dirty.pop_first().or_else(|| self.flights.next_held_back()) {
            let own = object.kind != Kind::TrainingJob;
            if let Some(until) = self.flights.backing_off_from_writes(&object, now).filter(|_| own) {
                self.wait(object, until);
                continue;
            }
            let decision = self.timed(decide::decide(self, &object, now), now);
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
                Decision::WaitFor(other) => self.flights.block(other, object),
                Decision::Write(draft) => {
                    self.issue(*draft, &object, term, now, step);
                }
                Decision::Tell(notice) => self.tell_once(object, *notice, step),
            }
        }
    }

    /// Hands a write over, unless its object is busy: the end of the write under way brings the decision back here.
    fn issue(&mut self, mut draft: Draft, origin: &ObjectKey, term: Term, now: Timestamp, step: &mut Step) -> bool {
        if self.flights.busy(&draft.key) {
            if draft.key != *origin {
                self.flights.block(draft.key, origin.clone());
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
        self.say_older_reasons(&mut draft);
        self.tell_job(&mut draft, now);
        let id = self.flights.start(&mut draft, origin.clone());
        self.note_request_to_save(&draft, origin, now);
        if draft.purpose == Purpose::ScaleTraining {
            self.note_scaling(&(origin.namespace.clone(), origin.name.clone()));
        }
        let request = draft.request.pack();
        if let Request::Create(body) | Request::Merge { body, .. } = &request {
            self.flights.weigh(&draft.key, body.as_str().len());
        }
        step.writes.push(Write { id, term, purpose: draft.purpose, key: draft.key, request });
        true
    }

    pub(crate) fn say_older_reasons(&self, draft: &mut Draft) {
        if self.settings.observe_unadmitted {
            return;
        }
        let name = (draft.key.namespace.clone(), draft.key.name.clone());
        if let (Kind::Workload, Some(workload)) = (draft.key.kind, self.view.workloads.get(&name)) {
            older_reasons::reword(draft, &workload.status);
        }
    }

    fn write_reasons(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        if self.planned.under_way() > 0 {
            return;
        }
        let mut blocked = Vec::new();
        while let Some(verdict) = self.ration.next(now, self.is_offline) {
            let Some(workload) = self.view.workloads.by_uid(&verdict.uid) else { continue };
            if workload.reserved() {
                continue;
            }
            let object = key(Kind::Workload, &workload.key());
            if self.flights.busy(&object) {
                blocked.push(verdict);
                continue;
            }
            let Some(reason) = self.ration.told_as(&verdict) else { continue };
            let draft = explain(workload, &Told::of(&verdict, reason), now);
            self.issue(draft, &object, term, now, step);
        }
        for verdict in blocked {
            self.ration.put_back(verdict);
        }
    }

    fn write_statuses(&mut self, term: Term, now: Timestamp, step: &mut Step) {
        self.note_changed(now);
        let mut later = Vec::new();
        while let Some(object) = self.schedule.next(now, self.is_offline) {
            if self.flights.busy(&object) {
                later.push(object);
                continue;
            }
            if let Some(draft) = decide::status(self, &object, now)
                && !self.issue(draft, &object, term, now, step)
            {
                later.push(object);
            }
        }
        for object in later {
            self.schedule.mark_key(&object, now);
        }
    }
}

pub(crate) fn key(kind: Kind, name: &Name) -> ObjectKey {
    ObjectKey { kind, namespace: name.0.clone(), name: name.1.clone() }
}

pub(crate) fn cluster_key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: String::new(), name: name.to_owned() }
}

pub(crate) fn millis(time: Timestamp) -> engine::Millis {
    engine::Millis(time.as_millisecond())
}
