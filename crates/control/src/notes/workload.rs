//! Notes about one Workload: the parts that the domains note, and the marks by which its record is found.

use crate::capacity::capacity_notes::CapacityNotes;
use crate::job::pods_notes::PodsNotes;
use crate::notes::records::Record;
use crate::state::plan_notes::PlanNotes;
use crate::training_job::save_notes::SaveNotes;
use crate::training_job::scale_notes::ScaleNotes;
use crate::workload::reason_notes::{ReasonNotes, ReasonPlace};

/// Notes about one Workload.
#[derive(Debug, Default)]
pub(crate) struct WorkloadNotes {
    plan: PlanNotes,
    scale: ScaleNotes,
    save: SaveNotes,
    capacity: CapacityNotes,
    pods: PodsNotes,
    reason: ReasonNotes,
}

/// Marks of Workloads by which their records are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkloadMark {
    /// An admission is planned and not acknowledged yet.
    Planned,
    /// The last write of the planned admission ended without an answer.
    Failing,
    /// No other plan waits for the planned admission.
    Aside,
    /// An eviction is still to be written.
    Evicted,
    /// The API server refused the eviction.
    EvictionRefused,
    /// Workers are to be given up for a preemptor.
    GivesUp,
    /// The job has left pods behind.
    LeftPods,
    /// A better tier was seen free.
    BetterTier,
}

impl WorkloadNotes {
    /// The Workload has no quota: whatever was seen of its pods, or asked of them, is over.
    pub(crate) fn forget_run(&mut self) {
        self.scale.forget_shrunk();
        self.save.forget_requests();
        self.capacity.forget_loss();
        self.pods = PodsNotes::default();
    }

    /// The planned admission and eviction of the Workload.
    pub(crate) fn plan(&self) -> &PlanNotes {
        &self.plan
    }

    pub(crate) fn plan_mut(&mut self) -> &mut PlanNotes {
        &mut self.plan
    }

    /// The change of the number of workers of the Workload.
    pub(crate) fn scale(&self) -> &ScaleNotes {
        &self.scale
    }

    pub(crate) fn scale_mut(&mut self) -> &mut ScaleNotes {
        &mut self.scale
    }

    /// The requests to save that the job of the Workload got.
    pub(crate) fn save(&self) -> &SaveNotes {
        &self.save
    }

    pub(crate) fn save_mut(&mut self) -> &mut SaveNotes {
        &mut self.save
    }

    /// Notes about the capacity of the Workload.
    pub(crate) fn capacity(&self) -> &CapacityNotes {
        &self.capacity
    }

    pub(crate) fn capacity_mut(&mut self) -> &mut CapacityNotes {
        &mut self.capacity
    }

    /// Notes about the pods of the Workload after a stop.
    pub(crate) fn pods(&self) -> &PodsNotes {
        &self.pods
    }

    pub(crate) fn pods_mut(&mut self) -> &mut PodsNotes {
        &mut self.pods
    }

    /// The reason why the Workload waits.
    pub(crate) fn reason(&self) -> &ReasonNotes {
        &self.reason
    }

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

    /// The place of its reason among those that are still to be written.
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
