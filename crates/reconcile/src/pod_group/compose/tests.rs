use berth_cache::settings::Settings;
use serde_json::{Value, json};

use crate::pod_group::tests::{case_of, observed, running, waiting};
use crate::testing::State;
use crate::testing::groups::{in_phase, let_in_member, member, of_replica_set, pod_of_set};
use crate::testing::objects::{changed, deleting};
use crate::testing::step::{Step, step};

const CREATES: &str = "CreateWorkload: create Workload ns/g";

/// The decision about group `g`, which has no Workload.
fn composed(state: &State) -> Step {
    case_of(state, "g", |case| step(&case.without_workload()))
}

fn of_pods(pods: Vec<Value>) -> Step {
    composed(&observed(pods))
}

/// The message of the event that says why the pods form no Workload.
fn refusal(pods: Vec<Value>) -> String {
    let found = of_pods(pods);
    let event = found.events.concat();
    event.strip_prefix("Warning ErrWorkloadCompose: ").unwrap_or_else(|| panic!("{found:?}")).to_owned()
}

fn annotated(pod: Value, name: &str, value: &str) -> Value {
    changed(pod, json!({"metadata": {"annotations": {format!("kueue.x-k8s.io/{name}"): value}}}))
}

fn labelled(pod: Value, name: &str, value: &str) -> Value {
    changed(pod, json!({"metadata": {"labels": {name: value}}}))
}

/// Names and sizes of the pod sets of a new Workload.
fn pod_sets(step: &Step) -> Vec<(String, i64)> {
    let sets = step.body["spec"]["podSets"].as_array().cloned().unwrap_or_default();
    let size = |set: &Value| (set["name"].as_str().unwrap_or_default().to_owned(), set["count"].as_i64().unwrap_or(0));
    sets.iter().map(size).collect()
}

#[test]
fn pod_group_gets_workload_once_its_pods_can_form_it() {
    let both = || vec![waiting("a"), waiting("b")];
    let ending = || {
        let mut state = observed(both());
        state.end_namespace();
        state
    };
    let full = || {
        let mut state = observed(both());
        state.fill_creations();
        state
    };
    let succeeded = || deleting(in_phase(running("b"), "Succeeded"));
    let prebuilt = |name: &str| labelled(waiting(name), "kueue.x-k8s.io/prebuilt-workload-name", "g");
    let fast = || annotated(member("a", "main", 3), "pod-group-fast-admission", "true");
    let three = || vec![waiting("a"), waiting("b"), waiting("c")];
    let rows: Vec<(&str, State, &str)> = vec![
        ("all pods wait", observed(both()), CREATES),
        ("its namespace ends", ending(), "done"),
        ("a pod runs", observed(vec![waiting("a"), running("b")]), "done"),
        ("a pod was let in", observed(vec![let_in_member("a", 1)]), CREATES),
        ("all pods have failed", observed(vec![in_phase(running("a"), "Failed")]), "done"),
        ("a pod is missing", observed(vec![waiting("a")]), "tell"),
        ("a pod is being deleted", observed(vec![waiting("a"), succeeded()]), "tell"),
        ("a pod is missing, with fast admission", observed(vec![fast()]), CREATES),
        ("one pod more", observed(three()), "DeletePod: delete Pod ns/c"),
        ("one pod more of a controller", observed(three().into_iter().map(of_replica_set).collect()), CREATES),
        ("a prebuilt Workload", observed(vec![prebuilt("a"), prebuilt("b")]), "wait for Workload ns/g"),
        ("many Workloads are being created", full(), "wait for creations"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(composed(&state).what, expected, "{name}");
    }
}

#[test]
fn new_workload_of_pod_group_has_pods_as_owners() {
    let found = of_pods(vec![of_replica_set(waiting("a")), of_replica_set(waiting("b"))]);
    assert_eq!(found.body["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], json!("true"));
    assert_eq!(found.body["metadata"]["annotations"]["berth.dev/size"], json!("2 pods, cpu 2"));
    let owner = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": format!("{name}-uid")});
    let owners = [owner("v1", "Pod", "a"), owner("v1", "Pod", "b"), owner("apps/v1", "ReplicaSet", "r")];
    assert_eq!(found.body["metadata"]["ownerReferences"], json!(owners));
    assert_eq!(found.body["spec"]["queueName"], json!("lq"));
    assert_eq!(pod_sets(&found), [("main".to_owned(), 2)]);
    assert_eq!(found.events, ["Normal CreatedWorkload: Created Workload: ns/g"]);
}

#[test]
fn pod_set_of_each_role_has_its_number_of_pods() {
    let set = |name: &str, count: i64| (name.to_owned(), count);
    let role = |name: &str, role: &str| member(name, role, 3);
    let found = of_pods(vec![role("a", "y"), role("b", "x"), role("c", "y")]);
    assert_eq!(pod_sets(&found), [set("x", 1), set("y", 2)], "equal pods, so the names decide");
    let fast = |name: &str, role: &str| annotated(member(name, role, 3), "pod-group-fast-admission", "true");
    assert_eq!(pod_sets(&of_pods(vec![fast("a", "x")])), [set("x", 3)], "all like the first");
    let of_two = |name: &str| of_replica_set(waiting(name));
    assert_eq!(pod_sets(&of_pods(vec![of_two("a"), of_two("b"), of_two("c")])), [set("main", 2)], "one waits");
}

#[test]
fn pods_that_cannot_form_one_group_are_reported() {
    let unsized_pod =
        changed(waiting("a"), json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": null}}}));
    let unsized_second =
        changed(waiting("b"), json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "many"}}}));
    let elsewhere = labelled(waiting("b"), "kueue.x-k8s.io/queue-name", "other");
    let of_set = changed(pod_of_set("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}}));
    let roles = (0..19).map(|number| member(&format!("p-{number:02}"), &format!("r-{number}"), 19)).collect();
    let rows: Vec<(Vec<Value>, &str)> = vec![
        (vec![of_set], "pod a: its StatefulSet is not there, or names no queue"),
        (
            vec![unsized_pod],
            "pod a: annotation kueue.x-k8s.io/pod-group-total-count must be the number of pods in the group",
        ),
        (vec![waiting("a")], "group \"g\" has fewer runnable pods than its size, 2"),
        (roles, "group \"g\" has 19 roles; 18 are allowed"),
        (vec![waiting("a"), elsewhere], "pods a and b have different queues: lq and other"),
        (vec![waiting("a"), member("b", "main", 3)], "pods a and b say different sizes of their group: 2 and 3"),
        (vec![waiting("a"), unsized_second], "pods a and b say different sizes of their group: 2 and none"),
    ];
    for (pods, expected) in rows {
        assert_eq!(refusal(pods), expected);
    }
}

/// Any pod of a group may have a label that its Workload takes over.
#[test]
fn copied_label_has_one_value_in_its_pod_group() {
    let created = |pods: Vec<Value>| {
        let label_keys_to_copy = ["team".to_owned()].into();
        let settings = Settings { label_keys_to_copy, ..State::managing_pods().settings };
        composed(&pods.into_iter().fold(State::with_settings(settings), State::with))
    };
    let of_team = |name: &str, team: &str| labelled(waiting(name), "team", team);
    let one = created(vec![waiting("a"), of_team("b", "x")]);
    assert_eq!((one.what.as_str(), &one.body["metadata"]["labels"]["team"]), (CREATES, &json!("x")));
    let same = created(vec![of_team("a", "x"), of_team("b", "x")]);
    assert_eq!(same.body["metadata"]["labels"]["team"], json!("x"));
    let differs = created(vec![of_team("a", "x"), of_team("b", "y")]);
    let expected = "Warning ErrWorkloadCompose: pods a and b have different values of label team, which the Workload takes \
        over: x and y";
    assert_eq!(differs.events, [expected]);
    let not_copied = of_pods(vec![of_team("a", "x"), of_team("b", "y")]);
    assert_eq!((not_copied.what.as_str(), not_copied.body["metadata"]["labels"].get("team")), (CREATES, None));
}

#[test]
fn pod_group_with_missing_priority_class_gets_no_workload() {
    let classed = |name: &str| labelled(waiting(name), "kueue.x-k8s.io/priority-class", "high");
    let found = of_pods(vec![classed("a"), classed("b")]);
    let text = "priority class \"high\" does not exist; create it or change the pods";
    assert_eq!(found.events, [format!("Warning WorkloadPriorityClassNotFound: {text}")]);
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 7});
    let found = composed(&observed(vec![classed("a"), classed("b")]).with(class));
    assert_eq!((found.what.as_str(), &found.body["spec"]["priority"]), (CREATES, &json!(7)));
}
