//! The phase of a job: whether the job has ended, and whether its spec suspends it.

use berth_jobs::JobState;

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// The job is not suspended: its controller starts its pods, or has started them.
    Running,
    /// The job is suspended, and its pod templates do not have the user's original fields again yet.
    Stopping,
    /// The job is suspended, and its pod templates have the fields that the user wrote.
    Suspended,
    /// The job has ended.
    Finished,
}

impl JobPhase {
    /// The phase of an observed job. An ended job is finished, suspended or not.
    pub fn of(job: &JobState) -> Self {
        Self::from_flags(job.finished.is_some(), job.suspended, job.stopping)
    }

    fn from_flags(has_ended: bool, is_suspended: bool, is_stopping: bool) -> Self {
        match (has_ended, is_suspended, is_stopping) {
            (true, ..) => Self::Finished,
            (false, false, _) => Self::Running,
            (false, true, true) => Self::Stopping,
            (false, true, false) => Self::Suspended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_phase_follows_suspension_until_the_job_has_ended() {
        assert_eq!([false, true].map(|stopping| JobPhase::from_flags(false, false, stopping)), [JobPhase::Running; 2]);
        assert_eq!(JobPhase::from_flags(false, true, true), JobPhase::Stopping);
        assert_eq!(JobPhase::from_flags(false, true, false), JobPhase::Suspended);
        assert_eq!(
            [false, true].map(|suspended| JobPhase::from_flags(true, suspended, false)),
            [JobPhase::Finished; 2]
        );
    }
}
