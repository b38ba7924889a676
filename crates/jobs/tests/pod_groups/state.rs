use berth_jobs::Placement;
use berth_jobs::pods::{Phase, PodState, pod_workload, role_hash};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{member, pod};

fn state(more: Value) -> PodState {
    PodState::read(&pod(more))
}

#[test]
fn how_far_a_pod_has_come() {
    let started = || json!({"spec": {"schedulingGates": null}});
    let with = |base: Value, more: Value| {
        let mut all = base;
        crate::merge(&mut all, &more);
        state(all)
    };
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let bound = json!({"spec": {"schedulingGates": null, "nodeName": "x"}, "status": {"phase": "Running"}});
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}});
    // Name, state; whether it runs, has ended, counts.
    let cases = [
        ("waits", state(json!({})), (false, false, true)),
        ("waits, deleted", state(leaving.clone()), (false, true, false)),
        ("started", state(started()), (true, false, true)),
        ("started, deleted before it had a node", with(started(), leaving.clone()), (false, true, false)),
        ("runs", state(bound.clone()), (true, false, true)),
        ("terminates", with(bound.clone(), leaving), (true, false, true)),
        ("taken away from its node", with(bound.clone(), gone), (false, true, false)),
        ("succeeded", with(bound.clone(), json!({"status": {"phase": "Succeeded"}})), (false, true, true)),
        ("failed", with(bound, json!({"status": {"phase": "Failed"}})), (false, true, false)),
    ];
    for (name, pod, expected) in cases {
        assert_eq!((pod.runs(), pod.ended(), pod.counts()), expected, "{name}");
    }
    assert_eq!(state(json!({})).phase, Phase::Pending);
}

#[test]
fn only_a_pod_that_waits_is_kept_whole() {
    let waiting = state(json!({}));
    assert_eq!(waiting.whole().map(|pod| pod.metadata.uid), Some(Some("u".to_owned())));
    assert!(state(json!({"spec": {"schedulingGates": [{"name": "other/gate"}]}})).whole().is_none());
}

#[test]
fn a_start_is_one_patch() {
    let placement = Placement {
        pod_set: "main".to_owned(),
        count: 1,
        labels: [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into(),
        node_selector: [("tier".to_owned(), "spot".to_owned())].into(),
        tolerations: vec![serde_json::from_value(json!({"key": "spot", "operator": "Exists"})).unwrap()],
        ..Placement::default()
    };
    let patch = state(json!({})).start_patch(std::slice::from_ref(&placement)).unwrap().unwrap();
    let expected = json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"kueue.x-k8s.io/podset": "main"}},
        "spec": {"nodeSelector": {"tier": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}],
            "schedulingGates": [{"name": "other/gate"}]},
    });
    assert_eq!(patch, expected);
    // Kueue makes a pod wait behind two gates, the second for the case that it is given a topology.
    for gates in [&["kueue.x-k8s.io/admission"][..], &["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]] {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        let only = state(json!({"spec": {"schedulingGates": gates}}));
        let patch = only.start_patch(std::slice::from_ref(&placement)).unwrap().unwrap();
        assert_eq!(patch["spec"]["schedulingGates"], Value::Null);
        assert!(patch["spec"].as_object().unwrap().contains_key("schedulingGates"), "it must go: {patch}");
    }
    let elsewhere = Placement { node_selector: [("disk".to_owned(), "hdd".to_owned())].into(), ..placement.clone() };
    assert!(state(json!({})).start_patch(&[elsewhere]).is_err(), "it asks for another disk");
    let other = Placement { pod_set: "other".to_owned(), ..placement };
    assert!(state(json!({})).start_patch(&[other]).is_err(), "nothing was given to it");
}

#[test]
fn the_end_of_our_hold_leaves_the_others() {
    let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["other/finalizer"]}});
    assert_eq!(state(json!({})).release_patch(), expected);
    let told = state(json!({})).condemnation("n", "p", ("Why", "because"), "2026-01-01T00:00:00Z");
    assert_eq!(told["metadata"], json!({"namespace": "n", "name": "p", "uid": "u"}));
    assert_eq!(told["status"]["conditions"][0]["type"], json!("TerminationTarget"));
}

#[test]
fn a_role_is_what_decides_about_the_admission() {
    let hash = |pod: &Pod| role_hash(pod.spec.as_ref().unwrap());
    let standard = hash(&pod(json!({})));
    assert_eq!(standard.len(), 8);
    let same = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"containers": [{"name": "x", "image": "j", "command": ["y"],
            "resources": {"requests": {"cpu": "1"}}}]}}),
        json!({"spec": {"schedulingGates": null, "hostname": "h"}}),
    ];
    for more in same {
        assert_eq!(hash(&pod(more.clone())), standard, "{more}");
    }
    let other = [
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}),
        json!({"spec": {"nodeSelector": {"disk": "hdd"}}}),
        json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
        json!({"spec": {"priority": 5}}),
        json!({"spec": {"runtimeClassName": "r"}}),
    ];
    for more in other {
        assert_ne!(hash(&pod(more.clone())), standard, "{more}");
    }
}

#[test]
fn a_member_says_what_its_group_is() {
    let notes = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true",
        "kueue.x-k8s.io/retriable-in-group": "false", "kueue.x-k8s.io/role-hash": "abc"}}});
    let told = PodState::read(&member("3", notes)).group.unwrap();
    assert_eq!((&*told.name, &*told.role, told.total), ("g", "abc", Some(3)));
    assert!(told.fast && !told.serving && !told.retriable);
    for bad in ["0", "-1", "three", ""] {
        assert_eq!(PodState::read(&member(bad, json!({}))).group.unwrap().total, None, "{bad:?}");
    }
    // A start changes the node selector, and with it what the hash is made of.
    let before = PodState::read(&member("1", json!({}))).role().to_owned();
    let after = member(
        "1",
        json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": before}},
        "spec": {"nodeSelector": {"tier": "spot"}}}),
    );
    assert_eq!(PodState::read(&after).role(), before);
}

#[test]
fn a_pod_becomes_a_workload() {
    let made = pod_workload(&pod(json!({})), berth_jobs::Priority::default(), &Default::default()).unwrap();
    let made = serde_json::to_value(made).unwrap();
    assert_eq!(made["metadata"]["name"], json!(berth_jobs::workload_name("Pod", "", "p", "u")));
    assert_eq!(made["metadata"]["labels"], json!({"kueue.x-k8s.io/job-uid": "u"}));
    assert_eq!(made["spec"]["queueName"], json!("q"));
    let set = &made["spec"]["podSets"][0];
    assert_eq!((&set["name"], &set["count"]), (&json!("main"), &json!(1)));
    assert_eq!(set["template"]["spec"]["schedulingGates"], json!([{"name": "other/gate"}]));
    assert_eq!(set["template"].get("metadata"), None);
}
