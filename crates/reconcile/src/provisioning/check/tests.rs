use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition, deleting, job, reserved, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, named, now, own_name};
use crate::write::cluster_key;

fn check_object() -> Value {
    let spec = json!({"controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}});
    json!({"kind": "AdmissionCheck", "metadata": {"name": "c", "uid": "c-uid", "resourceVersion": "7"}, "spec": spec})
}

/// A state in which the autoscaler check `c` and its configuration are known, and the cluster serves requests or not.
fn asking(served: Option<bool>) -> State {
    let config = json!({"kind": "ProvisioningRequestConfig", "metadata": {"name": "config"}, "spec": {"provisioningClassName": "class"}});
    let mut state = State::new().with(check_object()).with(config);
    if let Some(served) = served {
        state.view.note_provisioning_served(served);
    }
    state
}

/// The Workload of job `a` with quota, and check `c` in that state.
fn checked(state: &str) -> Value {
    let entry = json!({"name": "c", "state": state, "message": "", "lastTransitionTime": at(-10)});
    changed(reserved(workload_of(&job("a"))), json!({"status": {"admissionChecks": [entry]}}))
}

fn decided(state: &State) -> Option<Step> {
    decide(&state.context(), state.workload("w"), now()).map(|decision| step(&decision))
}

/// The ProvisioningRequest of the first attempt, with that condition.
fn request_with(kind: &str) -> Value {
    let name = berth_jobs::provisioning_request_name("w", "c", 1);
    let owner = json!([{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "w-uid", "controller": true}]);
    let metadata =
        json!({"namespace": "ns", "name": name, "uid": "r-uid", "resourceVersion": "7", "ownerReferences": owner});
    let spec = json!({"provisioningClassName": "class", "parameters": {}, "podSets": [{"podTemplateRef": {"name": "t"}, "count": 2}]});
    json!({"kind": "ProvisioningRequest", "metadata": metadata, "spec": spec, "status": {"conditions": [condition(kind, true, "R")]}})
}

#[test]
fn workload_with_quota_prepares_templates_before_its_request() {
    let first = |state: State| decided(&state).map(|step| step.what.split(' ').take(3).collect::<Vec<_>>().join(" "));
    assert_eq!(first(asking(None).with(checked("Pending"))), None, "nobody knows what the cluster serves");
    assert_eq!(
        first(asking(Some(true)).with(checked("Pending"))).as_deref(),
        Some("PreparePodTemplate: create PodTemplate")
    );
    assert_eq!(first(asking(Some(true)).with(checked("Rejected"))), None);
    assert_eq!(first(asking(Some(true)).with(admitted(checked("Pending")))), None);
    let inactive = decided(&asking(Some(false)).with(checked("Pending"))).expect("an answer");
    assert_eq!(inactive.body["status"]["admissionChecks"][0]["message"], json!("the check is not active"));
}

#[test]
fn answer_of_the_autoscaler_becomes_the_state_of_the_check() {
    let state_of = |kind: &str| {
        let found = decided(&asking(Some(true)).with(checked("Pending")).with(request_with(kind)))?;
        found.body["status"]["admissionChecks"][0]["state"].as_str().map(str::to_owned)
    };
    assert_eq!(state_of("Provisioned").as_deref(), Some("Ready"));
    assert_eq!(state_of("Failed").as_deref(), Some("Retry"));
    let revoked = asking(Some(true)).with(checked("Ready")).with(request_with("CapacityRevoked"));
    let found = decided(&revoked).expect("an answer");
    assert_eq!(found.body["status"]["admissionChecks"][0]["state"], json!("Rejected"));
}

#[test]
fn provisioning_request_is_withdrawn_when_its_workload_loses_quota() {
    let name = berth_jobs::provisioning_request_name("w", "c", 1);
    let decided = |workload: Option<Value>, object: Value| {
        let state = workload.into_iter().fold(asking(Some(true)).with(object), State::with);
        step(&request(&state.context(), &own_name(&name))).what
    };
    let withdraws = format!("WithdrawRequest: delete ProvisioningRequest ns/{name}");
    assert_eq!(decided(Some(checked("Pending")), request_with("Accepted")), "done");
    assert_eq!(decided(Some(workload_of(&job("a"))), request_with("Accepted")), withdraws, "it has no quota any more");
    assert_eq!(decided(None, request_with("Accepted")), "done", "garbage collection takes it");
    assert_eq!(decided(Some(workload_of(&job("a"))), deleting(request_with("Accepted"))), "done");
}

#[test]
fn check_is_active_where_requests_are_served_and_configured() {
    let active = |state: State| {
        let found = step(&check(&state.context(), &cluster_key(Kind::AdmissionCheck, "c"), now()));
        found.condition("Active").map(|(is, reason, _)| (is, reason.to_owned()))
    };
    assert_eq!(active(asking(Some(true))), Some((true, "Active".to_owned())));
    assert_eq!(active(asking(Some(false))), Some((false, "NotServed".to_owned())));
    assert_eq!(active(asking(None)), None);
    let mut unconfigured = State::new().with(check_object());
    unconfigured.view.note_provisioning_served(true);
    assert_eq!(active(unconfigured), Some((false, "BadParametersRef".to_owned())));
    assert_eq!(named(Kind::Workload, "w").name, "w");
}
