//! Measures of control: counts and durations are drained by the runtime, gauges are computed when they are asked for.

/// Labels of a series, bounded sets only (queues, reasons, classes).
pub type Labels = Vec<(&'static str, String)>;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A counter goes up.
    Count {
        /// Metric name without `_total`.
        name: &'static str,
        /// Labels.
        labels: Labels,
        /// Increment.
        by: u64,
    },
    /// Series with these labels belong to something that is gone.
    Forget {
        /// Labels.
        labels: Labels,
    },
    /// A histogram takes a value.
    Observe {
        /// Metric name.
        name: &'static str,
        /// Labels.
        labels: Labels,
        /// Duration in milliseconds.
        millis: i64,
    },
}

/// A workload came to a tier of capacity, or left it before it was done: names and numbers for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierMove {
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the Workload.
    pub workload: String,
    /// The queue whose quota it was given.
    pub cluster_queue: String,
    /// The tier.
    pub tier: String,
    /// Flavors of that tier that the workload was given, by name.
    pub flavors: String,
    /// Step of the workload.
    pub what: TierStep,
}

/// Step of a workload in a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierStep {
    /// The workload was admitted.
    Admitted {
        /// Seconds for which it was queued.
        waited: i64,
    },
    /// The workload was evicted.
    Left {
        /// Reason of the eviction.
        reason: String,
        /// Seconds for which it had its quota.
        stayed: i64,
    },
}

/// A value that holds now.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Metric name.
    pub name: &'static str,
    /// Labels.
    pub labels: Labels,
    /// Value: amounts in Kubernetes' units (cpu in cores).
    pub value: f64,
}

/// All gauges at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The gauges.
    pub gauges: Vec<Gauge>,
}
