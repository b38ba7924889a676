//! The metrics of TrainingJobs.

use berth_control::measure::Measure;
use berth_control::write::{EventType, Kind};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, local_queue, merge};
use crate::stories::elastic::{elastic, other, with_priorities};
use crate::stories::training::{cluster, training};

fn of(class: &str, more: Value) -> Value {
    let mut spec = json!({"schedulingConfig": {"priority": class}});
    merge(&mut spec, &more);
    spec
}

fn prioritised(quota: &str) -> Cluster {
    let mut cluster = cluster(quota);
    let preemption = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preemption);
    for (name, value) in [("low", 1), ("high", 10)] {
        cluster.set_class(name, value);
    }
    cluster
}

/// The measures of a counter or histogram since the last call: the labels as text, and increments or milliseconds.
pub fn measured(cluster: &mut Cluster, name: &str) -> Vec<(String, i64)> {
    found(&cluster.control.drain_measures(), name)
}

/// The measures in a list that belong to the metric of the given name: the labels as text, and increments or milliseconds.
pub fn found(measures: &[Measure], name: &str) -> Vec<(String, i64)> {
    let text = |labels: &Vec<(&'static str, String)>| {
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let all = measures.iter();
    let mut found: Vec<(String, i64)> = all
        .filter_map(|measure| match measure {
            Measure::Count { name: found, labels, by } if *found == name => {
                Some((text(labels), i64::try_from(*by).unwrap()))
            }
            Measure::Observe { name: found, labels, millis } if *found == name => Some((text(labels), millis / 1_000)),
            _ => None,
        })
        .collect();
    found.sort();
    found
}

/// The gauges with the given name and label: all labels as text, and the value.
fn gauge(cluster: &Cluster, name: &str, label: (&str, &str)) -> Vec<(String, f64)> {
    let all = cluster.control.figures().gauges.into_iter().filter(|gauge| gauge.name == name);
    let matching = all.filter(|gauge| gauge.labels.iter().any(|(key, value)| (*key, value.as_str()) == label));
    matching
        .map(|gauge| {
            let labels = gauge.labels.iter().map(|(key, value)| format!("{key}={value}"));
            (labels.collect::<Vec<_>>().join(" "), gauge.value)
        })
        .collect()
}

#[test]
fn training_metrics_measure_waiting_preemption_and_completion() {
    let mut cluster = prioritised("2");
    cluster.put(Kind::TrainingJob, training("victim", of("low", json!({}))));
    cluster.pass(10);
    let scheduled = measured(&mut cluster, "training_job_scheduling_duration_seconds");
    assert_eq!(scheduled, [("queue=cq job_type=PyTorchJob result=admitted".to_owned(), 0)]);
    cluster.put(Kind::TrainingJob, training("urgent", of("high", json!({"jobType": "JAXJob"}))));
    cluster.pass(10);
    let preempted = measured(&mut cluster, "training_job_preemptions");
    assert_eq!(preempted, [("preemptor_queue=cq victim_queue=cq reason=InClusterQueue".to_owned(), 1)]);
    assert_eq!(
        gauge(&cluster, "training_job_queue_length", ("queue", "cq")),
        [("queue=cq priority=high".into(), 0.0), ("queue=cq priority=low".into(), 1.0)]
    );
    assert_eq!(
        gauge(&cluster, "training_cluster_resource_utilization", ("queue", "cq")),
        [("resource_type=cpu queue=cq".into(), 1.0)]
    );
    cluster.complete("urgent-worker");
    cluster.pass(3);
    let ends = measured(&mut cluster, "training_job_completion_seconds");
    assert_eq!(ends, [("queue=cq job_type=JAXJob status=succeeded".to_owned(), 10)]);
    cluster.put(Kind::TrainingJob, training("late", of("low", json!({"schedulingConfig": {"maxWaitTime": "20s"}}))));
    cluster.pass(30);
    let late = measured(&mut cluster, "training_job_scheduling_duration_seconds");
    assert!(late.contains(&("queue=cq job_type=PyTorchJob result=timeout".to_owned(), 20)), "{late:?}");
}

#[test]
fn preemption_metric_and_event_name_preemptor_and_victim_queues() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("f", json!({})));
    for (name, quota) in [("owner", "2"), ("borrower", "0")] {
        let mut queue = cluster_queue(name, Some("all"), &[("f", quota)]);
        queue["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
        cluster.put(Kind::ClusterQueue, queue);
        cluster.put(Kind::LocalQueue, local_queue(name, name));
    }
    let of_queue = |name: &str, queue: &str| training(name, json!({"schedulingConfig": {"queue": queue}}));
    cluster.put(Kind::TrainingJob, of_queue("victim", "borrower"));
    cluster.pass(5);
    assert_eq!(cluster.phase("victim"), "Running", "it borrows all of it");
    cluster.put(Kind::TrainingJob, of_queue("urgent", "owner"));
    cluster.pass(10);
    assert_eq!((cluster.phase("urgent"), cluster.phase("victim")), ("Running", "Queued"));
    let preempted = measured(&mut cluster, "training_job_preemptions");
    let labels = "preemptor_queue=owner victim_queue=borrower reason=InCohortReclamation";
    assert_eq!(preempted, [(labels.to_owned(), 1)]);
    let events = cluster.notices.iter().filter(|notice| {
        notice.reason == "Preempted" && notice.key.kind == Kind::TrainingJob && notice.event_type == EventType::Normal
    });
    let events: Vec<(&str, &str)> = events.map(|notice| (notice.key.name.as_str(), notice.message.as_str())).collect();
    let words = "a Workload of ClusterQueue owner takes the quota that this job holds of ClusterQueue borrower: \
        InCohortReclamation";
    assert_eq!(events, [("victim", words)]);
}

#[test]
fn gang_and_checkpoint_metrics_count_successes_and_failures() {
    let mut cluster = crate::stories::tiers::tiered_cluster("2");
    cluster.without_nodes = vec!["spot"];
    let gang = json!({"schedulingConfig": {"schedulingTimeout": "20s"}, "checkpoint": {"interval": "30s"}});
    cluster.put(Kind::TrainingJob, training("a", gang));
    cluster.pass(25);
    let timed_out = measured(&mut cluster, "training_gang_scheduling");
    assert_eq!(timed_out, [("result=failure timeout=true".to_owned(), 1)]);
    cluster.without_nodes.clear();
    cluster.pass(70);
    let scheduled = measured(&mut cluster, "training_gang_scheduling");
    assert_eq!(scheduled, [("result=success timeout=false".to_owned(), 1)]);
    let saved = |cluster: &mut Cluster| {
        let now = cluster.now().to_string();
        let annotations = json!({"berth.dev/last-checkpoint-time": now});
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"metadata": {"annotations": annotations}}));
    };
    saved(&mut cluster);
    cluster.pass(40);
    let counted = measured(&mut cluster, "training_checkpoint_saves");
    let row = |reason: &str, status: &str| (format!("job=team/a reason={reason} status={status}"), 1);
    assert_eq!(counted, [row("interval", "missed"), row("interval", "saved")]);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(5);
    saved(&mut cluster);
    cluster.pass(5);
    assert_eq!(measured(&mut cluster, "training_checkpoint_saves"), [row("preemption", "saved")]);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": false}}));
    cluster.pass(10);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(60);
    let counted = measured(&mut cluster, "training_checkpoint_saves");
    assert!(counted.contains(&row("preemption", "missed")), "{counted:?}");
    cluster.delete(&Cluster::key(Kind::TrainingJob, "team", "a"));
    let forgotten = Measure::Forget { labels: vec![("job", "team/a".to_owned())] };
    assert!(cluster.control.drain_measures().contains(&forgotten));
}

#[test]
fn gang_moving_through_tiers_counts_a_timeout_per_tier() {
    let mut cluster = crate::stories::tiers::tiered_cluster("2");
    cluster.without_nodes = vec!["reserved", "on-demand"];
    let tiers =
        json!({"capacityTiers": ["reserved", "on-demand", "spot"], "schedulingConfig": {"schedulingTimeout": "20s"}});
    cluster.put(Kind::TrainingJob, training("a", tiers));
    cluster.pass(60);
    let counted = measured(&mut cluster, "training_gang_scheduling");
    let row = |labels: &str| (labels.to_owned(), 1);
    let late = || row("result=failure timeout=true");
    assert_eq!(counted, [late(), late(), row("result=success timeout=false")]);
}

#[test]
fn scale_up_is_measured_neither_as_scheduling_nor_as_start() {
    let mut cluster = with_priorities(crate::stories::elastic::cluster());
    let mut spot = flavor("spot", json!({"cloud": "spot"}));
    spot["metadata"]["labels"] = json!({"berth.dev/capacity-tier": "spot"});
    cluster.put(Kind::ResourceFlavor, spot);
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    let job = json!({"scaleUpStep": 2});
    cluster.put(Kind::TrainingJob, elastic("a", job));
    cluster.pass(20);
    cluster.complete("first");
    cluster.pass(30);
    assert_eq!(cluster.workers("a"), 4, "it has grown");
    let all = cluster.control.drain_measures();
    let of = |name: &str| found(&all, name);
    assert_eq!(
        of("training_job_scheduling_duration_seconds"),
        [("queue=cq job_type=PyTorchJob result=admitted".to_owned(), 0)]
    );
    let in_spot = |value: i64| ("cluster_queue=cq tier=spot".to_owned(), value);
    assert_eq!(of("berth_tier_admissions"), [in_spot(1), in_spot(1)], "the first job, and this one once");
    assert_eq!(of("berth_tier_wait_time_seconds"), [in_spot(0), in_spot(0)]);
    assert!(of("training_job_completion_seconds").is_empty());
    cluster.complete("a-worker");
    cluster.pass(3);
    let ends = measured(&mut cluster, "training_job_completion_seconds");
    assert_eq!(ends, [("queue=cq job_type=PyTorchJob status=succeeded".to_owned(), 50)], "since it was created");
}

#[test]
fn borrowing_queue_has_positive_fair_share_deviation() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("f", json!({})));
    for name in ["a", "b", "idle"] {
        cluster.put(Kind::ClusterQueue, cluster_queue(name, Some("all"), &[("f", "2")]));
        cluster.put(Kind::LocalQueue, local_queue(name, name));
    }
    cluster.put(Kind::ClusterQueue, cluster_queue("alone", None, &[("f", "2")]));
    cluster.put(Kind::LocalQueue, local_queue("alone", "alone"));
    let job = |name: &str, queue: &str, workers: i64| {
        let more = json!({"resources": {"maxReplicas": workers}, "schedulingConfig": {"queue": queue}});
        training(name, more)
    };
    cluster.put(Kind::TrainingJob, job("big", "a", 3));
    cluster.put(Kind::TrainingJob, job("small", "b", 1));
    cluster.put(Kind::TrainingJob, job("other", "alone", 2));
    cluster.pass(5);
    let deviation = |queue: &str| {
        let found = gauge(&cluster, "training_queue_fairshare_deviation", ("queue", queue));
        let [(labels, value)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(*labels, format!("queue={queue}"));
        *value
    };
    assert!((deviation("a") - 0.25).abs() < 1e-9, "{}", deviation("a"));
    assert!((deviation("b") + 0.25).abs() < 1e-9, "{}", deviation("b"));
    assert_eq!((deviation("idle"), deviation("alone")), (0.0, 0.0));
}
