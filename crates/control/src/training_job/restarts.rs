//! Elastic TrainingJobs whose pods learn their number once: another number is a restart of all their Jobs, under quota that stays.
//!
//! The new number of workers, and its time, is noted on the Workload before anything is stopped: the Jobs go meanwhile, and the replica that leads
//! then goes on from that note. The run is judged from that time on, and its cool-down counts from it. Decisions are in `restart.rs`.

use berth_api::conditions::types;
use berth_api::labels;
use berth_jobs::JobState;
use berth_jobs::training::{Scale, WORKER};
use jiff::Timestamp;

use crate::cache::WorkloadView;
use crate::moments::after_seconds;
use crate::training_job::slices::{granted, grew, runs_since};
use crate::workload::evictions::times_evicted;
use crate::workload::status::{seconds, since};

/// Number of workers to which a restart has brought, or is bringing, the run of a workload. A note of an earlier run, or of fewer workers than the
/// run may have, counts for nothing.
pub(crate) fn scaled(workload: &WorkloadView) -> Option<&Scale> {
    let scale = workload.rare.as_ref()?.scale.as_ref()?;
    let least = workload.shape.pod_sets.iter().find(|set| set.name == WORKER)?.min_count?;
    // An evicted workload belongs to its last run until its quota is free.
    let leaving = i32::from(workload.is(types::EVICTED) && workload.reserved());
    let before = times_evicted(workload).saturating_sub(leaving);
    let of_this_run = scale.workload == workload.uid && scale.evictions == before;
    (of_this_run && i64::from(scale.workers) >= least).then_some(scale)
}

/// The restart that holds for a workload.
pub(crate) fn noted(workload: &WorkloadView) -> Option<&Scale> {
    // The number is out of date once a user has lowered the count below it.
    scaled(workload).filter(|scale| scale.workers <= granted(workload))
}

/// Whether the Job of the workers is to go for a restart that was noted.
pub(crate) fn goes_for_restart(workload: &WorkloadView, workers: &JobState) -> bool {
    noted(workload).is_some_and(|scale| told_workers(workers, Some(workers)) != Some(scale.workers))
}

/// Time at which its run began: at its admission, or anew with another number of workers since.
pub(crate) fn begun_at(workload: &WorkloadView) -> Option<Timestamp> {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    Some(scaled(workload).map_or(admitted, |scale| scale.at.max(admitted)))
}

/// Time since when the Jobs of its present run are made, in full seconds as they have it: a scale-up does not begin that anew, a restart does.
pub(crate) fn jobs_since(workload: &WorkloadView) -> Option<Timestamp> {
    let since = runs_since(workload)?;
    Some(scaled(workload).map_or(since, |scale| seconds(scale.at).max(since)))
}

/// Time at which the workload's run began, in full seconds like the times of conditions: an earlier condition belongs to an
/// earlier run.
pub(crate) fn told_from(workload: &WorkloadView) -> Option<Timestamp> {
    let at = begun_at(workload)?;
    Some(if at.subsec_nanosecond() == 0 { at } else { after_seconds(seconds(at), 1) })
}

/// Whether the workload goes on with the run of the slice whose place it took: its Jobs were not made anew since.
pub(crate) fn runs_on(workload: &WorkloadView) -> bool {
    grew(workload) && scaled(workload).is_none()
}

/// Number of workers with which the pods of a Job were started. A Job that an older Berth has made does not say it; then it is the number of
/// `workers`, the Job of the workers.
pub(crate) fn told_workers(job: &JobState, workers: Option<&JobState>) -> Option<i32> {
    let told = job.annotation(labels::TOLD_WORKERS).and_then(|told| told.parse().ok());
    told.or_else(|| workers.and_then(|job| job.role.as_deref()).map(|role| role.wanted))
}

#[cfg(test)]
mod tests;
