//! An admitted job that another client has suspended. The webhook keeps the value of `spec.suspend` that Berth has set. The file `moved.rs` handles suspensions
//! by other clients if the webhook did not review them, or if it allowed them because the job moves to another LocalQueue.

use berth_api::conditions::own_reasons;
use berth_cache::WorkloadView;

use super::JobCase;
use crate::decision::Decision;
use crate::write::{EventType, Notice};

impl JobCase<'_> {
    /// Gives back the quota of a suspended job that names another LocalQueue than its Workload; the Workload then moves to the LocalQueue of its job. The
    /// decision is `None` if the job and its Workload name one LocalQueue.
    pub(super) fn moved(&self, workload: &WorkloadView) -> Option<Decision> {
        let queue = self.job.queue_name.as_deref().filter(|queue| workload.queue != **queue)?;
        Some(self.without_quota(workload, &format!("The job was moved to LocalQueue {queue}")))
    }

    /// The event about a job that starts again without having been evicted, because its template still has a placement. A JobSet gets no event about an
    /// undone suspension, because its template may have a placement before its start.
    pub(super) fn suspension_undone(&self, workload: &WorkloadView) -> Option<Notice> {
        let undone = self.job.placed && !self.key.kind.is_made_of_jobs();
        let message = format!(
            "Somebody else has set spec.suspend to true; it runs by Workload {}: to stop it, set spec.active of that to false",
            workload.name
        );
        undone.then(|| self.notice(EventType::Warning, own_reasons::SUSPENSION_UNDONE, message))
    }
}

#[cfg(test)]
mod tests;
