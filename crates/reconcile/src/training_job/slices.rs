//! Workload slices of an elastic job: the newest slice replaces the previous slice when the newest slice is admitted.

use berth_api::conditions::types;
use berth_cache::{View, WorkloadView};
use berth_jobs::training::WORKER;
use jiff::Timestamp;

use crate::workload::status::{find, since};

/// Number of workers for which a Workload holds quota.
pub(crate) fn granted(workload: &WorkloadView) -> i32 {
    granted_to(workload, WORKER)
}

/// Number of pods of a role for which a Workload holds quota.
pub(crate) fn granted_to(workload: &WorkloadView, role: &str) -> i32 {
    let count = workload.given().filter(|set| set.effective_name() == role).find_map(|set| set.count);
    let size = workload.size(role);
    count.map_or(size, |count| count.min(size))
}

/// Whether a Workload replaced another slice while its job ran, and the job has run on since.
pub(crate) fn grew(workload: &WorkloadView) -> bool {
    workload.replaces.is_some() && find(&workload.status.conditions, types::EVICTED).is_none()
}

/// Time of the admission with which a Workload's run began, before the scale-ups; `None` if the run began with the Workload's own admission.
pub(crate) fn admitted_before(workload: &WorkloadView) -> Option<Timestamp> {
    let past = workload.rare.as_ref().and_then(|rare| rare.past);
    past.filter(|_| grew(workload)).map(|past| past.admitted)
}

/// Time since when the job of a Workload runs under its quota, over all scale-ups; `None` for a Workload that is not admitted.
pub(crate) fn runs_since(workload: &WorkloadView) -> Option<Timestamp> {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    Some(admitted_before(workload).map_or(admitted, |before| before.min(admitted)))
}

/// Whether a Workload stands for its job: no other slice has replaced the Workload.
pub(crate) fn stands(view: &View, workload: &WorkloadView) -> bool {
    let slice = workload.owner.as_ref().and_then(|owner| view.slice_of(&owner.uid));
    slice.is_none_or(|slice| slice.uid == workload.uid)
}

#[cfg(test)]
mod tests;
