//! Unit tests of decisions about a pod group.

use berth_cache::settings::Settings;
use berth_engine::model::{Requirement, Selector, SelectorOp};
use serde_json::{Value, json};

use super::*;
use crate::testing::groups::{
    in_phase, let_in_member, member, of_replica_set, on_node, started_member, workload_of_group,
};
use crate::testing::objects::{
    admitted, changed, condition, deleting, evicted, finished, reserved, with_condition, workload,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, named, now, own_name};

/// Calls `ask` with the case of a pod group of the state, or of a StatefulSet's pods.
pub(super) fn case_of<R>(state: &State, group: &str, ask: impl FnOnce(PodGroupCase<'_>) -> R) -> R {
    let (ctx, name, none) = (state.context(), own_name(group), Group::default());
    let (group, set) = (ctx.view.pods().group(&name), ctx.view.sets().of_group(&name));
    ask(PodGroupCase { ctx: &ctx, name: &name, group: group.unwrap_or(&none), set, now: now() })
}

/// The decision about a pod group.
pub(super) fn decided(state: &State, group: &str) -> Step {
    step(&decide(&state.context(), &own_name(group), now()))
}

/// The state that manages pods, with these pods.
pub(super) fn observed(pods: Vec<Value>) -> State {
    pods.into_iter().fold(State::managing_pods(), State::with)
}

/// A pod of group `g`, which has two pods of one role; the pod waits behind its scheduling gate.
pub(super) fn waiting(name: &str) -> Value {
    member(name, "main", 2)
}

/// A running pod of group `g`.
pub(super) fn running(name: &str) -> Value {
    on_node(started_member(waiting(name)))
}

fn ended(name: &str, phase: &str) -> Value {
    in_phase(running(name), phase)
}

/// The pending Workload of group `g` for two pods, with owners.
fn sized_two(owners: &[&str]) -> Value {
    workload_of_group(&[("main", 2)], owners)
}

/// The pending Workload of pods `a` and `b`.
fn pending() -> Value {
    sized_two(&["a", "b"])
}

fn both(pods: Vec<Value>, workload: Value) -> State {
    observed(pods).with(workload)
}

fn both_wait() -> Vec<Value> {
    vec![waiting("a"), waiting("b")]
}

fn both_run() -> Vec<Value> {
    vec![running("a"), running("b")]
}

/// The state in which a start of pod `a` may still be applied.
pub(super) fn unresolved(mut state: State) -> State {
    state.in_flight.unresolved_mut().note_unresolved(named(Kind::Pod, "a"), 7);
    state
}

fn assert_decisions(rows: Vec<(&str, State, &str)>) {
    for (name, state, expected) in rows {
        assert_eq!(decided(&state, "g").what, expected, "{name}");
    }
}

#[test]
fn pod_group_decision_follows_its_pods_and_its_workload() {
    let busy = || {
        let mut state = both(both_wait(), admitted(pending()));
        state.in_flight.expect(named(Kind::Workload, "g"), 9);
        state
    };
    let unreadable = json!({"metadata": {"annotations": {"berth.dev/unreadable": "x"}}});
    let preempted = || evicted(admitted(pending()), "Preempted");
    let unguarded = json!({"metadata": {"finalizers": null}});
    let over = || finished(admitted(pending()));
    let stopped = || vec![ended("a", "Failed"), ended("b", "Failed")];
    assert_decisions(vec![
        ("no pods", State::managing_pods(), "done"),
        ("no pods, and a Workload", State::managing_pods().with(admitted(pending())), "done"),
        ("no Workload", observed(both_wait()), "CreateWorkload: create Workload ns/g"),
        ("pods are not managed", both_wait().into_iter().fold(State::new(), State::with), "done"),
        ("a Workload of another object", both(both_wait(), workload("g")), "tell"),
        ("a write to the Workload is under way", busy(), "done"),
        ("unreadable", both(both_run(), changed(preempted(), unreadable)), "done"),
        ("pending", both(both_wait(), pending()), "done"),
        ("reserved", both(both_wait(), reserved(pending())), "done"),
        ("runs", both(both_run(), admitted(pending())), "done"),
        (
            "evicted, a pod has succeeded",
            both(vec![running("a"), ended("b", "Succeeded")], preempted()),
            "SetReclaimable: apply status Workload ns/g",
        ),
        ("evicted, pods run", both(both_run(), preempted()), "done"),
        ("evicted, no pod runs", both(both_wait(), preempted()), "ReleaseQuota: apply status Workload ns/g"),
        ("evicted, a start may be applied", unresolved(both(both_wait(), preempted())), "done"),
        (
            "all have succeeded",
            both(vec![ended("a", "Succeeded"), ended("b", "Succeeded")], admitted(pending())),
            "FinishWorkload: apply status Workload ns/g",
        ),
        ("finished", both(stopped(), over()), "LetFinishedGo: merge Workload ns/g"),
        ("finished without finalizer", both(stopped(), changed(over(), unguarded)), "done"),
    ]);
}

#[test]
fn workload_of_another_object_with_group_name_is_reported() {
    let found = decided(&both(both_wait(), workload("g")), "g");
    let expected = "Warning WorkloadNameConflict: A Workload named \"g\" already exists but is not a pod group workload; this \
        pod group cannot be admitted";
    assert_eq!(found.events, [expected]);
}

#[test]
fn end_of_pod_group_counts_its_succeeded_pods() {
    let unretriable = json!({"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}});
    let serving = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}}});
    let end = |first: Value, second: Value| {
        let found = decided(&both(vec![first, second], admitted(pending())), "g");
        found.condition("Finished").map(|(_, reason, message)| format!("{reason}: {message}"))
    };
    let succeeded = |name: &str| ended(name, "Succeeded");
    let given_up = || changed(ended("b", "Failed"), unretriable.clone());
    assert_eq!(end(succeeded("a"), succeeded("b")).as_deref(), Some("Succeeded: Pods succeeded: 2/2."));
    assert_eq!(end(succeeded("a"), given_up()).as_deref(), Some("Failed: Pods succeeded: 1/2."));
    assert_eq!(end(running("a"), given_up()), None, "a pod runs");
    assert_eq!(end(succeeded("a"), ended("b", "Failed")), None, "the failed pod may be replaced");
    assert_eq!(end(succeeded("a"), changed(succeeded("b"), serving)), None, "the group serves");
}

/// The finalizer of a Workload that is being deleted stays as long as a pod may use its quota.
#[test]
fn deleted_workload_of_pod_group_waits_for_its_pods() {
    let going = || deleting(admitted(pending()));
    let gone = |name: &str| deleting(ended(name, "Failed"));
    let next = || deleting(admitted(sized_two(&["x", "y"])));
    let rest = deleting(finished(admitted(pending())));
    assert_decisions(vec![
        ("pods run", both(both_run(), going()), "done"),
        ("its pods wait", both(both_wait(), going()), "done"),
        ("a pod is not deleted", both(vec![gone("a"), ended("b", "Failed")], going()), "done"),
        ("its pods are gone", both(vec![gone("a"), gone("b")], going()), "RemoveFinalizer: merge Workload ns/g"),
        ("pods of the next group wait", both(both_wait(), next()), "RemoveFinalizer: merge Workload ns/g"),
        ("a start of the next group may be applied", unresolved(both(both_wait(), next())), "done"),
        ("finished, pods run", both(both_run(), rest), "RemoveFinalizer: merge Workload ns/g"),
    ]);
}

#[test]
fn new_pod_and_its_controller_become_owners_of_workload() {
    let found = decided(&both(vec![waiting("a"), of_replica_set(waiting("b"))], sized_two(&["a"])), "g");
    assert_eq!(found.what, "AddOwners: merge Workload ns/g");
    let owner = |kind: &str, name: &str| {
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": format!("{name}-uid")})
    };
    assert_eq!(
        found.body["metadata"]["ownerReferences"],
        json!([owner("ReplicaSet", "r"), owner("Pod", "a"), owner("Pod", "b")])
    );
    assert_eq!(found.events, ["Normal OwnerReferencesAdded: Added 2 owner reference(s)"]);
    let failed = both(vec![waiting("a"), ended("b", "Failed")], sized_two(&["a"]));
    assert_ne!(decided(&failed, "g").what, "AddOwners: merge Workload ns/g", "a failed pod does not count");
}

#[test]
fn excess_and_replaced_pods_of_group_go() {
    let three = |third: Value| vec![running("a"), running("b"), third];
    let of_three = || admitted(sized_two(&["a", "b", "c"]));
    assert_decisions(vec![
        ("one more waits", both(three(waiting("c")), of_three()), "DeletePod: delete Pod ns/c"),
        (
            "their controller creates them again",
            both(vec![running("a"), running("b"), waiting("c")].into_iter().map(of_replica_set).collect(), of_three()),
            "done",
        ),
        (
            "it replaces a pod that is being deleted",
            both(vec![deleting(running("a")), running("b"), waiting("c")], of_three()),
            "done",
        ),
        ("a failed pod was replaced", both(three(ended("c", "Failed")), of_three()), "ReleasePod: merge Pod ns/c"),
        (
            "a failed pod was deleted",
            both(vec![deleting(ended("a", "Failed")), running("b")], admitted(pending())),
            "ReleasePod: merge Pod ns/a",
        ),
        (
            "a succeeded pod was deleted",
            both(vec![deleting(ended("a", "Succeeded")), running("b")], admitted(pending())),
            "SetReclaimable: apply status Workload ns/g",
        ),
    ]);
    let found = decided(&both(three(waiting("c")), of_three()), "g");
    assert_eq!(found.events, ["Normal ExcessPodDeleted: Excess pod deleted"]);
}

#[test]
fn finished_pod_group_drops_controllers_of_its_pods() {
    let with_owner = |mut workload: Value| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r-uid"});
        workload["metadata"]["ownerReferences"].as_array_mut().expect("a list").push(owner);
        finished(workload)
    };
    let references = |pod: Value| {
        let found = decided(&both(vec![pod], with_owner(sized_two(&["a"]))), "g");
        assert_eq!(found.what, "LetFinishedGo: merge Workload ns/g");
        found.body["metadata"].get("ownerReferences").cloned()
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a-uid"});
    assert_eq!(references(of_replica_set(ended("a", "Succeeded"))), Some(json!([pod])));
    assert_eq!(references(ended("a", "Succeeded")), None, "another object is the owner");
}

/// While the condition is true, the Workload is not admitted again.
#[test]
fn pod_group_waits_for_replacements_of_failed_pods() {
    let written = |pods: Vec<Value>, workload: Value| {
        let found = decided(&both(pods, workload), "g");
        found.condition("WaitingForReplacementPods").map(|(is, reason, message)| format!("{is} {reason}: {message}"))
    };
    let one_failed = || vec![ended("a", "Failed"), running("b")];
    let waits = |workload: Value| with_condition(workload, condition("WaitingForReplacementPods", true, "PodsFailed"));
    let fast = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true"}}});
    let prebuilt = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "g"}}});
    let preempted = evicted(admitted(pending()), "Preempted");
    let failed = Some("true PodsFailed: Some Failed pods need replacement".to_owned());
    assert_eq!(written(both_run(), admitted(pending())), None);
    assert_eq!(written(one_failed(), admitted(pending())), failed);
    assert_eq!(written(vec![running("b")], admitted(pending())), failed, "a pod is gone");
    assert_eq!(written(one_failed(), preempted), Some("true Preempted: Preempted, in words".to_owned()));
    assert_eq!(written(vec![changed(running("b"), fast)], admitted(pending())), None, "others may come at any time");
    let first = || vec![changed(waiting("a"), prebuilt.clone())];
    assert_eq!(written(first(), sized_two(&["a"])), None, "its other pods are still to be created");
    assert_eq!(written(first(), pending()), failed, "a pod of it is gone");
    let over = Some("false PodsReady: No pods need replacement".to_owned());
    assert_eq!(written(both_run(), waits(admitted(pending()))), over);
}

#[test]
fn succeeded_pods_of_group_give_quota_back() {
    let pods = || vec![ended("a", "Succeeded"), running("b")];
    let known = json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}});
    let found = decided(&both(pods(), admitted(pending())), "g");
    assert_eq!(found.what, "SetReclaimable: apply status Workload ns/g");
    assert_eq!(found.body["status"], json!({"reclaimablePods": [{"name": "main", "count": 1}]}));
    let mut settings = State::managing_pods().settings;
    settings.reclaimable_pods = false;
    let off = pods().into_iter().fold(State::with_settings(settings), State::with).with(admitted(pending()));
    let serving = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}}});
    let of_serving = vec![ended("a", "Succeeded"), changed(running("b"), serving)];
    assert_decisions(vec![
        ("known", both(pods(), changed(admitted(pending()), known)), "done"),
        ("no quota", both(vec![ended("a", "Succeeded"), waiting("b")], pending()), "done"),
        ("switched off", off, "done"),
        ("its group serves", both(of_serving, admitted(pending())), "done"),
    ]);
}

#[test]
fn pod_group_in_unmanaged_namespace_keeps_used_quota() {
    let unmanaged = |pods: Vec<Value>, workload: Value| {
        let (key, op, values) = ("managed".to_owned(), SelectorOp::In, vec!["yes".to_owned()]);
        let managed_namespaces = Selector(vec![Requirement { key, op, values }]);
        let settings = Settings { managed_namespaces, ..State::managing_pods().settings };
        pods.into_iter().fold(State::with_settings(settings), State::with).with(workload)
    };
    let guarded = || deleting(pending());
    assert_decisions(vec![
        ("pods run", unmanaged(both_run(), admitted(pending())), "done"),
        ("no pod runs", unmanaged(both_wait(), admitted(pending())), "ReleaseQuota: apply status Workload ns/g"),
        ("a start may be applied", unresolved(unmanaged(both_wait(), admitted(pending()))), "done"),
        ("no quota", unmanaged(both_wait(), pending()), "done"),
        ("no quota, being deleted", unmanaged(both_wait(), guarded()), "RemoveFinalizer: merge Workload ns/g"),
    ]);
    let found = decided(&unmanaged(both_wait(), admitted(pending())), "g");
    let (_, reason, message) = found.condition("QuotaReserved").expect("a condition");
    assert_eq!(reason, "PendingEvaluation");
    assert_eq!(message, "its namespace is not managed (managedJobsNamespaceSelector)");
}

/// The Workload of a serving group outlives its pods, so that it stays in its queue.
#[test]
fn workload_of_pod_group_follows_queue_of_first_pod() {
    let elsewhere = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}});
    let serving = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}}});
    let moved = || changed(waiting("a"), elsewhere.clone());
    let found = decided(&both(vec![moved(), waiting("b")], pending()), "g");
    assert_eq!(found.what, "UpdateWorkload: merge Workload ns/g");
    assert_eq!(found.body["spec"], json!({"queueName": "other"}));
    let serves = |name: &str| changed(waiting(name), serving.clone());
    assert_decisions(vec![
        ("the first pod stays", both(vec![waiting("a"), changed(waiting("b"), elsewhere.clone())], pending()), "done"),
        ("with quota", both(vec![moved(), waiting("b")], reserved(pending())), "done"),
        ("a serving group", both(vec![changed(serves("a"), elsewhere.clone()), serves("b")], pending()), "done"),
    ]);
}

#[test]
fn missing_class_of_pod_group_is_reported_at_first_pod() {
    let classed =
        |name: &str| changed(waiting(name), json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "none"}}}));
    let state = both(vec![classed("a"), classed("b")], pending());
    let Decision::Event(sent) = decide(&state.context(), &own_name("g"), now()) else { panic!("no event") };
    assert_eq!(sent.key, named(Kind::Pod, "a"));
    assert_eq!(sent.reason, "WorkloadPriorityClassNotFound");
    assert_eq!(sent.message, "priority class \"none\" does not exist; create it or change the job");
}

#[test]
fn gated_pod_with_unresolved_start_may_be_starting() {
    let starting = |state: &State| case_of(state, "g", |case| case.may_be_starting());
    let busy = |pod: Value| {
        let mut state = observed(vec![pod]);
        state.in_flight.expect(named(Kind::Pod, "a"), 9);
        state
    };
    assert!(!starting(&observed(both_wait())));
    assert!(starting(&unresolved(observed(both_wait()))));
    assert!(starting(&busy(waiting("a"))), "a write is under way");
    assert!(!starting(&busy(running("a"))), "it was started");
    assert!(!starting(&busy(deleting(waiting("a")))), "it never runs");
    assert!(!starting(&busy(let_in_member("a", 2))), "it runs");
}

/// An excess pod that a controller would create again waits, so that no running pod is deleted for it.
#[test]
fn running_pod_is_not_deleted_for_excess_pod_of_controller() {
    let pods = vec![running("a"), running("b"), of_replica_set(waiting("c"))];
    let state = both(pods, admitted(sized_two(&["a", "b", "c"])));
    assert_eq!(decided(&state, "g").what, "done");
}
