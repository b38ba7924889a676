//! Unit tests of decisions about a pod.

use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, deleting, evicted, finished, job, pod, reserved, started, workload_of_pod,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, named, now, own_name};

/// Calls `ask` with the case of a pod of the state.
pub(super) fn case_of<R>(state: &State, name: &str, ask: impl FnOnce(PodCase<'_>) -> R) -> R {
    let ctx = state.context();
    let name = own_name(name);
    let pod = ctx.view.pods().get(&name).unwrap_or_else(|| panic!("no pod {name:?}"));
    ask(PodCase { ctx: &ctx, name: &name, pod, now: now() })
}

/// The decision about pod `a`.
pub(super) fn decided(state: &State) -> Step {
    step(&decide(&state.context(), &own_name("a"), now()))
}

/// The pending Workload of pod `a`.
pub(super) fn pending() -> Value {
    workload_of_pod(&pod("a"))
}

fn both(pod: Value, workload: Value) -> State {
    State::managing_pods().with(pod).with(workload)
}

#[test]
fn pod_decision_follows_the_pod_and_its_workload() {
    let gated = || pod("a");
    let runs = || started(pod("a"));
    let ended = |phase: &str| changed(runs(), json!({"status": {"phase": phase}}));
    let condemned = |pod: Value| {
        changed(
            pod,
            json!({"status": {"conditions": [{"type": "TerminationTarget", "status": "True", "reason": "R", "message": ""}]}}),
        )
    };
    let name = berth_jobs::workload_name("Pod", "", "a", "a-uid");
    let created = format!("CreateWorkload: create Workload ns/{name}");
    let on_node = |pod: Value| changed(pod, json!({"spec": {"nodeName": "n"}}));
    let rows: Vec<(&str, State, &str)> = vec![
        ("waits, no Workload", State::managing_pods().with(gated()), &created),
        ("waits", both(gated(), pending()), "done"),
        ("reserved", both(gated(), reserved(pending())), "done"),
        ("admitted", both(gated(), admitted(pending())), "StartJob: merge Pod ns/a"),
        ("runs", both(runs(), admitted(pending())), "done"),
        ("runs, not admitted", both(runs(), reserved(pending())), "CondemnPod: apply status Pod ns/a"),
        ("runs, no Workload", State::managing_pods().with(runs()), "CondemnPod: apply status Pod ns/a"),
        ("runs, evicted", both(runs(), evicted(admitted(pending()), "Preempted")), "CondemnPod: apply status Pod ns/a"),
        (
            "runs, evicted, told",
            both(condemned(runs()), evicted(admitted(pending()), "Preempted")),
            "DeletePod: delete Pod ns/a",
        ),
        (
            "waits, evicted",
            both(gated(), evicted(admitted(pending()), "Preempted")),
            "ReleaseQuota: apply status Workload ns/w",
        ),
        ("has succeeded", both(ended("Succeeded"), admitted(pending())), "FinishWorkload: apply status Workload ns/w"),
        (
            "has succeeded, recorded",
            both(ended("Succeeded"), finished(admitted(pending()))),
            "ReleasePod: merge Pod ns/a",
        ),
        ("goes, and runs", both(deleting(on_node(runs())), admitted(pending())), "done"),
        ("goes, and was never started", both(deleting(gated()), pending()), "ReleasePod: merge Pod ns/a"),
        ("is not managed", State::new().with(gated()), "done"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

#[test]
fn pod_start_removes_its_gate_and_adds_its_placement() {
    let flavor = json!({"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "a"}}});
    let found = decided(&both(pod("a"), admitted(pending())).with(flavor));
    assert_eq!(found.body["spec"].get("schedulingGates"), Some(&Value::Null), "no gate is left");
    assert_eq!(found.body["spec"]["nodeSelector"], json!({"pool": "a"}));
    assert_eq!(
        (&found.body["metadata"]["uid"], &found.body["metadata"]["resourceVersion"]),
        (&json!("a-uid"), &json!("7"))
    );
    assert_eq!(found.events, ["Normal Started: Admitted by clusterQueue cq"]);
}

/// A start with a lost answer may still be applied, so the start is withdrawn before the quota is given back.
#[test]
fn pod_start_with_unknown_outcome_is_withdrawn_before_release() {
    let mut state = both(pod("a"), evicted(admitted(pending()), "Preempted"));
    state.in_flight.unresolved_mut().note_unresolved(named(Kind::Pod, "a"), 7);
    assert_eq!(decided(&state).what, "WithdrawStart: merge Pod ns/a");
}

#[test]
fn event_names_reason_why_pod_requests_no_quota() {
    let why = |object: Value| {
        let state = State::new().with(object);
        let name = own_name("a");
        unasked(&state.context(), &name, &state.view.pods().get(&name).expect("the pod").clone())
    };
    let no_queue = changed(pod("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}));
    let of_job = changed(pod("a"), json!({"metadata": crate::testing::objects::controlled_by(&job("j"))}));
    assert_eq!(why(pod("a")), None);
    assert_eq!(why(no_queue).as_deref(), Some("its pod names no queue"));
    assert_eq!(why(of_job).as_deref(), Some("its pod is admitted with Job \"j\", which controls it"));
}

#[test]
fn stopped_pod_gets_eviction_reason_in_its_status() {
    let found = decided(&both(started(pod("a")), evicted(admitted(pending()), "Preempted")));
    let condition = &found.body["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("TerminationTarget"), &json!("WorkloadEvictedDueToPreempted"))
    );
    assert_eq!(condition["message"], json!("Preempted, in words"));
}
