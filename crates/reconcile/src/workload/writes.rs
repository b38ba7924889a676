//! Writes to a Workload, and the events about the writes.

use berth_api as api;
use berth_api::conditions::reasons::{self, DEACTIVATED_DUE_TO_PREFIX};
use berth_api::conditions::{event_reasons, own_reasons};
use berth_cache::moments::after_seconds;
use berth_cache::workload_view::WorkloadView;
use berth_jobs::{ObjectApply, PlacementError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::decision::{Decision, Draft};
use crate::workload::status::{ADMISSION_MANAGER, Edit, KIND, admission_body, seconds};
use crate::workload::workload_patch::WorkloadPatch;
pub use crate::write::WORKLOADS as REPORTER;
use crate::write::{EventType, Notice, Purpose};

/// Finalizer that Kueue and Berth put on Workloads and queues.
pub const FINALIZER: &str = berth_api::labels::RESOURCE_IN_USE_FINALIZER;

/// Pause in seconds before a workload is tried again whose job could not be started with its admission.
const PLACEMENT_SECONDS: i64 = 60;

/// An event about a Workload.
pub fn notice(
    workload: &WorkloadView,
    event_type: EventType,
    reason: &str,
    message: String,
    reporter: &'static str,
) -> Notice {
    Notice {
        key: workload.object_key(),
        uid: workload.uid.clone(),
        event_type,
        reason: reason.to_owned(),
        message,
        reporter,
    }
}

/// Reason of the event about an eviction, derived from the reason of the eviction.
pub fn evicted_due_to(reason: &str) -> String {
    format!("{}{reason}", event_reasons::EVICTED_DUE_TO_PREFIX)
}

/// A status write by the field manager `kueue-admission`. The argument `change` edits a copy of the Workload's complete status.
pub fn status_write(
    workload: &WorkloadView,
    purpose: Purpose,
    now: Timestamp,
    change: impl FnOnce(&mut Edit<'_>),
) -> Draft {
    let mut status = workload.status.clone();
    change(&mut Edit { status: &mut status, generation: workload.generation, now });
    let body = admission_body(&workload.identity(), &status);
    Draft::apply_status(purpose, workload.object_key(), (ADMISSION_MANAGER, body), workload.version())
}

/// A status write of a separate field manager, which owns only the given fields, whatever other managers have written meanwhile.
pub fn separate_write(workload: &WorkloadView, purpose: Purpose, manager: &'static str, status: Value) -> Decision {
    let body = ObjectApply::of_any_version(KIND, &workload.identity()).status(status);
    Decision::write(Draft::apply_status(purpose, workload.object_key(), (manager, body), workload.version()))
}

/// A merge patch of the Workload for the version that was read: `change` adds the fields.
pub fn object_write(
    workload: &WorkloadView,
    purpose: Purpose,
    change: impl FnOnce(WorkloadPatch) -> WorkloadPatch,
) -> Draft {
    let patch = change(WorkloadPatch::of(workload));
    Draft::merge(purpose, workload.object_key(), patch.into(), workload.version())
}

/// Removes Berth's finalizer from a Workload.
pub fn remove_finalizer(workload: &WorkloadView) -> Draft {
    remove_finalizer_and(workload, |patch| patch)
}

/// The removal of Berth's finalizer from a Workload, with another `change` in the same patch.
pub fn remove_finalizer_and(workload: &WorkloadView, change: impl FnOnce(WorkloadPatch) -> WorkloadPatch) -> Draft {
    let rest = workload.rare.as_ref().map_or(&[][..], |rare| &rare.finalizers);
    let idle = workload.is_finished() && !workload.deleting;
    let purpose = if idle { Purpose::LetFinishedGo } else { Purpose::RemoveFinalizer };
    object_write(workload, purpose, |patch| change(patch.finalizers(rest)))
}

/// Whether a Workload has Berth's finalizer.
pub fn has_finalizer(workload: &WorkloadView) -> bool {
    workload.guarded
}

/// The write of an eviction, with its event.
pub fn evict(workload: &WorkloadView, now: Timestamp, why: (&str, &str), message: &str) -> Draft {
    evict_and(workload, now, why, message, |_| {})
}

/// The write of an eviction after the `count`th time-out: the workload is not tried again before `delay` seconds have passed.
pub fn evict_for_seconds(
    workload: &WorkloadView,
    now: Timestamp,
    why: (&str, &str),
    message: &str,
    (count, delay): (i32, i64),
) -> Draft {
    let at = after_seconds(now, delay);
    evict_and(workload, now, why, message, |edit| {
        edit.status.requeue_state = Some(api::RequeueState { count: Some(count), requeue_at: Some(Time(seconds(at))) });
    })
}

/// The write of an eviction, with another `change` of the status and with its event.
pub(super) fn evict_and(
    workload: &WorkloadView,
    now: Timestamp,
    (reason, cause): (&str, &str),
    message: &str,
    change: impl FnOnce(&mut Edit<'_>),
) -> Draft {
    let mut draft = status_write(workload, Purpose::Evict, now, |edit| {
        edit.evict(reason, cause, message);
        change(edit);
    });
    let event = if cause.is_empty() || reason != reasons::DEACTIVATED {
        evicted_due_to(reason)
    } else {
        evicted_due_to(&format!("{DEACTIVATED_DUE_TO_PREFIX}{cause}"))
    };
    draft.notices.push(notice(workload, EventType::Normal, &event, message.to_owned(), REPORTER));
    draft
}

/// Handles a workload whose job cannot be started with the admission. If the workload cannot be started because of a temporary problem, the workload is
/// evicted, and tried again after a minute. A problem that is not temporary finishes the workload whose job cannot be started. The argument `to_notice` makes
/// the event for the workload's job (`docs/departures/0044-placement-that-passes.md`).
pub fn cannot_start(
    workload: &WorkloadView,
    now: Timestamp,
    error: &PlacementError,
    to_notice: impl FnOnce(&str, String) -> Notice,
) -> Draft {
    let message = error.to_string();
    if !error.passes() {
        return status_write(workload, Purpose::FinishWorkload, now, |edit| {
            edit.finish(reasons::FAILED_TO_START, &message);
        });
    }
    let at = after_seconds(now, PLACEMENT_SECONDS);
    let draft = evict_and(workload, now, (own_reasons::PLACEMENT_FAILED, ""), &message, |edit| {
        let state = edit.status.requeue_state.get_or_insert_with(Default::default);
        state.requeue_at = Some(Time(seconds(at)));
    });
    draft.with_event(to_notice(own_reasons::PLACEMENT_FAILED, message))
}

#[cfg(test)]
mod tests;
