use serde_json::{Value, json};

use super::*;
use crate::overruns::known::ExcessUsage;
use crate::overruns::tests::shown;
use crate::testing::groups::{in_phase, member, started_member, workload_of_group};
use crate::testing::objects::{admitted, changed, cluster_queue, finished, pod, started, workload, workload_of_pod};
use crate::testing::{State, named, now, own_name};

/// The pod with one container that requests a number of cpus.
fn requesting(pod: Value, cpus: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus}}});
    changed(pod, json!({"spec": {"containers": [container]}}))
}

fn without_queue(object: Value) -> Value {
    changed(object, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}))
}

fn unreadable(workload: Value) -> Value {
    changed(workload, json!({"metadata": {"annotations": {"berth.dev/unreadable": "x"}}}))
}

fn all(state: State, objects: Vec<Value>) -> State {
    objects.into_iter().fold(state, State::with)
}

/// A running pod of group `g`, in a role.
fn runs(name: &str, role: &str) -> Value {
    started_member(member(name, role, 2))
}

/// LimitRanges may have lowered the requests since the admission, or raised them.
#[test]
fn place_of_pod_is_larger_of_request_and_given_share() {
    let given = |usage: Value| {
        let mut object = admitted(workload("w"));
        object["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = usage;
        let state = State::new().with(object);
        let (ctx, workload) = (state.context(), state.workload("w"));
        let place = place(&workload.shape.pod_sets[0], &ctx.given_to(workload)[0]);
        place.into_iter().map(|(resource, amount)| (resource, amount.get())).collect::<Vec<_>>()
    };
    let cpu = |amount: i64| ("cpu".to_owned(), amount);
    assert_eq!(given(json!({"cpu": "2"})), [cpu(1_000)]);
    assert_eq!(given(json!({"cpu": "4"})), [cpu(2_000)]);
    assert_eq!(given(json!({"cpu": "1"})), [cpu(1_000)]);
    assert_eq!(given(json!({"cpu": "2", "example.com/a": "6"})), [cpu(1_000), ("example.com/a".to_owned(), 3)]);
}

#[test]
fn pod_that_may_run_beyond_quota_is_counted_again() {
    let marked = |state: &State, reclaims: bool| {
        let mut overruns = Overruns::default();
        overruns.note_running_pod(&state.view, reclaims, &own_name("a"));
        overruns.take_unsure().map(|object| object.to_string()).collect::<Vec<_>>().join(", ")
    };
    let single = |pod: Value, workload: Value| State::managing_pods().with(pod).with(workload);
    let pending = || workload_of_pod(&pod("a"));
    let group = |pods: Vec<Value>, workload: Value| all(State::managing_pods(), pods).with(workload);
    let both = || vec![runs("a", "main"), runs("b", "main")];
    let of_two = || admitted(workload_of_group(&[("main", 2)], &["a", "b"]));
    let reclaimed = || changed(of_two(), json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}}));
    let rows: Vec<(&str, State, bool, &str)> = vec![
        ("no pod", State::managing_pods(), true, ""),
        ("waits", State::managing_pods().with(pod("a")), true, ""),
        ("has ended", State::managing_pods().with(in_phase(started(pod("a")), "Failed")), true, ""),
        ("no Workload", State::managing_pods().with(started(pod("a"))), true, "Pod ns/a"),
        ("pending", single(started(pod("a")), pending()), true, "Pod ns/a"),
        ("admitted", single(started(pod("a")), admitted(pending())), true, ""),
        ("asks for more", single(requesting(started(pod("a")), "2"), admitted(pending())), true, "Pod ns/a"),
        ("a group without Workload", all(State::managing_pods(), both()), true, "PodGroup ns/g"),
        ("a Workload of no group", group(both(), admitted(workload("g"))), true, "PodGroup ns/g"),
        ("a group with quota", group(both(), of_two()), true, ""),
        ("more run", group([both(), vec![runs("c", "main")]].concat(), of_two()), true, "PodGroup ns/g"),
        ("a role without quota", group(vec![runs("a", "x")], of_two()), true, "PodGroup ns/g"),
        ("quota of a pod was given back", group(both(), reclaimed()), true, "PodGroup ns/g"),
        ("no pod gives quota back", group(both(), reclaimed()), false, ""),
    ];
    for (name, state, reclaims, expected) in rows {
        assert_eq!(marked(&state, reclaims), expected, "{name}");
    }
}

#[test]
fn pod_known_beyond_quota_is_counted_once_it_has_ended() {
    let state = State::managing_pods().with(in_phase(started(pod("a")), "Succeeded"));
    let mut overruns = Overruns::default();
    let object = named(Kind::Pod, "a");
    overruns.take(&object, Some(ExcessUsage { charge: None, pods: [1, 0] }), false, now());
    overruns.note_running_pod(&state.view, true, &own_name("a"));
    assert_eq!(overruns.take_unsure().collect::<Vec<_>>(), [object]);
}

#[test]
fn running_pod_is_charged_beyond_quota_of_its_workload() {
    let pending = || workload_of_pod(&pod("a"));
    let state = |pod: Value, workload: Value| State::managing_pods().with(pod).with(workload);
    let alone = |pod: Value| State::managing_pods().with(pod);
    let running = || started(pod("a"));
    let second = changed(pending(), json!({"metadata": {"name": "b", "uid": "b-uid"}}));
    let closed = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "other"}}}});
    let closed = changed(cluster_queue("cq", &[("f", 10)]), closed);
    let elsewhere = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "none"}}});
    let rows: Vec<(&str, State, &str)> = vec![
        ("waits", alone(pod("a")), "none"),
        ("admitted", state(running(), admitted(pending())), "none"),
        ("pending", state(running(), pending()), "1/0 w-uid cq f/cpu 1000"),
        ("no Workload", alone(running()), "1/0 a-uid cq f/cpu 1000"),
        ("finished", state(running(), finished(admitted(pending()))), "1/0 a-uid cq f/cpu 1000"),
        ("has ended", alone(in_phase(running(), "Failed")), "none"),
        ("pods are not managed", State::new().with(running()), "none"),
        ("names no queue", alone(without_queue(running())), "none"),
        (
            "names no queue, with quota",
            state(without_queue(requesting(running(), "2")), admitted(pending())),
            "1/1 w-uid cq f/cpu 1000",
        ),
        ("unreadable", state(running(), unreadable(pending())), "none"),
        ("asks for more", state(requesting(running(), "3"), admitted(pending())), "1/1 w-uid cq f/cpu 2000"),
        ("asks for less", state(requesting(running(), "500m"), admitted(pending())), "none"),
        ("a second Workload waits", state(running(), admitted(pending())).with(second), "none"),
        ("no such LocalQueue", alone(changed(running(), elsewhere)), "1/0 no queue"),
        ("its queue excludes the namespace", alone(running()).with(closed), "1/0 no queue"),
        ("of a group", alone(runs("a", "main")), "none"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(shown(&state, &named(Kind::Pod, "a")), expected, "{name}");
    }
}

#[test]
fn running_pods_of_group_are_charged_beyond_its_quota() {
    let of_two = || admitted(workload_of_group(&[("main", 2)], &["a", "b"]));
    let both = || vec![runs("a", "main"), runs("b", "main")];
    let state = |pods: Vec<Value>, workload: Value| all(State::managing_pods(), pods).with(workload);
    let alone = |pods: Vec<Value>| all(State::managing_pods(), pods);
    let group = group_uid("ns", "g");
    let without_quota = format!("2/0 {group} cq f/cpu 2000");
    let sized =
        |first: &str, second: &str| vec![requesting(runs("a", "main"), first), requesting(runs("b", "main"), second)];
    let rows: Vec<(&str, State, &str)> = vec![
        ("no pods", State::managing_pods(), "none"),
        ("none runs", alone(vec![member("a", "main", 2)]), "none"),
        ("as many as have quota", state(both(), of_two()), "none"),
        ("one waits", state(vec![runs("a", "main"), member("b", "main", 2)], of_two()), "none"),
        ("one more", state([both(), vec![runs("c", "main")]].concat(), of_two()), "3/2 g-uid cq f/cpu 1000"),
        ("pending", state(both(), workload_of_group(&[("main", 2)], &["a", "b"])), "2/0 g-uid cq f/cpu 2000"),
        ("no Workload", alone(both()), &without_quota),
        ("finished", state(both(), finished(of_two())), &without_quota),
        ("a Workload of no group", state(both(), admitted(workload("g"))), &without_quota),
        ("unreadable", state(both(), unreadable(of_two())), "none"),
        ("a role without quota", state(vec![runs("a", "main"), runs("b", "x")], of_two()), "2/2 g-uid cq f/cpu 1000"),
        ("one asks for more, another for less", state(sized("1500m", "500m"), of_two()), "none"),
        ("both ask for more", state(sized("1500m", "1500m"), of_two()), "2/2 g-uid cq f/cpu 1000"),
        ("the first names no queue", alone(vec![without_queue(runs("a", "main")), runs("b", "main")]), &without_quota),
        ("pods are not managed", all(State::new(), both()), "none"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(shown(&state, &named(Kind::PodGroup, "g")), expected, "{name}");
    }
}

/// Pods of another role leave no quota over for a pod beyond its own role.
#[test]
fn pod_beyond_its_role_is_counted_beside_smaller_role() {
    let quota = admitted(workload_of_group(&[("main", 1), ("x", 1)], &["a", "b"]));
    let state = all(State::managing_pods(), vec![runs("a", "main"), runs("b", "main")]).with(quota);
    assert_eq!(shown(&state, &named(Kind::PodGroup, "g")), "2/1 g-uid cq f/cpu 1000");
    let mut overruns = Overruns::default();
    overruns.note_running_pod(&state.view, true, &own_name("b"));
    assert_eq!(overruns.take_unsure().collect::<Vec<_>>(), [named(Kind::PodGroup, "g")]);
}
