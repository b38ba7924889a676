//! Conflicts about the names of Workloads. A job whose Workload's name is taken reports the object with that name in an event, and continues when that object
//! is gone.

use berth_api as api;
use berth_api::conditions::event_reasons;
use berth_api::json::to_value;
use berth_cache::WorkloadView;
use berth_jobs::too_large;
use serde_json::Value;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::orphan::{OwnerState, owner_state};
use crate::write::{Body, EventType, Kind, Notice, ObjectKey, Purpose, Write, key};

/// Creates the Workload of a job that has no Workload; `to_notice` makes the event about the creation. `asker` is the object that control decides about. A
/// Workload that would leave no room for its status is not created, and no Workload replaces another Workload of the name: the user gets an event.
pub(crate) fn create(
    ctx: &Context<'_>,
    asker: &ObjectKey,
    workload: &api::Workload,
    to_notice: impl FnOnce(String) -> Notice,
) -> Decision {
    let warning =
        |reason: &str, notice: Notice| Notice { event_type: EventType::Warning, reason: reason.to_owned(), ..notice };
    if let Some(problem) = too_large(workload) {
        return Decision::event(warning(event_reasons::ERR_WORKLOAD_COMPOSE, to_notice(problem)));
    }
    let name = (workload.namespace().to_owned(), workload.name().to_owned());
    if let Some(other) = ctx.view.workloads().get(&name) {
        return has_its_name(ctx, asker, other, |reason, text| warning(reason, to_notice(text)));
    }
    let mut body = to_value(workload);
    let size = ctx.size_of_pod_sets(&name.0, &workload.spec.pod_sets);
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        match metadata.entry("annotations").or_insert(Value::Null) {
            Value::Object(annotations) => annotations.extend(size),
            none => *none = Value::Object(size),
        }
    }
    let message = format!("Created Workload: {}/{}", name.0, name.1);
    let draft =
        Draft::of_any_version(Purpose::CreateWorkload, key(Kind::Workload, &name), Write::Create(Body::of_new(body)));
    Decision::write(draft.with_event(to_notice(message)))
}

/// Handles a Workload of another object that has the name that the job's Workload needs.
pub(crate) fn has_its_name(
    ctx: &Context<'_>,
    asker: &ObjectKey,
    other: &WorkloadView,
    warn: impl FnOnce(&'static str, String) -> Notice,
) -> Decision {
    let what = "has the name that the Workload of this job is to have: delete it";
    in_the_way(ctx, asker, other, what, |text| warn(event_reasons::WORKLOAD_NAME_CONFLICT, text))
}

/// Whether the job with a uid may become the controller of a prebuilt Workload without a controller. The Workload of a deleted job holds the quota of pods that
/// the deleted job has left running, so no other job may take over such a Workload. A Workload that MultiKueue has copied from another cluster has the uid of
/// the job in the other cluster.
pub(crate) fn may_adopt(workload: &WorkloadView, uid: &str) -> bool {
    let is_copy = || workload.labels.as_ref().is_some_and(|labels| labels.contains_key(api::labels::MULTIKUEUE_ORIGIN));
    workload.job_uid.as_deref().is_none_or(|of| of == uid) || is_copy()
}

/// Handles a prebuilt Workload that a job names but that belongs to another object.
pub(crate) fn made_for_another(
    ctx: &Context<'_>,
    asker: &ObjectKey,
    workload: &WorkloadView,
    warn: impl FnOnce(&'static str, String) -> Notice,
) -> Decision {
    let what = "is the one that this job names as made beforehand: name another one";
    in_the_way(ctx, asker, workload, what, |text| warn(event_reasons::WORKLOAD_NAME_CONFLICT, text))
}

/// Sends one event about the Workload whose name another Workload needs, and waits until the named Workload is gone.
fn in_the_way(
    ctx: &Context<'_>,
    asker: &ObjectKey,
    other: &WorkloadView,
    what: &str,
    warning: impl FnOnce(String) -> Notice,
) -> Decision {
    let object = other.object_key();
    // A Workload that is deleted with its owner will be gone soon.
    if other.deleting || owner_state(ctx, other) != OwnerState::There {
        return Decision::WaitFor(object);
    }
    let whose = match &other.owner {
        Some(owner) => format!("belongs to {} {}/{}", owner.kind, other.namespace, owner.name),
        None if other.job_uid.is_some() => "was left behind by another job".to_owned(),
        None => "belongs to no job".to_owned(),
    };
    let event = (
        event_reasons::WORKLOAD_NAME_CONFLICT,
        format!("Workload {}/{} {whose} and {what}", other.namespace, other.name),
    );
    if ctx.is_unsent(asker, &event) { Decision::event(warning(event.1)) } else { Decision::WaitFor(object) }
}

#[cfg(test)]
mod tests;
