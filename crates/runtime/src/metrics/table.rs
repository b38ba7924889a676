//! Table of all metrics: name, shape, labels and meaning; docs/metrics.md is generated from the table.

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Counter,
    Gauge,
    /// Histogram with Kueue's buckets for waiting times: 1 s, then 2.5 s and its doublings; the value is the number of buckets.
    Waits(u16),
    /// Histogram with fifteen doubling buckets; the value is the bound of the first bucket in tenths of a second.
    Doubling(u16),
    /// Histogram with eleven doubling buckets; the bound of the first bucket is 10 ms.
    Creation,
    /// Histogram with the default buckets of Prometheus clients.
    Short,
    /// Histogram for durations far below a millisecond.
    Brief,
}

impl Shape {
    /// Whether a metric of this shape is a histogram, and so has buckets.
    pub(super) const fn is_histogram(self) -> bool {
        matches!(self, Self::Waits(_) | Self::Doubling(_) | Self::Creation | Self::Short | Self::Brief)
    }
}

pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) shape: Shape,
    /// Labels of the metric beside `replica_role`, which every Kueue metric has except the build information.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the page that documents them"))]
    labels: &'static str,
}

const fn metric(name: &'static str, shape: Shape, labels: &'static str, help: &'static str) -> Definition {
    Definition { name, help, shape, labels }
}

/// Every metric of Berth, in the order in which metrics are exposed. The names of counters lack `_total`, which the OpenMetrics format adds.
pub(super) const TABLE: &[Definition] = &[
    metric(
        "kueue_build_info",
        Shape::Gauge,
        "build_date compiler git_commit git_version go_version platform",
        "Version of the running binary, always 1",
    ),
    metric("kueue_admission_attempts", Shape::Counter, "result", "Attempts to admit workloads, by result"),
    metric(
        "kueue_preemption_target_recomputations",
        Shape::Counter,
        "cluster_queue result",
        "Repeated searches for victims, by result",
    ),
    metric(
        "kueue_admission_cycle_preemption_skips",
        Shape::Gauge,
        "cluster_queue",
        "Heads of the last cycles that lost against others with their victims",
    ),
    metric(
        "kueue_admission_attempt_duration_seconds",
        Shape::Short,
        "result",
        "Time of an attempt to admit, by result",
    ),
    metric(
        "kueue_pending_workloads",
        Shape::Gauge,
        "cluster_queue status",
        "Pending workloads of a ClusterQueue, active or inadmissible",
    ),
    metric(
        "kueue_reserving_active_workloads",
        Shape::Gauge,
        "cluster_queue",
        "Workloads that hold quota in a ClusterQueue",
    ),
    metric(
        "kueue_admitted_active_workloads",
        Shape::Gauge,
        "cluster_queue",
        "Admitted and unfinished workloads of a ClusterQueue",
    ),
    metric(
        "kueue_finished_workloads",
        Shape::Gauge,
        "cluster_queue",
        "Finished workloads that still exist, by ClusterQueue",
    ),
    metric(
        "kueue_quota_reserved_workloads",
        Shape::Counter,
        "cluster_queue priority_class",
        "Quota reservations, by ClusterQueue",
    ),
    metric("kueue_admitted_workloads", Shape::Counter, "cluster_queue priority_class", "Admissions, by ClusterQueue"),
    metric(
        "kueue_finished_workloads_count",
        Shape::Counter,
        "cluster_queue priority_class",
        "Finished workloads, by ClusterQueue",
    ),
    metric(
        "kueue_evicted_workloads",
        Shape::Counter,
        "cluster_queue reason underlying_cause priority_class",
        "Evictions, by ClusterQueue and reason",
    ),
    metric(
        "kueue_evicted_workloads_once",
        Shape::Counter,
        "cluster_queue reason underlying_cause priority_class",
        "First evictions per workload, reason and cause",
    ),
    metric(
        "kueue_preempted_workloads",
        Shape::Counter,
        "preempting_cluster_queue reason",
        "Preemptions, by preempting ClusterQueue and reason",
    ),
    metric(
        "kueue_quota_reserved_wait_time_seconds",
        Shape::Waits(14),
        "cluster_queue priority_class",
        "Creation or requeue to reservation",
    ),
    metric(
        "kueue_admission_wait_time_seconds",
        Shape::Waits(16),
        "cluster_queue priority_class",
        "Creation or requeue to admission",
    ),
    metric(
        "kueue_admission_checks_wait_time_seconds",
        Shape::Waits(14),
        "cluster_queue priority_class",
        "Reservation to admission",
    ),
    metric(
        "kueue_ready_wait_time_seconds",
        Shape::Waits(14),
        "cluster_queue priority_class",
        "Creation or requeue to pods ready",
    ),
    metric(
        "kueue_admitted_until_ready_wait_time_seconds",
        Shape::Waits(14),
        "cluster_queue priority_class",
        "Admission to pods ready",
    ),
    metric(
        "kueue_pods_ready_to_evicted_time_seconds",
        Shape::Waits(14),
        "cluster_queue reason underlying_cause",
        "Pods ready to eviction",
    ),
    metric(
        "kueue_workload_eviction_latency_seconds",
        Shape::Waits(14),
        "cluster_queue reason",
        "Eviction to the release of its quota",
    ),
    metric(
        "kueue_workload_creation_latency_seconds",
        Shape::Creation,
        "job_kind",
        "Creation of a job that nobody has changed since to the creation of its Workload",
    ),
    metric(
        "kueue_pod_scheduling_gate_removal_seconds",
        Shape::Short,
        "name cluster_queue is_group",
        "Admission to the removal of a pod's scheduling gate",
    ),
    metric(
        "kueue_unadmitted_workloads",
        Shape::Gauge,
        "cluster_queue reason underlying_cause",
        "Workloads that are not admitted, by the reasons of Admitted and QuotaReserved",
    ),
    metric(
        "kueue_execution_time_seconds",
        Shape::Waits(16),
        "cluster_queue priority_class",
        "Admitted time of finished workloads",
    ),
    metric(
        "kueue_cluster_queue_status",
        Shape::Gauge,
        "cluster_queue status",
        "1 for the status of a ClusterQueue, 0 for the others",
    ),
    metric(
        "kueue_cluster_queue_resource_reservation",
        Shape::Gauge,
        "cohort cluster_queue flavor resource",
        "Reserved amount per flavor and resource",
    ),
    metric(
        "kueue_cluster_queue_resource_usage",
        Shape::Gauge,
        "cohort cluster_queue flavor resource",
        "Admitted amount per flavor and resource",
    ),
    metric(
        "kueue_cluster_queue_resource_pending",
        Shape::Gauge,
        "cluster_queue resource",
        "Requests of pending workloads per resource",
    ),
    metric(
        "kueue_cluster_queue_nominal_quota",
        Shape::Gauge,
        "cohort cluster_queue flavor resource",
        "Nominal quota per flavor and resource",
    ),
    metric(
        "kueue_cluster_queue_borrowing_limit",
        Shape::Gauge,
        "cohort cluster_queue flavor resource",
        "Borrowing limit per flavor and resource",
    ),
    metric(
        "kueue_cluster_queue_lending_limit",
        Shape::Gauge,
        "cohort cluster_queue flavor resource",
        "Lending limit per flavor and resource",
    ),
    metric(
        "kueue_cluster_queue_weighted_share",
        Shape::Gauge,
        "cluster_queue cohort",
        "Weighted share of a ClusterQueue",
    ),
    metric("kueue_cohort_weighted_share", Shape::Gauge, "cohort", "Weighted share of a Cohort"),
    metric(
        "kueue_cohort_subtree_quota",
        Shape::Gauge,
        "cohort flavor resource",
        "Nominal quota of a Cohort and all below it, per flavor and resource",
    ),
    metric(
        "kueue_cohort_subtree_resource_reservations",
        Shape::Gauge,
        "cohort flavor resource",
        "Reserved amount in a Cohort and all below it, per flavor and resource",
    ),
    metric(
        "kueue_cohort_subtree_admitted_active_workloads",
        Shape::Gauge,
        "cohort",
        "Admitted and unfinished workloads in a Cohort and all below it",
    ),
    metric(
        "kueue_cohort_subtree_admitted_workloads",
        Shape::Counter,
        "cohort priority_class",
        "Admissions in a Cohort and all below it",
    ),
    metric(
        "kueue_cohort_info",
        Shape::Gauge,
        "cohort parent_cohort root_cohort",
        "Always 1: the parent and the root of a Cohort",
    ),
    metric(
        "kueue_cluster_queue_info",
        Shape::Gauge,
        "cluster_queue parent_cohort root_cohort",
        "Always 1: the parent and the root of a ClusterQueue",
    ),
    metric(
        "kueue_local_queue_pending_workloads",
        Shape::Gauge,
        "name namespace status",
        "Pending workloads of a LocalQueue",
    ),
    metric(
        "kueue_local_queue_unadmitted_workloads",
        Shape::Gauge,
        "name namespace cluster_queue reason underlying_cause",
        "Workloads of a LocalQueue that are not admitted, by the reasons of Admitted and QuotaReserved",
    ),
    metric(
        "kueue_local_queue_reserving_active_workloads",
        Shape::Gauge,
        "name namespace",
        "Workloads that hold quota, by LocalQueue",
    ),
    metric(
        "kueue_local_queue_admitted_active_workloads",
        Shape::Gauge,
        "name namespace",
        "Admitted workloads of a LocalQueue",
    ),
    metric(
        "kueue_local_queue_finished_workloads",
        Shape::Gauge,
        "name namespace",
        "Finished workloads of a LocalQueue that exist",
    ),
    metric(
        "kueue_local_queue_quota_reserved_workloads",
        Shape::Counter,
        "name namespace priority_class",
        "Quota reservations, by LocalQueue",
    ),
    metric(
        "kueue_local_queue_admitted_workloads",
        Shape::Counter,
        "name namespace priority_class",
        "Admissions, by LocalQueue",
    ),
    metric(
        "kueue_local_queue_finished_workloads_count",
        Shape::Counter,
        "name namespace priority_class",
        "Finished workloads, by LocalQueue",
    ),
    metric(
        "kueue_local_queue_evicted_workloads",
        Shape::Counter,
        "name namespace reason underlying_cause priority_class",
        "Evictions, by LocalQueue and reason",
    ),
    metric(
        "kueue_local_queue_quota_reserved_wait_time_seconds",
        Shape::Waits(14),
        "name namespace priority_class",
        "Creation or requeue to reservation",
    ),
    metric(
        "kueue_local_queue_admission_wait_time_seconds",
        Shape::Waits(14),
        "name namespace priority_class",
        "Creation or requeue to admission",
    ),
    metric(
        "kueue_local_queue_admission_checks_wait_time_seconds",
        Shape::Waits(14),
        "name namespace priority_class",
        "Reservation to admission",
    ),
    metric(
        "kueue_local_queue_ready_wait_time_seconds",
        Shape::Waits(14),
        "name namespace priority_class",
        "Creation or requeue to pods ready",
    ),
    metric(
        "kueue_local_queue_admitted_until_ready_wait_time_seconds",
        Shape::Waits(14),
        "name namespace priority_class",
        "Admission to pods ready",
    ),
    metric(
        "kueue_local_queue_execution_time_seconds",
        Shape::Waits(16),
        "name namespace priority_class",
        "Admitted time of finished workloads",
    ),
    metric(
        "kueue_local_queue_status",
        Shape::Gauge,
        "name namespace active",
        "1 for the value of a LocalQueue's Active condition",
    ),
    metric(
        "kueue_local_queue_resource_reservation",
        Shape::Gauge,
        "name namespace flavor resource",
        "Reserved amount per flavor and resource",
    ),
    metric(
        "kueue_local_queue_resource_usage",
        Shape::Gauge,
        "name namespace flavor resource",
        "Admitted amount per flavor and resource",
    ),
    metric(
        "kueue_local_queue_admission_fair_sharing_usage",
        Shape::Gauge,
        "name namespace cluster_queue",
        "Decayed usage of a LocalQueue, by which those of a ClusterQueue are ordered",
    ),
    metric(
        "rest_client_requests",
        Shape::Counter,
        "code method resource verb",
        "Requests to the API server, watches included",
    ),
    metric("berth_leader", Shape::Gauge, "", "1 on the replica that leads, 0 on the others"),
    metric("berth_writes", Shape::Counter, "outcome purpose", "Writes by purpose and outcome"),
    metric("berth_events_published", Shape::Counter, "", "Kubernetes events written"),
    metric("berth_events_dropped", Shape::Counter, "cause", "Kubernetes events not written, by cause"),
    metric("berth_tier_admissions", Shape::Counter, "cluster_queue tier", "Workloads admitted, by capacity tier"),
    metric(
        "berth_tier_wait_time_seconds",
        Shape::Waits(16),
        "cluster_queue tier",
        "Creation or requeue to admission, by capacity tier",
    ),
    metric(
        "berth_tier_departures",
        Shape::Counter,
        "cluster_queue tier reason",
        "Workloads that left a capacity tier before they were done, by reason",
    ),
    metric(
        "berth_tier_stock_out_seconds",
        Shape::Waits(16),
        "cluster_queue tier",
        "Admission, or reservation where an autoscaler is asked, to the end of patience where capacity did not turn up",
    ),
    metric("berth_sweep_found", Shape::Counter, "", "Parked workloads that only the slow sweep woke; must stay 0"),
    metric("berth_victims_refused", Shape::Counter, "", "Victims that broke a rule when checked again; must stay 0"),
    metric(
        "training_job_scheduling_duration_seconds",
        Shape::Doubling(1),
        "queue job_type result",
        "Creation or requeue of a TrainingJob to its admission, or to the end of its patience",
    ),
    metric(
        "training_job_queue_length",
        Shape::Gauge,
        "queue priority",
        "TrainingJobs that wait, by priority class or else value",
    ),
    metric(
        "training_cluster_resource_utilization",
        Shape::Gauge,
        "resource_type queue",
        "Reserved part of a ClusterQueue's nominal quota, above 1 where it borrows",
    ),
    metric(
        "training_job_preemptions",
        Shape::Counter,
        "preemptor_queue victim_queue reason",
        "TrainingJobs that were preempted",
    ),
    metric(
        "training_job_completion_seconds",
        Shape::Doubling(600),
        "queue job_type status",
        "Creation of a TrainingJob to its end",
    ),
    metric(
        "training_queue_fairshare_deviation",
        Shape::Gauge,
        "queue",
        "Part of what the queues of a cohort hold, less the part that weights give; above 0 is more than fair",
    ),
    metric(
        "training_gang_scheduling",
        Shape::Counter,
        "result timeout",
        "Gangs that became ready whole, or were released",
    ),
    metric(
        "training_checkpoint_saves",
        Shape::Counter,
        "job reason status",
        "Checkpoints of a TrainingJob, saved and missed, after an interval or before a stop",
    ),
    metric("berth_unacknowledged_admissions", Shape::Gauge, "", "Admissions decided and not yet written"),
    metric(
        "berth_repeated_starts",
        Shape::Counter,
        "kind",
        "Starts of jobs that were stopped in the same admission, and not by an eviction",
    ),
    metric("berth_writes_refused", Shape::Counter, "kind", "Writes that the API server refused for good"),
    metric("berth_watch_errors", Shape::Counter, "resource", "Failures of watches, by resource"),
    metric("berth_undecodable_objects", Shape::Counter, "resource", "Objects passed over because they do not decode"),
    metric("berth_step_duration_seconds", Shape::Short, "", "Time control took for one step"),
    metric(
        "berth_webhook_duration_seconds",
        Shape::Brief,
        "endpoint outcome",
        "Time from the bytes of a review to its answer",
    ),
    metric(
        "berth_webhook_refused",
        Shape::Counter,
        "reason",
        "Connections and requests that were turned away, by reason",
    ),
    metric("berth_webhook_certificate_expiry_timestamp_seconds", Shape::Gauge, "", "When the served certificate ends"),
];

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
