//! Pods that Kueue has started with a topology request, and that have no topology domain yet: the pods get a place, or their Workload waits again.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::Cluster;
use crate::stories::groups::{gated, member};
use crate::stories::pod_queue;
use crate::stories::pods::pod;

/// A placement that Kueue has chosen: names of domains of `level`, each with its number of pods.
fn places(level: &str, domains: &[(&str, i32)]) -> Value {
    let (names, counts): (Vec<&str>, Vec<i32>) = domains.iter().copied().unzip();
    let values = json!([{"individual": {"roots": names}}]);
    let slice = json!({"domainCount": names.len(), "valuesPerLevel": values, "podCounts": {"individual": counts}});
    json!({"levels": [level], "slices": [slice]})
}

/// Pods as Kueue leaves them, each in its rack or with only the gate of the topology; their Workload was admitted with the given topology assignment.
fn left_by_kueue(pods: &[(Value, Option<&str>)], assignment: Option<Value>, failed: &[&str]) -> (Cluster, String) {
    let mut cluster = pod_queue("4");
    cluster.controller_sleeps = true;
    for (pod, _) in pods {
        cluster.put(Kind::Pod, pod.clone());
    }
    cluster.settle();
    let found = cluster.objects().iter().find(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object.clone());
    let workload = found.expect("a Workload");
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let mut sets = workload["status"]["admission"]["podSetAssignments"].clone();
    if let Some(assignment) = assignment {
        sets[0]["topologyAssignment"] = assignment;
    }
    let nodes: Vec<Value> = failed.iter().map(|name| json!({"name": name})).collect();
    let status = json!({"admission": {"podSetAssignments": sets}, "unhealthyNodes": nodes});
    cluster.edit(Kind::Workload, "team", &name, &json!({"status": status}));
    for (pod, rack) in pods {
        let left = match rack {
            Some(rack) => json!({"metadata": {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}},
                "spec": {"nodeSelector": {"rack": rack}}}),
            None => json!({"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}}),
        };
        cluster.edit(Kind::Pod, "team", pod["metadata"]["name"].as_str().unwrap(), &left);
    }
    cluster.controller_sleeps = false;
    cluster.settle();
    (cluster, name)
}

fn rack(cluster: &Cluster, pod: &str) -> Value {
    cluster.pod(pod).expect(pod)["spec"]["nodeSelector"]["rack"].clone()
}

fn evictions(cluster: &Cluster) -> Vec<&str> {
    let evicted = cluster.notices.iter().filter(|notice| notice.reason == "EvictedDueToNodeFailures");
    evicted.map(|notice| notice.message.as_str()).collect()
}

#[test]
fn topology_gated_pod_gets_domain_that_kueue_assigned() {
    for (assignment, wanted) in [(Some(places("rack", &[("r1", 1)])), json!("r1")), (None, Value::Null)] {
        let (mut cluster, name) = left_by_kueue(&[(pod("a", "1"), None)], assignment, &[]);
        assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
        assert_eq!(rack(&cluster, "a"), wanted);
        assert_eq!(cluster.pod("a").unwrap()["spec"]["nodeSelector"]["tier"], json!("reserved"), "as it was started");
        assert!(cluster.workload_is(&name, "Admitted") && cluster.count(Purpose::Evict) == 0, "{:?}", cluster.writes);
        cluster.end_pod("a", "Succeeded");
        cluster.settle();
        assert!(cluster.workload_is(&name, "Finished"), "{:?}", cluster.writes);
    }
}

#[test]
fn group_pods_fill_topology_domains_that_are_left() {
    let of_group = |name: &str| member(name, "1", 3, &[]);
    let pods = [(of_group("a"), Some("r2")), (of_group("b"), None), (of_group("c"), None)];
    let (cluster, name) = left_by_kueue(&pods, Some(places("rack", &[("r1", 1), ("r2", 2)])), &[]);
    let racks: Vec<Value> = ["a", "b", "c"].iter().map(|pod| rack(&cluster, pod)).collect();
    assert_eq!(racks, ["r2", "r1", "r2"], "{:?}", cluster.writes);
    assert!(["a", "b", "c"].iter().all(|pod| !gated(&cluster, pod)), "{:?}", cluster.writes);
    assert!(cluster.workload_is(&name, "Admitted") && cluster.count(Purpose::Evict) == 0, "{:?}", cluster.writes);
}

#[test]
fn group_with_too_few_topology_domains_is_evicted_with_reason() {
    let pods = [(member("a", "1", 2, &[]), Some("r1")), (member("b", "1", 2, &[]), None)];
    let (cluster, name) = left_by_kueue(&pods, Some(places("rack", &[("r1", 1)])), &[]);
    assert!(!cluster.workload_is(&name, "QuotaReserved"), "{:?}", cluster.writes);
    assert!(cluster.workload_is(&name, "WaitingForReplacementPods"), "{:?}", cluster.writes);
    let reported = evictions(&cluster);
    assert!(matches!(reported[..], [text] if text.starts_with("Pod b was started without its place")), "{reported:?}");
}

#[test]
fn pod_assigned_to_failed_node_is_evicted_instead_of_started() {
    let host = places("kubernetes.io/hostname", &[("node-1", 1)]);
    let (cluster, _) = left_by_kueue(&[(pod("a", "1"), None)], Some(host.clone()), &["node-1"]);
    assert!(cluster.pod("a").is_none(), "whoever made it makes another: {:?}", cluster.writes);
    assert_eq!(evictions(&cluster).len(), 1);
    let (cluster, _) = left_by_kueue(&[(pod("a", "1"), None)], Some(host), &["node-2"]);
    let selector = &cluster.pod("a").unwrap()["spec"]["nodeSelector"]["kubernetes.io/hostname"];
    assert_eq!(*selector, json!("node-1"));
}
