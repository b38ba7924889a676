//! Answers of the case kinds `deployment` and `statefulset`.

use crate::kinds::case::{Case, Found, pod_sets};
use crate::kinds::read;
use berth_jobs::Priority;
use berth_jobs::pods::{
    ParentDefaults, SetState, deployment_defaults, stateful_set_defaults, stateful_set_workload, validate_deployment,
    validate_deployment_update, validate_stateful_set, validate_stateful_set_update,
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use serde_json::json;

pub(crate) fn deployment(case: &Case, key: &str) -> Option<Found> {
    let object: Deployment = read(&case.object);
    Some(match key {
        "template" => given(deployment_defaults(&object, None, case.facts())),
        "changeTemplate" => given(deployment_defaults(&read(&case.after()), Some(&object), case.facts())),
        "errors" => Found::Errors(validate_deployment(&object)),
        "changeErrors" => Found::Errors(validate_deployment_update(&object, &read(&case.after()))),
        _ => return None,
    })
}

pub(crate) fn stateful_set(case: &Case, key: &str) -> Option<Found> {
    let object: StatefulSet = read(&case.object);
    let state = || SetState::read(&object);
    let made = || {
        let replicas = state().map_or(0, |state| state.replicas);
        stateful_set_workload(&object, replicas, Priority::default(), &Default::default())
    };
    Some(match key {
        "template" => given(stateful_set_defaults(&object, None, case.facts())),
        "changeTemplate" => given(stateful_set_defaults(&read(&case.after()), Some(&object), case.facts())),
        "podSets" => {
            Found::Exact(made().map_or_else(|error| json!(error.to_string()), |made| pod_sets(&made.spec.pod_sets)))
        }
        "workload" => Found::Part(json!(made().unwrap())),
        "unreadable" => Found::Text(made().err().map(|error| error.to_string())),
        "state" => Found::Part(json!(state().map(|state| {
            json!({"replicas": state.replicas, "queue": state.queue_name, "deleting": state.deleting,
                "priorityClass": state.workload_priority_class, "podPriorityClass": state.pod_priority_class,
                "admissionGates": state.admission_gates, "capacityTiers": state.capacity_tiers, "group": state.group})
        }))),
        "errors" => Found::Errors(validate_stateful_set(&object)),
        "changeErrors" => Found::Errors(validate_stateful_set_update(&object, &read(&case.after()))),
        _ => return None,
    })
}

/// Defaults of a pod template, and of the object itself if it gets any.
fn given(defaults: ParentDefaults) -> Found {
    let mut given = json!({"labels": defaults.labels, "annotations": defaults.annotations});
    if !defaults.own_labels.is_empty() {
        given["ownLabels"] = json!(defaults.own_labels);
    }
    Found::Exact(given)
}
