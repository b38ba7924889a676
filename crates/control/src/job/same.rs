//! Comparison of a job with the Workload that was made for it.

use std::collections::BTreeMap;

use berth_api::conditions::types;
use berth_jobs::Standing;

use super::{JobCase, Unbuilt};
use crate::cache::WorkloadView;

impl JobCase<'_> {
    /// Whether a Workload still says what the job asks for.
    pub(super) fn same(&self, workload: &WorkloadView) -> bool {
        // A job that is over can no longer change, and the view may have let its template go (`View::shed_job`).
        if workload.is_finished() || self.job.finished.is_some() {
            return true;
        }
        if workload.max_execution_seconds != self.job.max_execution_seconds {
            return false;
        }
        // Berth has put nothing into the template of such a job yet.
        let own = self.job.prebuilt_workload.is_none();
        let untouched = own && self.job.suspended && !self.job.placed && !self.job.stopping;
        // A job that cannot be read now keeps the Workload it has, but does not start as it was before.
        let Some(digests) = self.job.asked() else {
            return match untouched {
                true => !matches!(self.build(), Err(Unbuilt::Invalid(_))),
                false => self.is_no_larger(workload),
            };
        };
        if untouched && !workload.reserved() {
            // Only the user can have made a difference here.
            return berth_jobs::pod_sets_identical(&digests, &workload.shape.digests);
        }
        let counts = admitted_counts(workload);
        let standing = Standing {
            admitted_counts: counts.as_ref(),
            admitted: workload.is(types::ADMITTED),
            suspended: self.job.suspended,
        };
        berth_jobs::pod_sets_equivalent(&digests, &workload.shape.digests, standing)
    }

    /// Whether a job whose pod sets cannot be read any more wants no more pods than were admitted, and no others.
    fn is_no_larger(&self, workload: &WorkloadView) -> bool {
        let Some(size) = &self.job.size else { return true };
        let admitted = admitted_counts(workload).unwrap_or_default();
        workload.sizes().all(|(name, count)| {
            size.pods <= admitted.get(name).copied().unwrap_or(count) && workload.shape.is_asked_by(name, &size.asks)
        })
    }
}

/// The pods that a Workload was admitted with, by pod set. A pod set of which the admission names no count is left out: its count is that of the spec.
fn admitted_counts(workload: &WorkloadView) -> Option<BTreeMap<String, i32>> {
    let sets = workload.status.admission.as_ref()?.pod_set_assignments.iter();
    Some(sets.filter_map(|set| Some((set.effective_name().to_owned(), set.count?))).collect())
}

#[cfg(test)]
mod tests;
