use serde_json::{Value, json};

use super::*;
use crate::pod::tests::case_of;
use crate::testing::State;
use crate::testing::groups::{condemned, in_phase, member, of_replica_set, on_node, started_member, workload_of_group};
use crate::testing::objects::{admitted, changed, deleting, evicted};

fn running(name: &str) -> Value {
    on_node(started_member(member(name, "main", 2)))
}

/// A pod that has ended in a phase, and that Berth's finalizer keeps.
fn kept(name: &str, phase: &str) -> Value {
    deleting(in_phase(running(name), phase))
}

/// A failed pod that Berth has stopped, and that Berth's finalizer keeps.
fn stopped(name: &str) -> Value {
    condemned(kept(name, "Failed"))
}

/// The admitted Workload of group `g` for two pods, with owners.
fn of_two(owners: &[&str]) -> Value {
    admitted(workload_of_group(&[("main", 2)], owners))
}

fn observed(pods: Vec<Value>, workload: Value) -> State {
    pods.into_iter().fold(State::managing_pods(), State::with).with(workload)
}

/// Whether the group needs pod `a`.
fn is_needed_in(state: &State) -> bool {
    case_of(state, "a", |case| is_needed(&case, state.workload("g")))
}

#[test]
fn ended_pod_is_kept_until_staying_pods_own_workload() {
    let failed = || kept("a", "Failed");
    let rows: Vec<(&str, State, bool)> = vec![
        ("a new pod owns nothing yet", observed(vec![failed(), running("b")], of_two(&["a"])), true),
        ("the new pod owns the Workload", observed(vec![failed(), running("b")], of_two(&["a", "b"])), false),
        ("another owner stays", observed(vec![failed(), running("b"), running("c")], of_two(&["a", "c"])), false),
        ("the new pod has failed", observed(vec![failed(), in_phase(running("b"), "Failed")], of_two(&["a"])), false),
        ("the new pod is deleted, too", observed(vec![failed(), deleting(running("b"))], of_two(&["a"])), false),
    ];
    for (name, state, expected) in rows {
        assert_eq!(is_needed_in(&state), expected, "{name}");
    }
}

/// Finalizers of pods would keep a namespace from being deleted.
#[test]
fn pod_in_ending_namespace_is_not_kept() {
    let mut state = observed(vec![kept("a", "Failed"), running("b")], of_two(&["a"]));
    assert!(is_needed_in(&state));
    state.end_namespace();
    assert!(!is_needed_in(&state));
}

#[test]
fn succeeded_pod_is_kept_while_its_group_may_end() {
    let succeeded = || kept("a", "Succeeded");
    let serving =
        changed(succeeded(), json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}}}));
    let restarts = changed(succeeded(), json!({"spec": {"restartPolicy": "Always"}}));
    let both = || of_two(&["a", "b"]);
    let rows: Vec<(&str, State, bool)> = vec![
        ("another pod stays", observed(vec![succeeded(), running("b")], both()), true),
        ("no pod stays", observed(vec![succeeded(), deleting(running("b"))], both()), false),
        ("no pod stays, evicted", observed(vec![succeeded()], evicted(both(), "Preempted")), true),
        ("its group serves", observed(vec![serving, running("b")], both()), false),
        ("it always restarts", observed(vec![restarts, running("b")], both()), false),
        ("Berth has stopped it", observed(vec![condemned(succeeded()), running("b")], both()), true),
        (
            "its controller creates it again",
            observed(vec![of_replica_set(condemned(succeeded())), running("b")], both()),
            false,
        ),
    ];
    for (name, state, expected) in rows {
        assert_eq!(is_needed_in(&state), expected, "{name}");
    }
}

#[test]
fn first_stopped_pod_of_evicted_group_stays_as_owner() {
    let evicted_with = |owners: &[&str]| evicted(of_two(owners), "Preempted");
    let both = || evicted_with(&["a", "b"]);
    let of_one = evicted(admitted(workload_of_group(&[("main", 1)], &["a"])), "Preempted");
    let rows: Vec<(&str, State, bool)> = vec![
        ("the first", observed(vec![stopped("a"), stopped("b")], both()), true),
        ("after the first", observed(vec![stopped("a"), stopped("0")], evicted_with(&["0", "a"])), false),
        ("the first owner", observed(vec![stopped("a"), stopped("0")], evicted_with(&["a"])), true),
        ("owns nothing", observed(vec![stopped("a"), stopped("b")], evicted_with(&["b"])), false),
        ("not evicted", observed(vec![stopped("a"), stopped("b")], of_two(&["a", "b"])), false),
        ("another pod stays", observed(vec![stopped("a"), running("b")], both()), false),
        ("it failed by itself", observed(vec![kept("a", "Failed"), stopped("b")], both()), false),
        ("its controller owns the Workload", observed(vec![of_replica_set(stopped("a"))], both()), false),
        ("a group of one pod", observed(vec![stopped("a")], of_one), false),
    ];
    for (name, state, expected) in rows {
        assert_eq!(is_needed_in(&state), expected, "{name}");
    }
}

/// A process that starts may observe Workloads before pods.
#[test]
fn ended_pod_is_kept_alike_in_any_order_of_lists() {
    let pods = || vec![kept("a", "Failed"), running("b")];
    let workload_last = observed(pods(), of_two(&["a", "b"]));
    let workload_first = pods().into_iter().fold(State::managing_pods().with(of_two(&["a", "b"])), State::with);
    assert_eq!([is_needed_in(&workload_last), is_needed_in(&workload_first)], [false, false]);
}
