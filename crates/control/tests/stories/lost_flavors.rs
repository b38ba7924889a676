//! Flavors that are removed from their ClusterQueue while Workloads hold quota of the flavors: Berth treats a removed flavor as if the ClusterQueue had a quota
//! of 0 for the flavor.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::checks::{answer, checked, rely_on_budget};
use crate::stories::cluster::{Cluster, cluster_queue, flavor, job};
use crate::stories::one_queue;
use crate::stories::queues::{mark_deleted, waits};

/// The names of the flavors, each with its total of a resource, in a field of a queue's status.
fn shown(cluster: &Cluster, kind: Kind, name: &str, field: &str) -> Vec<(String, String)> {
    let namespace = if kind == Kind::LocalQueue { "team" } else { "" };
    let status = &cluster.objects()[&Cluster::key(kind, namespace, name)]["status"];
    let flavors = status[field].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    flavors.iter().map(|flavor| (text(&flavor["name"]), text(&flavor["resources"][0]["total"]))).collect()
}

#[test]
fn removed_flavor_stays_charged_and_shown_while_job_uses_it() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::ResourceFlavor, flavor("new", json!({"tier": "new"})));
    cluster.put(Kind::JOB, job("a", "lq", "4", true));
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("new", "4")]));
    for restarts in [false, true] {
        if restarts {
            cluster.restart();
        }
        cluster.pass(30);
        let both = [("new".to_owned(), "0".to_owned()), ("default".to_owned(), "4".to_owned())];
        for field in ["flavorsReservation", "flavorsUsage"] {
            assert_eq!(shown(&cluster, Kind::ClusterQueue, "cq", field), both, "{field}");
            assert!(shown(&cluster, Kind::LocalQueue, "lq", field).contains(&both[1]), "{field}");
        }
        assert!(cluster.is("a", "Admitted") && cluster.count(Purpose::Evict) == 0, "it goes on");
    }
    // No ClusterQueue offers the flavor any more, and a Workload holds quota of the flavor.
    mark_deleted(&mut cluster, Kind::ResourceFlavor, "default");
    cluster.pass(30);
    assert_eq!(waits(&cluster, Kind::ResourceFlavor), ["The deletion waits for workloads that hold quota of it"]);
    // When the job that held quota of the removed flavor has ended, the status of the ClusterQueue shows only the flavor that is left.
    cluster.complete("a");
    cluster.pass(30);
    let left = shown(&cluster, Kind::ClusterQueue, "cq", "flavorsReservation");
    assert_eq!(left, [("new".to_owned(), "0".to_owned())]);
}

#[test]
fn reservation_on_removed_flavor_is_released_and_check_asked_again() {
    let (mut cluster, name) = checked();
    cluster.put(Kind::ResourceFlavor, flavor("new", json!({})));
    rely_on_budget(&mut cluster, &[("new", "1")], json!([]));
    cluster.pass(30);
    assert!(!cluster.is("a", "Admitted") && cluster.job("a")["spec"]["suspend"] == json!(true));
    let workload = cluster.workload_of("a").unwrap();
    let given = &workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"];
    assert_eq!(given, &json!("new"), "{:?}", cluster.writes);
    assert_eq!(workload["status"]["admissionChecks"][0]["state"], json!("Pending"));
    answer(&mut cluster, &name, "Ready");
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    // The running Workload keeps the answer of its admission check when the flavors change later.
    rely_on_budget(&mut cluster, &[("default", "1")], json!([]));
    cluster.pass(30);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    let states = &cluster.workload_of("a").unwrap()["status"]["admissionChecks"];
    assert_eq!((&states[0]["name"], &states[0]["state"]), (&json!("budget"), &json!("Ready")), "{states}");
}
