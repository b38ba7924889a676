//! The state of the controller in addition to the view, the writes under way and the work queue; each part of the state has one type that owns it. When an
//! object is gone from the cluster, each owner of state forgets the object by one call.

pub mod in_flight;
pub(crate) mod plan_notes;
pub mod plans;
mod relations;
pub(crate) mod unresolved;
mod unresolved_results;
pub mod work_queue;
mod write_events;

use std::collections::BTreeMap;

use berth_cache::View;
use berth_cache::names::Name;
use berth_cache::settings::Settings;
use berth_cache::shape::Shapes;
use berth_engine::World;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::decision::Draft;
use crate::job::job_events::JobEvents;
use crate::measure::Measure;
use crate::overruns::known::Overruns;
use crate::pod::trials::Trials;
use crate::queues::figures::Gone;
use crate::queues::schedule::QueueSchedule;
use crate::state::plans::Plans;
use crate::workload::reason_limiter::ReasonLimiter;
use crate::write::{Notice, ObjectKey, Term};

/// The role of this process as a leader or a standby, and its modes.
#[derive(Debug, Default)]
pub struct Session {
    /// The leadership term of this process; `None` if the process does not lead.
    term: Option<Term>,
    /// Creation time from which pods without the label of managed pods are counted; pods without the label that are older are ignored, and with `None` all pods
    /// without the label are.
    pods_counted_since: Option<Timestamp>,
    /// True offline, if only the decisions of scheduling cycles are wanted: lists of admission checks stay as they are, and no Workload is admitted by the
    /// states of its checks.
    schedules_only: bool,
    /// True offline, where no API server has the objects. If the process is offline, statuses and reasons are written at once, because no server has to be
    /// spared. Offline, the caller decides about evicted jobs, because no job controller would stop them.
    is_offline: bool,
}

/// Quota: the quota that the engine has given, and the usage beyond quota.
#[derive(Debug)]
pub struct Quota {
    /// The engine's world: quota, usage and pending Workloads.
    world: World,
    /// Shapes of pod sets; many Workloads may request pods of one shape.
    shapes: Shapes,
    /// State that concerns all plans; the planned admission and eviction of each Workload are in the notes about the Workload.
    plans: Plans,
    /// Trials of running pods that no webhook has reviewed: the time within which each pod can get quota.
    trials: Trials,
    /// Usage beyond quota, by job.
    overruns: Overruns,
    /// True if the next step asks the engine for a plan.
    plan: bool,
}

/// Reports to users and operators: statuses, reasons, events and metric changes that are due, and the last reported values.
#[derive(Debug)]
pub struct Reports {
    /// Times at which the statuses of queues are due.
    schedule: QueueSchedule,
    /// Limits the rate at which reasons of pending Workloads are written.
    reason_limiter: ReasonLimiter,
    /// Events about jobs that are still to be sent.
    job_events: JobEvents,
    /// Metric changes that the caller has not taken yet.
    measures: Vec<Measure>,
    /// Removed objects whose metrics are to be dropped.
    gone: Gone,
    /// The last event that was sent about each object, by reason.
    sent_events: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    /// Events that the next step publishes.
    notices: Vec<Notice>,
    /// Number of parked Workloads that a sweep had to wake; the number must stay 0.
    sweep_found: u64,
    /// Number of skipped preemptions, by ClusterQueue.
    skipped_preemptions: BTreeMap<String, u32>,
}

impl Quota {
    /// Quota of an empty world.
    pub fn new(settings: &Settings) -> Self {
        let world = World::new(settings.engine.clone());
        Self {
            world,
            shapes: Shapes::default(),
            plans: Plans::default(),
            trials: Trials::default(),
            overruns: Overruns::default(),
            plan: true,
        }
    }

    /// The engine's world: quota, usage and pending Workloads.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The engine's world, for plans and for queries that use its working memory. The engine's world keeps its accounting up to date itself, and
    /// [`Self::apply`] passes changes to the engine.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Shapes of pod sets, as a mutable reference. `Shapes` counts its own users, and no other part of `Quota` depends on the shapes.
    pub fn shapes_mut(&mut self) -> &mut Shapes {
        &mut self.shapes
    }

    /// State that concerns all plans.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// State that concerns all plans, as a mutable reference. `Plans` has private fields, and no other part of `Quota` follows a change of the plans.
    pub fn plans_mut(&mut self) -> &mut Plans {
        &mut self.plans
    }

    /// Trials of running pods that no webhook has reviewed.
    pub fn trials(&self) -> &Trials {
        &self.trials
    }

    /// Begins the trials of newly observed pods, and forgets the trials of pods that are gone. The result of `begin_trials` has the times at which the new
    /// trials end.
    pub fn begin_trials(&mut self, tried: Vec<(Name, Box<str>)>, now: Timestamp) -> Vec<(Name, Timestamp)> {
        self.trials.begin(tried, now)
    }

    /// Forgets all trials.
    pub fn clear_trials(&mut self) {
        self.trials.clear();
    }

    /// Usage beyond quota, by job.
    pub(crate) fn overruns(&self) -> &Overruns {
        &self.overruns
    }

    /// Usage beyond quota, by job, as a mutable reference. Each change of the usage beyond quota is noted in `Overruns` first; the caller passes the resulting
    /// charge to the engine with [`Self::apply`].
    pub fn overruns_mut(&mut self) -> &mut Overruns {
        &mut self.overruns
    }

    /// Asks the engine again whether the ClusterQueues that are charged for usage beyond quota have room, and returns the objects whose answer has changed. The
    /// cost of asking for room is proportional to all usage beyond quota, and nearly always no job has such usage.
    pub fn look_for_room(&mut self) -> Vec<ObjectKey> {
        self.overruns.look_for_room(&self.world)
    }

    /// Passes a change to the engine, and asks for a plan.
    pub fn apply(&mut self, delta: engine::Delta) {
        // The engine refuses a change only if the engine does not know the object, and nothing is charged for an unknown object.
        let _ = self.world.apply(delta);
        self.plan = true;
    }

    /// Has the engine follow the observed state of a Workload again instead of a plan, without asking for a new plan.
    pub fn take_back(&mut self, uid: String) {
        // An unknown uid means that the Workload is gone, and the engine charges nothing for such a Workload.
        let _ = self.world.apply(engine::Delta::Forget(uid));
    }

    /// Has the engine cancel the planned eviction of a Workload whose preemptor is gone. A planned admission of the Workload stays, because its write may have
    /// been applied.
    pub fn spare(&mut self, uid: String) {
        // An unknown uid means that the Workload is gone, and the engine charges nothing for such a Workload.
        let _ = self.world.apply(engine::Delta::Spare(uid));
    }

    /// Asks the engine for a plan with the next step.
    pub fn plan_again(&mut self) {
        self.plan = true;
    }

    /// Whether the next step asks the engine for a plan.
    pub fn wants_plan(&self) -> bool {
        self.plan
    }

    /// Notes that a plan was made; `again` says whether another plan is wanted.
    pub fn planned(&mut self, again: bool) {
        self.plan = again;
    }
}

impl Session {
    /// The leadership term of this process; `None` if the process does not lead.
    pub fn term(&self) -> Option<Term> {
        self.term
    }

    /// Begins a leadership term, or ends the leadership with `None`.
    pub fn set_term(&mut self, term: Option<Term>) {
        self.term = term;
    }

    /// Creation time from which pods without the label of managed pods are counted; with `None`, no such pod is counted.
    pub(crate) fn pods_counted_since(&self) -> Option<Timestamp> {
        self.pods_counted_since
    }

    /// Sets the creation time from which pods without the label of managed pods are counted.
    pub fn count_pods_since(&mut self, since: Option<Timestamp>) {
        self.pods_counted_since = since;
    }

    /// Whether only the decisions of scheduling cycles are wanted.
    pub(crate) fn schedules_only(&self) -> bool {
        self.schedules_only
    }

    /// Leaves the lists of admission checks unchanged from now on, because only the decisions of scheduling cycles are wanted.
    pub fn schedule_only(&mut self) {
        self.schedules_only = true;
    }

    /// Whether the process is offline: no API server has the objects, so that none has to be spared.
    pub fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// Takes the process offline: no API server has the objects from now on.
    pub fn go_offline(&mut self) {
        self.is_offline = true;
    }

    /// Whether this process leads, so that writes may be decided.
    pub fn leads(&self) -> bool {
        self.term.is_some()
    }
}

impl Reports {
    /// Reports of a process that has observed nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            schedule: QueueSchedule::default(),
            reason_limiter: ReasonLimiter::new(!settings.observe_unadmitted),
            job_events: JobEvents::default(),
            measures: Vec::new(),
            gone: Gone::default(),
            sent_events: BTreeMap::new(),
            notices: Vec::new(),
            sweep_found: 0,
            skipped_preemptions: BTreeMap::new(),
        }
    }

    /// The times at which the statuses of queues are due, as a mutable reference. `QueueSchedule` has private fields, and no other part of `Reports` follows a
    /// change of the schedule.
    pub fn schedule_mut(&mut self) -> &mut QueueSchedule {
        &mut self.schedule
    }

    /// The limit of the rate at which reasons of pending Workloads are written.
    pub fn reason_limiter(&self) -> &ReasonLimiter {
        &self.reason_limiter
    }

    /// The limit of the rate at which reasons of pending Workloads are written, as a mutable reference. `ReasonLimiter` has private fields, and no other part
    /// of `Reports` follows a change of the limit.
    pub fn reason_limiter_mut(&mut self) -> &mut ReasonLimiter {
        &mut self.reason_limiter
    }

    /// Adds the event at a job to the write that explains why the job's Workload waits, if such an event is due.
    pub fn add_job_event(&mut self, view: &View, draft: &mut Draft, now: Timestamp) {
        self.job_events.note_draft(view, draft, now);
    }

    /// Publishes the events at jobs whose reason had changed too early for an event.
    pub fn publish_due_job_events(&mut self, view: &View, now: Timestamp) {
        let due = self.job_events.due(view, now);
        self.notices.extend(due);
    }

    /// Publishes events with the next step.
    pub fn publish(&mut self, notices: impl IntoIterator<Item = Notice>) {
        self.notices.extend(notices);
    }

    /// Removes and returns the events that are to be published.
    pub fn drain_notices(&mut self) -> impl Iterator<Item = Notice> {
        self.notices.drain(..)
    }

    /// The time at which the next event at a job or the next status of a queue is due.
    pub fn wake_at(&self) -> Option<Timestamp> {
        [self.job_events.wake_at(), self.schedule.wake_at()].into_iter().flatten().min()
    }

    /// The message of the last event that was sent about an object for a reason.
    pub fn last_event(&self, object: &ObjectKey, reason: &str) -> Option<&str> {
        self.sent_events.get(object)?.get(reason).map(String::as_str)
    }

    /// The objects about which an event was sent for a reason.
    pub(crate) fn objects_with_event<'a>(&'a self, reason: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        self.sent_events.iter().filter(move |(_, events)| events.contains_key(reason)).map(|(object, _)| object)
    }

    /// Forgets the events that were sent about an object, because the object is gone.
    pub fn forget_events(&mut self, object: &ObjectKey) {
        self.sent_events.remove(object);
    }

    /// Adds a metric change for the next caller of [`Self::drain_measures`].
    pub fn add_measure(&mut self, measure: Measure) {
        self.measures.push(measure);
    }

    /// Adds metric changes for the next caller of [`Self::drain_measures`].
    pub fn add_measures(&mut self, measures: impl IntoIterator<Item = Measure>) {
        self.measures.extend(measures);
    }

    /// Removes and returns the metric changes since the last call of `drain_measures`, after the removals of the metric series of removed objects. The metric
    /// changes of a removed object are left out.
    pub fn drain_measures(&mut self, view: &View) -> Vec<Measure> {
        let (gone, happened) = (std::mem::take(&mut self.gone), std::mem::take(&mut self.measures));
        gone.before(view, happened)
    }

    /// Notes that the metric series of a ClusterQueue are to be dropped, because the ClusterQueue is gone.
    pub(crate) fn note_gone_cluster_queue(&mut self, name: &str) {
        self.gone.cluster_queues.insert(name.to_owned());
    }

    /// Notes that the metric series of a LocalQueue are to be dropped, because the LocalQueue is gone.
    pub(crate) fn note_gone_local_queue(&mut self, name: &Name) {
        self.gone.local_queues.insert(name.clone());
    }

    /// Notes that the metric series of a cohort are to be dropped, unless another object still names the cohort.
    pub(crate) fn note_left_cohort(&mut self, name: String) {
        self.gone.cohorts.insert(name);
    }

    /// Number of parked Workloads that a sweep had to wake; the number must stay 0.
    pub(crate) fn sweep_found(&self) -> u64 {
        self.sweep_found
    }

    /// Number of preemptions of a ClusterQueue that the last plan has skipped.
    pub(crate) fn skipped_preemptions(&self, cluster_queue: &str) -> u32 {
        self.skipped_preemptions.get(cluster_queue).copied().unwrap_or_default()
    }

    /// Notes the number of skipped preemptions of each ClusterQueue, in place of the numbers of the plan before.
    pub fn note_skipped_preemptions(&mut self, skipped: impl IntoIterator<Item = (String, u32)>) {
        self.skipped_preemptions = skipped.into_iter().collect();
    }

    /// Notes the number of parked Workloads that a sweep had to wake.
    pub fn note_swept(&mut self, found: usize) {
        self.sweep_found = self.sweep_found.saturating_add(u64::try_from(found).unwrap_or(u64::MAX));
    }
}
