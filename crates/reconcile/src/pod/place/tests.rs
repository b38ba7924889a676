use serde_json::{Value, json};

use crate::pod::tests::{case_of, pending};
use crate::testing::State;
use crate::testing::groups::{in_phase, member, on_node, started_member, workload_of_group};
use crate::testing::objects::{admitted, changed, pod};
use crate::testing::step::{Step, step};

/// The pod after the first step of a start by Kueue: its admission gate is removed, and its topology gate is left.
fn placing(pod: Value) -> Value {
    let role = pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].clone();
    let started = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": role}},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}});
    changed(pod, started)
}

/// A running pod of group `g` that has its topology domain, a node.
fn placed(name: &str, role: &str, node: &str) -> Value {
    let place = json!({"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node}}});
    on_node(changed(started_member(member(name, role, 2)), place))
}

/// A Workload whose first pod set has a topology assignment of one pod for each node.
fn assigned(mut workload: Value, nodes: &[&str]) -> Value {
    let slice = json!({"domainCount": nodes.len(), "valuesPerLevel": [{"individual": {"roots": nodes}}],
        "podCounts": {"universal": 1}});
    workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] =
        json!({"levels": ["kubernetes.io/hostname"], "slices": [slice]});
    workload
}

/// The decision about pod `a`, with the Workload of a name.
fn found(state: &State, workload: &str) -> Step {
    case_of(state, "a", |case| step(&case.place(state.workload(workload))))
}

/// The node that the pod gets, or the reason of the eviction of its Workload.
fn outcome(step: &Step) -> &str {
    let evicted = step.condition("Evicted").map(|(_, reason, _)| reason);
    evicted.or_else(|| step.body["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str()).unwrap_or("any node")
}

#[test]
fn pod_started_without_topology_domain_gets_its_domain() {
    let single = |pod: Value, workload: Value| State::managing_pods().with(placing(pod)).with(workload);
    let quota = || admitted(pending());
    let failed = json!({"status": {"unhealthyNodes": [{"name": "n1"}]}});
    let selects = |node: &str| changed(pod("a"), json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}));
    let rows = [
        ("no topology assignment", single(pod("a"), quota()), "any node"),
        ("a node", single(pod("a"), assigned(quota(), &["n1"])), "n1"),
        ("no node", single(pod("a"), assigned(quota(), &[])), "NodeFailures"),
        ("the node has failed", single(pod("a"), changed(assigned(quota(), &["n1"]), failed)), "NodeFailures"),
        ("it selects the node", single(selects("n1"), assigned(quota(), &["n1"])), "n1"),
        ("it selects another node", single(selects("n9"), assigned(quota(), &["n1"])), "NodeFailures"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(outcome(&found(&state, "w")), expected, "{name}");
    }
}

#[test]
fn completed_start_removes_topology_gate_only() {
    let gates = json!([{"name": "kueue.x-k8s.io/topology"}, {"name": "example.com/gate"}]);
    let two = changed(placing(pod("a")), json!({"spec": {"schedulingGates": gates}}));
    let state = |pod: Value| State::managing_pods().with(pod).with(admitted(pending()));
    let one = found(&state(placing(pod("a"))), "w");
    assert_eq!(one.what, "StartJob: merge Pod ns/a");
    assert_eq!(one.body["spec"], json!({"schedulingGates": null}));
    assert_eq!(found(&state(two), "w").body["spec"], json!({"schedulingGates": [{"name": "example.com/gate"}]}));
}

#[test]
fn pods_of_role_take_topology_domains_in_order() {
    let quota = |nodes: &[&str]| assigned(admitted(workload_of_group(&[("main", 2)], &["a", "b"])), nodes);
    let waits = |name: &str| placing(member(name, "main", 2));
    let with = |other: Value, nodes: &[&str]| State::managing_pods().with(waits("a")).with(other).with(quota(nodes));
    let both = ["n1", "n2"];
    let rows = [
        ("the other pod has the first domain", with(placed("b", "main", "n1"), &both), "n2"),
        ("the other pod has the second domain", with(placed("b", "main", "n2"), &both), "n1"),
        ("the other pod has the only domain", with(placed("b", "main", "n1"), &["n1"]), "NodeFailures"),
        ("the other pod has ended", with(in_phase(placed("b", "main", "n1"), "Failed"), &["n1"]), "n1"),
        ("a pod of another role", with(placed("b", "x", "n1"), &["n1"]), "n1"),
        ("a pod before it waits, too", with(waits("0"), &both), "n2"),
        ("a pod after it waits, too", with(waits("b"), &both), "n1"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(outcome(&found(&state, "g")), expected, "{name}");
    }
}

#[test]
fn eviction_for_lack_of_topology_domain_names_the_pod() {
    let state = State::managing_pods().with(placing(pod("a"))).with(assigned(admitted(pending()), &[]));
    let step = found(&state, "w");
    let expected = "Pod a was started without its place in the topology, and pod set main has none left for it; \
        topology-aware scheduling is not supported yet";
    assert_eq!(step.what, "Evict: apply status Workload ns/w");
    assert_eq!(step.condition("Evicted"), Some((true, "NodeFailures", expected)));
}
