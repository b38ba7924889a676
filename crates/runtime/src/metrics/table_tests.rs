//! Tests of the table of metrics and of the page that is generated from it.

use super::super::names::exposed;
use super::*;
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn metric_names_are_unique() {
    let mut names: Vec<_> = TABLE.iter().map(|definition| definition.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
}

/// Name, type and labels of the metrics in requirement E.9; their histograms have fifteen buckets that double from a tenth of a second or from a minute
/// (`training_job_histogram_buckets_double_from_100ms_or_one_minute`).
#[test]
fn training_job_metrics_have_the_promised_names_types_and_labels() {
    let wanted = [
        ("training_job_scheduling_duration_seconds", "histogram", "queue job_type result", Shape::Doubling(1)),
        ("training_job_queue_length", "gauge", "queue priority", Shape::Gauge),
        ("training_cluster_resource_utilization", "gauge", "resource_type queue", Shape::Gauge),
        ("training_job_preemptions_total", "counter", "preemptor_queue victim_queue reason", Shape::Counter),
        ("training_job_completion_seconds", "histogram", "queue job_type status", Shape::Doubling(600)),
        ("training_queue_fairshare_deviation", "gauge", "queue", Shape::Gauge),
        ("training_gang_scheduling_total", "counter", "result timeout", Shape::Counter),
        ("training_checkpoint_saves_total", "counter", "job reason status", Shape::Counter),
    ];
    let found: Vec<(String, &str, &str, Shape)> = TABLE
        .iter()
        .filter(|definition| definition.name.starts_with("training_"))
        .map(|definition| {
            let (name, kind, _) = shown(definition);
            (name, kind, definition.labels, definition.shape)
        })
        .collect();
    let wanted = wanted.map(|(name, kind, labels, shape)| (name.to_owned(), kind, labels, shape));
    assert_eq!(found, wanted);
}

/// Name, type and labels under which a metric is exposed to Prometheus.
fn shown(definition: &Definition) -> (String, &'static str, Vec<&'static str>) {
    let (kind, suffix) = match definition.shape {
        Shape::Counter => ("counter", "_total"),
        Shape::Gauge => ("gauge", ""),
        Shape::Waits(_) | Shape::Doubling(_) | Shape::Creation | Shape::Short | Shape::Brief => ("histogram", ""),
    };
    let name = exposed(definition.name);
    let mut labels: Vec<&str> = definition.labels.split_whitespace().collect();
    if name.starts_with("kueue_") && name != "kueue_build_info" {
        labels.push("replica_role");
    }
    (format!("{name}{suffix}"), kind, labels)
}

/// The rows of the table in docs/metrics.md.
fn rows() -> String {
    let mut out = String::new();
    for definition in TABLE {
        let (name, kind, labels) = shown(definition);
        writeln!(out, "| `{name}` | {kind} | {} | {} |", labels.join(", "), definition.help).unwrap();
    }
    out
}

/// Kueue's metrics, one per line: name, type, and the labels in their order.
const KUEUES: &str = include_str!("../../kueue-metrics.txt");
/// Kueue's metrics that Berth does not have, for the reasons in docs/compatibility.md.
const NOT_YET: [&str; 4] = [
    "kueue_pending_scheduling_hashes",
    "kueue_replaced_workload_slices_total",
    "multikueue_workloads_admitted_total",
    "multikueue_workloads_dispatched_total",
];

#[test]
fn kueue_metrics_have_the_types_and_labels_of_kueue() {
    let is_there = |line: &&str| !NOT_YET.contains(&line.split(' ').next().unwrap_or_default());
    let (kueues, not_yet): (Vec<&str>, Vec<&str>) =
        KUEUES.lines().filter(|line| !line.starts_with('#')).partition(is_there);
    assert_eq!(not_yet.len(), NOT_YET.len(), "{not_yet:?}");
    let mut ours: Vec<String> = TABLE
        .iter()
        .map(shown)
        .filter(|(name, ..)| name.starts_with("kueue_"))
        .map(|(name, kind, mut labels)| {
            labels.sort_unstable();
            format!("{name} {kind} {}", labels.join(" "))
        })
        .collect();
    ours.sort_unstable();
    assert_eq!(ours, kueues);
}

#[test]
fn metrics_page_equals_the_metric_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("|---|---|---|---|\n", "\n<!-- end of the table -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let wanted = format!("{before}{begin}{}{end}{after}", rows());
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert!(page == wanted || std::env::var("UPDATE").is_ok(), "run the tests of berth-runtime with UPDATE=1");
}
