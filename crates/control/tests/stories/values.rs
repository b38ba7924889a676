//! Values of Berth's metrics, each in a story in which the right value is known.

use std::collections::BTreeMap;

use berth_control::measure::{Labels, Measure};
use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::checks;
use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};

/// The values of a metric's labels in the order of the labels' keys, with spaces between the values.
fn row(labels: &Labels) -> String {
    let mut sorted = labels.clone();
    sorted.sort_unstable();
    sorted.into_iter().map(|(_, value)| value).filter(|value| !value.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The series of the gauge with the given name, by the values of their labels.
fn gauges(cluster: &Cluster, name: &str) -> BTreeMap<String, f64> {
    let all = cluster.control.figures().gauges.into_iter().filter(|gauge| gauge.name == name);
    all.map(|gauge| (row(&gauge.labels), gauge.value)).collect()
}

fn are(cluster: &Cluster, name: &str, wanted: &[(&str, f64)]) {
    let wanted: BTreeMap<String, f64> = wanted.iter().map(|(row, value)| ((*row).to_owned(), *value)).collect();
    assert_eq!(gauges(cluster, name), wanted, "{name}");
}

/// All measures of counters and histograms since the last call, by name and labels: increments and seconds.
fn happened(cluster: &mut Cluster) -> BTreeMap<String, BTreeMap<String, Vec<u64>>> {
    let mut all = BTreeMap::<String, BTreeMap<String, Vec<u64>>>::new();
    for measure in cluster.control.drain_measures() {
        let (name, labels, value) = match measure {
            Measure::Count { name, labels, by } => (name, labels, by),
            Measure::Observe { name, labels, millis } => (name, labels, u64::try_from(millis).unwrap() / 1_000),
            Measure::Forget { labels } => panic!("nothing has gone: {labels:?}"),
        };
        all.entry(name.to_owned()).or_default().entry(row(&labels)).or_default().push(value);
    }
    all
}

fn class(name: &str, mut job: Value) -> Value {
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(name);
    job
}

/// A cluster with ClusterQueue `cq` of 4 cpus, in which one job has ended, one runs with 3 cpus, and one waits for 9; ClusterQueue `idle` of the same cohort;
/// and a ClusterQueue that lacks its flavor.
fn busy() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut queue = cluster_queue("cq", Some("all"), &[("default", "4")]);
    let quota = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
    quota["borrowingLimit"] = json!("2");
    quota["lendingLimit"] = json!("1500m");
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::ClusterQueue, cluster_queue("idle", Some("all"), &[("default", "2")]));
    cluster.put(Kind::ClusterQueue, cluster_queue("lacks", None, &[("nowhere", "1")]));
    for (name, queue) in [("lq", "cq"), ("lost", "lacks")] {
        cluster.put(Kind::LocalQueue, local_queue(name, queue));
    }
    cluster.put(Kind::JOB, job("ended", "lq", "1", true));
    cluster.settle();
    cluster.complete("ended");
    cluster.pass(3);
    cluster.put(Kind::JOB, job("runs", "lq", "3", true));
    cluster.put(Kind::JOB, job("waits", "lq", "9", true));
    cluster.pass(3);
    cluster
}

#[test]
fn workload_count_metrics_are_right_for_each_queue() {
    let cluster = busy();
    are(
        &cluster,
        "kueue_pending_workloads",
        &[
            ("cq active", 0.0),
            ("cq inadmissible", 1.0),
            ("idle active", 0.0),
            ("idle inadmissible", 0.0),
            ("lacks active", 0.0),
            ("lacks inadmissible", 0.0),
        ],
    );
    for name in ["reserving_active", "admitted_active", "finished"] {
        let name = format!("kueue_{name}_workloads");
        are(&cluster, &name, &[("cq", 1.0), ("idle", 0.0), ("lacks", 0.0)]);
        are(&cluster, &name.replace("kueue_", "kueue_local_queue_"), &[("lost team", 0.0), ("lq team", 1.0)]);
    }
    are(
        &cluster,
        "kueue_local_queue_pending_workloads",
        &[
            ("lost team active", 0.0),
            ("lost team inadmissible", 0.0),
            ("lq team active", 0.0),
            ("lq team inadmissible", 1.0),
        ],
    );
    are(&cluster, "kueue_admission_cycle_preemption_skips", &[("cq", 0.0), ("idle", 0.0), ("lacks", 0.0)]);
    for name in ["berth_unacknowledged_admissions", "berth_victims_refused", "berth_sweep_found"] {
        are(&cluster, name, &[("", 0.0)]);
    }
}

#[test]
fn queue_status_metric_is_one_for_exactly_one_status() {
    let cluster = busy();
    let of = |name: &str, active: f64, pending: f64| {
        [("active", active), ("pending", pending), ("terminating", 0.0)]
            .map(|(text, value)| (format!("{name} {text}"), value))
    };
    let wanted = [of("cq", 1.0, 0.0), of("idle", 1.0, 0.0), of("lacks", 0.0, 1.0)].concat();
    let wanted: Vec<(&str, f64)> = wanted.iter().map(|(row, value)| (row.as_str(), *value)).collect();
    are(&cluster, "kueue_cluster_queue_status", &wanted);
    are(
        &cluster,
        "kueue_local_queue_status",
        &[
            ("False lost team", 1.0),
            ("True lost team", 0.0),
            ("Unknown lost team", 0.0),
            ("False lq team", 0.0),
            ("True lq team", 1.0),
            ("Unknown lq team", 0.0),
        ],
    );
}

#[test]
fn quota_metrics_are_in_cpus_and_infinite_without_limit() {
    let cluster = busy();
    let quotas = |cq: f64, idle: f64, lacks: f64| {
        [("cq all default cpu", cq), ("idle all default cpu", idle), ("lacks nowhere cpu", lacks)]
    };
    let endless = f64::INFINITY;
    are(&cluster, "kueue_cluster_queue_nominal_quota", &quotas(4.0, 2.0, 1.0));
    are(&cluster, "kueue_cluster_queue_borrowing_limit", &quotas(2.0, endless, endless));
    are(&cluster, "kueue_cluster_queue_lending_limit", &quotas(1.5, endless, endless));
    are(&cluster, "kueue_cluster_queue_resource_pending", &[("cq cpu", 9.0), ("idle cpu", 0.0), ("lacks cpu", 0.0)]);
    for name in ["reservation", "usage"] {
        let of_queue = gauges(&cluster, &format!("kueue_cluster_queue_resource_{name}"));
        assert_eq!((of_queue["cq all default cpu"], of_queue["idle all default cpu"]), (3.0, 0.0), "{name}");
        let of_local = gauges(&cluster, &format!("kueue_local_queue_resource_{name}"));
        assert_eq!(of_local["default lq team cpu"], 3.0, "{name}");
    }
}

#[test]
fn usage_metrics_include_reservation_only_once_it_is_admitted() {
    let (mut cluster, name) = checks::checked();
    let shown = |cluster: &Cluster| {
        ["kueue_cluster_queue_resource_", "kueue_local_queue_resource_"].map(|family| {
            ["reservation", "usage"].map(|what| gauges(cluster, &format!("{family}{what}")).into_values().sum::<f64>())
        })
    };
    assert_eq!(shown(&cluster), [[1.0, 0.0], [1.0, 0.0]]);
    are(&cluster, "kueue_reserving_active_workloads", &[("cq", 1.0)]);
    are(&cluster, "kueue_admitted_active_workloads", &[("cq", 0.0)]);
    cluster.pass(20);
    checks::answer(&mut cluster, &name, "Ready");
    cluster.pass(1);
    assert_eq!(shown(&cluster), [[1.0, 1.0], [1.0, 1.0]]);
    let happened = happened(&mut cluster);
    // The job had waited for five seconds before the test waited for the answer of the admission check.
    for (metric, row) in [
        ("kueue_admission_checks_wait_time_seconds", "cq"),
        ("kueue_local_queue_admission_checks_wait_time_seconds", "lq team"),
    ] {
        assert_eq!(happened[metric][row], [25], "{metric}");
    }
    for (metric, row) in [
        ("kueue_quota_reserved_wait_time_seconds", "cq"),
        ("kueue_local_queue_quota_reserved_wait_time_seconds", "lq team"),
    ] {
        assert_eq!(happened[metric][row], [0], "{metric}");
    }
}

#[test]
fn wait_time_metrics_run_from_creation_until_pods_are_ready() {
    let mut cluster = crate::stories::one_queue("1");
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.pass(2);
    cluster.pods_stay_unready = true;
    let _ = happened(&mut cluster);
    cluster.put(Kind::JOB, job("second", "lq", "1", true));
    cluster.pass(20);
    cluster.complete("first");
    cluster.pass(10);
    assert!(cluster.is("second", "Admitted") && !cluster.is("second", "PodsReady"));
    cluster.pods_stay_unready = false;
    cluster.pass(1);
    let seen = happened(&mut cluster);
    for (metric, seconds) in
        [("quota_reserved_wait", 20), ("admission_wait", 20), ("ready_wait", 30), ("admitted_until_ready_wait", 10)]
    {
        assert_eq!(seen[&format!("kueue_{metric}_time_seconds")]["cq"], [seconds], "{metric}");
        assert_eq!(seen[&format!("kueue_local_queue_{metric}_time_seconds")]["lq team"], [seconds], "{metric}");
    }
    assert_eq!(seen["kueue_execution_time_seconds"]["cq"], [22], "of the first");
    assert_eq!(seen["kueue_local_queue_execution_time_seconds"]["lq team"], [22]);
    for metric in ["quota_reserved", "admitted", "finished"] {
        assert_eq!(seen[&format!("kueue_{metric}_workloads")]["cq"], [1], "{metric}");
        assert_eq!(seen[&format!("kueue_local_queue_{metric}_workloads")]["lq team"], [1], "{metric}");
    }
    let attempts = &seen["kueue_admission_attempts"];
    assert!(
        ["success", "inadmissible"].iter().all(|result| attempts[*result].iter().sum::<u64>() >= 1),
        "{attempts:?}"
    );
}

#[test]
fn preemption_metric_counts_preemptor_and_eviction_metric_counts_victim() {
    let mut cluster = crate::stories::one_queue("1");
    let preemption = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}, "cohortName": "all"}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preemption);
    for (name, value) in [("low", 1), ("high", 10)] {
        cluster.set_class(name, value);
    }
    cluster.put(Kind::JOB, class("low", job("victim", "lq", "1", true)));
    cluster.pass(15);
    let admitted = happened(&mut cluster);
    assert_eq!(admitted["kueue_cohort_subtree_admitted_workloads"]["all low"], [1]);
    cluster.put(Kind::JOB, class("high", job("urgent", "lq", "1", true)));
    cluster.pass(5);
    assert!(cluster.is("urgent", "Admitted"));
    let seen = happened(&mut cluster);
    assert_eq!(seen["kueue_preempted_workloads"]["cq InClusterQueue"], [1]);
    assert_eq!(seen["kueue_evicted_workloads"]["cq low Preempted"], [1]);
    assert_eq!(seen["kueue_evicted_workloads_once"]["cq low Preempted"], [1]);
    assert_eq!(seen["kueue_local_queue_evicted_workloads"]["lq team low Preempted"], [1]);
    assert_eq!(seen["kueue_pods_ready_to_evicted_time_seconds"]["cq Preempted"], [15]);
    assert_eq!(seen["kueue_cohort_subtree_admitted_workloads"]["all high"], [1]);
}

#[test]
fn refused_write_is_counted_by_object_kind() {
    let mut cluster = crate::stories::one_queue("1");
    cluster.faults.push((Purpose::StartJob, WriteOutcome::Refused("denied".into()), false));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(1);
    assert_eq!(happened(&mut cluster)["berth_writes_refused"]["Job"], [1]);
}

#[test]
fn tier_metrics_measure_exhausted_patience_in_its_tier() {
    let mut cluster = crate::stories::tiers::tiered_cluster("1");
    cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(json!({"patience": {"reserved": "40s"}})));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, crate::stories::tiers::accepting("a", "reserved,on-demand"));
    cluster.pass(60);
    let seen = happened(&mut cluster);
    assert_eq!(seen["berth_tier_departures"]["cq StockOut reserved"], [1]);
    let waited = &seen["berth_tier_stock_out_seconds"]["cq reserved"];
    assert!(waited.len() == 1 && (40..45).contains(&waited[0]), "{waited:?}");
    assert_eq!(seen["berth_tier_admissions"]["cq on-demand"], [1]);
}

#[test]
fn pending_metric_is_zero_without_jobs_and_absent_without_resource() {
    let mut cluster = crate::stories::one_queue("1");
    cluster.put(Kind::JOB, job("waits", "lq", "9", true));
    cluster.pass(3);
    are(&cluster, "kueue_cluster_queue_resource_pending", &[("cq cpu", 9.0)]);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "waits"));
    cluster.pass(5);
    are(&cluster, "kueue_cluster_queue_resource_pending", &[("cq cpu", 0.0)]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": []}}));
    cluster.pass(3);
    are(&cluster, "kueue_cluster_queue_resource_pending", &[]);
}

#[test]
fn local_queue_without_cluster_queue_has_only_two_metrics() {
    let mut cluster = crate::stories::one_queue("1");
    cluster.put(Kind::LocalQueue, local_queue("astray", "nowhere"));
    cluster.pass(3);
    let families = |cluster: &Cluster| {
        let of_queue = |gauge: &&berth_control::measure::Gauge| gauge.name.starts_with("kueue_local_queue_");
        let all = cluster.control.figures().gauges;
        let all: std::collections::BTreeSet<String> = all
            .iter()
            .filter(of_queue)
            .map(|gauge| {
                let queue = gauge.labels.iter().find(|(key, _)| *key == "name").map(|(_, name)| name.as_str());
                format!("{} {}", queue.unwrap_or_default(), gauge.name.trim_start_matches("kueue_local_queue_"))
            })
            .collect();
        all
    };
    let is_of = |families: &std::collections::BTreeSet<String>, queue: &str| -> Vec<String> {
        let begin = format!("{queue} ");
        families.iter().filter_map(|family| family.strip_prefix(&begin)).map(str::to_owned).collect()
    };
    let before = families(&cluster);
    let down = ["pending_workloads", "status"];
    assert_eq!(is_of(&before, "astray"), down);
    assert!(is_of(&before, "lq").len() > 4, "{before:?}");
    cluster.delete(&Cluster::key(Kind::ClusterQueue, "", "cq"));
    cluster.pass(3);
    assert_eq!(is_of(&families(&cluster), "lq"), down);
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "1")]));
    cluster.pass(3);
    assert_eq!(families(&cluster), before, "all again when it is back");
}
