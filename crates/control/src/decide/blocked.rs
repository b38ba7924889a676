//! What keeps a pending workload from being tried.

use super::gates::{self, GATED};
use super::orphan::{Standing, parts_of, standing};
use super::workload::ON_HOLD;
use crate::core::Control;
use crate::status::find;
use crate::view::WorkloadView;
use crate::write::{Kind, ObjectKey};

/// Why a pending workload must not be tried: reason and message, `None` when nothing forbids it.
pub(crate) fn blocked(control: &Control, workload: &WorkloadView) -> Option<(&'static str, String)> {
    if let Some(refused) = workload.refused().map(str::to_owned).or_else(|| refused_job(control, workload)) {
        return Some(("Misconfigured", refused));
    }
    if !control.manages_owner(workload) {
        return Some(("Misconfigured", unmanaged(workload)));
    }
    if standing(control, workload) != Standing::There || is_suspended(control, workload) {
        return Some(("PendingEvaluation", String::new()));
    }
    if let Some(part) = last_run(control, workload) {
        let ObjectKey { namespace, name, .. } = part;
        return Some((
            "PendingEvaluation",
            format!("waits for Job {namespace}/{name} of its last run, which is being deleted"),
        ));
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

/// Whether a TrainingJob controls it that waits for its user: it is deactivated once he was told so, which may take a while.
pub(super) fn is_suspended(control: &Control, workload: &WorkloadView) -> bool {
    let job = workload.training_job().and_then(|name| control.view.training.get(&name));
    job.is_some_and(|job| job.facts.suspended)
}

/// A Job that is left of the last run of a TrainingJob and has the name of one of the next run.
fn last_run(control: &Control, workload: &WorkloadView) -> Option<ObjectKey> {
    workload.training_job()?;
    let owner = workload.owner.as_ref()?;
    let parts = parts_of(control, workload, Kind::TrainingJob, &owner.uid);
    parts.into_iter().find(|(_, part)| part.deleting).map(|(key, _)| key)
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
