//! Elastic TrainingJobs whose pods learn the number of workers only at their start: a change of the number restarts all Jobs, under quota that stays reserved.
//!
//! The new number of workers, and the time of the change, is noted on the Workload before anything is stopped: the Jobs are deleted meanwhile, and the next
//! leader continues from the note. The time limits and cool-downs of the run count from the time of the change. `restart.rs` has the decisions about a restart
//! for scaling.

use berth_api::conditions::types;
use berth_api::labels;
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;
use berth_jobs::JobState;
use berth_jobs::training::{Scale, WORKER};
use jiff::Timestamp;

use crate::training_job::slices::{granted, grew, runs_since};
use crate::workload::evictions::times_evicted;
use crate::workload::status::{seconds, since};

/// Number of workers to which a restart has brought, or is bringing, the run of a Workload. A note of a restart in an earlier run is ignored, and so is a note
/// with fewer workers than the run's minimum.
pub(crate) fn scaled(workload: &WorkloadView) -> Option<&Scale> {
    let scale = workload.rare.as_ref()?.scale.as_ref()?;
    let least = workload.shape.pod_sets.iter().find(|set| set.name == WORKER)?.min_count?;
    // An evicted Workload belongs to its last run until its quota is released.
    let leaving = i32::from(workload.is(types::EVICTED) && workload.reserved());
    let before = times_evicted(workload).saturating_sub(leaving);
    let of_this_run = scale.workload == workload.uid && scale.evictions == before;
    (of_this_run && i64::from(scale.workers) >= least).then_some(scale)
}

/// The noted restart that is in effect for a Workload.
pub(crate) fn noted(workload: &WorkloadView) -> Option<&Scale> {
    // The number of workers that a restart has noted is out of date if a user has lowered the Workload's count below that number.
    scaled(workload).filter(|scale| scale.workers <= granted(workload))
}

/// Whether the Job of the workers must be deleted for a restart that was noted.
pub(crate) fn goes_for_restart(workload: &WorkloadView, workers: &JobState) -> bool {
    noted(workload).is_some_and(|scale| annotated_workers(workers, Some(workers)) != Some(scale.workers))
}

/// Time at which a Workload's run began: at its admission, or later at a restart with another number of workers.
pub(crate) fn begun_at(workload: &WorkloadView) -> Option<Timestamp> {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    Some(scaled(workload).map_or(admitted, |scale| scale.at.max(admitted)))
}

/// Time since when the Jobs of the present run are created, in full seconds as in the Jobs' metadata: a restart changes this time, and a scale-up in place does
/// not.
pub(crate) fn jobs_since(workload: &WorkloadView) -> Option<Timestamp> {
    let since = runs_since(workload)?;
    Some(scaled(workload).map_or(since, |scale| seconds(scale.at).max(since)))
}

/// Time at which a Workload's run began, in full seconds like the times of conditions: an earlier condition belongs to an earlier run.
pub(crate) fn reported_start(workload: &WorkloadView) -> Option<Timestamp> {
    let at = begun_at(workload)?;
    Some(if at.subsec_nanosecond() == 0 { at } else { after_seconds(seconds(at), 1) })
}

/// Whether a Workload continues the run of the slice that it replaced: the Jobs were not created again since.
pub(crate) fn runs_on(workload: &WorkloadView) -> bool {
    grew(workload) && scaled(workload).is_none()
}

/// Number of workers with which the pods of a Job were started. A Job that an older version of Berth has created does not record the number of workers; the
/// number of pods of the workers' Job, `workers`, is used in its place.
pub(crate) fn annotated_workers(job: &JobState, workers: Option<&JobState>) -> Option<i32> {
    let count = job.annotation(labels::TOLD_WORKERS).and_then(|count| count.parse().ok());
    count.or_else(|| workers.and_then(|job| job.role.as_deref()).map(|role| role.wanted))
}

#[cfg(test)]
mod tests;
