//! Edits of a StatefulSet: its Workload follows the StatefulSet, and never the pods that were made before the edit. While a StatefulSet waits, its controller
//! has made only the first pod, and does not replace this pod until the pod is ready.

use berth_control::write::{Kind, Purpose};
use berth_jobs::pods::group_of_stateful_set;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, local_queue, merge, settings};
use crate::stories::faults::with_every_fault;
use crate::stories::groups::{gated, replica, replica_in, running_set, set, set_workload};
use crate::stories::pod_queue;
use crate::stories::tiers::tiered_cluster_on;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
const TIERS: &str = "berth.dev/capacity-tiers";

fn labelled(key: &str, value: &str) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

fn annotated(key: &str, value: &Value) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// A cluster with the queues `lq` and `narrow` for one pod each, and the queue `wide` for five pods.
fn queues() -> Cluster {
    let mut cluster = pod_queue("1");
    for (name, cpu) in [("narrow", "1"), ("wide", "5")] {
        cluster.put(Kind::ClusterQueue, cluster_queue(name, None, &[("default", cpu)]));
        cluster.put(Kind::LocalQueue, local_queue(name, name));
    }
    cluster
}

/// A cluster with a queue of three capacity tiers, each with quota for one pod of the StatefulSet.
fn tiered_cluster() -> Cluster {
    let mut settings = settings();
    settings.job_kinds.extend([Kind::Pod, Kind::StatefulSet]);
    tiered_cluster_on(Cluster::with(settings), "1")
}

/// A StatefulSet of two pods that waits, with the given fields and with its first pod; the second value is the name of its Workload. The first pod of the
/// StatefulSet has the labels that an earlier version of Berth put into the pod template.
fn waiting(mut cluster: Cluster, more: &Value) -> (Cluster, String) {
    let mut asked = set(2);
    merge(&mut asked, more);
    let labels = json!({"metadata": {"labels": asked["metadata"]["labels"]}});
    merge(&mut asked["spec"]["template"], &labels);
    cluster.put(Kind::StatefulSet, asked);
    cluster.settle();
    let name = set_workload(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    replica(&mut cluster, 0);
    cluster.edit(Kind::Pod, "team", "web-0", &labels);
    cluster.pass(120);
    assert!(gated(&cluster, "web-0") && !cluster.workload_is(&name, "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::UpdateWorkload), 0, "its pod changes nothing: {:?}", cluster.writes);
    (cluster, name)
}

/// Edits the StatefulSet, and asserts that Berth changes the StatefulSet's Workload in one write, and then writes nothing more.
fn follows(cluster: &mut Cluster, change: &Value) {
    let before = cluster.count(Purpose::UpdateWorkload);
    cluster.edit(Kind::StatefulSet, "team", "web", change);
    cluster.pass(120);
    assert_eq!(cluster.count(Purpose::UpdateWorkload), before + 1, "{change}: {:?}", cluster.writes);
    let written = cluster.writes.len();
    cluster.pass(60);
    assert_eq!(&cluster.writes[written..], &[], "{change}: quiet at rest");
}

fn note(cluster: &Cluster, key: &str) -> Value {
    set_workload(cluster)["metadata"]["annotations"][key].clone()
}

/// Value and class of the priority of the StatefulSet's Workload.
fn priority(cluster: &Cluster) -> (Value, Value) {
    let spec = &set_workload(cluster)["spec"];
    (spec["priority"].clone(), spec["priorityClassRef"]["name"].clone())
}

fn runs(cluster: &Cluster, name: &str) -> bool {
    cluster.workload_is(name, "Admitted") && !gated(cluster, "web-0")
}

/// Creates replica `index` in the form in which the StatefulSet controller makes it and a webhook stores it that has not seen the StatefulSet yet: the pod
/// names no queue, and has no finalizer.
fn replica_without_queue(cluster: &mut Cluster, index: i32) {
    replica(cluster, index);
    let owner = cluster.objects()[&Cluster::key(Kind::StatefulSet, "team", "web")]["metadata"]["uid"].clone();
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": owner, "controller": true});
    let change = json!({"metadata": {"labels": {QUEUE: null}, "finalizers": null, "ownerReferences": [owner]}});
    cluster.edit(Kind::Pod, "team", &format!("web-{index}"), &change);
}

#[test]
fn stateful_set_pod_without_queue_label_runs_under_sets_workload() {
    let (mut cluster, name) = running_set();
    cluster.delete(&Cluster::key(Kind::Pod, "team", "web-1"));
    cluster.settle();
    assert!(cluster.pod("web-1").is_none(), "{:?}", cluster.writes);
    replica_without_queue(&mut cluster, 1);
    cluster.pass(60);
    assert!(!gated(&cluster, "web-1") && cluster.workload_is(&name, "Admitted"), "{:?}", cluster.writes);
    let written = cluster.writes.len();
    cluster.restart();
    cluster.pass(60);
    assert_eq!(&cluster.writes[written..], &[], "it belongs to those that run");
    cluster.delete(&Cluster::key(Kind::Pod, "team", "web-1"));
    assert!(cluster.pod("web-1").is_none(), "it goes without us");
    replica_without_queue(&mut cluster, 1);
    cluster.pass(10);
    assert!(!gated(&cluster, "web-1") && cluster.workload_is(&name, "Admitted"), "{:?}", cluster.writes);
    // Without the Workload of the StatefulSet, no pod of the StatefulSet has quota.
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.pass(10);
    assert!(["web-0", "web-1"].iter().all(|pod| cluster.pod(pod).is_none()), "{:?}", cluster.writes);
}

#[test]
fn stateful_set_pod_without_queue_label_gets_it_when_started() {
    let mut cluster = pod_queue("5");
    cluster.set_class("high", 100);
    let mut asked = set(2);
    merge(&mut asked, &labelled(CLASS, "high"));
    cluster.put(Kind::StatefulSet, asked);
    cluster.settle();
    replica_without_queue(&mut cluster, 0);
    cluster.settle();
    assert!(!gated(&cluster, "web-0"), "{:?}", cluster.writes);
    let metadata = &cluster.pod("web-0").unwrap()["metadata"];
    // Berth adds the queue's label to the pod of the StatefulSet, because no webhook would check that a pod without this label keeps the label by which Berth
    // watches it.
    let reported = (&metadata["labels"][QUEUE], &metadata["labels"][CLASS]);
    assert_eq!(reported, (&json!("lq"), &json!("high")), "{metadata}");
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"], json!("2"), "{metadata}");
    cluster.pass(60);
    let of_pods: Vec<_> = cluster.writes.iter().filter(|(_, key)| key.kind == Kind::Pod).collect();
    assert_eq!(of_pods.len(), 1, "all of it in the write that starts it: {of_pods:?}");
}

/// The labels and annotations that Kueue writes on the pods would be enough to make the Workload of a group; Berth makes the Workload of a StatefulSet from the
/// StatefulSet nevertheless.
#[test]
fn pods_seen_before_their_stateful_set_wait_for_it() {
    let mut cluster = pod_queue("5");
    let group = group_of_stateful_set("web", "set-uid");
    let total = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}});
    for index in [0, 1] {
        replica_in(&mut cluster, &group, index);
        cluster.edit(Kind::Pod, "team", &format!("web-{index}"), &total);
    }
    cluster.pass(60);
    assert!(!cluster.objects().keys().any(|key| key.kind == Kind::Workload), "{:?}", cluster.writes);
    cluster.put(Kind::StatefulSet, set(2));
    cluster.edit(Kind::StatefulSet, "team", "web", &json!({"metadata": {"uid": "set-uid"}}));
    cluster.settle();
    let owners = &set_workload(&cluster)["metadata"]["ownerReferences"];
    assert_eq!((&owners[0]["kind"], &owners[1]), (&json!("StatefulSet"), &Value::Null), "it alone");
    assert!(runs(&cluster, &group) && !gated(&cluster, "web-1"), "{:?}", cluster.writes);
}

#[test]
fn waiting_stateful_set_moves_to_another_queue() {
    let (mut cluster, name) = waiting(queues(), &json!({}));
    follows(&mut cluster, &labelled(QUEUE, "narrow"));
    assert_eq!(set_workload(&cluster)["spec"]["queueName"], json!("narrow"));
    assert!(gated(&cluster, "web-0"), "there it has no more");
    cluster.restart();
    cluster.pass(60);
    assert_eq!(cluster.count(Purpose::UpdateWorkload), 1, "{:?}", cluster.writes);
    follows(&mut cluster, &labelled(QUEUE, "wide"));
    assert!(runs(&cluster, &name), "{:?}", cluster.writes);
    assert_eq!(set_workload(&cluster)["status"]["admission"]["clusterQueue"], json!("wide"));
    replica(&mut cluster, 1);
    cluster.settle();
    assert!(!gated(&cluster, "web-1"), "{:?}", cluster.writes);
}

#[test]
fn stateful_set_move_succeeds_after_failed_or_lost_write() {
    with_every_fault(
        || waiting(queues(), &json!({})).0,
        &[Purpose::UpdateWorkload],
        |mut cluster, what| {
            cluster.edit(Kind::StatefulSet, "team", "web", &labelled(QUEUE, "wide"));
            cluster.pass(120);
            assert_eq!(set_workload(&cluster)["spec"]["queueName"], json!("wide"), "{what}: {:?}", cluster.writes);
            assert!(!gated(&cluster, "web-0"), "{what}: {:?}", cluster.writes);
        },
    );
}

#[test]
fn stateful_set_is_admitted_once_its_admission_gates_are_removed() {
    let (mut cluster, name) = waiting(pod_queue("5"), &annotated(GATES, &json!("a.io/one,b.io/two")));
    assert_eq!(note(&cluster, GATES), json!("a.io/one,b.io/two"));
    follows(&mut cluster, &annotated(GATES, &json!("b.io/two")));
    assert_eq!(note(&cluster, GATES), json!("b.io/two"));
    assert!(gated(&cluster, "web-0"), "one is left: {:?}", cluster.writes);
    follows(&mut cluster, &annotated(GATES, &Value::Null));
    assert_eq!(note(&cluster, GATES), Value::Null);
    assert!(runs(&cluster, &name), "{:?}", cluster.writes);
}

#[test]
fn stateful_set_priority_class_can_change_before_and_after_admission() {
    let mut cluster = pod_queue("1");
    cluster.set_class("low", 1);
    cluster.set_class("high", 100);
    let (mut cluster, name) = waiting(cluster, &labelled(CLASS, "low"));
    assert_eq!(priority(&cluster), (json!(1), json!("low")));
    follows(&mut cluster, &labelled(CLASS, "high"));
    assert_eq!(priority(&cluster), (json!(100), json!("high")));
    let larger = json!({"spec": cluster_queue("cq", None, &[("default", "2")])["spec"]});
    cluster.edit(Kind::ClusterQueue, "", "cq", &larger);
    cluster.settle();
    assert!(runs(&cluster, &name), "{:?}", cluster.writes);
    follows(&mut cluster, &labelled(CLASS, "low"));
    assert_eq!(priority(&cluster), (json!(1), json!("low")));
    assert!(runs(&cluster, &name), "{:?}", cluster.writes);
}

#[test]
fn waiting_stateful_set_can_change_its_accepted_tiers() {
    let (mut cluster, name) = waiting(tiered_cluster(), &annotated(TIERS, &json!("spot")));
    assert_eq!(note(&cluster, TIERS), json!("spot"), "its pods say nothing of it");
    follows(&mut cluster, &annotated(TIERS, &Value::Null));
    assert_eq!(note(&cluster, TIERS), Value::Null);
    follows(&mut cluster, &annotated(TIERS, &json!("reserved")));
    assert_eq!(note(&cluster, TIERS), json!("reserved"));
    let flavors = [("spot", "2"), ("on-demand", "2"), ("reserved", "2")];
    let larger = json!({"spec": cluster_queue("cq", None, &flavors)["spec"]});
    cluster.edit(Kind::ClusterQueue, "", "cq", &larger);
    cluster.settle();
    assert!(runs(&cluster, &name), "{:?}", cluster.writes);
    assert_eq!(cluster.pod("web-0").unwrap()["spec"]["nodeSelector"], json!({"tier": "reserved"}));
}

#[test]
fn simultaneous_stateful_set_edits_update_workload_in_one_write() {
    let mut cluster = queues();
    cluster.set_class("high", 100);
    let (mut cluster, name) = waiting(cluster, &annotated(GATES, &json!("a.io/one")));
    let change = json!({
        "metadata": {"labels": {QUEUE: "wide", CLASS: "high"}, "annotations": {GATES: null}},
        "spec": {"replicas": 3},
    });
    follows(&mut cluster, &change);
    assert!(runs(&cluster, &name), "{:?}", cluster.writes);
    let spec = &set_workload(&cluster)["spec"];
    assert_eq!((&spec["queueName"], &spec["podSets"][0]["count"]), (&json!("wide"), &json!(3)));
    assert_eq!((priority(&cluster), note(&cluster, GATES)), ((json!(100), json!("high")), Value::Null));
}

#[test]
fn stateful_set_takes_class_and_tiers_from_template_by_default() {
    let mut cluster = tiered_cluster();
    cluster.set_class("low", 1);
    let template = json!({"metadata": {"labels": {CLASS: "low"}, "annotations": {TIERS: "reserved"}}});
    let (mut cluster, _) = waiting(cluster, &json!({"spec": {"template": template}}));
    assert_eq!((priority(&cluster), note(&cluster, TIERS)), ((json!(1), json!("low")), json!("reserved")));
    follows(&mut cluster, &annotated(TIERS, &json!("spot")));
    assert_eq!(note(&cluster, TIERS), json!("spot"), "the set's own word wins");
}

#[test]
fn running_stateful_set_ignores_new_queue_tiers_and_first_class() {
    let (mut cluster, name) = running_set();
    cluster.set_class("high", 100);
    cluster.pass(60);
    let written = cluster.writes.len();
    let change = json!({"metadata": {"labels": {QUEUE: "other", CLASS: "high"}, "annotations": {TIERS: "spot"}}});
    cluster.edit(Kind::StatefulSet, "team", "web", &change);
    cluster.pass(60);
    assert_eq!(&cluster.writes[written..], &[], "its queue, its tiers, and that it has no class");
    assert!(runs(&cluster, &name));
}

#[test]
fn stateful_set_without_queue_gets_workload_only_with_all_managed() {
    for all_managed in [true, false] {
        let mut settings = settings();
        settings.job_kinds.extend([Kind::Pod, Kind::StatefulSet]);
        settings.manage_jobs_without_queue_name = all_managed;
        let mut cluster = crate::stories::with_queue(Cluster::with(settings), "2");
        let mut free = set(2);
        free["metadata"]["labels"] = json!({});
        cluster.put(Kind::StatefulSet, free);
        cluster.pass(60);
        let made = cluster.objects().keys().any(|key| key.kind == Kind::Workload);
        assert_eq!(made, all_managed, "{:?}", cluster.writes);
        if !all_managed {
            continue;
        }
        let workload = set_workload(&cluster).clone();
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(workload["spec"]["queueName"].is_null() && !cluster.workload_is(&name, "QuotaReserved"), "{workload}");
        replica(&mut cluster, 0);
        cluster.edit(Kind::Pod, "team", "web-0", &json!({"metadata": {"labels": {QUEUE: null}}}));
        cluster.pass(60);
        assert!(gated(&cluster, "web-0"), "{:?}", cluster.writes);
        cluster.edit(Kind::StatefulSet, "team", "web", &labelled(QUEUE, "lq"));
        cluster.pass(5);
        assert!(runs(&cluster, &name), "{:?}", cluster.writes);
    }
}
