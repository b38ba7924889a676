use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::pod_group::tests::{case_of, decided, unresolved};
use crate::testing::groups::{group_of_set, on_node, pod_of_set, stateful_set, workload_of_set};
use crate::testing::objects::{admitted, changed, condition, deleting, evicted, reserved, with_condition, workload};
use crate::testing::step::step;
use crate::testing::{State, named, now, own_name};

fn without_queue(set: Value) -> Value {
    changed(set, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}))
}

fn inactive(workload: Value) -> Value {
    changed(workload, json!({"spec": {"active": false}}))
}

/// The pending Workload of a StatefulSet with two replicas.
fn pending() -> Value {
    workload_of_set(&stateful_set(2))
}

/// The Workload of a StatefulSet that was scaled from two replicas to zero.
fn on_hold() -> Value {
    with_condition(pending(), condition("QuotaReserved", false, "OnHold"))
}

/// A running pod of the StatefulSet.
fn running_pod() -> Value {
    let started = json!({
        "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": group_of_set()}},
        "spec": {"schedulingGates": null}, "status": {"phase": "Running"},
    });
    on_node(changed(pod_of_set("a"), started))
}

fn alone(set: Value) -> State {
    State::managing_pods().with(set)
}

fn scaled_to(replicas: i32, workload: Value) -> State {
    alone(stateful_set(replicas)).with(workload)
}

#[test]
fn stateful_set_with_queue_and_replicas_gets_workload() {
    let created = format!("CreateWorkload: create Workload ns/{}", group_of_set());
    let full = || {
        let mut state = alone(stateful_set(2));
        state.fill_creations();
        state
    };
    let ending = || {
        let mut state = alone(stateful_set(2));
        state.end_namespace();
        state
    };
    let of_all_jobs = || {
        let settings = Settings { manage_jobs_without_queue_name: true, ..State::managing_pods().settings };
        State::with_settings(settings).with(without_queue(stateful_set(2)))
    };
    let rows: Vec<(&str, State, &str)> = vec![
        ("with a queue", alone(stateful_set(2)), &created),
        ("no replicas", alone(stateful_set(0)), "done"),
        ("is being deleted", alone(deleting(stateful_set(2))), "done"),
        ("names no queue", alone(without_queue(stateful_set(2))), "done"),
        ("names no queue, and all jobs are managed", of_all_jobs(), &created),
        ("many Workloads are being created", full(), "wait for creations"),
        ("its namespace ends", ending(), "done"),
        ("pods are not managed", State::new().with(stateful_set(2)), "done"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state, &group_of_set()).what, expected, "{name}");
    }
}

#[test]
fn new_workload_of_stateful_set_has_all_replicas() {
    let found = decided(&alone(stateful_set(2)), &group_of_set());
    assert_eq!(found.body["spec"]["podSets"][0]["count"], json!(2));
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s-uid"});
    assert_eq!(found.body["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(found.events, [format!("Normal CreatedWorkload: Created Workload: ns/{}", group_of_set())]);
}

/// Users look for events at the StatefulSet, which they have written, and not at its pods.
#[test]
fn fault_of_stateful_set_is_reported_at_it() {
    let classed = changed(stateful_set(2), json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "none"}}}));
    let unreadable = json!({
        "kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "x",
    });
    let unreadable = json!({"spec": {"template": {"metadata": {"annotations": unreadable}}}});
    let missing = "priority class \"none\" does not exist; create it or change the";
    let rows: Vec<(&str, State, &str, String)> = vec![
        ("its class", alone(classed.clone()), "WorkloadPriorityClassNotFound", format!("{missing} StatefulSet")),
        (
            "its class, with a Workload",
            alone(classed).with(pending()),
            "WorkloadPriorityClassNotFound",
            format!("{missing} job"),
        ),
        ("an annotation", alone(changed(stateful_set(2), unreadable)), "ErrWorkloadCompose", String::new()),
    ];
    for (name, state, reason, message) in rows {
        let decision = super::super::decide(&state.context(), &own_name(&group_of_set()), now());
        let Decision::Event(sent) = decision else { panic!("{name}: no event") };
        assert_eq!((&sent.key, sent.uid.as_str()), (&named(Kind::StatefulSet, "s"), "s-uid"), "{name}");
        assert_eq!((sent.event_type, sent.reason.as_str()), (EventType::Warning, reason), "{name}");
        assert_eq!(sent.reporter, "statefulset-kueue-controller", "{name}");
        assert!(message.is_empty() || sent.message == message, "{name}: {}", sent.message);
    }
}

#[test]
fn workload_with_name_of_stateful_sets_workload_is_reported() {
    let taken = |set: Value| alone(set).with(workload(&group_of_set()));
    let group = group_of_set();
    let found = decided(&taken(stateful_set(2)), &group);
    let text = format!(
        "Workload ns/{group} belongs to no job and has the name that the Workload of this job is to have: delete it"
    );
    assert_eq!(found.events, [format!("Warning WorkloadNameConflict: {text}")]);
    let mut reported = taken(stateful_set(2));
    reported.note_event(named(Kind::PodGroup, &group), "WorkloadNameConflict", &text);
    assert_eq!(decided(&reported, &group).what, format!("wait for Workload ns/{group}"));
    assert_eq!(decided(&taken(stateful_set(0)), &group).what, "done", "it needs no Workload");
}

/// The write by which the Workload follows the number of replicas, with the reason and the message of its condition `QuotaReserved`.
fn scaled(state: &State) -> Option<String> {
    let group = group_of_set();
    let decision =
        case_of(state, &group, |case| case.scaled(state.workload(&group), case.set.expect("a StatefulSet")))?;
    let step = step(&decision);
    let what = step.what.split(':').next().unwrap_or_default().to_owned();
    let reason = step.condition("QuotaReserved").map(|(_, reason, message)| format!(" {reason}: {message}"));
    Some(what + reason.unwrap_or_default().as_str())
}

#[test]
fn stateful_set_at_zero_replicas_holds_no_quota() {
    let hold = Some("ReleaseQuota OnHold: StatefulSet scaled to zero; workload on hold");
    let with_pod = |workload: Value| scaled_to(0, workload).with(running_pod());
    let starting = |workload: Value| unresolved(scaled_to(0, workload).with(pod_of_set("a")));
    let rows: Vec<(&str, State, Option<&str>)> = vec![
        ("pending", scaled_to(0, pending()), hold),
        ("admitted", scaled_to(0, admitted(pending())), hold),
        ("evicted", scaled_to(0, evicted(admitted(pending()), "Preempted")), hold),
        ("on hold", scaled_to(0, on_hold()), Some("done")),
        ("a pod runs", with_pod(admitted(pending())), Some("done")),
        ("a start may be applied", starting(admitted(pending())), Some("done")),
        ("a start may be applied, without quota", starting(pending()), hold),
        ("inactive", scaled_to(0, inactive(pending())), Some("done")),
        ("inactive with quota", scaled_to(0, inactive(admitted(pending()))), None),
    ];
    for (name, state, expected) in rows {
        assert_eq!(scaled(&state).as_deref(), expected, "{name}");
    }
}

#[test]
fn workload_of_scaled_stateful_set_waits_for_its_new_size() {
    let again = Some("ReleaseQuota PendingEvaluation: StatefulSet scaled to 3 replicas; waiting for quota for them");
    let released = Some("Requeue PendingEvaluation: Workload no longer on hold; waiting for quota reservation");
    let rows: Vec<(&str, State, Option<&str>)> = vec![
        ("the same size", scaled_to(2, pending()), None),
        ("the same size, with quota", scaled_to(2, admitted(pending())), None),
        ("the same size after a hold", scaled_to(2, on_hold()), released),
        ("another size", scaled_to(3, pending()), Some("UpdateWorkload")),
        ("another size after a hold", scaled_to(3, on_hold()), Some("UpdateWorkload")),
        ("another size, reserved", scaled_to(3, reserved(pending())), again),
        ("another size, admitted", scaled_to(3, admitted(pending())), again),
        ("another size, a pod runs", scaled_to(3, admitted(pending())).with(running_pod()), None),
        (
            "another size, a start may be applied",
            unresolved(scaled_to(3, admitted(pending())).with(pod_of_set("a"))),
            None,
        ),
        ("another size, evicted", scaled_to(3, evicted(admitted(pending()), "Preempted")), None),
    ];
    for (name, state, expected) in rows {
        assert_eq!(scaled(&state).as_deref(), expected, "{name}");
    }
}

/// The pods of a StatefulSet have the labels of their creation, so its Workload follows the StatefulSet alone.
#[test]
fn workload_of_stateful_set_takes_over_its_fields() {
    let update = |set: Value, workload: Value| {
        let state = alone(set).with(pod_of_set("a")).with(workload);
        let found = decided(&state, &group_of_set());
        (found.what.starts_with("UpdateWorkload")).then_some(found.body)
    };
    let label = |name: &str, value: &str| {
        changed(stateful_set(2), json!({"metadata": {"labels": {format!("kueue.x-k8s.io/{name}"): value}}}))
    };
    let of_tier = changed(stateful_set(2), json!({"metadata": {"annotations": {"berth.dev/capacity-tiers": "spot"}}}));
    assert_eq!(update(stateful_set(2), pending()), None);
    let queue = update(label("queue-name", "other"), pending()).expect("an update");
    assert_eq!(queue["spec"], json!({"queueName": "other"}));
    assert_eq!(update(label("queue-name", "other"), admitted(pending())), None, "it has quota");
    let tiers = update(of_tier, pending()).expect("an update");
    assert_eq!(tiers["metadata"]["annotations"], json!({"berth.dev/capacity-tiers": "spot"}));
    let size = update(stateful_set(3), pending()).expect("an update");
    assert_eq!(size["spec"]["podSets"][0]["count"], json!(3));
    assert_eq!(size["metadata"]["annotations"], json!({"berth.dev/size": "3 pods, cpu 3"}));
}
