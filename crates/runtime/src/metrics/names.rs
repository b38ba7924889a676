//! Names of metrics that the OpenMetrics format would change or forbid.

/// Counters of finished workloads whose Kueue name the exposition also uses for a gauge. OpenMetrics allows a name only once, so the counter gets another name
/// here, and its encoded name with `_total` is Kueue's.
pub(super) const DOUBLE: [(&str, &str); 2] = [
    ("kueue_finished_workloads", "kueue_finished_workloads_count"),
    ("kueue_local_queue_finished_workloads", "kueue_local_queue_finished_workloads_count"),
];

/// The name under which a metric is exposed, before the suffixes of the format.
pub(super) fn exposed(name: &'static str) -> &'static str {
    DOUBLE.iter().find(|(_, internal)| *internal == name).map_or(name, |(public, _)| public)
}
