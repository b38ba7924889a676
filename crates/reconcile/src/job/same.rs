//! The comparison of a job with its Workload.

use std::collections::BTreeMap;

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_jobs::AdmissionState;

use super::{JobCase, Unbuilt};

impl JobCase<'_> {
    /// Whether a Workload still requests the quota that its job needs.
    pub(super) fn same(&self, workload: &WorkloadView) -> bool {
        // A finished job cannot change any more, and the view may have dropped its template (`View::shed_job`).
        if workload.is_finished() || self.job.finished.is_some() {
            return true;
        }
        if workload.max_execution_seconds != self.job.max_execution_seconds {
            return false;
        }
        // The template of a suspended job is as its user wrote it, unless it has a placement or a stop is under way.
        let own = self.job.prebuilt_workload.is_none();
        let untouched = own && self.job.suspended && !self.job.placed && !self.job.stopping;
        // A job that cannot be read now keeps its Workload, but does not start in its earlier form.
        let Some(digests) = self.job.asked() else {
            return match untouched {
                true => !matches!(self.build(), Err(Unbuilt::Invalid(_))),
                false => self.is_no_larger(workload),
            };
        };
        if untouched && !workload.reserved() {
            // Only the user can have caused a difference between a suspended job without a placement and its pending Workload.
            return berth_jobs::pod_sets_identical(&digests, &workload.shape.digests);
        }
        let counts = admitted_counts(workload);
        let admission_state = AdmissionState {
            admitted_counts: counts.as_ref(),
            admitted: workload.is(types::ADMITTED),
            suspended: self.job.suspended,
        };
        berth_jobs::pod_sets_equivalent(&digests, &workload.shape.digests, admission_state)
    }

    /// Whether an unreadable job wants no more pods than were admitted, and no larger or other pods.
    fn is_no_larger(&self, workload: &WorkloadView) -> bool {
        let Some(size) = &self.job.size else { return true };
        let admitted = admitted_counts(workload).unwrap_or_default();
        workload.sizes().all(|(name, count)| {
            size.pods <= admitted.get(name).copied().unwrap_or(count) && workload.shape.is_asked_by(name, &size.asks)
        })
    }
}

/// The number of admitted pods of a Workload, by pod set. A pod set without a count in the admission is left out, because its count is that of the spec.
fn admitted_counts(workload: &WorkloadView) -> Option<BTreeMap<String, i32>> {
    let sets = workload.status.admission.as_ref()?.pod_set_assignments.iter();
    Some(sets.filter_map(|set| Some((set.effective_name().to_owned(), set.count?))).collect())
}

#[cfg(test)]
mod tests;
