//! A new state of a job, and its effects on other objects.

use berth_api::labels;
use berth_jobs::{JobState, Part};

use crate::cache::View;
use crate::cache::jobs::asks_alike;
use crate::cache::workload_view::WorkloadStage;
use crate::capacity::WantedPods;
use crate::job::attempts;
use crate::names::Name;
use crate::state::work_queue::WorkQueue;
use crate::write::ObjectKey;

/// The part of a job made of Jobs on which decisions about these Jobs depend.
#[derive(PartialEq, Eq)]
struct Governing<'a> {
    /// State of the job: ended, stopped, being deleted.
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

/// The uid of the job made of Jobs that this one is, or that it names as its controller.
pub(crate) fn attempt_of(object: &ObjectKey, job: &JobState) -> Option<String> {
    if object.kind.is_made_of_jobs() {
        return Some(job.uid.clone());
    }
    job.size.is_some().then(|| job.owner.as_ref().map(|owner| owner.uid.to_string()))?
}

/// Effects of a new state of a job on other objects.
pub(crate) struct JobNews {
    /// The job was not known before.
    pub(crate) appeared: bool,
    /// Another job controls it than before.
    pub(crate) changes_hands: bool,
    /// Its pods before, where it was known.
    pub(crate) before: Option<WantedPods>,
    /// More of its pods have ended for good.
    pub(crate) more_ended: bool,
    /// Its own Workloads are passed to the engine: it has saved, or has a field that Berth does not act on.
    pub(crate) mirrors_its_own: bool,
    /// Owners of Workloads that wait, which may be tried, or not, by its new state.
    pub(crate) moved: Vec<String>,
    /// The TrainingJob that may, or may not, do without some workers by its figures.
    pub(crate) training: Option<String>,
    /// Its Jobs are looked at again.
    pub(crate) governs: bool,
    /// The job made of Jobs some of whose finished pods may run again.
    pub(crate) attempt: Option<String>,
}

impl JobNews {
    /// Compares a state of a job with the one before, `None` if the job was not known.
    pub(crate) fn of(object: &ObjectKey, old: Option<&JobState>, job: &JobState) -> Self {
        let said = |job: &JobState| job.annotation(labels::LAST_CHECKPOINT_TIME).map(str::to_owned);
        let saved = old.is_some_and(|old| said(old) != said(job));
        let of_role = |job: &JobState| job.role.as_ref().map(|role| (role.wanted, role.succeeded > 0));
        let scaled = of_role(job).is_some() && old.and_then(of_role) != of_role(job);
        let owner = job.owner.as_ref().map(|owner| owner.uid.to_string());
        let moved = old.is_none_or(|old| old.deleting != job.deleting || !asks_alike(old, job));
        let governs = old.map(Governing::of) != Some(Governing::of(job));
        let attempt = attempt_of(object, job).filter(|_| {
            let said = |job: &JobState| (job.attempt, job.finished.is_some(), job.reclaimable.clone());
            old.map(said) != Some(said(job))
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

/// The Workload of a job that is made of Jobs was seen: the Jobs are looked at when it has come to another stage.
pub(crate) fn wake_parts(view: &View, work: &mut WorkQueue, name: &Name, before: Option<WorkloadStage>) {
    let Some(workload) = view.workloads.get(name).filter(|new| before != Some(new.stage())) else { return };
    if let Some(owner) = workload.owner.as_ref().map(|owner| owner.uid.clone()) {
        work.touch_jobs_below(view, &name.0, &owner);
    }
}

/// A job that is made of Jobs, or one of these Jobs, has changed: some of its finished pods may run again.
pub(crate) fn note_attempt(view: &mut View, work: &mut WorkQueue, uid: &str) {
    for name in attempts::gave_back(view, uid) {
        if attempts::note_again(view, &name) {
            work.mirror(name);
        }
    }
}
