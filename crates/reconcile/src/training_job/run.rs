//! The run of an elastic TrainingJob under its Workload: the number of its workers, and the limits of that number.

use berth_api::conditions::types;
use berth_api::labels;
use berth_cache::moments::after_seconds;
use berth_cache::training_view::TrainingView;
use berth_cache::{Name, View, WorkloadView};
use berth_jobs::JobState;
use berth_jobs::training::{Elastic, Rescale, RoleState, Scale, WORKER};
use jiff::Timestamp;

use crate::training_job::restarts::{annotated_workers, goes_for_restart, scaled};
use crate::training_job::slices::{granted, stands};

/// A run whose number of workers may change.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    /// The rules by which the number of workers changes.
    pub(crate) rules: Elastic,
    /// Least and largest number of workers; for a run that scales in place, the limits with which its pods started.
    pub(crate) bounds: (i32, i32),
    /// The Job of the workers; `None` while the Job is being created again.
    pub(crate) job: Option<&'a JobState>,
    /// Number of workers that are to run. For a job that restarts to scale, the number of workers is the number with which its pods started, unless a restart
    /// with fewer workers is noted.
    pub(crate) workers: i32,
    /// The last change of the run's number of workers.
    pub(crate) last: Option<Scale>,
}

/// Workers that were added to a run, while not all of them have been ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    /// Time since when the run lacks workers after the scale-up, as far as observed.
    pub(crate) since: Timestamp,
    /// Number of workers that are to run.
    pub(crate) workers: i32,
    /// Number of ready workers of the run.
    pub(crate) ready: i32,
    /// Least number of workers of the run.
    pub(crate) least: i32,
}

impl Added {
    /// Number of workers that stay if the workers that are not ready are given up, `None` if too few workers would run.
    pub(crate) fn keeps(&self) -> Option<i32> {
        (self.ready >= self.least && self.ready < self.workers).then_some(self.ready)
    }
}

impl Run<'_> {
    /// Time from which workers may be added or removed again in a run that was admitted at `admitted`.
    pub(crate) fn due(&self, admitted: Timestamp, cooldown_seconds: i64) -> Timestamp {
        let last = self.last.as_ref().map_or(admitted, |last| last.at.max(admitted));
        after_seconds(last, cooldown_seconds)
    }

    /// Whether all workers restart if their number changes.
    pub(crate) fn by_restart(&self) -> bool {
        self.rules.rescale == Rescale::ByRestart
    }

    /// State of the workers' role.
    pub(crate) fn role(&self) -> Option<&RoleState> {
        self.job.and_then(|job| job.role.as_deref())
    }

    /// Whether the number of workers is being reduced under a Workload.
    pub(crate) fn shrinks(&self, workload: &WorkloadView) -> bool {
        let last = self.last.as_ref().filter(|last| last.workload == workload.uid && last.workers == self.workers);
        last.is_some() && self.workers < granted(workload)
    }
}

/// The run of the TrainingJob that a Workload stands for.
pub(crate) fn run_under<'a>(view: &'a View, workload: &WorkloadView) -> Option<Run<'a>> {
    let name = workload.training_job()?;
    let training = view.training().get(&name).filter(|training| !training.deleting && !training.facts.suspended)?;
    let runs =
        stands(view, workload) && workload.active && workload.is(types::ADMITTED) && !workload.is(types::EVICTED);
    let mut run = run_of(view, &name, training, workload).filter(|_| runs)?;
    // The number of workers in a Workload must not go below the minimum count of its pod set. With partial admission off the Workload has no minimum, and its
    // count must not change.
    let least = workload.shape.pod_sets.iter().find(|set| set.name == WORKER)?.min_count?;
    run.bounds.0 = run.bounds.0.max(i32::try_from(least).unwrap_or(i32::MAX));
    Some(run)
}

/// The run of a TrainingJob under a Workload whose number of workers may change, `None` if the job does not run, or if the number may not change.
fn run_of<'a>(view: &'a View, name: &Name, training: &TrainingView, workload: &WorkloadView) -> Option<Run<'a>> {
    let rules = training.facts.elastic?;
    let job = view.child_of(name, &training.uid, WORKER).filter(|job| !job.deleting);
    let goes_on = |role: &&RoleState| role.succeeded == 0 && role.wanted > 0;
    let role = job.filter(|job| job.finished.is_none()).and_then(|job| job.role.as_deref()).filter(goes_on);
    if rules.rescale == Rescale::ByRestart {
        // A restart needs the pods for which quota is held. A Job that is to be deleted for a restart may fail before, because its peers are gone.
        let goes = |job: &JobState| goes_for_restart(workload, job);
        let restarts = (role.is_some() || job.is_none_or(goes)) && training.asks_as(workload);
        return run_by_restart(view, name, training, workload, job).filter(|_| restarts);
    }
    let (job, role) = job.zip(role)?;
    let bounds = rules.within(job.annotation(labels::ELASTIC_WORKERS)?)?;
    let last = job.annotation(labels::LAST_SCALE).and_then(Scale::parse);
    Some(Run { rules, bounds, job: Some(job), workers: role.wanted, last })
}

/// The run of a TrainingJob under a Workload, if its Jobs are created again for another number of workers; `job` is the Job of the workers.
fn run_by_restart<'a>(
    view: &'a View,
    name: &Name,
    training: &TrainingView,
    workload: &WorkloadView,
    job: Option<&'a JobState>,
) -> Option<Run<'a>> {
    let rules = training.facts.elastic?;
    let last = scaled(workload).cloned();
    let have = granted(workload);
    let roles = workload.shape.digests.iter();
    let children = roles.filter_map(|set| view.child_of(name, &training.uid, &set.name)).filter(|job| !job.deleting);
    let annotated = children.filter_map(|child| annotated_workers(child, job)).min();
    let workers = match last.as_ref().filter(|last| last.workers < have) {
        Some(last) => last.workers,
        None => annotated.or_else(|| last.is_some().then_some(have))?,
    };
    Some(Run { rules, bounds: (rules.min, rules.max), job, workers, last })
}

#[cfg(test)]
mod tests;
