//! Repeated starts of a job: starts after the first start of an admission. A repeatedly started job was stopped for a cause other than an eviction, and its
//! objects do not show the cause. Each repeated start waits longer than the one before, so that two controllers that disagree do not make writes and pods
//! without end. Unlike a repeated start, a stop of a job never waits.
//!
//! A start counts as soon as the watch shows the start, even if another process wrote it, so a standby replica counts starts, too. A new process knows of no
//! starts before its own beginning.

use std::hash::{Hash, Hasher};

use berth_api::conditions::types;
use berth_cache::{View, WorkloadView};
use berth_jobs::JobState;
use berth_jobs::training::role_of_child;
use jiff::Timestamp;
use rustc_hash::FxHasher;

use crate::job::start_notes::Again;
use crate::measure::Measure;
use crate::notes::JobRecords;
use crate::notes::job::JobNotes;
use crate::training_job::restarts::{goes_for_restart, scaled};
use crate::workload::status::since;
use crate::write::{Kind, ObjectKey};

/// Name of the counter of repeated starts.
const METRIC: &str = "berth_repeated_starts";

/// The digest of the requests of a Workload, including the number of workers of a noted restart.
fn shape_of(workload: &WorkloadView) -> u64 {
    let mut hasher = FxHasher::default();
    for set in &workload.shape.digests {
        (&set.name, set.count, set.min_count, set.containers, set.tolerations, set.parts).hash(&mut hasher);
    }
    scaled(workload).map(|scale| scale.workers).hash(&mut hasher);
    hasher.finish()
}

/// The next start of a Job of a TrainingJob, or of a job of another kind, under a Workload, if the start is not the first of the Workload's admission.
pub fn again(jobs: &JobRecords, uid: &str, job: &str, workload: &WorkloadView) -> Option<Again> {
    let starts = jobs.of(uid).starts();
    if starts.is_empty() { None } else { starts.again(job, shape_of(workload)) }
}

/// Handles a newer state of a job; true if it shows a repeated start within one admission.
pub(crate) fn note_stop(
    jobs: &mut JobRecords,
    view: &View,
    object: &ObjectKey,
    job: &JobState,
    now: Timestamp,
) -> bool {
    if job.finished.is_some() {
        jobs.change_known(&job.uid, JobNotes::forget_starts);
        return false;
    }
    let Some(old) = view.jobs().get(object).filter(|old| old.uid == job.uid) else { return false };
    if old.placed && !old.suspended && job.suspended {
        note_stopped(jobs, &job.uid, "", admitted_run(view, &job.uid), now);
        return false;
    }
    old.suspended && !job.suspended && note_began(jobs, &job.uid, "", now)
}

/// Handles a new Job; true if the Job replaces an earlier Job of a TrainingJob's role, which is a repeated start of the TrainingJob.
pub(crate) fn note_made(jobs: &mut JobRecords, object: &ObjectKey, job: &JobState, now: Timestamp) -> bool {
    let owner = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name());
    owner.is_some_and(|owner| note_began(jobs, &owner.uid, &object.name, now))
}

/// Handles the removal of a Job of a TrainingJob. Unless a restart for scaling has deleted the Job, the TrainingJob counts as stopped when its Job is removed.
pub fn note_lost(jobs: &mut JobRecords, view: &View, object: &ObjectKey, job: &JobState, now: Timestamp) {
    let Some(owner) = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name()) else { return };
    if job.finished.is_some() || role_of_child(&owner.name, &object.name).is_none() {
        return;
    }
    let run = admitted_run(view, &owner.uid).filter(|run| !goes_for_restart(run, job));
    note_stopped(jobs, &owner.uid, &object.name, run, now);
}

fn note_began(jobs: &mut JobRecords, uid: &str, job: &str, now: Timestamp) -> bool {
    jobs.change_known(uid, |notes| notes.starts_mut().began(job, now)).unwrap_or_default()
}

fn note_stopped(jobs: &mut JobRecords, uid: &str, job: &str, run: Option<&WorkloadView>, now: Timestamp) {
    if let Some(run) = run {
        let admission = (shape_of(run), admitted_at(run, now));
        jobs.change(uid, |notes| notes.starts_mut().stopped(job, admission, now));
    }
}

/// The Workload under which a job runs, or has run until just now, unless the Workload was evicted.
fn admitted_run<'a>(view: &'a View, uid: &str) -> Option<&'a WorkloadView> {
    let owned = view.workloads_of(uid);
    let newest = owned.into_iter().rev().find(|workload| !workload.is_finished())?;
    (!newest.is(types::EVICTED)).then_some(newest)
}

/// The metric change (`Measure`) that counts a repeated start.
pub fn measure(kind: Kind) -> Measure {
    Measure::Count { name: METRIC, labels: vec![("kind", kind.name().to_owned())], by: 1 }
}

fn admitted_at(workload: &WorkloadView, now: Timestamp) -> Timestamp {
    since(&workload.status.conditions, types::ADMITTED, "True").unwrap_or(now)
}
