//! Answers of the case kind `pod`: single pods.

use crate::kinds::case::{Case, Found, merged, pod_sets};
use crate::kinds::read;
use berth_jobs::pods::{
    OwningSet, Phase, PodState, may_be_let_in, pod_defaults, pod_workload, role_hash, validate_leaving_pod,
    validate_pod, validate_pod_update,
};
use berth_jobs::{ObjectPatch, Priority};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

pub(crate) fn answer(case: &Case, key: &str) -> Option<Found> {
    let pod: Pod = read(&case.object);
    let set = || case.set.as_ref().map(|set| OwningSet::of(&read(set)));
    let start = || PodState::read(&pod).start_patch(&case.placements().unwrap_or_default(), set().as_ref());
    let made = || pod_workload(&pod, Priority::default(), &Default::default());
    Some(match key {
        "role" => Found::of(role_hash(pod.spec.as_ref().unwrap())),
        "podSets" => {
            Found::Exact(made().map_or_else(|error| json!(error.to_string()), |made| pod_sets(&made.spec.pod_sets)))
        }
        "workload" => Found::Part(json!(made().unwrap())),
        "unreadable" => Found::Text(made().err().map(|error| error.to_string())),
        "state" => Found::Part(state(&pod)),
        "start" => {
            let start = start().map_err(|error| error.to_string()).unwrap_or_default();
            Found::of(start.map(ObjectPatch::into_body))
        }
        "started" => Found::Part(merged(
            &case.object,
            &start().unwrap_or_default().map(ObjectPatch::into_body).unwrap_or_default(),
        )),
        "refused" => Found::Text(start().err().map(|error| error.to_string())),
        "mark" => Found::Exact(PodState::read(&pod).mark_patch(pod_defaults(&pod, case.facts(), None)).into_body()),
        "release" => Found::Exact(PodState::read(&pod).release_patch().into_body()),
        "defaults" => {
            let given = pod_defaults(&pod, case.facts(), set().as_ref());
            Found::Exact(json!({"labels": given.labels, "annotations": given.annotations,
                "finalizer": given.finalizer, "gate": given.gate}))
        }
        "errors" => Found::Errors(validate_pod(&pod)),
        "leavingErrors" => Found::Errors(validate_leaving_pod(&pod, &read(&case.after()))),
        "changeErrors" => Found::Errors(validate_pod_update(&pod, &read(&case.after()), case.default_queue)),
        _ => return None,
    })
}

fn state(pod: &Pod) -> Value {
    let state = PodState::read(pod);
    let phase = match state.phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    };
    let group = state.group.as_ref().map(|group| {
        json!({"name": group.name, "role": group.role, "total": group.total, "fast": group.fast,
            "serving": group.serving, "retriable": group.retriable})
    });
    json!({
        "phase": phase, "gated": state.gated, "placing": state.placing, "bound": state.bound, "ready": state.ready,
        "held": state.held, "condemned": state.condemned, "deleting": state.deleting(), "runs": state.runs(),
        "ended": state.ended(), "counts": state.counts(), "queue": state.queue_name, "role": state.role(),
        "prebuiltWorkload": state.prebuilt_workload, "priorityClass": state.workload_priority_class,
        "podPriorityClass": state.pod_priority_class, "maxExecutionSeconds": state.max_execution_seconds,
        "parent": state.parent, "message": state.message, "unschedulable": state.unschedulable, "group": group,
        "whole": state.decode().is_some(), "marked": state.marked, "letIn": state.is_let_in(), "mayBeLetIn": may_be_let_in(pod),
    })
}

/// Laws of a pod's start: the start is one patch of the observed state, after which the pod no longer waits for its admission.
pub(crate) fn laws(case: &Case) -> Vec<String> {
    let pod: Pod = read(&case.object);
    let placements = case.placements();
    let Some(Ok(Some(start))) = placements.map(|placements| PodState::read(&pod).start_patch(&placements, None)) else {
        return Vec::new();
    };
    let (metadata, start) = (&case.object["metadata"], start.into_body());
    let fits = start["metadata"]["uid"] == metadata["uid"]
        && start["metadata"]["resourceVersion"] == metadata["resourceVersion"];
    let started = PodState::read(&read(&merged(&case.object, &start)));
    let wrong = [(fits, "the patch is of the state that was read"), (!started.gated, "it waits no longer")];
    wrong.iter().filter(|(holds, _)| !holds).map(|(_, what)| format!("start: {what}")).collect()
}
