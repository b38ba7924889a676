//! Parts of jobs that are not kept. Most jobs of a cluster are over, or not managed here, and the object itself is nearly all the memory that such a
//! job costs.

use berth_jobs::JobState;

use crate::object::Kind;
use crate::workloads::Workloads;

/// Whether the pod template of a job is not needed any more: the job has ended, and its Workload has the template, or the job has no Workload.
pub(crate) fn may_be_shed(job: &JobState, workloads: &Workloads) -> bool {
    let knows = workloads.owned_by(&job.uid).any(|workload| workload.is_finished());
    // A job that names a prebuilt Workload is stopped if the Workload is missing, and the Jobs of a TrainingJob are compared with the TrainingJob's quota.
    let alone = workloads.owned_by(&job.uid).next().is_none()
        && job.prebuilt_workload.is_none()
        && above(job) != Some(Kind::TrainingJob);
    job.finished.is_some() && (knows || alone)
}

/// The kind of a job's owner, if owners of that kind may decide for the job.
pub fn above(job: &JobState) -> Option<Kind> {
    Kind::of_owner(&job.owner.as_ref()?.kind)
}
