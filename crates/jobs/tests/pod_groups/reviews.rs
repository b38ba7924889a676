use berth_api::validation::FieldError;
use berth_jobs::Facts;
use berth_jobs::pods::{
    deployment_defaults, group_of_stateful_set, pod_defaults, stateful_set_defaults, validate_deployment,
    validate_deployment_update, validate_pod, validate_pod_update, validate_stateful_set, validate_stateful_set_update,
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::{member, merge, pod};

const HERE: Facts = Facts {
    managed_namespace: true,
    without_queue_name: false,
    default_queue: false,
    default_priority_class: false,
    governed: false,
    pods: true,
    deployments: true,
    stateful_sets: true,
    without_jobs: false,
    without_job_sets: false,
};

/// A pod as a user writes it.
fn fresh(more: Value) -> Pod {
    let mut object = json!({"metadata": {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"containers": [{"name": "c"}]}});
    merge(&mut object, &more);
    serde_json::from_value(object).unwrap()
}

fn fields(errors: &[FieldError]) -> Vec<&str> {
    errors.iter().map(|error| error.field.as_str()).collect()
}

fn note(key: &str) -> String {
    format!("metadata.annotations[kueue.x-k8s.io/{key}]")
}

#[test]
fn a_pod_asks_for_a_place_that_can_be_had() {
    let asks = |more: Value| {
        let annotations =
            json!({"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "2"});
        let mut asking = json!({"metadata": {"annotations": annotations}});
        merge(&mut asking, &more);
        validate_pod(&fresh(asking))
    };
    assert_eq!(fields(&asks(json!({}))), [note("podset-slice-size")]);
    let slices = json!({"metadata": {"annotations": {"kueue.x-k8s.io/podset-slice-required-topology": "host"}}});
    assert_eq!(asks(slices), []);
    // What its Job says was looked at there.
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]);
    assert_eq!(asks(json!({"metadata": {"ownerReferences": owner}})), []);
}

#[test]
fn what_a_pod_gets() {
    let plain = pod_defaults(&fresh(json!({})), HERE);
    assert!(plain.finalizer && plain.gate && plain.annotations.is_empty());
    assert_eq!(plain.labels.into_iter().collect::<Vec<_>>(), [("kueue.x-k8s.io/managed", "true".to_owned())]);
    assert!(pod_defaults(&pod(json!({})), HERE).is_empty(), "it has all of it");

    let group = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}});
    let grouped = pod_defaults(&fresh(group), HERE);
    assert_eq!(grouped.annotations["kueue.x-k8s.io/role-hash"].len(), 8);

    let owner = |version: &str, kind: &str, controller: bool| {
        json!({"metadata": {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": "web", "uid": "u",
            "controller": controller}]}})
    };
    let none = Facts { pods: false, ..HERE };
    for (name, pod, facts, managed) in [
        ("pods are not managed", fresh(json!({})), none, false),
        ("not in this namespace", fresh(json!({})), Facts { managed_namespace: false, ..HERE }, false),
        ("in no queue", fresh(json!({"metadata": {"labels": null}})), HERE, false),
        (
            "all are managed",
            fresh(json!({"metadata": {"labels": null}})),
            Facts { without_queue_name: true, ..HERE },
            true,
        ),
        ("of a Job", fresh(owner("batch/v1", "Job", true)), HERE, false),
        ("of a JobSet", fresh(owner("jobset.x-k8s.io/v1alpha2", "JobSet", true)), HERE, false),
        ("of a TrainingJob", fresh(owner("berth.dev/v1alpha1", "TrainingJob", true)), HERE, false),
        ("of somebody else's Job", fresh(owner("example.com/v1", "Job", true)), HERE, true),
        ("known to a Job", fresh(owner("batch/v1", "Job", false)), HERE, true),
        ("of a ReplicaSet", fresh(owner("apps/v1", "ReplicaSet", true)), HERE, true),
    ] {
        assert_eq!(!pod_defaults(&pod, facts).is_empty(), managed, "{name}");
    }

    let mut replica = owner("apps/v1", "StatefulSet", true);
    merge(&mut replica, &json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}}}));
    let replica = pod_defaults(&fresh(replica), HERE);
    let group = group_of_stateful_set("web", "u");
    assert_eq!(replica.labels["kueue.x-k8s.io/pod-group-name"], group);
    for (key, value) in [
        ("pod-group-name", &*group),
        ("pod-group-serving", "true"),
        ("role-hash", "main"),
        ("pod-group-fast-admission", "true"),
        ("prebuilt-workload-name", &*group),
    ] {
        assert_eq!(replica.annotations[format!("kueue.x-k8s.io/{key}").as_str()], value, "{key}");
    }
}

#[test]
fn what_a_pod_may_say() {
    let total = note("pod-group-total-count");
    let queue = "metadata.labels[kueue.x-k8s.io/queue-name]".to_owned();
    let group = "metadata.labels[kueue.x-k8s.io/pod-group-name]".to_owned();
    let annotated =
        |key: &str, value: &str| json!({"metadata": {"annotations": {format!("kueue.x-k8s.io/{key}"): value}}});
    let cases = [
        (pod(json!({})), vec![]),
        (pod(json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "A_b"}}})), vec![queue]),
        (
            pod(json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": "yes"}}})),
            vec!["metadata.labels[kueue.x-k8s.io/managed]".to_owned()],
        ),
        (member("2", json!({})), vec![]),
        (member("0", json!({})), vec![total.clone()]),
        (member("two", json!({})), vec![total.clone()]),
        (pod(json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}})), vec![total]),
        (pod(annotated("pod-group-total-count", "2")), vec![group.clone()]),
        (member("2", json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "A_b"}}})), vec![group]),
        (member("2", annotated("pod-group-fast-admission", "yes")), vec![]),
        (member("2", annotated("pod-group-fast-admission", "true")), vec![]),
        (member("2", annotated("pod-group-serving", "1")), vec![]),
        (member("2", annotated("retriable-in-group", "never")), vec![]),
        (member("2", annotated("retriable-in-group", "false")), vec![]),
        (pod(annotated("admission-gated-by", "plain")), vec![note("admission-gated-by")]),
        (
            pod(json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "0"}}})),
            vec!["metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]".to_owned()],
        ),
    ];
    for (index, (pod, expected)) in cases.into_iter().enumerate() {
        assert_eq!(fields(&validate_pod(&pod)), expected, "case {index}");
    }
}

#[test]
fn what_may_change_of_a_pod_and_when() {
    let started = || json!({"spec": {"schedulingGates": null}});
    let with = |base: Value, more: Value| {
        let mut all = base;
        merge(&mut all, &more);
        all
    };
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {format!("kueue.x-k8s.io/{key}"): value}}});
    let unretriable = || json!({"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}});
    let path = |key: &str| format!("metadata.labels[kueue.x-k8s.io/{key}]");
    for (name, old, new, expected) in [
        ("queue of one that waits", pod(json!({})), pod(label("queue-name", "r")), vec![]),
        (
            "queue of one that runs",
            pod(started()),
            pod(with(started(), label("queue-name", "r"))),
            vec![path("queue-name")],
        ),
        (
            "class of one that runs",
            pod(started()),
            pod(with(started(), label("priority-class", "p"))),
            vec![path("priority-class")],
        ),
        ("group", member("2", json!({})), member("2", label("pod-group-name", "h")), vec![path("pod-group-name")]),
        ("to unretriable", member("2", json!({})), member("2", unretriable()), vec![]),
        ("to retriable", member("2", unretriable()), member("2", json!({})), vec![note("retriable-in-group")]),
        (
            "managed",
            pod(started()),
            pod(with(started(), json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": null}}}))),
            vec![path("managed")],
        ),
        (
            "owner",
            pod(with(started(), json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}}))),
            pod(with(
                started(),
                json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}, "ownerReferences":
                [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]}}),
            )),
            vec!["metadata.ownerReferences".to_owned()],
        ),
        (
            "what was wrong before",
            pod(label("queue-name", "A")),
            pod(with(label("queue-name", "A"), label("other", "x"))),
            vec![],
        ),
    ] {
        assert_eq!(fields(&validate_pod_update(&old, &new, false)), expected, "{name}");
    }
}

fn parent<T: serde::de::DeserializeOwned>(more: Value) -> T {
    let mut object = json!({"metadata": {"name": "web", "labels": {"kueue.x-k8s.io/queue-name": "q",
        "kueue.x-k8s.io/priority-class": "high"}},
        "spec": {"replicas": 2, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}}});
    merge(&mut object, &more);
    serde_json::from_value(object).unwrap()
}

#[test]
fn what_the_templates_of_parents_get() {
    let (queue, class) = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class");
    let (managed, parent_of) = ("kueue.x-k8s.io/managed", "kueue.x-k8s.io/pod-suspending-parent");
    let texts = |pairs: &[(&'static str, &str)]| -> BTreeMap<&'static str, String> {
        pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
    };
    // All that Kueue puts there, and nothing of what else the Deployment says of its own admission.
    let more = json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"},
        "annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}}});
    let of_deployment = deployment_defaults(&parent(more.clone()), HERE);
    assert_eq!(of_deployment.labels, texts(&[(queue, "q"), (class, "high"), (managed, "true")]));
    assert_eq!(of_deployment.annotations, texts(&[(parent_of, "deployment")]));
    let of_set = stateful_set_defaults(&parent(more), HERE);
    assert_eq!(of_set.labels, texts(&[(queue, "q"), (class, "high")]));
    assert_eq!(of_set.annotations, texts(&[(parent_of, "statefulset")]));
    let moved = json!({"spec": {"template": {"metadata": {"labels": {queue: "old", class: "high", managed: "true"}}}}});
    let again = deployment_defaults(&parent(moved), HERE);
    assert_eq!(again.labels, texts(&[(queue, "q")]), "it follows");
    let owned = json!({"metadata": {"ownerReferences": [{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "x",
        "controller": true}]}});
    for (object, facts) in [
        (json!({"metadata": {"labels": null}}), HERE),
        (owned, HERE),
        (json!({}), Facts { managed_namespace: false, ..HERE }),
        (json!({}), Facts { deployments: false, stateful_sets: false, ..HERE }),
    ] {
        assert_eq!(deployment_defaults(&parent(object.clone()), facts), Default::default(), "{object}");
        assert_eq!(stateful_set_defaults(&parent(object.clone()), facts), Default::default(), "{object}");
    }
}

#[test]
fn of_kinds_that_cannot_be_elastic_none_asks_for_it() {
    let asks = |value: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": value}}});
    let checks: [fn(Value) -> Vec<FieldError>; 3] = [
        |more| validate_deployment(&parent(more)),
        |more| validate_stateful_set(&parent(more)),
        |more| validate_pod(&pod(more)),
    ];
    for (check, kind) in checks.into_iter().zip(["Deployment", "StatefulSet", "Pod"]) {
        let found = check(asks("true"));
        assert_eq!(fields(&found), [note("elastic-job")], "{kind}");
        assert!(found.iter().all(|error| error.to_string().contains(kind)), "{found:?}");
        assert_eq!(check(asks("false")), [], "{kind}: as in Kueue, only true asks for it");
    }
    let (plain, elastic) = (|| json!({}), || asks("true"));
    let deployment = |old: Value, new: Value| {
        let found = validate_deployment_update(&parent::<Deployment>(old), &parent::<Deployment>(new));
        fields(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let set = |old: Value, new: Value| {
        let found = validate_stateful_set_update(&parent::<StatefulSet>(old), &parent::<StatefulSet>(new));
        fields(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(deployment(plain(), elastic()), [note("elastic-job")]);
    assert_eq!(set(plain(), elastic()), [note("elastic-job")]);
    // What slipped past the webhook may be mended, and is no reason to refuse another change.
    assert_eq!((deployment(elastic(), plain()), set(elastic(), plain())), (vec![], vec![]));
    assert_eq!((deployment(elastic(), elastic()), set(elastic(), elastic())), (vec![], vec![]));
}

#[test]
fn what_may_change_of_parents() {
    let queue = "metadata.labels[kueue.x-k8s.io/queue-name]";
    let moved = || json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "r"}}});
    let check = |old: Value, new: Value| {
        let errors = validate_deployment_update(&parent::<Deployment>(old), &parent::<Deployment>(new));
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    assert_eq!(check(json!({"status": {"readyReplicas": 1}}), moved()), [queue]);
    assert_eq!(check(json!({"status": {"readyReplicas": 0}}), moved()), [""; 0]);
    let without = |key: &str| json!({"metadata": {"labels": {key: null}}});
    assert_eq!(check(json!({}), without("kueue.x-k8s.io/queue-name")), [queue], "its pods would lose their queue");
    let class = "metadata.labels[kueue.x-k8s.io/priority-class]";
    assert_eq!(check(json!({}), without("kueue.x-k8s.io/priority-class")), [class]);
    let gated = json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}}});
    let gates = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]";
    assert_eq!(check(json!({}), gated), [gates], "added later");
    assert_eq!(check(json!({}), json!({"spec": {"replicas": 9}})), [""; 0], "an autoscaler does as it likes");

    let check = |old: Value, new: Value| {
        let errors = validate_stateful_set_update(&parent::<StatefulSet>(old), &parent::<StatefulSet>(new));
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    let scaled = |replicas: i32, there: i32| json!({"spec": {"replicas": replicas}, "status": {"replicas": there}});
    assert_eq!(check(json!({"status": {"replicas": 2, "readyReplicas": 1}}), moved()), [queue]);
    assert_eq!(check(scaled(2, 2), scaled(3, 2)), ["spec.replicas"]);
    assert_eq!(check(scaled(3, 3), scaled(2, 3)), ["spec.replicas"]);
    assert_eq!(check(scaled(2, 2), scaled(0, 2)), [""; 0]);
    assert_eq!(check(scaled(0, 1), scaled(3, 1)), ["spec.replicas"], "the last scale is not over");
    assert_eq!(check(scaled(0, 0), scaled(3, 0)), [""; 0]);
    assert_eq!(check(scaled(2, 2), scaled(2, 2)), [""; 0]);

    let with = |container: Value, more: Value| {
        let mut template = json!({"containers": [{"name": "c"}]});
        merge(&mut template["containers"][0], &container);
        merge(&mut template, &more);
        json!({"spec": {"template": {"spec": template}}})
    };
    let cpu = |text: &str| json!({"resources": {"requests": {"cpu": text}}});
    let shape = |field: &str| format!("spec.template.spec.{field}");
    assert_eq!(check(with(cpu("1"), json!({})), with(cpu("2"), json!({}))), [shape("containers")]);
    assert_eq!(check(with(cpu("1"), json!({})), with(cpu("1000m"), json!({}))), [""; 0], "the same amount");
    assert_eq!(check(json!({}), with(json!({"image": "new"}), json!({}))), [""; 0], "an update like any other");
    assert_eq!(check(json!({}), with(json!({}), json!({"nodeSelector": {"a": "b"}}))), [shape("nodeSelector")]);
    let unmanaged = |container: Value| {
        let mut object = with(container, json!({}));
        object["metadata"] = json!({"labels": {"kueue.x-k8s.io/queue-name": null}});
        object
    };
    assert_eq!(check(unmanaged(cpu("1")), unmanaged(cpu("2"))), [""; 0]);
}
