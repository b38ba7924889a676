//! The facade: observations and outcomes in, writes out. See `Control`.

pub(crate) mod ask;
pub(crate) mod decide;
pub(crate) mod digest;
pub(crate) mod flight;
pub(crate) mod outcomes;
pub(crate) mod planning;
pub(crate) mod plans;
pub(crate) mod relations;
pub(crate) mod strays;

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_engine::World;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::training_job::checkpoints::Saving;
use crate::training_job::children::Children;

use crate::cache::shape::Shapes;
use crate::cache::{Name, View, WorkloadView};
use crate::capacity::Ladder;
use crate::controller::flight::{Decision, Draft, Flights};
use crate::controller::plans::Plans;
use crate::job::job_events::JobEvents;
use crate::job::left::Left;
use crate::job::starts::Starts;
use crate::measure::{Measure, TierMove};
pub(crate) use crate::moments::{after, after_seconds, millis_between, seconds_between};
use crate::overruns::Overruns;
use crate::queues::figures::Gone;
use crate::queues::schedule::QueueSchedule;
use crate::settings::Settings;
use crate::training_job::elastic::Growth;
use crate::workload::explain::{Told, explain};
use crate::workload::older_reasons;
use crate::workload::ration::Ration;
use crate::write::{Kind, Notice, ObjectKey, Purpose, Request, Term, Write};

/// What one step asks for.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Step {
    /// Writes to perform, at most one per object.
    pub writes: Vec<Write>,
    /// Events to publish.
    pub notices: Vec<Notice>,
    /// For the log: who came to a tier of capacity, or left it.
    pub moves: Vec<TierMove>,
    /// Call again at that time even if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// Somebody waits for quota: what gives it back is urgent then.
    pub quota_is_wanted: bool,
}

/// Control: the view of the cluster, the engine's world, and what to write next. No I/O and no clock: `now` comes in.
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
    /// Admissions the engine has booked and that are not acknowledged yet.
    pub(crate) planned: Plans,
    /// Preemptions still to be written: victim uid to eviction.
    pub(crate) evictions: BTreeMap<String, engine::Eviction>,
    /// Those of them that the API server refused, by victim uid.
    pub(crate) refused_evictions: BTreeSet<String>,
    /// Deleted workloads whose pods were seen gone, by uid.
    pub(crate) pods_gone: BTreeSet<String>,
    /// Pods that jobs have left behind, as they were seen last, by the uid of the job's Workload.
    pub(crate) left: BTreeMap<String, Left>,
    pub(crate) saving: Saving,
    pub(crate) growth: Growth,
    pub(crate) children: Children,
    /// Jobs that were seen to have come to rest since their last start, by uid.
    pub(crate) at_rest: BTreeSet<String>,
    /// Jobs that are being deleted, and whose pods are, too, whatever keeps the Jobs themselves, by uid.
    pub(crate) rid_of_pods: BTreeSet<String>,
    /// Starts in a row of jobs that were stopped within one admission.
    pub(crate) starts: Starts,
    /// Usage beyond quota, by job.
    pub(crate) overruns: Overruns,
    pub(crate) ladder: Ladder,
    /// What was applied for the present run of a TrainingJob, by its uid.
    pub(crate) prepared: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// TrainingJobs whose status may have to be written.
    pub(crate) untold: BTreeSet<ObjectKey>,
    /// What users were told last of objects, by reason.
    pub(crate) told: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    pub(crate) next_sweep: Option<Timestamp>,
    /// When a plan filled what may be unacknowledged, and left somebody out.
    pub(crate) filled_at: Option<Timestamp>,
    /// Parked workloads that a sweep had to wake: must stay 0.
    pub(crate) sweep_found: u64,
    pub(crate) skipped_preemptions: BTreeMap<String, u32>,
    pub(crate) term: Option<Term>,
    pub(crate) timers: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) replan: bool,
    /// Lists of admission checks are left as they are, and nobody is admitted for what they say: offline, where only what cycles
    /// decide is asked for.
    pub(crate) schedules_only: bool,
    /// The objects are no server's: statuses and reasons are written at once, since there is none to spare, and whoever asks says what becomes of
    /// what was evicted, since nobody else would stop it.
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
        // What an earlier term has planned and not written is void: the books follow the objects again.
        let planned = self.planned.take();
        self.evictions.clear();
        self.refused_evictions.clear();
        self.growth.wanted.clear();
        self.growth.idle.clear();
        // Whether a better tier is free still was not looked at meanwhile.
        self.ladder.better.clear();
        self.ladder.climbers.clear();
        let asked = std::mem::take(&mut self.growth.gives_up);
        for uid in planned.into_iter().chain(asked.into_keys()) {
            self.unplan(&uid);
        }
        self.replan = true;
        if term.is_some() {
            // A class may have got its value while nobody led.
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

    /// Takes what was planned about a workload back in the engine's books and lets its own state speak again. A plan that
    /// has come true is replaced by what is seen, so that nothing is freed and nobody woken.
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
            // An unknown uid means the workload has gone meanwhile: nothing is booked then.
            let _ = self.world.apply(engine::Delta::Forget(uid.to_owned()));
        }
        if let (false, Some(name)) = (reserved, &name) {
            self.mirror(name);
        }
        self.replan = true;
    }

    /// Whoever decides about a workload does not write what was planned for it: nothing else would ever take the plan back.
    fn give_plan_up(&mut self, object: &ObjectKey) {
        if self.planned.is_empty() || self.flights.busy(object) || self.flights.strays.may_land(object) {
            return;
        }
        let Some(uid) = self.uid_of(object) else { return };
        if self.planned.remove(&uid) {
            self.unplan(&uid);
        }
    }

    /// Lets a workload's own state speak, when nothing of ours is pending on it.
    pub(crate) fn settle(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads.get(name) else { return };
        let uid = workload.uid.clone();
        if workload.reserved() && self.flights.flying(&key(Kind::Workload, name)).is_none() {
            // Seen: the admission is no longer a plan, whatever became of the answer.
            self.planned.remove(&uid);
        }
        if !self.planned.contains(&uid) && !self.flights.busy(&key(Kind::Workload, name)) {
            self.unplan(&uid);
        }
    }

    /// Decides: what to write now, and when to come back.
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
            // Whoever comes to lead looks at everything: what is seen meanwhile is not to be remembered for that.
            self.dirty.clear();
            // A status that could not be written is, by the next term.
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
                    // A back-off may be over: the engine is told anew.
                    self.flights.forget_old_refusal(&object, now);
                    let name = (object.namespace.clone(), object.name.clone());
                    self.mirror(&name);
                }
                self.touch(object);
            }
        }
    }

    /// Queues whose figures changed get their status written in due time.
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
            // A share depends on what the whole tree lends and uses.
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

    /// Hands a write over, unless its object is busy: then whatever frees it brings us back here.
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
