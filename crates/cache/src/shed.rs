//! Parts of job objects that the view drops to save memory. Most jobs of a cluster have ended, or are not managed by Berth, and the object itself is nearly all
//! the memory that such a job costs.

use berth_jobs::JobState;

use crate::object::Kind;
use crate::workloads::Workloads;

/// Whether the pod template of a job is not needed any more: the job has ended, and its Workload has the template, or the job has no Workload.
pub(crate) fn may_be_shed(job: &JobState, workloads: &Workloads) -> bool {
    let knows = workloads.owned_by(&job.uid).any(|workload| workload.is_finished());
    // The template of a job without a Workload is kept if the job names a prebuilt Workload, which stops the job if missing, or if a TrainingJob controls the
    // job, whose quota the job is compared with.
    let alone = workloads.owned_by(&job.uid).next().is_none()
        && job.prebuilt_workload.is_none()
        && above(job) != Some(Kind::TrainingJob);
    job.finished.is_some() && (knows || alone)
}

/// The kind of a job's owner, if owners of that kind may decide for the job.
pub fn above(job: &JobState) -> Option<Kind> {
    Kind::of_owner(&job.owner.as_ref()?.kind)
}
