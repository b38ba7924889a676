//! The state of the controller beside the cache, the writes under way and the work queue; each part of the state has one owner. When an object is gone,
//! one call to each owner forgets the object.

mod doubts;
pub mod flight;
pub(crate) mod plan_notes;
pub mod plans;
mod relations;
pub(crate) mod strays;
pub mod work_queue;
mod write_events;

use std::collections::BTreeMap;

use berth_cache::settings::Settings;
use berth_cache::shape::Shapes;
use berth_engine::World;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::job::job_events::JobEvents;
use crate::measure::Measure;
use crate::overruns::known::Overruns;
use crate::pod::trials::Trials;
use crate::queues::figures::Gone;
use crate::queues::schedule::QueueSchedule;
use crate::state::plans::Plans;
use crate::workload::ration::Ration;
use crate::write::{Notice, ObjectKey, Term};

/// The role of this process as a leader or a standby, and its modes.
#[derive(Debug, Default)]
pub struct Session {
    /// The leadership term of this process; `None` if the process does not lead.
    pub term: Option<Term>,
    /// Creation time from which pods without the label of managed pods are counted; older such pods are left alone, and with `None` all such pods are.
    pub pods_counted_since: Option<Timestamp>,
    /// True offline, if only the decisions of scheduling cycles are wanted: lists of admission checks stay as they are, and no Workload is admitted by the
    /// states of its checks.
    pub schedules_only: bool,
    /// True offline, where no API server has the objects. Offline, statuses and reasons are written at once, because no server has to be spared. Offline, the
    /// caller decides about evicted jobs, because no job controller would stop them.
    pub is_offline: bool,
}

/// Quota: the quota that the engine has given, and the usage beyond quota.
#[derive(Debug)]
pub struct Quota {
    /// The engine's world: quota, usage and pending Workloads.
    pub world: World,
    /// Shapes of pod sets; many Workloads may request pods of one shape.
    pub shapes: Shapes,
    /// State that concerns all plans; the planned admission and eviction of each Workload are in the notes about the Workload.
    pub plans: Plans,
    /// Trials of running pods that no webhook has reviewed: the time within which each pod can get quota.
    pub trials: Trials,
    /// Usage beyond quota, by job.
    pub overruns: Overruns,
    /// True if the next step asks the engine for a plan.
    plan: bool,
}

/// Reports to users and operators: statuses, reasons, events and measures that are due, and the last reported values.
#[derive(Debug)]
pub struct Reports {
    /// Times at which the statuses of queues are due.
    pub schedule: QueueSchedule,
    /// Limits the rate at which reasons of pending Workloads are written.
    pub ration: Ration,
    /// Events about jobs that are still to be sent.
    pub job_events: JobEvents,
    /// Measures that the caller has not taken yet.
    pub measures: Vec<Measure>,
    /// Removed objects whose metrics are to be dropped.
    pub gone: Gone,
    /// The last event that was sent about each object, by reason.
    pub told: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    /// Events that the next step publishes.
    pub notices: Vec<Notice>,
    /// Number of parked Workloads that a sweep had to wake; the number must stay 0.
    pub(crate) sweep_found: u64,
    /// Number of skipped preemptions, by ClusterQueue.
    pub skipped_preemptions: BTreeMap<String, u32>,
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
            ration: Ration::new(!settings.observe_unadmitted),
            job_events: JobEvents::default(),
            measures: Vec::new(),
            gone: Gone::default(),
            told: BTreeMap::new(),
            notices: Vec::new(),
            sweep_found: 0,
            skipped_preemptions: BTreeMap::new(),
        }
    }

    /// Notes the number of parked Workloads that a sweep had to wake.
    pub fn note_swept(&mut self, found: usize) {
        self.sweep_found = self.sweep_found.saturating_add(u64::try_from(found).unwrap_or(u64::MAX));
    }
}
