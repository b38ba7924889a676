//! A job that is admitted and that another client has suspended. The webhook keeps `spec.suspend` as Berth set it. This file is for changes that
//! the webhook does not see, and for the one change that it lets by: suspended and in another queue.

use berth_api::conditions::own_reasons;

use super::JobCase;
use crate::cache::WorkloadView;
use crate::decision::Decision;
use crate::write::{EventType, Notice};

impl JobCase<'_> {
    /// A suspended job that names another queue than its Workload gives its quota back, and follows to that queue. `None` if it names the
    /// same one.
    pub(super) fn moved(&self, workload: &WorkloadView) -> Option<Decision> {
        let queue = self.job.queue_name.as_deref().filter(|queue| workload.queue != **queue)?;
        Some(self.without_quota(workload, &format!("The job was moved to LocalQueue {queue}")))
    }

    /// The event about a job that starts again although it was not evicted: its template still has its placement. The template of a JobSet may have
    /// one from before its start.
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
