//! What happened, in numbers: measures are drained by the runtime, gauges are computed when somebody asks.

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
    /// Series with these labels are of something that is gone.
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
