//! Jobs that other jobs own: the highest one that is managed decides for all below it (kueue.md 5.2).

use berth_api::conditions::{event_reasons, reasons, types};
use berth_jobs::JobState;
use jiff::Timestamp;

use super::Case;
use crate::core::{after_seconds, key};
use crate::flight::Decision;
use crate::status::since;
use crate::view::WorkloadView;
use crate::write::{EventType, Kind, Purpose, Subresource};

/// Owners above a job that are looked at, as in Kueue.
const OWNERS: usize = 10;

/// Time for the controller of a suspended job to stop the Jobs that it is made of.
const STOP_SECONDS: i64 = 5;

/// Who decides when a job runs.
pub(super) enum Governor<'a> {
    /// The job itself.
    Itself,
    /// A TrainingJob: it starts and stops its Jobs in its own decision.
    TrainingJob,
    /// The highest job above it that is managed.
    Job(&'a JobState),
    /// There are more owners than are looked at; such as own each other have no end.
    TooFar,
}

impl<'a> Case<'a> {
    /// Costs its owners.
    pub(super) fn governor(&self) -> Governor<'a> {
        let view = &self.control.view;
        let mut governor = Governor::Itself;
        let mut job = self.job;
        let mut above_it = None;
        for _ in 0..=OWNERS {
            let Some(owner) = &job.owner else { return governor };
            let Some(kind) = Kind::of_whole(&owner.kind) else { return governor };
            let name = (self.key.namespace.clone(), owner.name.to_string());
            if kind == Kind::TrainingJob {
                let part = view.training_of(above_it.as_ref().unwrap_or(self.key), job).is_some();
                return if part { Governor::TrainingJob } else { governor };
            }
            let whole = key(kind, &name);
            let above = view.jobs.get(&whole).filter(|above| *above.uid == *owner.uid);
            let Some(above) = above else { return governor };
            above_it = Some(whole);
            if self.control.manages_job(kind, above) {
                governor = Governor::Job(above);
            }
            job = above;
        }
        Governor::TooFar
    }

    /// It runs only while the job above it is admitted.
    pub(super) fn below(&self, above: &JobState) -> Decision {
        let owned = self.control.view.workloads_of(&above.uid);
        let newest = owned.iter().rev().find(|workload| !workload.is(types::FINISHED));
        let admitted = |workload: &&WorkloadView| workload.is(types::ADMITTED) && !above.suspended;
        let may_run = newest.is_some_and(|workload| admitted(workload) || workload.unreadable);
        let runs = !self.job.suspended && self.job.finished.is_none();
        let Some(job) = self.job.whole().filter(|_| runs && !may_run) else { return Decision::Done };
        let stops = || above.suspended && !above.still && self.is_recent(above, newest.copied());
        if (!above.suspended && !above.deleting && above.finished.is_none()) || stops() {
            // Whoever made this Job of one that runs would start it again at once, and each of these writes would make one of its
            // controller's come too late. The job above is suspended first, and its controller stops its Jobs.
            return Decision::Wait(after_seconds(self.now, 1));
        }
        let notice = self.notice(EventType::Normal, reasons::SUSPENDED, "Kueue managed child job suspended".to_owned());
        self.write(Purpose::SuspendJob, Subresource::None, job.suspend_patch(), vec![notice])
    }

    /// It is not long ago that the job above was to stop.
    fn is_recent(&self, above: &JobState, workload: Option<&WorkloadView>) -> bool {
        let stopped = match workload {
            Some(newest) => since(&newest.status.conditions, types::EVICTED, "True").unwrap_or(newest.created),
            None => Timestamp::from_millisecond(above.created).unwrap_or_default(),
        };
        after_seconds(stopped, STOP_SECONDS) > self.now
    }

    pub(super) fn too_far(&self) -> Decision {
        let text = format!("Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {OWNERS}");
        Decision::tell(self.notice(EventType::Warning, event_reasons::JOB_NESTING_TOO_DEEP, text))
    }
}
