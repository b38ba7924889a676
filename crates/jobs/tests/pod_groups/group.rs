use berth_jobs::pods::{Place, PodState, Tally, last_place};
use serde_json::{Value, json};

use crate::pod_groups::member;

fn gated(role: &str) -> PodState {
    made(role, json!({}))
}

fn made(role: &str, more: Value) -> PodState {
    let mut all = json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": role}}});
    crate::pod_groups::merge(&mut all, &more);
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
fn pod_group_tally_equals_sum_of_its_pods() {
    let pods = [gated("a"), ended("a", "Running"), ended("a", "Succeeded"), ended("b", "Failed"), gated("b")];
    let all = tally(&pods);
    assert_eq!((all.pods, all.running, all.unfinished, all.counting()), (5, 1, 3, 4));
    let (a, b) = (all.role("a"), all.role("b"));
    assert_eq!((a.counting, a.succeeded, a.inactive), (3, 1, 0));
    assert_eq!((b.counting, b.succeeded, b.inactive), (1, 0, 1));
    assert_eq!(all.absent([("a", 4), ("b", 3)]), 3);
    assert!(all.is_ready([("a", 1)]) && !all.is_ready([("a", 2)]), "one has succeeded");
    assert_eq!(all.reclaimable().len(), 1);
    // The later pods of a group with fast admission may be created at any time.
    let fast = |role: &str, more: Value| {
        let mut all = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true"}}});
        crate::pod_groups::merge(&mut all, &more);
        made(role, all)
    };
    let failed = json!({"spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": "Failed"}});
    let first = tally(&[fast("a", json!({})), fast("b", failed)]);
    assert_eq!([first.absent([("a", 4)]), first.absent([("b", 4)]), first.absent([("b", 0)])], [0, 1, 0]);
    // The tally is empty after all pods are removed, in any order.
    let mut rest = all;
    for index in [3, 0, 4, 1, 2] {
        rest.remove(&pods[index]);
    }
    assert_eq!(rest, Tally::default());
}

#[test]
fn pod_group_places_go_to_running_and_older_pods_first() {
    let at = |seconds: i64, more: Value| {
        let time = format!("2026-01-01T00:00:{seconds:02}Z");
        let mut all = json!({"metadata": {"creationTimestamp": time}});
        crate::pod_groups::merge(&mut all, &more);
        made("a", all)
    };
    let runs = || json!({"spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": "Running"}});
    let pods = [("x", at(2, json!({}))), ("y", at(1, json!({}))), ("z", at(3, runs())), ("f", ended("a", "Failed"))];
    let placed = |size: i32| {
        let all = || pods.iter().map(|(name, pod)| (*name, pod));
        let counting = all().filter(|(_, pod)| pod.counts());
        let last = last_place(all(), size);
        counting.filter(|(name, pod)| Some(Place::of(name, pod)) <= last).map(|(name, _)| name).collect::<String>()
    };
    assert_eq!([placed(-1), placed(0), placed(1), placed(2), placed(3), placed(4)], ["", "", "z", "yz", "xyz", "xyz"]);
}
