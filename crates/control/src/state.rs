//! State of [`crate::Control`] beside the cache, the writes in flight and the work queue, each part with its owner. An object that is gone is
//! forgotten by one call to each owner.

mod doubts;
pub(crate) mod flight;
pub(crate) mod plan_notes;
pub(crate) mod plans;
mod relations;
pub(crate) mod strays;
pub(crate) mod work_queue;
mod write_events;

use std::collections::BTreeMap;

use berth_engine::World;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::cache::shape::Shapes;
use crate::job::job_events::JobEvents;
use crate::measure::Measure;
use crate::overruns::known::Overruns;
use crate::pod::trials::Trials;
use crate::queues::figures::Gone;
use crate::queues::schedule::QueueSchedule;
use crate::settings::Settings;
use crate::state::plans::Plans;
use crate::workload::ration::Ration;
use crate::write::{Notice, ObjectKey, Term};

/// In what role this process decides.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The term in which this process leads.
    pub(crate) term: Option<Term>,
    /// Pods without the label of managed pods that were created before are left alone; `None`: all of them are.
    pub(crate) pods_counted_since: Option<Timestamp>,
    /// Leaves the lists of admission checks as they are, and admits no workload by the states of its checks: set offline, where only the decisions of
    /// cycles are wanted.
    pub(crate) schedules_only: bool,
    /// Set offline, where no API server has the objects. Statuses and reasons are written at once, since no server has to be spared. The caller
    /// decides about evicted jobs, since no controller would stop them.
    pub(crate) is_offline: bool,
}

/// Quota: what the engine has given, and what runs beyond that.
#[derive(Debug)]
pub(crate) struct Quota {
    pub(crate) world: World,
    /// Shapes of pod sets, each of which many Workloads may ask for.
    pub(crate) shapes: Shapes,
    /// State about plans as a whole: the admissions and evictions that the engine has chosen are in the records of their workloads.
    pub(crate) plans: Plans,
    /// Pods that were let in without a review, and that are tried for quota.
    pub(crate) trials: Trials,
    /// Usage beyond quota, by job.
    pub(crate) overruns: Overruns,
    /// The engine is asked for a plan with the next step.
    plan: bool,
}

/// Reports to users and operators: statuses, reasons, events and measures that are due, and what was reported last.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) schedule: QueueSchedule,
    pub(crate) ration: Ration,
    pub(crate) job_events: JobEvents,
    pub(crate) measures: Vec<Measure>,
    pub(crate) gone: Gone,
    /// The last event of each object, by reason.
    pub(crate) told: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    pub(crate) notices: Vec<Notice>,
    /// Parked workloads that a sweep had to wake: must stay 0.
    pub(crate) sweep_found: u64,
    pub(crate) skipped_preemptions: BTreeMap<String, u32>,
}

impl Quota {
    pub(crate) fn new(settings: &Settings) -> Self {
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
    pub(crate) fn apply(&mut self, delta: engine::Delta) {
        // A refusal means the engine does not know the object: nothing is charged for it.
        let _ = self.world.apply(delta);
        self.plan = true;
    }

    /// Has the workload's own state count again, not what a plan made of it. No plan is asked for.
    pub(crate) fn take_back(&mut self, uid: String) {
        // An unknown uid means that the workload has gone meanwhile: nothing is charged then.
        let _ = self.world.apply(engine::Delta::Forget(uid));
    }

    pub(crate) fn plan_again(&mut self) {
        self.plan = true;
    }

    pub(crate) fn wants_plan(&self) -> bool {
        self.plan
    }

    /// A plan was made, after which another one is wanted or not.
    pub(crate) fn planned(&mut self, again: bool) {
        self.plan = again;
    }
}

impl Session {
    /// Whether a write may be decided now.
    pub(crate) fn leads(&self) -> bool {
        self.term.is_some()
    }
}

impl Reports {
    pub(crate) fn new(settings: &Settings) -> Self {
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

    /// Notes that a sweep had to wake that many parked workloads.
    pub(crate) fn note_swept(&mut self, found: usize) {
        self.sweep_found = self.sweep_found.saturating_add(u64::try_from(found).unwrap_or(u64::MAX));
    }
}
