//! What keeps a pending workload from being tried.

use super::gates::{self, GATED};
use super::orphan::{Standing, standing};
use super::workload::ON_HOLD;
use crate::core::Control;
use crate::status::find;
use crate::view::WorkloadView;

/// Why a pending workload must not be tried: reason and message, `None` when nothing forbids it.
pub(crate) fn blocked(control: &Control, workload: &WorkloadView) -> Option<(&'static str, String)> {
    if let Some(refused) = workload.refused().map(str::to_owned).or_else(|| refused_job(control, workload)) {
        return Some(("Misconfigured", refused));
    }
    match standing(control, workload) {
        Standing::There => {}
        Standing::Leaving | Standing::Absent => return Some(("PendingEvaluation", String::new())),
        Standing::Unmanaged => return Some(("Misconfigured", unmanaged(workload))),
    }
    if let Some(fault) = control.lacks_store(workload) {
        return Some(("Misconfigured", fault));
    }
    if let Some(limit) = control.limit_on(workload) {
        return Some(("AdmissionLimit", limit));
    }
    if let Some(message) = gates::message(workload) {
        return Some((GATED, message));
    }
    if find(&workload.status.conditions, "Requeued").is_some_and(|condition| condition.status == "False") {
        return Some(("PendingEvaluation", String::new()));
    }
    let reserved = find(&workload.status.conditions, "QuotaReserved");
    if let Some(held) = reserved.filter(|condition| condition.status == "False" && condition.reason == ON_HOLD) {
        return Some((ON_HOLD, held.message.clone()));
    }
    if workload.is("WaitingForReplacementPods") {
        return Some(("PendingEvaluation", String::new()));
    }
    None
}

/// A field of the job itself that decides and that Berth does not act on.
fn refused_job(control: &Control, workload: &WorkloadView) -> Option<String> {
    control.view.job_of(workload)?.unsupported.as_deref().map(str::to_owned)
}

/// What a workload is told whose owner is of a kind that is not managed: nobody would start that.
fn unmanaged(workload: &WorkloadView) -> String {
    let (kind, name) = workload.owner.as_ref().map_or(("", ""), |owner| (&owner.kind, &owner.name));
    format!("its owner, {kind} {name:?}, is of a kind that is not managed: name it in integrations.frameworks")
}
