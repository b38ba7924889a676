//! Metrics for Prometheus: this module keeps counters and histograms, and control computes gauges for each scrape.
//!
//! [`table`] lists all metrics. Names and labels are Kueue's, so that existing dashboards and alerts work, and Berth's own metrics begin with `berth_`. A
//! metric that is not in [`table`] is refused with a log line.

mod exposition;
mod labels;
mod names;
mod table;

use exposition::Family;
use labels::Labels;
use names::DOUBLE;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{Definition, Shape, TABLE};

/// Name of the metric with the build information.
const BUILD_INFO: &str = "kueue_build_info";

/// Role of this replica in the leader election, for the metric label `replica_role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The replica takes part in the election and does not lead.
    Follower = 0,
    /// The replica leads.
    Leader = 1,
    /// The replica has no election.
    Standalone = 2,
}

/// The gauges at one moment.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    values: BTreeMap<&'static str, Vec<(Labels, f64)>>,
}

impl Gauges {
    /// Sets the value of one gauge series.
    pub fn set(&mut self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.values.entry(name).or_default().push((Labels::of(labels.iter().copied()), value));
    }
}

enum Series {
    Counter(u64),
    Histogram(Histogram),
}

/// Metric series by metric name and labels; series are sorted only for the exposition.
type AllSeries = HashMap<&'static str, HashMap<Labels, Series>>;

/// The registry of metrics.
pub struct Metrics {
    series: Mutex<AllSeries>,
    role: AtomicU8,
    version: String,
    held: Mutex<BTreeMap<&'static str, f64>>,
}

impl Metrics {
    /// An empty metrics registry for a binary of the given version.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self {
            series: Mutex::default(),
            role: AtomicU8::new(Role::Follower as u8),
            version: version.to_owned(),
            held: Mutex::default(),
        }
    }

    /// Sets the value of the label `replica_role`, which Kueue's metrics have, from now on.
    pub fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Relaxed);
    }

    /// Adds a number to a counter; `name` is the metric's name without `_total`.
    pub fn count(&self, name: &str, labels: &[(&str, &str)], by: u64) {
        let Some(definition) = defined(name, |shape| shape == Shape::Counter) else { return };
        let labels = self.complete(definition.name, labels);
        let mut all = self.lock();
        let series = all.entry(definition.name).or_default().entry(labels).or_insert(Series::Counter(0));
        if let Series::Counter(value) = series {
            *value = value.saturating_add(by);
        }
    }

    /// Adds a value to a histogram.
    pub fn observe(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let Some(definition) = defined(name, |shape| shape.is_histogram()) else {
            return;
        };
        let labels = self.complete(definition.name, labels);
        let mut all = self.lock();
        let series = all
            .entry(definition.name)
            .or_default()
            .entry(labels)
            .or_insert_with(|| Series::Histogram(histogram(definition.shape)));
        if let Series::Histogram(histogram) = series {
            histogram.observe(value);
        }
    }

    /// Sets a gauge without labels whose value control does not compute.
    pub fn hold(&self, name: &'static str, value: f64) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(name, value);
    }

    /// Removes every metric series that has all labels of one of the given sets, in one pass for any number of deleted queues.
    pub fn forget(&self, gone: &[Vec<(&str, &str)>]) {
        let mut by_keys: BTreeMap<Vec<&str>, HashSet<Vec<&str>>> = BTreeMap::new();
        for labels in gone {
            let (keys, values) = labels.iter().copied().unzip();
            by_keys.entry(keys).or_default().insert(values);
        }
        let is_meant = |series: &Labels| {
            by_keys.iter().any(|(keys, gone)| series.values(keys).is_some_and(|values| gone.contains(&values)))
        };
        self.lock().values_mut().for_each(|family| family.retain(|series, _| !is_meant(series)));
    }

    /// The text for Prometheus in the OpenMetrics format, metric by metric; each metric's text is made on demand.
    pub fn exposition(self: &Arc<Self>, gauges: Arc<Gauges>) -> impl Iterator<Item = String> + Send + use<> {
        let (metrics, own) = (Arc::clone(self), Arc::new(self.own()));
        let families = TABLE.iter().map(move |definition| {
            let (metrics, gauges, own) = (Arc::clone(&metrics), Arc::clone(&gauges), Arc::clone(&own));
            Family { metrics, gauges, own, definition }.text()
        });
        families.filter(|family| !family.is_empty()).chain(std::iter::once("# EOF\n".to_owned()))
    }

    /// The complete text for Prometheus in the OpenMetrics format.
    #[must_use]
    pub fn encode(self: &Arc<Self>, gauges: Gauges) -> String {
        self.exposition(Arc::new(gauges)).collect()
    }

    /// Gauges whose values control does not compute.
    fn own(&self) -> Gauges {
        let mut own = Gauges::default();
        for (name, value) in &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            own.set(name, &[], *value);
        }
        let leads = self.role.load(Ordering::Relaxed) != Role::Follower as u8;
        own.set("berth_leader", &[], f64::from(u8::from(leads)));
        own.set(
            BUILD_INFO,
            &[
                ("git_version", &format!("v{}", self.version)),
                ("git_commit", option_env!("BERTH_GIT_COMMIT").unwrap_or("unknown")),
                ("build_date", option_env!("BERTH_BUILD_DATE").unwrap_or("unknown")),
                ("go_version", ""),
                ("compiler", "rustc"),
                ("platform", &format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)),
            ],
            1.0,
        );
        own
    }

    /// The label `replica_role` and its value, which every Kueue metric has except the build information.
    fn role_of(&self, name: &str) -> Option<(&'static str, &'static str)> {
        let role = match self.role.load(Ordering::Relaxed) {
            1 => "leader",
            2 => "standalone",
            _ => "follower",
        };
        (name.starts_with("kueue_") && name != BUILD_INFO).then_some(("replica_role", role))
    }

    fn complete(&self, name: &str, labels: &[(&str, &str)]) -> Labels {
        Labels::of(labels.iter().copied().chain(self.role_of(name)))
    }

    fn lock(&self) -> MutexGuard<'_, AllSeries> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a metric in [`table`]; if no entry has the name and the expected shape, the function writes a log line and returns `None`.
fn defined(name: &str, fits: impl Fn(Shape) -> bool) -> Option<&'static Definition> {
    let plain = name.strip_suffix("_total").unwrap_or(name);
    let renamed = DOUBLE.iter().find(|(from, _)| *from == plain).map(|(_, to)| *to);
    let found = TABLE
        .iter()
        .find(|definition| definition.name == plain && fits(definition.shape))
        .or_else(|| TABLE.iter().find(|definition| Some(definition.name) == renamed && fits(definition.shape)));
    if found.is_none() {
        tracing::error!(name, "unknown metric");
    }
    found
}

fn histogram(shape: Shape) -> Histogram {
    match shape {
        Shape::Waits(count) => {
            Histogram::new(std::iter::once(1.0).chain(exponential_buckets(2.5, 2.0, count.saturating_sub(1))))
        }
        Shape::Doubling(tenths) => Histogram::new(exponential_buckets(f64::from(tenths) / 10.0, 2.0, 15)),
        Shape::Creation => Histogram::new(exponential_buckets(0.01, 2.0, 11)),
        Shape::Brief => {
            Histogram::new([0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0])
        }
        Shape::Short | Shape::Counter | Shape::Gauge => {
            Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_exposition_uses_kueue_names_and_labels() {
        let metrics = Arc::new(Metrics::new("0.1.0"));
        metrics.set_role(Role::Leader);
        metrics.count("kueue_admitted_workloads", &[("cluster_queue", "a"), ("priority_class", "")], 2);
        metrics.count("kueue_admitted_workloads_total", &[("priority_class", ""), ("cluster_queue", "a")], 1);
        metrics.count("kueue_finished_workloads", &[("cluster_queue", "a")], 5);
        metrics.observe("kueue_admission_wait_time_seconds", &[("cluster_queue", "a")], 3.0);
        metrics.count("no_such_metric", &[], 1);
        let mut gauges = Gauges::default();
        gauges.set("kueue_pending_workloads", &[("cluster_queue", "a"), ("status", "active")], 7.0);
        gauges.set("berth_sweep_found", &[], 0.0);
        let text = metrics.encode(gauges);
        for line in [
            "berth_leader 1.0\n",
            "berth_sweep_found_total 0\n",
            "kueue_admitted_workloads_total{cluster_queue=\"a\",priority_class=\"\",replica_role=\"leader\"} 3",
            "kueue_finished_workloads_total{cluster_queue=\"a\",replica_role=\"leader\"} 5",
            "kueue_pending_workloads{cluster_queue=\"a\",replica_role=\"leader\",status=\"active\"} 7.0",
            "kueue_admission_wait_time_seconds_bucket{le=\"5.0\",cluster_queue=\"a\",replica_role=\"leader\"} 1",
            "kueue_admission_wait_time_seconds_bucket{le=\"40960.0\",cluster_queue=\"a\",replica_role=\"leader\"} 1",
        ] {
            assert!(text.contains(line), "{line}\nnot in\n{text}");
        }
        assert!(text.contains("kueue_build_info{") && text.ends_with("# EOF\n") && !text.contains("no_such"));
    }

    #[test]
    fn training_job_histogram_buckets_double_from_100ms_or_one_minute() {
        let metrics = Arc::new(Metrics::new("0"));
        for (name, first) in
            [("training_job_scheduling_duration_seconds", 0.1_f64), ("training_job_completion_seconds", 60.0)]
        {
            metrics.observe(name, &[("queue", "a")], 1.0);
            let text = metrics.encode(Gauges::default());
            let bounds = text.lines().filter_map(|line| {
                let bound = line.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?.split('"').next()?;
                bound.parse::<f64>().ok().filter(|bound| bound.is_finite())
            });
            let bounds: Vec<f64> = bounds.collect();
            let wanted: Vec<f64> = (0..15).map(|step| first * f64::from(1_u32 << step)).collect();
            assert_eq!(bounds.len(), 15, "{name}: {text}");
            assert!(bounds.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-6 * b), "{name}: {bounds:?}");
        }
    }

    #[test]
    fn metric_series_of_deleted_queues_are_removed() {
        let metrics = Arc::new(Metrics::new("0"));
        metrics.count("kueue_admitted_workloads", &[("cluster_queue", "a")], 1);
        metrics.count("kueue_admitted_workloads", &[("cluster_queue", "b")], 1);
        metrics.observe("kueue_admission_wait_time_seconds", &[("cluster_queue", "a")], 1.0);
        for (name, namespace) in [("l", "x"), ("l", "y"), ("m", "x")] {
            metrics.count("kueue_local_queue_admitted_workloads", &[("name", name), ("namespace", namespace)], 1);
        }
        metrics.forget(&[]);
        assert!(metrics.encode(Gauges::default()).contains("cluster_queue=\"a\""));
        metrics.forget(&[vec![("cluster_queue", "a")], vec![("namespace", "x"), ("name", "l")]]);
        let text = metrics.encode(Gauges::default());
        assert!(!text.contains("cluster_queue=\"a\"") && text.contains("cluster_queue=\"b\""), "{text}");
        let left: Vec<&str> = text.lines().filter(|line| line.starts_with("kueue_local_queue")).collect();
        assert!(left.len() == 2 && left.iter().all(|line| !line.contains("name=\"l\",namespace=\"x\"")), "{text}");
    }
}
