//! Requests of a pod beside its containers: the overhead of its RuntimeClass, its sidecars, and its init containers.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::kept_quota::{is, workload};
use crate::stories::names::job_set;
use crate::stories::one_queue;
use crate::stories::training::training;

fn set_overhead(cluster: &mut Cluster, cpu: &str) {
    set_overheads(cluster, &json!({"cpu": cpu}));
}

fn set_overheads(cluster: &mut Cluster, overheads: &Value) {
    let class = json!({"metadata": {"name": "sandbox"}, "handler": "sandbox", "overhead": {"podFixed": overheads}});
    let class = serde_json::from_value(class).unwrap();
    cluster.control.observe(Observation::RuntimeClass(Change::Apply(class)), cluster.now());
}

/// A Job of one pod of one cpu with the RuntimeClass `sandbox` and the given init containers.
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
fn sidecars_and_runtime_class_overhead_are_charged() {
    let mut cluster = one_queue("10");
    set_overhead(&mut cluster, "250m");
    let (side, step) = (container("side", "500m", true), container("step", "2", false));
    for (name, init, cpu) in [
        ("plain", json!([]), "1250m"),
        ("side", json!([side]), "1750m"),
        // An init container runs beside the sidecars before it, and not beside the sidecars after it.
        ("step-after", json!([side, step]), "2750m"),
        ("step-before", json!([step, side]), "2250m"),
    ] {
        cluster.put(Kind::JOB, sandboxed(name, init));
        cluster.pass(2);
        assert_eq!(charged(&cluster, name), json!(cpu), "{name}");
    }
}

#[test]
fn pod_level_limit_without_pod_level_request_is_not_charged() {
    let mut cluster = one_queue("4");
    let mut limited = job("a", "lq", "1", true);
    limited["spec"]["template"]["spec"]["resources"] = json!({"limits": {"cpu": "6"}});
    cluster.put(Kind::JOB, limited);
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.condition("a", "QuotaReserved"));
    assert_eq!(charged(&cluster, "a"), json!("1"));
    let mut asks = job("b", "lq", "1", true);
    asks["spec"]["template"]["spec"]["resources"] = json!({"limits": {"cpu": "6"}, "requests": {"cpu": "3"}});
    cluster.put(Kind::JOB, asks);
    cluster.pass(5);
    assert_eq!(charged(&cluster, "b"), json!("3"), "what the pod as a whole requests");
}

#[test]
fn job_waits_while_runtime_class_overhead_exceeds_quota() {
    let mut cluster = one_queue("2");
    set_overhead(&mut cluster, "1500m");
    cluster.put(Kind::JOB, sandboxed("a", json!([])));
    cluster.settle();
    assert_eq!(cluster.condition("a", "QuotaReserved").unwrap()["reason"], json!("ExceedsMaxQuota"));
    set_overhead(&mut cluster, "1");
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    assert_eq!(charged(&cluster, "a"), json!("2"));
    // Quota that a Workload holds does not change with the overhead of the RuntimeClass.
    set_overhead(&mut cluster, "100m");
    cluster.pass(10);
    assert_eq!(charged(&cluster, "a"), json!("2"));
}

#[test]
fn changed_resource_requests_are_shown_though_pending_reason_stays() {
    let mut cluster = one_queue("2");
    let quota = |name: &str, amount: &str| json!({"name": name, "nominalQuota": amount});
    let flavors = json!([{"name": "default", "resources": [quota("cpu", "2"), quota("memory", "8Gi")]}]);
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors}]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": groups}}));
    set_overheads(&mut cluster, &json!({"memory": "1Gi"}));
    let mut object = sandboxed("a", json!([]));
    object["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
    cluster.put(Kind::JOB, object);
    cluster.settle();
    let shown = |cluster: &Cluster| cluster.workload_of("a").unwrap()["status"]["resourceRequests"].clone();
    let asks = |memory: &str| json!([{"name": "main", "resources": {"cpu": "3", "memory": memory}}]);
    assert_eq!(shown(&cluster), asks("1Gi"));
    let waits = cluster.condition("a", "QuotaReserved").unwrap();
    assert_eq!(waits["reason"], json!("ExceedsMaxQuota"));
    set_overheads(&mut cluster, &json!({"memory": "2Gi"}));
    cluster.settle();
    assert_eq!(shown(&cluster), asks("1Gi"), "it was written just now");
    cluster.pass(70);
    assert_eq!(shown(&cluster), asks("2Gi"));
    assert_eq!(cluster.condition("a", "QuotaReserved").unwrap(), waits, "that alone has changed");
    let reported = cluster.count(Purpose::ExplainPending);
    // The memory of the RuntimeClass's overhead stays the same amount, written in another notation.
    set_overheads(&mut cluster, &json!({"memory": "2048Mi"}));
    cluster.pass(120);
    assert_eq!((shown(&cluster), cluster.count(Purpose::ExplainPending)), (asks("2Gi"), reported));
}

#[test]
fn requests_beyond_limits_or_limit_range_are_reported_misconfigured() {
    let mut cluster = one_queue("9");
    let most = json!([{"type": "Container", "max": {"cpu": "2"}}]);
    let range = json!({"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": most}});
    let range = serde_json::from_value(range).unwrap();
    cluster.control.observe(Observation::LimitRange(Change::Apply(range)), cluster.now());
    let field = "spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]";
    let of_limit =
        format!("resources validation failed: {field}: requests must not exceed its limits: cpu is 2, and its limit 1");
    let of_range = format!(
        "resources didn't satisfy LimitRange constraints: {field}: requests must not be above the limitRange max: cpu is 3, and \
         at most 2 is allowed"
    );
    for (name, resources, message) in [
        ("beyond-limit", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), of_limit),
        ("beyond-range", json!({"requests": {"cpu": "3"}}), of_range),
    ] {
        let mut object = job(name, "lq", "1", true);
        object["spec"]["template"]["spec"]["containers"][0]["resources"] = resources;
        cluster.put(Kind::JOB, object);
        cluster.pass(5);
        let found_condition = cluster.condition(name, "QuotaReserved").unwrap();
        assert_eq!(
            (&found_condition["reason"], &found_condition["message"]),
            (&json!("Misconfigured"), &json!(message)),
            "{name}"
        );
    }
}

/// A job waits if its RuntimeClass is missing: the API server would refuse the job's pods, and Berth does not know the overhead.
#[test]
fn job_waits_for_missing_runtime_class_whose_overhead_is_charged() {
    let mut cluster = one_queue("2");
    let mut object = job("a", "lq", "1", true);
    object["spec"]["template"]["spec"]["runtimeClassName"] = json!("sandbox");
    cluster.put(Kind::JOB, object);
    cluster.pass(5);
    let found_condition = cluster.condition("a", "QuotaReserved").unwrap();
    let message = "RuntimeClass \"sandbox\" of pod set main does not exist";
    assert_eq!(
        (&found_condition["reason"], &found_condition["message"]),
        (&json!("Misconfigured"), &json!(message)),
        "{found_condition}"
    );
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    set_overheads(&mut cluster, &json!({"cpu": "500m"}));
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    let usage = &cluster.workload_of("a").unwrap()["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(usage["cpu"], json!("1500m"));
}

/// A JobSet or TrainingJob waits for its missing RuntimeClass: no Job of the JobSet or TrainingJob is made or started before the RuntimeClass exists.
#[test]
fn jobset_and_training_job_wait_for_missing_runtime_class() {
    let mut set = job_set("t");
    set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["runtimeClassName"] = json!("sandbox");
    let trained = training("t", json!({"template": {"spec": {"runtimeClassName": "sandbox"}}}));
    for (kind, object, begins, part, cpu) in [
        (Kind::JOB_SET, set, "jobset-t-", "t-job-0", "1500m"),
        (Kind::TrainingJob, trained, "trainingjob-t-", "t-worker", "3"),
    ] {
        let mut cluster = one_queue("4");
        cluster.job_sets_run = true;
        cluster.put(kind, object);
        cluster.pass(10);
        let found = workload(&cluster, begins).expect(begins);
        let conditions = found["status"]["conditions"].as_array().expect("a condition");
        let condition = conditions.iter().find(|one| one["type"] == "QuotaReserved").expect("a reason");
        let message = condition["message"].as_str().unwrap();
        let is_named =
            message.starts_with("RuntimeClass \"sandbox\" of pod set ") && message.ends_with(" does not exist");
        assert!(condition["reason"] == "Misconfigured" && is_named, "{condition}");
        let runs = |cluster: &Cluster| cluster.has_job(part) && cluster.job(part)["spec"]["suspend"] != json!(true);
        assert!(!runs(&cluster), "{kind:?}: {:?}", cluster.writes);
        set_overheads(&mut cluster, &json!({"cpu": "500m"}));
        cluster.pass(10);
        assert!(is(&cluster, begins, "Admitted") && runs(&cluster), "{kind:?}: {:?}", cluster.writes);
        let admission = &workload(&cluster, begins).expect(begins)["status"]["admission"];
        assert_eq!(admission["podSetAssignments"][0]["resourceUsage"]["cpu"], json!(cpu), "{kind:?}");
    }
}
