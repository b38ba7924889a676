//! Notes about stopped jobs whose pods may remain; no field of such a job shows its remaining pods.

use berth_cache::{JobPhase, View};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::job::starts;
use crate::notes::workload::WorkloadMark;
use crate::notes::{JobRecords, WorkloadRecords};
use crate::write::{Kind, LeftPod, ObjectKey};

/// Handles a newer state of a job; `appeared` is true if the job was not known before. The result of `note_job` is the kind of the job if the job was started
/// again within one admission.
pub fn note_job(
    jobs: &mut JobRecords,
    view: &View,
    object: &ObjectKey,
    job: &JobState,
    appeared: bool,
    now: Timestamp,
) -> Option<Kind> {
    let training = appeared && starts::note_made(jobs, object, job, now);
    let own = starts::note_stop(jobs, view, object, job, now);
    jobs.change(&job.uid, |notes| {
        match JobPhase::of(job) {
            JobPhase::Stopping | JobPhase::Suspended => {}
            JobPhase::Running => notes.forget_old_stop(now),
            JobPhase::Finished => notes.forget_stop(),
        }
        if job.deleting && job.pods_go_first {
            // The garbage collector removes the finalizer `foregroundDeletion` when the pods are gone, so a note keeps the fact that the pods are deleted
            // before the job.
            notes.note_rid_of_pods();
        }
        if !job.suspended {
            notes.note_running();
        } else if job.at_rest {
            notes.note_at_rest();
        }
    });
    training.then_some(Kind::TrainingJob).or_else(|| own.then_some(object.kind))
}

/// Notes that a decision about another object deletes left pods or the Jobs of left pods; false if no job has left pods.
pub fn note_sent_off(workloads: &mut WorkloadRecords, view: &View, origin: &ObjectKey, object: &ObjectKey) -> bool {
    let left = workloads.uids(WorkloadMark::LeftPods);
    if left.is_empty() || origin == object || !(object.kind == Kind::JOB || object.kind == Kind::Pod) {
        return false;
    }
    let is_sent_off = |pod: &LeftPod| match &pod.job {
        Some((job, _)) => object.kind == Kind::JOB && *job == object.name,
        None => object.kind == Kind::Pod && pod.name == object.name,
    };
    for uid in left {
        if view.workloads().by_uid(&uid).is_some_and(|workload| workload.namespace == object.namespace) {
            workloads.change(&uid, |notes| notes.pods_mut().drop_left(is_sent_off));
        }
    }
    true
}
