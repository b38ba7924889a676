//! Elastic TrainingJobs whose pods learn their number once: another number is a restart of all their Jobs, under quota that stays.
//!
//! The new number of workers, and its time, is noted on the Workload before anything is stopped: the Jobs go meanwhile, and the replica that leads
//! then goes on from that note. The run is judged from that time on, and its cool-down counts from it. Decisions are in `decide/training/restart`.

use berth_api::conditions::{training_types, types};
use berth_api::labels;
use berth_jobs::JobState;
use berth_jobs::training::{Scale, WORKER};
use jiff::Timestamp;

use crate::cache::training_view::TrainingView;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, after_seconds};
use crate::training_job::elastic::{Run, granted, grew, runs_since};
use crate::workload::status::{seconds, since};
use crate::workload::transitions::times_evicted;

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
    // The number is out of date once somebody has lowered the count below it.
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

/// Time at which its run began, in full seconds as conditions have it: a condition from before that belongs to an earlier run.
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

impl Control {
    /// A Workload is about to be seen in that state: objects that were made for another number of workers, as a host file, are not for these.
    pub(crate) fn note_resized(&mut self, new: &WorkloadView) {
        let old = self.view.workloads.get(&new.key());
        if let Some(owner) = new.owner.as_ref()
            && old.is_some_and(|old| granted(old) != granted(new))
        {
            self.training.prepared.remove(&owner.uid);
        }
    }
}

impl<'a> Context<'a> {
    /// The run of a TrainingJob under a Workload, whose Jobs are made anew for another number of workers; `job` is that of its workers.
    pub(crate) fn run_by_restart(
        &self,
        name: &Name,
        view: &TrainingView,
        workload: &WorkloadView,
        job: Option<&'a JobState>,
    ) -> Option<Run<'a>> {
        let rules = view.facts.elastic?;
        let last = scaled(workload).cloned();
        let have = granted(workload);
        let roles = workload.shape.digests.iter();
        let children =
            roles.filter_map(|set| self.view.child_of(name, &view.uid, &set.name)).filter(|job| !job.deleting);
        let told = children.filter_map(|child| told_workers(child, job)).min();
        let workers = match last.as_ref().filter(|last| last.workers < have) {
            Some(last) => last.workers,
            None => told.or_else(|| last.is_some().then_some(have))?,
        };
        Some(Run { rules, bounds: (rules.min, rules.max), job, workers, last })
    }

    /// Time since when the listing must be that shows the checkpoint from which a run goes on: the pods before may save until they are gone.
    pub(crate) fn resumes_from(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let begun = begun_at(workload)?;
        let gone = self.training.growth.shrunk.get(&workload.uid).filter(|_| scaled(workload).is_some());
        Some(gone.map_or(begun, |(_, at)| begun.max(*at)))
    }

    /// Whether the status of a Workload's TrainingJob shows that its present run has been up.
    pub(crate) fn was_up(&self, workload: &WorkloadView) -> bool {
        let job = workload.training_job().and_then(|name| self.view.training.get(&name));
        job.zip(told_from(workload)).is_some_and(|(job, begun)| job.was_up_since(begun))
    }

    /// Whether a run may grow into quota that was seen idle since then, as far as its work is concerned. A restart loses work that is not saved, so
    /// it waits for a checkpoint, as a return to a better tier does.
    pub(crate) fn may_restart(
        &self,
        run: &Run<'_>,
        view: &TrainingView,
        workload: &WorkloadView,
        idle: Timestamp,
    ) -> bool {
        let up = || since(&view.status.conditions, training_types::RUNNING, "True");
        // Quota that came and went since says nothing of the run.
        let begun = if runs_on(workload) { up() } else { begun_at(workload).filter(|_| self.was_up(workload)) };
        // A save that is as old as the run is the one that the run began from.
        let saved = || self.saved_at(workload).zip(begun).is_some_and(|(at, begun)| at > begun && at >= idle);
        !run.by_restart() || saved()
    }
}
