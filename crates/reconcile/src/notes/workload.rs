//! Notes about one Workload: the parts that the domains of control write, and the marks by which the Workload's record is found.

use crate::capacity::capacity_notes::CapacityNotes;
use crate::job::pods_notes::PodsNotes;
use crate::notes::records::Record;
use crate::state::plan_notes::PlanNotes;
use crate::training_job::save_notes::SaveNotes;
use crate::training_job::scale_notes::ScaleNotes;
use crate::workload::reason_notes::{ReasonNotes, ReasonPlace};

/// The notes about one Workload.
#[derive(Debug, Default)]
pub struct WorkloadNotes {
    plan: PlanNotes,
    scale: ScaleNotes,
    save: SaveNotes,
    capacity: CapacityNotes,
    pods: PodsNotes,
    reason: ReasonNotes,
}

/// Properties of Workloads by which the notes about the Workloads are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadMark {
    /// The Workload has a planned admission that the API server has not acknowledged yet.
    Planned,
    /// The last write of the Workload's planned admission ended without an answer of the API server.
    Failing,
    /// The Workload's planned admission is set aside, so that other plans do not wait for it.
    Aside,
    /// An eviction of the Workload is planned and still to be written.
    Evicted,
    /// The API server refused the eviction of the Workload.
    EvictionRefused,
    /// The job of the Workload is to give up workers for a preemptor.
    GivesUp,
    /// The job of the Workload was deleted and has left pods behind.
    LeftPods,
    /// A better capacity tier for the Workload was observed to be free.
    BetterTier,
}

impl WorkloadNotes {
    /// Forgets the notes about the Workload's pods and about requests to the pods, because the Workload has no quota.
    pub(crate) fn forget_run(&mut self) {
        self.scale.forget_shrunk();
        self.save.forget_requests();
        self.capacity.forget_loss();
        self.pods = PodsNotes::default();
    }

    /// The planned admission and eviction of the Workload.
    pub fn plan(&self) -> &PlanNotes {
        &self.plan
    }

    /// The planned admission and eviction of the Workload, as a mutable reference.
    pub fn plan_mut(&mut self) -> &mut PlanNotes {
        &mut self.plan
    }

    /// Notes about the change of the number of the Workload's workers.
    pub fn scale(&self) -> &ScaleNotes {
        &self.scale
    }

    /// Notes about the change of the number of the Workload's workers, as a mutable reference.
    pub(crate) fn scale_mut(&mut self) -> &mut ScaleNotes {
        &mut self.scale
    }

    /// Notes about the requests to save a checkpoint that the Workload's job got.
    pub(crate) fn save(&self) -> &SaveNotes {
        &self.save
    }

    /// Notes about the requests to save a checkpoint that the Workload's job got, as a mutable reference.
    pub fn save_mut(&mut self) -> &mut SaveNotes {
        &mut self.save
    }

    /// Notes about the capacity of the Workload.
    pub fn capacity(&self) -> &CapacityNotes {
        &self.capacity
    }

    /// Notes about the capacity of the Workload, as a mutable reference.
    pub fn capacity_mut(&mut self) -> &mut CapacityNotes {
        &mut self.capacity
    }

    /// Notes about the pods of the Workload after a stop.
    pub fn pods(&self) -> &PodsNotes {
        &self.pods
    }

    /// Notes about the pods of the Workload after a stop, as a mutable reference.
    pub fn pods_mut(&mut self) -> &mut PodsNotes {
        &mut self.pods
    }

    /// The reason why the Workload waits.
    pub fn reason(&self) -> &ReasonNotes {
        &self.reason
    }

    /// The note of the reason why the Workload waits, as a mutable reference.
    pub(crate) fn reason_mut(&mut self) -> &mut ReasonNotes {
        &mut self.reason
    }
}

impl Record for WorkloadNotes {
    type Mark = WorkloadMark;
    type Place = ReasonPlace;
    const MARKS: &'static [WorkloadMark] = &[
        WorkloadMark::Planned,
        WorkloadMark::Failing,
        WorkloadMark::Aside,
        WorkloadMark::Evicted,
        WorkloadMark::EvictionRefused,
        WorkloadMark::GivesUp,
        WorkloadMark::LeftPods,
        WorkloadMark::BetterTier,
    ];

    fn has(&self, mark: WorkloadMark) -> bool {
        match mark {
            WorkloadMark::Planned => self.plan.admission().is_some(),
            WorkloadMark::Failing => self.plan.is_failing(),
            WorkloadMark::Aside => self.plan.is_aside(),
            WorkloadMark::Evicted => self.plan.eviction().is_some(),
            WorkloadMark::EvictionRefused => self.plan.is_eviction_refused(),
            WorkloadMark::GivesUp => self.scale.gives_up().is_some(),
            WorkloadMark::LeftPods => self.pods.left().is_some(),
            WorkloadMark::BetterTier => self.capacity.better_tier().is_some(),
        }
    }

    /// The place of the Workload's reason in the queue of reasons that are still to be written.
    fn place(&self) -> Option<ReasonPlace> {
        self.reason.place()
    }

    fn is_empty(&self) -> bool {
        self.plan.is_empty()
            && self.scale.is_empty()
            && self.save.is_empty()
            && self.capacity.is_empty()
            && self.pods.is_empty()
            && self.reason.is_empty()
    }
}
