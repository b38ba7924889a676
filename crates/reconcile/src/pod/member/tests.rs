use serde_json::{Value, json};

use super::*;
use crate::pod::tests::case_of;
use crate::testing::groups::{
    condemned, in_phase, let_in_member, member, of_replica_set, on_node, started_member, without_finalizer,
    workload_of_group,
};
use crate::testing::objects::{admitted, changed, deleting, evicted, finished, reserved, workload};
use crate::testing::step::{Step, step};
use crate::testing::{State, in_seconds, named, own_name};
use crate::write::Kind;

const CONDEMNS: &str = "CondemnPod: apply status Pod ns/a";
const RELEASES: &str = "ReleasePod: merge Pod ns/a";
const WITHDRAWS: &str = "WithdrawStart: merge Pod ns/a";

fn waiting(name: &str) -> Value {
    member(name, "main", 2)
}

fn running(name: &str) -> Value {
    on_node(started_member(waiting(name)))
}

fn failed(name: &str) -> Value {
    in_phase(running(name), "Failed")
}

/// The pending Workload of group `g` for `size` pods of role `main`, with owners.
fn sized(size: i32, owners: &[&str]) -> Value {
    workload_of_group(&[("main", size)], owners)
}

/// The pending Workload of pods `a` and `b`.
fn pending() -> Value {
    sized(2, &["a", "b"])
}

fn alone(pod: Value) -> State {
    State::managing_pods().with(pod)
}

fn with(pods: Vec<Value>, workload: Value) -> State {
    pods.into_iter().fold(State::managing_pods(), State::with).with(workload)
}

fn both(pod: Value, workload: Value) -> State {
    with(vec![pod], workload)
}

/// The state in which a start of pod `a` may still be applied.
fn unresolved(mut state: State) -> State {
    state.in_flight.unresolved_mut().note_unresolved(named(Kind::Pod, "a"), 7);
    state
}

/// The state in which the trial of pod `a` began a number of seconds ago.
fn tried_since(mut state: State, seconds: i64) -> State {
    state.quota.begin_trials(vec![(own_name("a"), "a-uid".into())], in_seconds(-seconds));
    state
}

/// The decision about pod `a` of group `g`.
fn decided(state: &State) -> Step {
    case_of(state, "a", |case| step(&decide(&case, "g")))
}

fn assert_decisions(rows: Vec<(&str, State, &str)>) {
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

/// The reason and the message that a decision writes into the status of the pod.
fn condemnation(state: &State) -> String {
    let found = decided(state);
    let condition = &found.body["status"]["conditions"][0];
    format!(
        "{}: {}",
        condition["reason"].as_str().unwrap_or_default(),
        condition["message"].as_str().unwrap_or_default()
    )
}

#[test]
fn pod_of_group_without_workload_is_stopped_or_released() {
    assert_decisions(vec![
        ("waits", alone(waiting("a")), "done"),
        ("runs", alone(running("a")), CONDEMNS),
        ("runs beside a Workload of no group", both(running("a"), admitted(workload("g"))), CONDEMNS),
        ("is being deleted", alone(deleting(running("a"))), "done"),
        ("has ended", alone(failed("a")), RELEASES),
        ("has ended without finalizer", alone(without_finalizer(failed("a"))), "done"),
        ("was let in", alone(let_in_member("a", 2)), "done"),
        ("was let in, its trial is over", tried_since(alone(let_in_member("a", 2)), 5), CONDEMNS),
    ]);
    assert_eq!(condemnation(&alone(running("a"))), "NoMatchingWorkload: Missing Workload");
    let over = tried_since(alone(let_in_member("a", 2)), 5);
    let expected = "The pod was created while Berth did not answer, and its queue had no quota for it";
    assert!(condemnation(&over).ends_with(expected), "{}", condemnation(&over));
}

/// A StatefulSet creates its next pod under the same name.
#[test]
fn ended_pod_of_stateful_set_is_released_at_once() {
    let parent = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}}});
    let of_set = |pod: Value| changed(pod, parent.clone());
    assert_decisions(vec![
        ("has ended", both(of_set(failed("a")), admitted(pending())), RELEASES),
        ("is being deleted, and runs", both(of_set(deleting(running("a"))), admitted(pending())), RELEASES),
        ("has ended without finalizer", both(of_set(without_finalizer(failed("a"))), admitted(pending())), "done"),
        ("runs", both(of_set(running("a")), admitted(pending())), "done"),
    ]);
}

#[test]
fn ended_pod_of_group_is_released_unless_group_needs_it() {
    let succeeded = || in_phase(running("a"), "Succeeded");
    let unreadable = json!({"metadata": {"annotations": {"berth.dev/unreadable": "x"}}});
    assert_decisions(vec![
        ("failed", with(vec![failed("a"), running("b")], admitted(pending())), "done"),
        ("failed and deleted", with(vec![deleting(failed("a")), running("b")], admitted(pending())), RELEASES),
        ("succeeded and deleted", with(vec![deleting(succeeded()), running("b")], admitted(pending())), "done"),
        ("runs and deleted", both(deleting(running("a")), admitted(pending())), "done"),
        ("deleted before it was started", both(deleting(waiting("a")), admitted(pending())), RELEASES),
        (
            "unreadable",
            with(vec![deleting(failed("a")), running("b")], changed(admitted(pending()), unreadable)),
            "done",
        ),
    ]);
}

#[test]
fn pod_of_finished_group_is_stopped_and_then_released() {
    let over = || finished(admitted(pending()));
    assert_decisions(vec![
        ("runs", both(running("a"), over()), CONDEMNS),
        ("runs and is being deleted", both(deleting(running("a")), over()), "done"),
        ("has ended", both(failed("a"), over()), RELEASES),
        ("has ended without finalizer", both(without_finalizer(failed("a")), over()), "done"),
        ("waits", both(waiting("a"), over()), RELEASES),
    ]);
    assert_eq!(condemnation(&both(running("a"), over())), "NotAdmitted: Workload is finished");
}

#[test]
fn pods_of_deleted_workload_go_unless_of_next_group() {
    let going = || deleting(admitted(pending()));
    let of_others = || deleting(admitted(sized(2, &["b", "c"])));
    let succeeded = || in_phase(running("a"), "Succeeded");
    assert_decisions(vec![
        ("runs", both(running("a"), going()), CONDEMNS),
        ("runs without owning it", both(running("a"), of_others()), CONDEMNS),
        ("waits", both(waiting("a"), going()), CONDEMNS),
        ("waits, and is condemned", both(condemned(waiting("a")), going()), "DeletePod: delete Pod ns/a"),
        ("waits for the next group", both(waiting("a"), of_others()), "done"),
        ("may have started for the next group", unresolved(both(waiting("a"), of_others())), WITHDRAWS),
        ("has ended", both(failed("a"), going()), "DeletePod: delete Pod ns/a"),
        ("has ended in the next group", both(failed("a"), of_others()), "done"),
        ("succeeded and deleted", with(vec![deleting(succeeded()), running("b")], going()), RELEASES),
        ("runs and is being deleted", both(deleting(running("a")), going()), "done"),
    ]);
    assert_eq!(condemnation(&both(running("a"), going())), "WorkloadDeleted: The workload is deleted");
    assert_eq!(decided(&both(failed("a"), going())).events, ["Normal Stopped: The workload is deleted"]);
}

#[test]
fn started_pod_of_group_runs_only_while_admitted() {
    let placing = changed(
        waiting("a"),
        json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
            "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}}),
    );
    let let_in = || let_in_member("a", 2);
    let role = case_of(&alone(let_in()), "a", |case| case.pod.role().to_owned());
    let of_let_in = || admitted(workload_of_group(&[(role.as_str(), 2)], &["a"]));
    let other_role = on_node(started_member(member("a", "x", 2)));
    let preempted = || evicted(admitted(pending()), "Preempted");
    let excess = || with(vec![running("0"), running("a")], admitted(sized(1, &["0", "a"])));
    assert_decisions(vec![
        ("admitted", both(running("a"), admitted(pending())), "done"),
        ("reserved", both(running("a"), reserved(pending())), CONDEMNS),
        ("evicted", both(running("a"), preempted()), CONDEMNS),
        ("evicted, condemned", both(condemned(running("a")), preempted()), "DeletePod: delete Pod ns/a"),
        ("waits for its topology domain", both(placing, admitted(pending())), "StartJob: merge Pod ns/a"),
        ("role without quota", both(other_role, admitted(pending())), CONDEMNS),
        ("one more than admitted", excess(), CONDEMNS),
        ("was let in, pending", both(let_in(), pending()), "done"),
        ("was let in, admitted", both(let_in(), of_let_in()), "MarkPod: merge Pod ns/a"),
    ]);
    assert_eq!(condemnation(&both(running("a"), preempted())), "WorkloadEvictedDueToPreempted: Preempted, in words");
    assert_eq!(condemnation(&both(running("a"), reserved(pending()))), "NotAdmitted: Not admitted by cluster queue");
    let one_more = "ExcessPod: Workload \"g\" was admitted for 1 pods of role \"main\", and this is one more";
    assert_eq!(condemnation(&excess()), one_more);
}

#[test]
fn waiting_pod_of_group_starts_once_group_is_admitted() {
    let ending = |mut state: State| {
        state.end_namespace();
        state
    };
    let ready = || both(waiting("a"), admitted(pending()));
    let preempted = || evicted(admitted(pending()), "Preempted");
    assert_decisions(vec![
        ("pending", both(waiting("a"), pending()), "done"),
        ("reserved", both(waiting("a"), reserved(pending())), "done"),
        ("reserved, its start may be applied", unresolved(both(waiting("a"), reserved(pending()))), WITHDRAWS),
        ("admitted", ready(), "StartJob: merge Pod ns/a"),
        ("evicted", both(waiting("a"), preempted()), "done"),
        ("evicted, its start may be applied", unresolved(both(waiting("a"), preempted())), WITHDRAWS),
        ("its namespace ends", ending(ready()), "done"),
        ("its namespace ends, its start may be applied", unresolved(ending(ready())), WITHDRAWS),
        ("its role is unknown", both(member("a", "x", 2), admitted(pending())), "tell"),
    ]);
    let found = decided(&both(member("a", "x", 2), pending()));
    let expected = "Warning RoleNotFound: the pod's role \"x\" is none of the pod sets of Workload \"g\" (main): it does \
        not start; make it anew with the annotation kueue.x-k8s.io/role-hash of one of these, or delete the Workload and \
        make all pods of the group anew";
    assert_eq!(found.events, [expected]);
}

/// An excess pod that no controller creates again is deleted by the decision about its group.
#[test]
fn excess_pod_of_controller_waits_with_event() {
    let parent = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}}});
    let of_one = || admitted(sized(1, &["b"]));
    let beside = |pod: Value, other: Value| with(vec![pod, other], of_one());
    let made = || of_replica_set(waiting("a"));
    let of_set = || changed(waiting("a"), parent.clone());
    let other_role = on_node(started_member(member("b", "x", 2)));
    let started = unresolved(beside(made(), running("b")));
    assert_decisions(vec![
        ("another pod runs", beside(made(), running("b")), "tell"),
        ("another pod runs, and no controller", beside(waiting("a"), running("b")), "done"),
        ("no pod runs", beside(made(), waiting("0")), "done"),
        ("it replaces a pod that is being deleted", beside(made(), deleting(running("b"))), "done"),
        ("a pod of another role uses its quota", beside(made(), other_role), "done"),
        ("a pod of a StatefulSet", beside(of_set(), running("b")), "tell"),
        ("its start may be applied", started, WITHDRAWS),
    ]);
    let one_more = "Warning ExcessPod: Workload \"g\" was admitted for 1 pods of role \"main\", and this is one more: it does \
        not start until one of them has ended";
    assert_eq!(decided(&beside(made(), running("b"))).events, [one_more]);
    let of_stateful_set = "Warning ExcessPod: Workload \"g\" was admitted for 1 pods of the StatefulSet, and this is one more: it \
        does not start; scale the StatefulSet to 0 and then to as many replicas as there shall be, or back to 1";
    assert_eq!(decided(&beside(of_set(), running("b"))).events, [of_stateful_set]);
}

#[test]
fn pods_are_admitted_up_to_size_of_their_role() {
    let is_admitted = |names: &[&str], size: i32| {
        let pods = names.iter().map(|name| waiting(name)).collect();
        let state = with(pods, admitted(sized(size, names)));
        case_of(&state, "a", |case| case.is_admitted(state.workload("g")))
    };
    assert!(is_admitted(&["a"], 1));
    assert!(is_admitted(&["a", "b"], 1), "it is the first");
    assert!(!is_admitted(&["0", "a"], 1));
    assert!(is_admitted(&["0", "a"], 2));
    assert!(!is_admitted(&["a"], 0));
}
