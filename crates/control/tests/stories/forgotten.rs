//! Metric series of deleted queues and cohorts are removed.

use berth_control::event::{Change, Observation};
use berth_control::measure::Measure;
use berth_control::write::Kind;
use serde_json::json;

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};

/// Labels, in the form `key=value`, of the metric series to remove and of the series counted since the last call, without duplicates.
fn drained(cluster: &mut Cluster) -> (Vec<String>, Vec<String>) {
    let (mut forgotten, mut counted) = (Vec::new(), Vec::new());
    for measure in cluster.control.drain_measures() {
        let (labels, to) = match &measure {
            Measure::Forget { labels } => (labels, &mut forgotten),
            Measure::Count { labels, .. } | Measure::Observe { labels, .. } => (labels, &mut counted),
        };
        to.extend(labels.iter().map(|(key, value)| format!("{key}={value}")));
    }
    for list in [&mut forgotten, &mut counted] {
        list.sort();
        list.dedup();
    }
    (forgotten, counted)
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| entry == text)
}

/// ClusterQueues `a` and `b` of one cohort for which there is no Cohort object, and a job that is admitted in `a`.
fn two_queues() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    for name in ["a", "b"] {
        cluster.put(Kind::ClusterQueue, cluster_queue(name, Some("all"), &[("default", "4")]));
        cluster.put(Kind::LocalQueue, local_queue(name, name));
    }
    cluster.put(Kind::JOB, job("first", "a", "1", true));
    cluster.settle();
    let (forgotten, counted) = drained(&mut cluster);
    assert!(forgotten.is_empty(), "{forgotten:?}");
    for label in ["cluster_queue=a", "name=a", "cohort=all"] {
        assert!(has(&counted, label), "{label} not in {counted:?}");
    }
    cluster
}

/// The watch shows that an object is gone, whatever finalizers the object had.
fn vanish(cluster: &mut Cluster, kind: Kind, name: &str) {
    let namespace = if kind == Kind::LocalQueue { "team" } else { "" };
    let object = cluster.forget(&Cluster::key(kind, namespace, name)).unwrap();
    let observation = match kind {
        Kind::ClusterQueue => Observation::ClusterQueue(Change::Delete(serde_json::from_value(object).unwrap())),
        Kind::LocalQueue => Observation::LocalQueue(Change::Delete(serde_json::from_value(object).unwrap())),
        _ => Observation::Cohort(Change::Delete(serde_json::from_value(object).unwrap())),
    };
    cluster.control.observe(observation, cluster.now());
}

#[test]
fn deleted_cluster_queue_is_forgotten_under_every_metric_label() {
    let mut cluster = two_queues();
    vanish(&mut cluster, Kind::ClusterQueue, "b");
    let (forgotten, _) = drained(&mut cluster);
    let labels = ["cluster_queue", "preempting_cluster_queue", "preemptor_queue", "queue", "victim_queue"];
    assert_eq!(forgotten, labels.map(|label| format!("{label}=b")), "the cohort has another queue");
    assert!(drained(&mut cluster).0.is_empty(), "once");
}

#[test]
fn deleted_local_queue_loses_its_series_despite_later_job_end() {
    let mut cluster = two_queues();
    vanish(&mut cluster, Kind::LocalQueue, "a");
    assert_eq!(drained(&mut cluster).0, ["name=a", "namespace=team"]);
    cluster.complete("first");
    cluster.pass(3);
    let (_, counted) = drained(&mut cluster);
    assert!(has(&counted, "cluster_queue=a") && !has(&counted, "name=a"), "{counted:?}");
    cluster.put(Kind::LocalQueue, local_queue("a", "a"));
    cluster.put(Kind::JOB, job("second", "a", "1", true));
    cluster.settle();
    let (forgotten, counted) = drained(&mut cluster);
    assert!(forgotten.is_empty() && has(&counted, "name=a"), "{forgotten:?} {counted:?}");
}

#[test]
fn cohort_series_go_with_last_object_that_names_cohort() {
    let mut cluster = two_queues();
    cluster.put(Kind::Cohort, json!({"metadata": {"name": "all"}, "spec": {"parentName": "root"}}));
    cluster.edit(Kind::ClusterQueue, "", "a", &json!({"spec": {"cohortName": "other"}}));
    cluster.edit(Kind::ClusterQueue, "", "b", &json!({"spec": {"cohortName": "other"}}));
    assert!(drained(&mut cluster).0.is_empty(), "an object of that name is there");
    cluster.edit(Kind::Cohort, "", "all", &json!({"spec": {"parentName": "top"}}));
    assert_eq!(drained(&mut cluster).0, ["cohort=root"]);
    vanish(&mut cluster, Kind::Cohort, "all");
    assert_eq!(drained(&mut cluster).0, ["cohort=all", "cohort=top"]);
    cluster.edit(Kind::ClusterQueue, "", "a", &json!({"spec": {"cohortName": "a"}}));
    assert!(drained(&mut cluster).0.is_empty(), "another queue names it");
    vanish(&mut cluster, Kind::ClusterQueue, "b");
    assert!(has(&drained(&mut cluster).0, "cohort=other"));
}

#[test]
fn standby_replica_forgets_series_of_queues_missing_from_list() {
    let mut cluster = two_queues();
    cluster.control.lead(None);
    cluster.control.observe(Observation::ClusterQueue(Change::Only(Vec::new())), cluster.now());
    cluster.control.observe(Observation::LocalQueue(Change::Reset(Vec::new())), cluster.now());
    let (forgotten, counted) = drained(&mut cluster);
    for label in ["cluster_queue=a", "cluster_queue=b", "name=a", "name=b", "cohort=all"] {
        assert!(has(&forgotten, label), "{label} not in {forgotten:?}");
    }
    assert!(counted.is_empty(), "{counted:?}");
}

#[test]
fn series_counted_just_before_queue_deletion_are_forgotten_too() {
    let mut cluster = two_queues();
    cluster.put(Kind::JOB, job("second", "b", "1", true));
    cluster.settle();
    for (kind, name) in
        [(Kind::LocalQueue, "b"), (Kind::ClusterQueue, "b"), (Kind::LocalQueue, "a"), (Kind::ClusterQueue, "a")]
    {
        vanish(&mut cluster, kind, name);
    }
    let (forgotten, counted) = drained(&mut cluster);
    assert!(has(&forgotten, "cohort=all"), "{forgotten:?}");
    assert!(!counted.iter().any(|label| label.contains("queue=") || label.starts_with("cohort=")), "{counted:?}");
}
