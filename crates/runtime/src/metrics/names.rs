//! Names of metrics that the OpenMetrics format would change or forbid.

/// Counters of finished workloads that have the same name in Kueue as a gauge in the text for Prometheus. OpenMetrics allows a name only once, so the second
/// name of each pair is the counter's name inside Berth, and the counter is exposed under the first name with `_total`, which is Kueue's name.
pub(super) const DOUBLE: [(&str, &str); 2] = [
    ("kueue_finished_workloads", "kueue_finished_workloads_count"),
    ("kueue_local_queue_finished_workloads", "kueue_local_queue_finished_workloads_count"),
];

/// The name under which a metric is exposed, without suffixes of the OpenMetrics format such as `_total`.
pub(super) fn exposed(name: &'static str) -> &'static str {
    DOUBLE.iter().find(|(_, internal)| *internal == name).map_or(name, |(public, _)| public)
}
