use berth_jobs::pods::{Place, PodState, Tally, excess, last_place, replaced};
use serde_json::{Value, json};

use crate::member;

fn gated(role: &str) -> PodState {
    made(role, json!({}))
}

fn made(role: &str, more: Value) -> PodState {
    let mut all = json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": role}}});
    crate::merge(&mut all, &more);
    PodState::read(&member("3", all))
}

fn ended(role: &str, phase: &str) -> PodState {
    made(role, json!({"spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": phase}}))
}

fn tally(pods: &[PodState]) -> Tally {
    let mut tally = Tally::default();
    pods.iter().for_each(|pod| tally.add(pod));
    tally
}

#[test]
fn a_tally_is_what_its_pods_add_up_to() {
    let pods = [gated("a"), ended("a", "Running"), ended("a", "Succeeded"), ended("b", "Failed"), gated("b")];
    let all = tally(&pods);
    assert_eq!((all.pods, all.running, all.unfinished, all.counting()), (5, 1, 3, 4));
    let (a, b) = (all.role("a"), all.role("b"));
    assert_eq!((a.counting, a.succeeded, a.inactive), (3, 1, 0));
    assert_eq!((b.counting, b.succeeded, b.inactive), (1, 0, 1));
    assert_eq!(all.absent([("a", 4), ("b", 3)]), 3);
    assert!(all.is_ready([("a", 1)]) && !all.is_ready([("a", 2)]), "one has succeeded");
    assert_eq!(all.reclaimable().len(), 1);
    // Of a group that starts with its first pod, the others may come later.
    let fast = |role: &str, more: Value| {
        let mut all = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true"}}});
        crate::merge(&mut all, &more);
        made(role, all)
    };
    let failed = json!({"spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": "Failed"}});
    let first = tally(&[fast("a", json!({})), fast("b", failed)]);
    assert_eq!([first.absent([("a", 4)]), first.absent([("b", 4)]), first.absent([("b", 0)])], [0, 1, 0]);
    // In whatever order they go, nothing is left.
    let mut rest = all;
    for index in [3, 0, 4, 1, 2] {
        rest.remove(&pods[index]);
    }
    assert_eq!(rest, Tally::default());
}

#[test]
fn when_a_group_is_over() {
    let ends = |pods: &[PodState], size: i32| tally(pods).finish(size).map(|end| end.success);
    let done = || ended("a", "Succeeded");
    let failed = || ended("a", "Failed");
    let last = || {
        made(
            "a",
            json!({"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}},
        "spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": "Failed"}}),
        )
    };
    let serving = || {
        made(
            "a",
            json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}},
        "status": {"phase": "Succeeded"}}),
        )
    };
    for (name, pods, size, expected) in [
        ("nobody", vec![], 1, None),
        ("all succeeded", vec![done(), done()], 2, Some(true)),
        ("one is missing", vec![done()], 2, None),
        ("one runs", vec![done(), ended("a", "Running")], 2, None),
        ("one failed and may be replaced", vec![done(), failed()], 2, None),
        ("one failed and was replaced", vec![done(), failed(), done()], 2, Some(true)),
        ("one failed for good, one runs", vec![last(), ended("a", "Running")], 2, None),
        ("one failed for good", vec![last(), done()], 2, Some(false)),
        ("one failed for good, one waits", vec![last(), gated("a")], 2, None),
        ("a group that serves", vec![serving()], 1, None),
    ] {
        assert_eq!(ends(&pods, size), expected, "{name}");
    }
    assert_eq!(tally(&[done(), done()]).finish(2).unwrap().message, "Pods succeeded: 2/2.");
}

#[test]
fn who_is_too_many() {
    let at = |seconds: i64, more: Value| {
        let time = format!("2026-01-01T00:00:{seconds:02}Z");
        let mut all = json!({"metadata": {"creationTimestamp": time}});
        crate::merge(&mut all, &more);
        made("a", all)
    };
    let started = || json!({"spec": {"schedulingGates": null}});
    let runs = || json!({"spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": "Running"}});
    let cases = [
        ("the newest", vec![("x", at(1, json!({}))), ("y", at(2, json!({})))], Some("y")),
        ("who waits before who started", vec![("x", at(1, json!({}))), ("y", at(2, started()))], Some("x")),
        ("who has no node before who has one", vec![("x", at(1, started())), ("y", at(2, runs()))], Some("x")),
        (
            "who is not held",
            vec![("x", at(1, json!({"metadata": {"finalizers": []}}))), ("y", at(2, json!({})))],
            Some("x"),
        ),
        ("nobody who has ended", vec![("x", ended("a", "Succeeded")), ("y", ended("a", "Failed"))], None),
    ];
    for (name, pods, expected) in cases {
        assert_eq!(excess(pods.iter().map(|(name, pod)| (*name, pod))), expected, "{name}");
    }
    let pods = [("x", at(2, json!({}))), ("y", at(1, json!({}))), ("z", at(3, runs())), ("f", ended("a", "Failed"))];
    let placed = |size: i32| {
        let all = || pods.iter().map(|(name, pod)| (*name, pod));
        let counting = all().filter(|(_, pod)| pod.counts());
        let last = last_place(all(), size);
        counting.filter(|(name, pod)| Some(Place::of(name, pod)) <= last).map(|(name, _)| name).collect::<String>()
    };
    assert_eq!([placed(-1), placed(0), placed(1), placed(2), placed(3), placed(4)], ["", "", "z", "yz", "xyz", "xyz"]);
    let gone =
        |seconds: i64| made("a", json!({"metadata": {"deletionTimestamp": format!("2026-01-01T00:00:{seconds:02}Z")}}));
    let pods = [("x", gone(5)), ("y", gone(3)), ("z", ended("a", "Failed")), ("w", gated("a"))];
    assert_eq!(replaced(pods.iter().map(|(name, pod)| (*name, pod))), Some("y"), "who went first");
    let pods = [("z", ended("a", "Failed")), ("w", gated("a"))];
    assert_eq!(replaced(pods.iter().map(|(name, pod)| (*name, pod))), Some("z"));
}
