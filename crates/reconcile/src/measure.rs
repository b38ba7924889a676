//! Metrics of control: the runtime drains counts and durations; gauges are computed on request.

/// Labels of a metric series, from bounded sets only (queues, reasons, classes).
pub type Labels = Vec<(&'static str, String)>;

/// A change of a metric that the runtime drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// An increment of a metric's counter.
    Count {
        /// Name of the counter without `_total`.
        name: &'static str,
        /// Labels of the counter.
        labels: Labels,
        /// Amount by which the counter is incremented.
        by: u64,
    },
    /// The removal of all metric series with these labels, because their object is gone.
    Forget {
        /// Labels of the metric series to remove.
        labels: Labels,
    },
    /// A value for a histogram.
    Observe {
        /// Name of the histogram.
        name: &'static str,
        /// Labels of the histogram.
        labels: Labels,
        /// Value of a duration for a metric's histogram, in milliseconds.
        millis: i64,
    },
}

/// The admission of a workload in a capacity tier, or its eviction from the tier before it has finished: names and numbers for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierMove {
    /// Namespace of the Workload.
    pub namespace: String,
    /// Name of the Workload.
    pub workload: String,
    /// The ClusterQueue whose quota the Workload was given.
    pub cluster_queue: String,
    /// The capacity tier.
    pub tier: String,
    /// Names of the flavors of the tier that the Workload was given.
    pub flavors: String,
    /// The step of the Workload that is logged: its admission in a capacity tier, or its eviction from the tier.
    pub what: TierStep,
}

/// Step of a Workload in a capacity tier, for the log: its admission in the tier, or its eviction from the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierStep {
    /// The Workload was admitted.
    Admitted {
        /// Seconds for which the Workload was queued.
        waited: i64,
    },
    /// The Workload was evicted.
    Left {
        /// Reason of the eviction.
        reason: String,
        /// Seconds for which the Workload had its quota.
        stayed: i64,
    },
}

/// The present value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Name of the gauge.
    pub name: &'static str,
    /// Labels of the gauge.
    pub labels: Labels,
    /// Value of the gauge: amounts in Kubernetes' units (cpu in cores).
    pub value: f64,
}

/// All gauges at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The gauges and their values.
    pub gauges: Vec<Gauge>,
}
