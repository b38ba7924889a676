//! The text that Prometheus scrapes, metric by metric, because the complete text of a cluster with a thousand queues has tens of megabytes.

use super::labels::{Labels, With};
use super::names::exposed;
use super::table::{Definition, Shape};
use super::{Gauges, Metrics, Series};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// A metric with all its series.
pub(super) struct Family {
    pub(super) metrics: Arc<Metrics>,
    /// Gauges that control computed for the scrape.
    pub(super) gauges: Arc<Gauges>,
    /// Gauges of the process.
    pub(super) own: Arc<Gauges>,
    pub(super) definition: &'static Definition,
}

impl Family {
    /// The metric's lines in the text for Prometheus; empty if the metric has no series.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode_registry(&mut out, &registry);
        out
    }

    fn given(&self) -> impl Iterator<Item = &(Labels, f64)> {
        let both = [&self.gauges, &self.own];
        both.into_iter().flat_map(|gauges| gauges.values.get(self.definition.name)).flatten()
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.definition.name)
    }
}

impl Collector for Family {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let definition = self.definition;
        let role = self.metrics.role_of(definition.name);
        let name = exposed(definition.name);
        if definition.shape == Shape::Gauge {
            if self.given().next().is_none() {
                return Ok(());
            }
            let values = self.given().map(|(labels, value)| (With(labels, role), ConstGauge::new(*value)));
            return encode_all(encoder.encode_descriptor(name, definition.help, None, MetricType::Gauge)?, values);
        }
        // A counter that control keeps arrives among the gauges of [`Family`], with its current value.
        let given = self.given().map(|(labels, value)| (With(labels, role), ConstCounter::new(value.max(0.0) as u64)));
        let mut counters: Vec<(With<'_>, ConstCounter)> = given.collect();
        let mut histograms = Vec::new();
        let all = self.metrics.lock();
        let mut series: Vec<(&Labels, &Series)> = all.get(definition.name).into_iter().flatten().collect();
        series.sort_unstable_by_key(|(labels, _)| *labels);
        for (labels, series) in series {
            match series {
                Series::Counter(value) => counters.push((With(labels, None), ConstCounter::new(*value))),
                Series::Histogram(histogram) => histograms.push((With(labels, None), histogram.clone())),
            }
        }
        if definition.shape == Shape::Counter && !counters.is_empty() {
            let family = encoder.encode_descriptor(name, definition.help, None, MetricType::Counter)?;
            encode_all(family, counters.into_iter())?;
        } else if !histograms.is_empty() {
            let family = encoder.encode_descriptor(name, definition.help, None, MetricType::Histogram)?;
            encode_all(family, histograms.into_iter())?;
        }
        Ok(())
    }
}

/// Encodes all series of a metric. A metric whose only series has no labels gets no empty braces `{}` in the text.
fn encode_all<'a, M: EncodeMetric>(
    mut family: MetricEncoder<'_>,
    series: impl Iterator<Item = (With<'a>, M)>,
) -> fmt::Result {
    for (labels, metric) in series {
        if labels.is_empty() {
            return metric.encode(family);
        }
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
