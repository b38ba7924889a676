//! Pods that a started job should have, and does not have.

use berth_cache::JobPhase;
use berth_jobs::JobState;
use jiff::Timestamp;

/// The time since which a started job lacks pods, as far as this was observed: not before the first observation of the job.
#[derive(Clone, Copy, Debug)]
pub struct Lack {
    /// The time at which the job was first observed to lack pods.
    pub since: Timestamp,
    /// True if the job had all its pods before.
    pub(crate) had: bool,
}

/// The state of the pods that a job should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedPods {
    /// The job does not run.
    NotWanted,
    /// The job runs, and some pods are not ready.
    Lacking,
    /// All pods are ready, or have succeeded.
    Ready,
}

impl WantedPods {
    /// The state of the pods of a job. A suspended or ended job should have no pods.
    pub fn of(job: &JobState) -> Self {
        match JobPhase::of(job) {
            JobPhase::Stopping | JobPhase::Suspended | JobPhase::Finished => Self::NotWanted,
            JobPhase::Running if job.ready => Self::Ready,
            JobPhase::Running => Self::Lacking,
        }
    }
}
