//! What a pod costs beside its containers: the overhead of its RuntimeClass, sidecars, and the steps of its initialisation.

use berth_control::event::{Change, Observation};
use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::cluster::{Cluster, job};
use crate::one_queue;

fn set_overhead(cluster: &mut Cluster, cpu: &str) {
    let class = json!({"metadata": {"name": "sandbox"}, "handler": "sandbox", "overhead": {"podFixed": {"cpu": cpu}}});
    let class = serde_json::from_value(class).unwrap();
    cluster.control.observe(Observation::RuntimeClass(Change::Apply(class)), cluster.now);
}

/// A Job of one pod of that class with one cpu, and those init containers before it.
fn sandboxed(name: &str, init: Value) -> Value {
    let mut object = job(name, "lq", "1", true);
    object["spec"]["template"]["spec"]["runtimeClassName"] = json!("sandbox");
    object["spec"]["template"]["spec"]["initContainers"] = init;
    object
}

fn container(name: &str, cpu: &str, stays: bool) -> Value {
    let mut object = json!({"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}});
    if stays {
        object["restartPolicy"] = json!("Always");
    }
    object
}

fn charged(cluster: &Cluster, name: &str) -> Value {
    let admission = &cluster.workload_of(name).unwrap()["status"]["admission"];
    admission["podSetAssignments"][0]["resourceUsage"]["cpu"].clone()
}

#[test]
fn sidecars_and_the_overhead_of_a_runtime_class_are_charged() {
    let mut cluster = one_queue("10");
    set_overhead(&mut cluster, "250m");
    let (side, step) = (container("side", "500m", true), container("step", "2", false));
    for (name, init, cpu) in [
        ("plain", json!([]), "1250m"),
        ("side", json!([side]), "1750m"),
        // The step runs beside the sidecar before it, and not beside the one after it.
        ("step-after", json!([side, step]), "2750m"),
        ("step-before", json!([step, side]), "2250m"),
    ] {
        cluster.put(Kind::JOB, sandboxed(name, init));
        cluster.pass(2);
        assert_eq!(charged(&cluster, name), json!(cpu), "{name}");
    }
}

#[test]
fn a_job_waits_while_its_runtime_class_costs_too_much() {
    let mut cluster = one_queue("2");
    set_overhead(&mut cluster, "1500m");
    cluster.put(Kind::JOB, sandboxed("a", json!([])));
    cluster.settle();
    assert_eq!(cluster.condition("a", "QuotaReserved").unwrap()["reason"], json!("ExceedsMaxQuota"));
    set_overhead(&mut cluster, "1");
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    assert_eq!(charged(&cluster, "a"), json!("2"));
    // What was given stays as it was given.
    set_overhead(&mut cluster, "100m");
    cluster.pass(10);
    assert_eq!(charged(&cluster, "a"), json!("2"));
}

#[test]
fn requests_beyond_limits_and_limit_ranges_are_named() {
    let mut cluster = one_queue("9");
    let most = json!([{"type": "Container", "max": {"cpu": "2"}}]);
    let range = json!({"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": most}});
    let range = serde_json::from_value(range).unwrap();
    cluster.control.observe(Observation::LimitRange(Change::Apply(range)), cluster.now);
    let field = "spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]";
    let of_limit = format!("resources validation failed: {field}: requests must not exceed its limits");
    let of_range = format!(
        "resources didn't satisfy LimitRange constraints: {field}: requests must not be above the limitRange max"
    );
    for (name, resources, message) in [
        ("beyond-limit", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), of_limit),
        ("beyond-range", json!({"requests": {"cpu": "3"}}), of_range),
    ] {
        let mut object = job(name, "lq", "1", true);
        object["spec"]["template"]["spec"]["containers"][0]["resources"] = resources;
        cluster.put(Kind::JOB, object);
        cluster.pass(5);
        let told = cluster.condition(name, "QuotaReserved").unwrap();
        assert_eq!((&told["reason"], &told["message"]), (&json!("Misconfigured"), &json!(message)), "{name}");
    }
}
