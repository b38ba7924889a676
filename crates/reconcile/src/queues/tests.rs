//! Statuses and finalizers of queues, flavors and checks, without a controller.

use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, cluster_queue, deleting, flavor, local_queue, reserved, workload};
use crate::testing::step::{Step, step, written};
use crate::testing::{State, named, now};
use crate::write::cluster_key;

fn guarded(object: Value) -> Value {
    changed(object, json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}))
}

fn next(state: &State, kind: Kind, name: &str) -> Step {
    step(&finalizer(&state.context(), &cluster_key(kind, name)))
}

/// A workload with quota of `cq`, as the engine knows it.
fn holding(mut state: State) -> State {
    state.put(admitted(workload("w")));
    state.pass_on_workloads();
    state
}

#[test]
fn object_that_is_in_use_keeps_its_finalizer() {
    let cq = || cluster_queue("cq", &[("f", 10)]);
    let check = |patch: Value| {
        changed(
            json!({"kind": "AdmissionCheck", "metadata": {"name": "c", "uid": "c-uid", "resourceVersion": "7"}, "spec": {"controllerName": "x/y"}}),
            patch,
        )
    };
    let asks = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}});
    let rows: Vec<(&str, State, Kind, &str, &str)> = vec![
        ("new queue", State::new(), Kind::ClusterQueue, "cq", "AddFinalizer: merge ClusterQueue /cq"),
        ("guarded queue", State::new().with(guarded(cq())), Kind::ClusterQueue, "cq", "done"),
        (
            "queue goes",
            State::new().with(deleting(guarded(cq()))),
            Kind::ClusterQueue,
            "cq",
            "RemoveFinalizer: merge ClusterQueue /cq",
        ),
        ("queue goes, in use", holding(State::new().with(deleting(guarded(cq())))), Kind::ClusterQueue, "cq", "done"),
        ("new flavor", State::new(), Kind::ResourceFlavor, "f", "AddFinalizer: merge ResourceFlavor /f"),
        ("flavor goes, offered", State::new().with(deleting(guarded(flavor("f")))), Kind::ResourceFlavor, "f", "tell"),
        (
            "flavor goes",
            State::new().with(deleting(guarded(flavor("g")))),
            Kind::ResourceFlavor,
            "g",
            "RemoveFinalizer: merge ResourceFlavor /g",
        ),
        (
            "new check",
            State::new().with(check(json!({}))),
            Kind::AdmissionCheck,
            "c",
            "AddFinalizer: merge AdmissionCheck /c",
        ),
        (
            "check goes, named",
            State::new().with(changed(cq(), asks)).with(deleting(guarded(check(json!({}))))),
            Kind::AdmissionCheck,
            "c",
            "tell",
        ),
        (
            "check goes",
            State::new().with(deleting(guarded(check(json!({}))))),
            Kind::AdmissionCheck,
            "c",
            "RemoveFinalizer: merge AdmissionCheck /c",
        ),
        ("no such queue", State::new(), Kind::ClusterQueue, "x", "done"),
    ];
    for (row, state, kind, name, expected) in rows {
        assert_eq!(next(&state, kind, name).what, expected, "{row}");
    }
    let reported = next(&State::new().with(deleting(guarded(flavor("f")))), Kind::ResourceFlavor, "f");
    assert_eq!(reported.events, ["Normal DeletionWaits: The deletion waits for ClusterQueue cq"]);
}

#[test]
fn status_of_a_queue_counts_quota_and_workloads() {
    let state = holding(State::new());
    let status_of = |kind: Kind, key: ObjectKey| {
        assert_eq!(key.kind, kind);
        status(&state.context(), &key, now()).map(|draft| written(&draft))
    };
    let found = status_of(Kind::ClusterQueue, cluster_key(Kind::ClusterQueue, "cq")).expect("a status");
    let reported = &found.body["status"];
    assert_eq!(
        (&reported["reservingWorkloads"], &reported["admittedWorkloads"], &reported["pendingWorkloads"]),
        (&json!(1), &json!(1), &json!(0))
    );
    let used = json!([{"name": "f", "resources": [{"name": "cpu", "total": "2", "borrowed": "0"}]}]);
    assert_eq!((&reported["flavorsReservation"], &reported["flavorsUsage"]), (&used, &used));
    assert_eq!(reported["berthUsed"], json!("cpu 2/10"));
    assert_eq!(found.condition("Active").map(|(is, reason, _)| (is, reason)), Some((true, "Ready")));
    let local = status_of(Kind::LocalQueue, named(Kind::LocalQueue, "lq")).expect("a status");
    assert_eq!(
        (&local.body["status"]["reservingWorkloads"], &local.body["status"]["admittedWorkloads"]),
        (&json!(1), &json!(1))
    );
}

/// A status that already shows all figures is not written again.
#[test]
fn status_of_a_queue_is_written_where_it_differs() {
    let key = cluster_key(Kind::ClusterQueue, "cq");
    let first = status(&State::new().context(), &key, now()).map(|draft| written(&draft)).expect("a status");
    assert_eq!(first.body["metadata"], json!({"uid": "cq-uid", "resourceVersion": "7"}), "its conditions change");
    let shown = changed(cluster_queue("cq", &[("f", 10)]), json!({"status": first.body["status"].clone()}));
    let mut state = State::new().with(shown);
    assert!(status(&state.context(), &key, now()).is_none());
    state.put(reserved(workload("w")));
    state.pass_on_workloads();
    let next = status(&state.context(), &key, now()).map(|draft| written(&draft)).expect("a status");
    assert_eq!(next.body["metadata"], json!({"uid": "cq-uid"}), "figures are valid for any version");
    assert_eq!(
        (&next.body["status"]["reservingWorkloads"], &next.body["status"]["admittedWorkloads"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn faults_of_flavors_and_cohorts_are_reported() {
    let reported_by =
        |state: State, kind: Kind, name: &str| step(&faults(&state.context(), &cluster_key(kind, name))).events;
    let unreadable = changed(flavor("g"), json!({"metadata": {"labels": {"berth.dev/capacity-tier": "gold"}}}));
    assert_eq!(reported_by(State::new(), Kind::ResourceFlavor, "f"), [""; 0]);
    let events = reported_by(State::new().with(unreadable), Kind::ResourceFlavor, "g");
    assert!(events.len() == 1 && events[0].starts_with("Warning Misconfigured: "), "{events:?}");
    let cohort = json!({"kind": "Cohort", "metadata": {"name": "c", "uid": "c-uid"}, "spec": {"parentName": "c"}});
    assert!(reported_by(State::new().with(cohort), Kind::Cohort, "c").len() <= 1);
}

#[test]
fn local_queue_counts_workloads_only_of_its_cluster_queue() {
    let count = |state: &State| {
        let ctx = state.context();
        super::holding(&ctx, &crate::testing::own_name("lq")).count()
    };
    assert_eq!(count(&holding(State::new())), 1);
    let moved = holding(State::new()).with(cluster_queue("other", &[])).with(local_queue("lq", "other"));
    assert_eq!(count(&moved), 0, "it names another queue now");
}

#[test]
fn queues_in_the_way_are_named_up_to_ten() {
    assert_eq!(listed(&["a"]), "ClusterQueue a");
    assert_eq!(listed(&["a", "b"]), "ClusterQueues a, b");
    let many: Vec<String> = (0..12).map(|number| format!("q{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(listed(&many).ends_with("q9 and 2 more"), "{}", listed(&many));
}
