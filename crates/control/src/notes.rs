//! Notes of control about objects, beside what was seen of them: one record for each object. All notes about an object go with its record.

pub(crate) mod job;
mod records;
pub(crate) mod workload;

use berth_api::conditions::types;

use crate::cache::{View, WorkloadView};
use crate::notes::job::JobNotes;
use crate::notes::records::Records;
use crate::notes::workload::WorkloadNotes;
use crate::state::plans;
use crate::write::{Kind, ObjectKey};

/// Records of Workloads, by uid.
pub(crate) type WorkloadRecords = Records<WorkloadNotes>;

/// Records of jobs of all sorts, by uid.
pub(crate) type JobRecords = Records<JobNotes>;

/// All notes.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) workloads: WorkloadRecords,
    pub(crate) jobs: JobRecords,
}

impl Notes {
    /// A Workload is seen in that state.
    pub(crate) fn note_workload(&mut self, new: &WorkloadView) {
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

    /// Drops a planned admission that will not be written: the workload's own state decides again once it is seen.
    pub(crate) fn drop_plan(&mut self, view: &View, object: &ObjectKey) {
        let Some(uid) = view.uid_of(object).filter(|_| object.kind == Kind::Workload) else { return };
        plans::drop_admission(&mut self.workloads, &uid);
    }
}
