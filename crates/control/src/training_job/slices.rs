//! Slices of an elastic job: Workloads of which the newest takes the place of the one before once it is admitted.

use berth_api::conditions::types;
use berth_jobs::training::WORKER;
use jiff::Timestamp;

use crate::cache::{View, WorkloadView};
use crate::workload::status::{find, since};

/// Workers for which a Workload holds quota.
pub(crate) fn granted(workload: &WorkloadView) -> i32 {
    granted_to(workload, WORKER)
}

/// Pods of a role for which a Workload holds quota.
pub(crate) fn granted_to(workload: &WorkloadView, role: &str) -> i32 {
    let count = workload.given().filter(|set| set.effective_name() == role).find_map(|set| set.count);
    let size = workload.size(role);
    count.map_or(size, |count| count.min(size))
}

/// Whether the workload took the place of another slice while its job ran, and its job has run on since.
pub(crate) fn grew(workload: &WorkloadView) -> bool {
    workload.replaces.is_some() && find(&workload.status.conditions, types::EVICTED).is_none()
}

/// Time of the admission of a workload's run, which a scale-up has not begun anew; `None` if that is its own admission.
pub(crate) fn admitted_before(workload: &WorkloadView) -> Option<Timestamp> {
    let past = workload.rare.as_ref().and_then(|rare| rare.past);
    past.filter(|_| grew(workload)).map(|past| past.admitted)
}

/// Time since when the job of a workload runs under its quota, over all scale-ups; `None` of one that is not admitted.
pub(crate) fn runs_since(workload: &WorkloadView) -> Option<Timestamp> {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    Some(admitted_before(workload).map_or(admitted, |before| before.min(admitted)))
}

/// Whether a Workload stands for its job: no other slice has taken its place.
pub(crate) fn stands(view: &View, workload: &WorkloadView) -> bool {
    let slice = workload.owner.as_ref().and_then(|owner| view.slice_of(&owner.uid));
    slice.is_none_or(|slice| slice.uid == workload.uid)
}

#[cfg(test)]
mod tests;
