//! A new state of a job, and the effects of the new state on other objects.

use berth_api::labels;
use berth_cache::View;
use berth_cache::jobs::asks_alike;
use berth_cache::names::Name;
use berth_cache::workload_view::WorkloadStage;
use berth_jobs::{JobState, Part};

use crate::capacity::WantedPods;
use crate::job::attempts;
use crate::state::work_queue::WorkQueue;
use crate::write::ObjectKey;

/// The fields of a JobSet or TrainingJob on which decisions about its Jobs depend.
#[derive(PartialEq, Eq)]
struct Governing<'a> {
    /// The state of the job in three flags: ended, suspended, being deleted.
    stops: [bool; 3],
    has_queue: bool,
    parts: &'a [Part],
}

impl<'a> Governing<'a> {
    fn of(job: &'a JobState) -> Self {
        let stops = [job.finished.is_some(), job.suspended, job.deleting];
        Self { stops, has_queue: job.queue_name.is_some(), parts: &job.parts }
    }
}

/// The uid of the job that consists of Jobs: the given job itself, or the controller that a Job names, if the view has the Job's size (`JobState::size`).
pub fn attempt_of(object: &ObjectKey, job: &JobState) -> Option<String> {
    if object.kind.is_made_of_jobs() {
        return Some(job.uid.clone());
    }
    job.size.is_some().then(|| job.owner.as_ref().map(|owner| owner.uid.to_string()))?
}

/// The effects of a new state of a job on other objects.
pub struct JobNews {
    /// True if the job was not known before.
    pub appeared: bool,
    /// True if the job has another controller than before.
    pub changes_hands: bool,
    /// The state of the job's pods before the new state was observed; `None` if the job was not known.
    pub before: Option<WantedPods>,
    /// True if more pods of the job have ended for good.
    pub more_ended: bool,
    /// True if the number of the job's pods that will not run again has changed.
    pub mirrors_its_own: bool,
    /// Uids of owners whose pending Workloads may be tried or not, depending on the new state of the job.
    pub moved: Vec<String>,
    /// Uid of the TrainingJob whose number of dispensable workers may have changed with the new figures of its Job.
    pub training: Option<String>,
    /// True if the Jobs of the job are to be decided about again.
    pub governs: bool,
    /// Uid of the job that consists of Jobs, if some of its finished pods may run again.
    pub attempt: Option<String>,
}

impl JobNews {
    /// Compares a new state of a job with its older state; `old` is `None` if the job was not known.
    pub fn of(object: &ObjectKey, old: Option<&JobState>, job: &JobState) -> Self {
        let value_of = |job: &JobState| job.annotation(labels::LAST_CHECKPOINT_TIME).map(str::to_owned);
        let saved = old.is_some_and(|old| value_of(old) != value_of(job));
        let of_role = |job: &JobState| job.role.as_ref().map(|role| (role.wanted, role.succeeded > 0));
        let scaled = of_role(job).is_some() && old.and_then(of_role) != of_role(job);
        let owner = job.owner.as_ref().map(|owner| owner.uid.to_string());
        let moved = old.is_none_or(|old| old.deleting != job.deleting || !asks_alike(old, job));
        let governs = old.map(Governing::of) != Some(Governing::of(job));
        let attempt = attempt_of(object, job).filter(|_| {
            let value_of = |job: &JobState| (job.attempt, job.finished.is_some(), job.reclaimable.clone());
            old.map(value_of) != Some(value_of(job))
        });
        Self {
            appeared: old.is_none(),
            changes_hands: old.is_some_and(|old| old.owner != job.owner),
            before: old.map(WantedPods::of),
            more_ended: old.is_some_and(|old| old.reclaimable != job.reclaimable),
            mirrors_its_own: saved || job.unsupported.is_some(),
            moved: moved.then(|| std::iter::once(job.uid.clone()).chain(owner.clone())).into_iter().flatten().collect(),
            training: owner.filter(|_| scaled),
            governs: governs && object.kind.is_made_of_jobs(),
            attempt,
        }
    }
}

/// Marks the Jobs of a JobSet or TrainingJob for a decision when its Workload has reached another stage.
pub fn wake_parts(view: &View, work: &mut WorkQueue, name: &Name, before: Option<WorkloadStage>) {
    let Some(workload) = view.workloads().get(name).filter(|new| before != Some(new.stage())) else { return };
    if let Some(owner) = workload.owner.as_ref().map(|owner| owner.uid.clone()) {
        work.touch_jobs_below(view, &name.0, &owner);
    }
}

/// Passes the Workloads of a job that consists of Jobs to the engine again if finished pods of the job may run again.
pub fn note_attempt(view: &mut View, work: &mut WorkQueue, uid: &str) {
    for name in attempts::gave_back(view, uid) {
        if attempts::note_again(view, &name) {
            work.mirror(name);
        }
    }
}
