//! Notes of control about objects, in addition to the objects' observed state. Each object has one record, and removing the record forgets all notes about the
//! object.

pub mod job;
mod records;
pub(crate) mod workload;

use berth_api::conditions::types;
use berth_cache::{View, WorkloadView};

use crate::notes::job::JobNotes;
use crate::notes::records::Records;
use crate::notes::workload::WorkloadNotes;
use crate::state::plans;
use crate::write::{Kind, ObjectKey};

/// Records of Workloads, by uid.
pub type WorkloadRecords = Records<WorkloadNotes>;

/// Records of jobs of all kinds, by uid.
pub type JobRecords = Records<JobNotes>;

/// The notes about all Workloads and jobs.
#[derive(Debug, Default)]
pub struct Notes {
    /// Notes about Workloads, by uid.
    workloads: WorkloadRecords,
    /// Notes about jobs, by uid.
    jobs: JobRecords,
}

impl Notes {
    /// Notes about Workloads, by uid.
    pub fn workloads(&self) -> &WorkloadRecords {
        &self.workloads
    }

    /// Notes about Workloads, as a mutable reference. The Workload records update their own indexes with each change.
    pub fn workloads_mut(&mut self) -> &mut WorkloadRecords {
        &mut self.workloads
    }

    /// Notes about jobs, by uid.
    pub fn jobs(&self) -> &JobRecords {
        &self.jobs
    }

    /// Notes about jobs, as a mutable reference. The job records update their own indexes with each change.
    pub fn jobs_mut(&mut self) -> &mut JobRecords {
        &mut self.jobs
    }

    /// Handles a newer state of a Workload: forgets the notes that its eviction, its end or the loss of its quota makes void.
    pub fn note_workload(&mut self, new: &WorkloadView) {
        if let Some(owner) = new.owner.as_ref().filter(|_| new.is(types::EVICTED) || new.is_finished()) {
            self.jobs.change_known(&owner.uid, JobNotes::forget_starts);
        }
        if new.reserved() && !new.is(types::EVICTED) {
            return;
        }
        self.workloads.change_known(&new.uid, |notes| {
            notes.capacity_mut().note_better_tier(None);
            if !new.reserved() {
                notes.forget_run();
            }
        });
    }

    /// Drops a planned admission that will not be written, so that the Workload's observed state counts again.
    pub fn drop_plan(&mut self, view: &View, object: &ObjectKey) {
        let Some(uid) = view.uid_of(object).filter(|_| object.kind == Kind::Workload) else { return };
        plans::drop_admission(&mut self.workloads, &uid);
    }
}
