//! Flavors that change between the quota reservation and the start of a job.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::checks::{answer, rely_on_budget};
use crate::stories::cluster::{Cluster, flavor, job};
use crate::stories::names::job_set;
use crate::stories::pod_queue;
use crate::stories::pods::pod;
use crate::stories::training::training;

/// Sets the annotation with the labels of nodes that pods of a flavor must avoid; `null` removes the annotation.
fn forbid(cluster: &mut Cluster, text: Value) {
    let patch = json!({"metadata": {"annotations": {"berth.dev/forbidden-node-labels": text}}});
    cluster.edit(Kind::ResourceFlavor, "", "default", &patch);
}

fn workloads(cluster: &Cluster) -> Vec<(String, Value)> {
    let all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    all.map(|(key, object)| (key.name.clone(), object.clone())).collect()
}

fn condition(workload: &Value, kind: &str) -> Value {
    let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == json!(kind)).unwrap_or_default()
}

/// A Workload has quota and waits for an admission check, while an administrator writes an invalid value into the flavor.
#[test]
fn job_is_evicted_and_requeued_when_reserved_flavor_becomes_invalid() {
    let objects = [
        (Kind::JOB, "a", job("a", "lq", "1", true)),
        (Kind::Pod, "a", pod("a", "1")),
        (Kind::TrainingJob, "a", training("a", json!({}))),
    ];
    for (kind, name, object) in objects {
        let mut cluster = pod_queue("9");
        rely_on_budget(&mut cluster, &[("default", "9")], json!([]));
        cluster.put(kind, object);
        cluster.pass(5);
        let (workload, _) = workloads(&cluster).remove(0);
        assert!(cluster.workload_is(&workload, "QuotaReserved"), "{kind:?}");
        forbid(&mut cluster, json!("not a label!"));
        answer(&mut cluster, &workload, "Ready");
        cluster.pass(10);
        let (_, object) = workloads(&cluster).remove(0);
        assert_eq!(condition(&object, "Finished"), Value::Null, "{kind:?}");
        let evicted = condition(&object, "Evicted");
        assert_eq!(evicted["reason"], json!("PlacementFailed"), "{kind:?}: {object}");
        assert_eq!(condition(&object, "QuotaReserved")["status"], json!("False"), "{kind:?}: {object}");
        let events =
            cluster.notices.iter().filter(|notice| notice.reason == "PlacementFailed" && notice.key.kind == kind);
        let events: Vec<&str> = events.map(|notice| notice.message.as_str()).collect();
        assert!(matches!(events.as_slice(), [one] if one.contains("forbidden-node-labels")), "{kind:?}: {events:?}");
        forbid(&mut cluster, Value::Null);
        cluster.pass(70);
        assert!(cluster.workload_is(&workload, "QuotaReserved"), "{kind:?}: {:?}", cluster.writes);
        answer(&mut cluster, &workload, "Ready");
        cluster.pass(10);
        assert!(cluster.workload_is(&workload, "Admitted"), "{kind:?}: {name}: {:?}", cluster.writes);
    }
}

/// The ClusterQueue has one flavor for cpu and two flavors for GPUs; the first flavor for GPUs has another value of the node label `pool` than the flavor for
/// cpu.
#[test]
fn job_with_contradicting_flavors_waits_and_gets_pair_that_agrees() {
    let mut cluster = pod_queue("9");
    for (name, pool) in [("cpu-a", "a"), ("gpu-b", "b"), ("gpu-a", "a")] {
        cluster.put(Kind::ResourceFlavor, flavor(name, json!({"pool": pool})));
    }
    let group = |resource: &str, names: &[&str]| {
        let quota = |name: &&str| json!({"name": name, "resources": [{"name": resource, "nominalQuota": 10}]});
        json!({"coveredResources": [resource], "flavors": names.iter().map(quota).collect::<Vec<_>>()})
    };
    let groups =
        |gpus: &[&str]| json!({"spec": {"resourceGroups": [group("cpu", &["cpu-a"]), group("nvidia.com/gpu", gpus)]}});
    let mut asks = job("a", "lq", "1", true);
    asks["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = json!("1");
    cluster.edit(Kind::ClusterQueue, "", "cq", &groups(&["gpu-b"]));
    cluster.put(Kind::JOB, asks);
    cluster.pass(10);
    let (workload, object) = workloads(&cluster).remove(0);
    let reserved = condition(&object, "QuotaReserved");
    assert_eq!(reserved["reason"], json!("NoMatchingFlavor"), "{object}");
    let message = reserved["message"].as_str().unwrap_or_default();
    for part in ["flavor gpu-b", "flavor cpu-a", "pool=a", "pool=b"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    cluster.edit(Kind::ClusterQueue, "", "cq", &groups(&["gpu-b", "gpu-a"]));
    cluster.pass(10);
    assert!(cluster.workload_is(&workload, "Admitted"), "{:?}", cluster.writes);
    let selector = &cluster.job("a")["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(selector, &json!({"pool": "a"}));
}

/// A backup restores a Workload before the Workload's flavor, or an administrator gives two flavors of a Workload labels that contradict each other.
#[test]
fn job_whose_flavors_changed_before_its_start_starts_later() {
    let asks_gpu = |kind: Kind, mut object: Value, containers: &str| {
        let containers = object.pointer_mut(containers).expect("containers");
        containers[0]["resources"]["requests"]["nvidia.com/gpu"] = json!("1");
        (kind, object)
    };
    let single = || asks_gpu(Kind::JOB, job("a", "lq", "1", true), "/spec/template/spec/containers");
    let of_set = "/spec/replicatedJobs/0/template/spec/template/spec/containers";
    let set = || asks_gpu(Kind::JOB_SET, job_set("a"), of_set);
    for (missing, (kind, object)) in [(true, single()), (false, single()), (true, set()), (false, set())] {
        let case = format!("{kind:?}, {missing}");
        let mut cluster = pod_queue("9");
        cluster.job_sets_run = true;
        rely_on_budget(&mut cluster, &[("default", "9")], json!([]));
        cluster.put(Kind::ResourceFlavor, flavor("gpu", json!({"tier": "reserved"})));
        let group = |resource: &str, name: &str| {
            let quota = json!([{"name": resource, "nominalQuota": 9}]);
            json!({"coveredResources": [resource], "flavors": [{"name": name, "resources": quota}]})
        };
        let groups = json!([group("cpu", "default"), group("nvidia.com/gpu", "gpu")]);
        cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": groups}}));
        cluster.put(kind, object);
        cluster.pass(5);
        let (workload, _) = workloads(&cluster).remove(0);
        assert!(cluster.workload_is(&workload, "QuotaReserved"), "{case}: {:?}", cluster.writes);
        if missing {
            cluster.forget(&Cluster::key(Kind::ResourceFlavor, "", "gpu"));
            cluster.restart();
        } else {
            cluster.edit(Kind::ResourceFlavor, "", "gpu", &json!({"spec": {"nodeLabels": {"tier": "spot"}}}));
        }
        answer(&mut cluster, &workload, "Ready");
        cluster.pass(10);
        let (_, object) = workloads(&cluster).remove(0);
        assert_eq!(condition(&object, "Finished"), Value::Null, "{case}: {object}");
        assert_eq!(condition(&object, "Evicted")["reason"], json!("PlacementFailed"), "{case}: {object}");
        let events = cluster.notices.iter().filter(|one| one.reason == "PlacementFailed" && one.key.kind == kind);
        assert_eq!(events.count(), 1, "{case}: {:?}", cluster.notices);
        cluster.put(Kind::ResourceFlavor, flavor("gpu", json!({"tier": "reserved"})));
        cluster.pass(70);
        answer(&mut cluster, &workload, "Ready");
        cluster.pass(10);
        assert!(cluster.workload_is(&workload, "Admitted"), "{case}: {:?}", cluster.writes);
    }
}
