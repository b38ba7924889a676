//! The Grafana dashboard of TrainingJobs: a table of panels, and the JSON for Grafana that is made of the table.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

/// Type of a Grafana panel, with the settings of the type.
enum Sort {
    TimeSeries,
    /// A gauge panel with its thresholds in seconds, and the largest value that the gauge shows.
    Gauge {
        thresholds: [u32; 3],
        max: u32,
    },
    Heatmap,
    BarGauge,
    /// A histogram panel with the name of its bars. For a query of buckets, Grafana shows the bounds of the buckets as they are, and applies the panel's unit
    /// to the counts.
    Histogram {
        bars: &'static str,
    },
}

struct Panel {
    title: &'static str,
    sort: Sort,
    unit: &'static str,
    /// The PromQL query of the panel.
    query: &'static str,
    /// The legend of a line in the panel, in which metric labels are written in braces.
    legend: &'static str,
}

/// The dashboard's panels, two in a row.
const PANELS: &[Panel] = &[
    Panel {
        title: "Queue Length by Priority",
        sort: Sort::TimeSeries,
        unit: "short",
        query: "max by (queue, priority) (training_job_queue_length)",
        legend: "{{queue}} {{priority}}",
    },
    Panel {
        title: "Scheduling Latency P99",
        sort: Sort::Gauge { thresholds: [0, 10, 30], max: 60 },
        unit: "s",
        query: "histogram_quantile(0.99, sum by (le) (rate(training_job_scheduling_duration_seconds_bucket[5m])))",
        legend: "P99",
    },
    Panel {
        title: "Resource Utilization",
        sort: Sort::Heatmap,
        unit: "percentunit",
        query: "max by (queue, resource_type) (training_cluster_resource_utilization)",
        legend: "{{queue}} {{resource_type}}",
    },
    Panel {
        title: "Fair Share Deviation",
        sort: Sort::BarGauge,
        unit: "percentunit",
        query: "max by (queue) (training_queue_fairshare_deviation)",
        legend: "{{queue}}",
    },
    Panel {
        title: "Preemption Events",
        sort: Sort::TimeSeries,
        unit: "short",
        query: "sum by (victim_queue) (increase(training_job_preemptions_total[5m]))",
        legend: "{{victim_queue}}",
    },
    Panel {
        title: "Job Completion Time Distribution",
        sort: Sort::Histogram { bars: "Jobs that ended in the last hour, by the seconds that they took at most" },
        unit: "short",
        query: "sum by (le) (increase(training_job_completion_seconds_bucket[1h]))",
        legend: "{{le}}",
    },
    Panel {
        title: "Waiting Time by Tier P90",
        sort: Sort::TimeSeries,
        unit: "s",
        query: "histogram_quantile(0.9, sum by (le, tier) (rate(berth_tier_wait_time_seconds_bucket[15m])))",
        legend: "{{tier}}",
    },
    Panel {
        title: "Fallbacks by Tier",
        sort: Sort::TimeSeries,
        unit: "short",
        // The query leaves out the reason `ClimbedBack`, because the move of a job back to a better tier is no fallback.
        query: r#"sum by (tier, reason) (increase(berth_tier_departures_total{reason!="ClimbedBack"}[1h]))"#,
        legend: "{{tier}} {{reason}}",
    },
    Panel {
        title: "Gang Scheduling",
        sort: Sort::TimeSeries,
        unit: "short",
        query: "sum by (result, timeout) (increase(training_gang_scheduling_total[1h]))",
        legend: "{{result}}, timed out: {{timeout}}",
    },
    Panel {
        title: "Checkpoints Saved and Missed",
        sort: Sort::TimeSeries,
        unit: "short",
        query: "sum by (reason, status) (increase(training_checkpoint_saves_total[1h]))",
        legend: "{{status}} ({{reason}})",
    },
];

const WIDTH: usize = 12;
const HEIGHT: usize = 8;

impl Sort {
    fn kind(&self) -> &'static str {
        match self {
            Self::TimeSeries => "timeseries",
            Self::Gauge { .. } => "gauge",
            Self::Heatmap => "heatmap",
            Self::BarGauge => "bargauge",
            Self::Histogram { .. } => "histogram",
        }
    }

    /// The defaults for the fields of a panel (`fieldConfig.defaults`), in Grafana's format.
    fn field(&self, unit: &str) -> Value {
        let colors = ["green", "yellow", "red"];
        match self {
            Self::Gauge { thresholds, max } => {
                let steps: Vec<Value> =
                    colors.iter().zip(thresholds).map(|(color, from)| json!({"color": color, "value": from})).collect();
                json!({"unit": unit, "min": 0, "max": max, "thresholds": {"mode": "absolute", "steps": steps}})
            }
            _ => json!({ "unit": unit }),
        }
    }
}

fn panel(index: usize, panel: &Panel) -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let histogram = matches!(panel.sort, Sort::Histogram { .. });
    // Grafana draws bars from cumulative buckets only if the query has the format "heatmap". A histogram panel uses an instant query, because a range query
    // would add up the buckets of several moments.
    let format = if histogram { "heatmap" } else { "time_series" };
    let instant = histogram || matches!(panel.sort, Sort::BarGauge);
    let mut drawn = json!({
        "id": index + 1,
        "title": panel.title,
        "type": panel.sort.kind(),
        "datasource": source,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": index % 2 * WIDTH, "y": index / 2 * HEIGHT},
        "fieldConfig": {"defaults": panel.sort.field(panel.unit), "overrides": []},
        "targets": [{
            "refId": "A", "datasource": source, "expr": panel.query, "legendFormat": panel.legend,
            "format": format, "instant": instant, "range": !instant,
        }],
    });
    if let Sort::Histogram { bars } = panel.sort {
        drawn["description"] = json!(bars);
    }
    drawn
}

/// The complete dashboard as JSON.
fn dashboard() -> Value {
    let panels: Vec<Value> = PANELS.iter().enumerate().map(|(index, entry)| panel(index, entry)).collect();
    json!({
        "uid": "berth-training",
        "title": "Berth: training",
        "tags": ["berth"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{
            "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source",
        }]},
        "panels": panels,
    })
}

/// The content of the dashboard's file.
pub(crate) fn text() -> Result<String> {
    Ok(serde_json::to_string_pretty(&dashboard())? + "\n")
}

/// Path of the dashboard's file.
pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/berth/files/dashboard.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn dashboard_file_is_up_to_date() {
        let found = std::fs::read_to_string(path()).unwrap();
        assert!(found == text().unwrap(), "run `make crds`");
    }

    /// The dashboard has the panels of requirement E.10 and the panels of tiers, which the test names by title, type and the labels of a panel's lines.
    #[test]
    fn dashboard_has_the_promised_panels_and_thresholds() {
        for (title, kind, by) in [
            ("Queue Length by Priority", "timeseries", "by (queue, priority)"),
            ("Scheduling Latency P99", "gauge", "histogram_quantile(0.99,"),
            ("Resource Utilization", "heatmap", "by (queue, resource_type)"),
            ("Fair Share Deviation", "bargauge", "by (queue)"),
            ("Preemption Events", "timeseries", "by (victim_queue)"),
            ("Job Completion Time Distribution", "histogram", "by (le)"),
            ("Waiting Time by Tier P90", "timeseries", "by (le, tier)"),
            ("Fallbacks by Tier", "timeseries", "by (tier, reason)"),
        ] {
            let found = PANELS.iter().find(|panel| panel.title == title).unwrap();
            assert_eq!(found.sort.kind(), kind, "{title}");
            assert!(found.query.contains(by), "{title}: {}", found.query);
        }
        let all = dashboard();
        let latency = &all["panels"][1]["fieldConfig"]["defaults"];
        let steps: Vec<_> =
            latency["thresholds"]["steps"].as_array().unwrap().iter().map(|s| s["value"].clone()).collect();
        assert_eq!((steps, &latency["max"]), (vec![json!(0), json!(10), json!(30)], &json!(60)));
    }

    /// The fallback panel leaves out jobs that moved back to a better tier.
    #[test]
    fn fallback_panel_excludes_moves_back_to_a_better_tier() {
        let panel = PANELS.iter().find(|panel| panel.title == "Fallbacks by Tier").unwrap();
        let promotion = berth_api::conditions::own_reasons::CLIMBED_BACK;
        let wanted =
            format!("sum by (tier, reason) (increase(berth_tier_departures_total{{reason!={promotion:?}}}[1h]))");
        assert_eq!(panel.query, wanted);
    }

    /// Grafana's histogram panel draws bars from an instant query in the format "heatmap", in which each bucket is named by its bound.
    #[test]
    fn histogram_panel_uses_an_instant_query_of_buckets() {
        let all = dashboard();
        let panels = all["panels"].as_array().unwrap();
        let histogram = panels.iter().find(|panel| panel["type"] == "histogram").unwrap();
        let target = &histogram["targets"][0];
        assert_eq!(
            (&target["format"], &target["instant"], &target["range"]),
            (&json!("heatmap"), &json!(true), &json!(false))
        );
        assert_eq!(target["legendFormat"], "{{le}}");
        assert!(target["expr"].as_str().unwrap().starts_with("sum by (le) (increase("));
        assert_eq!(histogram["fieldConfig"]["defaults"]["unit"], "short", "its height is a count");
        assert!(histogram["description"].as_str().unwrap().contains("seconds"));
    }

    /// Every metric in a query of the dashboard is in the runtime's table of metrics.
    #[test]
    fn dashboard_queries_name_different_existing_metrics() {
        let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/src/metrics/table.rs");
        let table = std::fs::read_to_string(table).unwrap();
        let mut named = BTreeSet::new();
        for panel in PANELS {
            let mut words = panel.query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let metric = words.find(|word| word.starts_with("training_") || word.starts_with("berth_")).unwrap();
            let plain = metric.trim_end_matches("_bucket").trim_end_matches("_total");
            assert!(table.contains(&format!("\"{plain}\"")), "{metric}");
            named.insert(plain);
        }
        assert_eq!(named.len(), PANELS.len(), "each panel shows another metric");
    }
}
