//! Names of metrics that the format does not leave as they are.

/// Names under which control counts finished workloads and that the exposition already uses for a gauge: OpenMetrics
/// allows a name only once, so the counter keeps Kueue's full name by being encoded as `..._total` itself.
pub(super) const DOUBLE: [(&str, &str); 2] = [
    ("kueue_finished_workloads", "kueue_finished_workloads_count"),
    ("kueue_local_queue_finished_workloads", "kueue_local_queue_finished_workloads_count"),
];

/// Name under which a metric is exposed, as far as the format leaves it to us.
pub(super) fn exposed(name: &'static str) -> &'static str {
    DOUBLE.iter().find(|(_, internal)| *internal == name).map_or(name, |(public, _)| public)
}
