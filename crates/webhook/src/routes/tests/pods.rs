//! Reviews of pods, Deployments and StatefulSets.

use super::*;

#[test]
fn pod_being_deleted_stays_managed_but_may_lose_its_finalizer() {
    let pod = |labels: Value| {
        json!({"metadata": {"labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kueue.x-k8s.io/managed"]},
            "spec": {"containers": [{"name": "c"}]}})
    };
    let own = || pod(json!({"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/managed": "true"}));
    let facts = Facts { managed_namespace: true, pods: true, ..Facts::default() };
    let change = |new: Value| {
        let request = json!({"operation": "UPDATE", "object": new, "oldObject": own()});
        ask_in("/validate--v1-pod", request, facts)
    };
    let lost = change(pod(json!({"kueue.x-k8s.io/queue-name": "q"})));
    assert_eq!(denied_fields(&lost), ["metadata.labels[kueue.x-k8s.io/managed]"]);
    let mut released = own();
    released["metadata"]["finalizers"] = json!([]);
    assert_eq!(change(released)["allowed"], json!(true));
}

/// The template of a StatefulSet says only that its pods wait for admission, as Kueue writes it; the pod's webhook adds queue and priority.
#[test]
fn stateful_set_pod_gets_queue_and_priority_of_its_set() {
    let facts = Facts { managed_namespace: true, pods: true, stateful_sets: true, ..Facts::default() };
    let pod = |set: &str, uid: &str| {
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}, "ownerReferences":
            [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": uid, "controller": true}]},
            "spec": {"containers": [{"name": "c"}]}})
    };
    let labels = |pod: Value| {
        let operations = patch(&ask_in("/mutate--v1-pod-of-set", json!({"object": pod}), facts));
        let operations = operations.as_array().cloned().unwrap_or_default();
        let of = |key: &str| {
            let path = format!("/metadata/labels/kueue.x-k8s.io~1{key}");
            operations.iter().find(|operation| operation["path"] == json!(path)).map(|found| found["value"].clone())
        };
        assert!(operations.iter().any(|operation| operation["path"] == json!("/spec/schedulingGates")), "it waits");
        ["managed", "queue-name", "priority-class"].map(of)
    };
    assert_eq!(labels(pod("web", "u")), [Some(json!("true")), Some(json!("q")), Some(json!("high"))]);
    for unknown in [pod("new", "n"), pod("web", "of-another-of-that-name")] {
        assert_eq!(labels(unknown), [Some(json!("true")), None, None]);
    }
}

/// A StatefulSet whose template another operator or an earlier version of Berth wrote: updates do not change its template, so that no new revision is
/// created.
#[test]
fn stateful_set_template_stays_unchanged_on_update() {
    let facts = Facts { managed_namespace: true, pods: true, stateful_sets: true, ..Facts::default() };
    let queue = "kueue.x-k8s.io/queue-name";
    let set = |labels: Value, note: &str| {
        json!({"metadata": {"labels": {queue: "q"}, "annotations": {"note": note}}, "spec": {"selector": {}, "serviceName": "web",
            "template": {"metadata": {"labels": labels, "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
                "spec": {"containers": [{"name": "c"}]}}}})
    };
    let written = |old: Value, new: Value| {
        let change = json!({"operation": "UPDATE", "object": new, "oldObject": old});
        ask_in("/mutate-apps-v1-statefulset", change, facts)
    };
    let kueues = || json!({"app": "web"});
    assert_eq!(written(set(kueues(), "a"), set(kueues(), "b")), json!({"uid": "u", "allowed": true}));
    let earlier = || json!({"app": "web", queue: "old"});
    assert_eq!(written(set(earlier(), "a"), set(earlier(), "b")), json!({"uid": "u", "allowed": true}));
    let restored = patch(&written(set(earlier(), "a"), set(kueues(), "b")));
    let path = "/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name";
    assert_eq!(restored, json!([{"op": "add", "path": path, "value": "old"}]));
}

#[test]
fn pod_or_parent_without_queue_gets_the_default_at_creation() {
    let facts = Facts {
        managed_namespace: true,
        default_queue: true,
        pods: true,
        deployments: true,
        stateful_sets: true,
        ..Facts::default()
    };
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
    let parent = json!({"metadata": {"name": "web"}, "spec": {"selector": {}, "serviceName": "web",
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}}});
    let label = "labels/kueue.x-k8s.io~1queue-name";
    let waits = "annotations/kueue.x-k8s.io~1pod-suspending-parent";
    let of_template = |path: &str| format!("/spec/template/metadata/{path}");
    let own = || format!("/metadata/{label}");
    for (path, object, expected) in [
        ("/mutate--v1-pod", &pod, vec![own(), "/spec/schedulingGates".to_owned()]),
        ("/mutate-apps-v1-deployment", &parent, vec![own(), of_template(label), of_template(waits)]),
        ("/mutate-apps-v1-statefulset", &parent, vec![own(), of_template(waits)]),
    ] {
        let given = |object: &Value, facts: Facts| patch(&ask_in(path, json!({"object": object}), facts));
        let operations = given(object, facts);
        let of = |path: &str| operations.as_array().unwrap().iter().find(|operation| operation["path"] == json!(path));
        for wanted in &expected {
            assert!(of(wanted).is_some(), "{path}: {wanted} is not in {operations}");
        }
        assert_eq!(of(&own()).unwrap()["value"], json!("default"), "{path}");
        assert_eq!(of(&of_template(label)).is_some(), path.ends_with("deployment"), "{path}");
        // In a namespace without a default LocalQueue, the webhook adds neither the queue name nor any other field to an object that names no queue.
        assert_eq!(given(object, Facts { default_queue: false, ..facts }), Value::Null, "{path}");
        let change = json!({"operation": "UPDATE", "object": object, "oldObject": object});
        assert_eq!(ask_in(path, change, facts).get("patch"), None, "{path}: it was there before the queue");
        let mut had = object.clone();
        had["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "default"});
        let replaced = json!({"operation": "UPDATE", "object": object, "oldObject": had});
        let restored = ask_in(path, replaced, facts).get("patch").is_some();
        assert_eq!(restored, path.contains("apps"), "{path}: a pod is given what it gets when it is created");
    }
}

#[test]
fn undecodable_stored_parent_is_not_defaulted_as_new() {
    let facts = Facts {
        managed_namespace: true,
        default_queue: true,
        default_priority_class: true,
        deployments: true,
        stateful_sets: true,
        ..Facts::default()
    };
    let queue = "kueue.x-k8s.io/queue-name";
    let parent = |own: Value, of_pods: Value, replicas: Value| {
        json!({"metadata": {"name": "web", "labels": own}, "spec": {"selector": {}, "serviceName": "web", "replicas": replicas,
            "template": {"metadata": {"labels": of_pods}, "spec": {"containers": [{"name": "c"}]}}}})
    };
    let app = || json!({"app": "web"});
    let repair = |path: &str, old: Value| {
        let change = json!({"operation": "UPDATE", "object": parent(app(), app(), json!(1)), "oldObject": old});
        patch(&ask_in(path, change, facts))
    };
    for path in ["/mutate-apps-v1-deployment", "/mutate-apps-v1-statefulset"] {
        let runs = parent(app(), app(), json!("many"));
        assert_eq!(repair(path, runs), Value::Null, "{path}: it runs without a queue, and goes on");
        assert_eq!(repair(path, json!({"metadata": "none"})), Value::Null, "{path}: nor does its metadata");
        let had = parent(json!({queue: "default"}), json!({queue: "old"}), json!("many"));
        let given = repair(path, had);
        let at = |path: &str| {
            let path = format!("{path}/labels/kueue.x-k8s.io~1queue-name");
            given
                .as_array()
                .unwrap()
                .iter()
                .find(|operation| operation["path"] == json!(path))
                .map(|found| &found["value"])
        };
        assert_eq!(at("/metadata"), Some(&json!("default")), "{path}");
        let of_pods = if path.ends_with("deployment") { "default" } else { "old" };
        assert_eq!(at("/spec/template/metadata"), Some(&json!(of_pods)), "{path}");
    }
}

/// A user cannot remove the label of a pod's default queue in a namespace where the pod would get the label again.
#[test]
fn default_queue_label_of_a_pod_cannot_be_removed() {
    let facts = Facts { managed_namespace: true, default_queue: true, pods: true, ..Facts::default() };
    let pod = |labels: Value| {
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}})
    };
    let change = json!({"operation": "UPDATE", "object": pod(json!({"kueue.x-k8s.io/managed": "true"})),
        "oldObject": pod(json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "default"}))});
    let refused = ask_in("/validate--v1-pod", change.clone(), facts);
    assert_eq!(denied_fields(&refused), ["metadata.labels[kueue.x-k8s.io/queue-name]"]);
    let without = ask_in("/validate--v1-pod", change, Facts { default_queue: false, ..facts });
    assert_eq!(without["allowed"], json!(true), "it waits, and there is none that it would be given");
}

/// A pod that names another user's Job as its controller would run without a scheduling gate, on that Job's quota or on none.
#[test]
fn pod_with_forged_job_controller_is_refused() {
    let here = Facts { managed_namespace: true, pods: true, ..Facts::default() };
    let pod = |queue: bool, api_version: &str, kind: &str, controls: bool| {
        let labels = if queue { json!({"kueue.x-k8s.io/queue-name": "q"}) } else { json!({}) };
        json!({"metadata": {"labels": labels, "ownerReferences":
            [{"apiVersion": api_version, "kind": kind, "name": "j", "uid": "u", "controller": controls}]},
            "spec": {"containers": [{"name": "c"}]}})
    };
    let asked = |pod: &Value, user: &str, facts: Facts| {
        ask_in("/mutate--v1-pod", json!({"object": pod, "userInfo": {"username": user}}), facts)
    };
    for (api_version, kind) in
        [("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet"), ("berth.dev/v1alpha1", "TrainingJob")]
    {
        let forged = pod(true, api_version, kind, true);
        let refused = asked(&forged, "alice", here);
        assert_eq!(denied_fields(&refused), ["metadata.ownerReferences"], "{kind}");
        let message = refused["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("made by the Job controller alone") && message.contains(kind), "{message}");
        for user in ["system:kube-controller-manager", "system:serviceaccount:kube-system:job-controller"] {
            assert_eq!(asked(&forged, user, here), json!({"uid": "u", "allowed": true}), "{user}");
        }
        assert_eq!(asked(&forged, "system:serviceaccount:team:job-controller", here)["allowed"], json!(false));
    }
    // A pod that names a Job as its controller is not refused if it names no queue: without the controller, Berth would not manage the pod either.
    let plain = pod(false, "batch/v1", "Job", true);
    assert_eq!(asked(&plain, "alice", here)["allowed"], json!(true));
    for forced in [Facts { default_queue: true, ..here }, Facts { without_queue_name: true, ..here }] {
        assert_eq!(asked(&plain, "alice", forced)["allowed"], json!(false));
    }
    for elsewhere in [Facts { managed_namespace: false, ..here }, Facts { pods: false, ..here }] {
        assert_eq!(asked(&pod(true, "batch/v1", "Job", true), "alice", elsewhere)["allowed"], json!(true));
    }
    // A pod whose owner is no controller or is of another kind is no pod of a Job: it gets a scheduling gate and waits.
    for other in [pod(true, "batch/v1", "Job", false), pod(true, "apps/v1", "ReplicaSet", true)] {
        let response = asked(&other, "alice", here);
        assert!(response["allowed"] == json!(true) && response["patch"].is_string(), "{response}");
    }
}

/// Only the controllers that create the pods of jobs may remove the metadata by which these pods are counted, even in a write that changes other
/// fields, and while the pods are being deleted.
#[test]
fn job_pod_keeps_its_accounting_labels_until_it_has_ended() {
    let pod = |labels: Value, phase: &str, leaves: bool| {
        let mut pod = json!({"metadata": {"labels": labels, "ownerReferences":
            [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase}});
        if leaves {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        pod
    };
    let own = || json!({"kueue.x-k8s.io/podset": "main", "batch.kubernetes.io/controller-uid": "u"});
    let change = |phase: &str, leaves: bool, user: &str| {
        let (old, new) = (pod(own(), phase, leaves), pod(json!({"kueue.x-k8s.io/podset": "main"}), phase, leaves));
        let request = json!({"operation": "UPDATE", "object": new, "oldObject": old, "userInfo": {"username": user}});
        ask_in("/validate--v1-pod-of-job", request, Facts::default())
    };
    for leaves in [false, true] {
        let refused = change("Running", leaves, "alice");
        assert_eq!(denied_fields(&refused), ["metadata.labels[batch.kubernetes.io/controller-uid]"]);
        assert_eq!(change("Failed", leaves, "alice")["allowed"], json!(true));
        let controller = "system:serviceaccount:kube-system:job-controller";
        assert_eq!(change("Running", leaves, controller)["allowed"], json!(true));
    }
}
