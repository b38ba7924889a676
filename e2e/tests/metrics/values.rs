//! What the figures say, beyond that they are there.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{items, text};
use berth_e2e::prometheus::Prometheus;
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::Value;

/// Every panel of the dashboard shows a number, and not just zeros: after the story there is nothing of which it tells that did not
/// happen.
pub(crate) async fn shown(prometheus: &Prometheus) -> Result<()> {
    let file = std::fs::read_to_string(repository().join("charts/berth/files/dashboard.json"))?;
    let dashboard: Value = serde_json::from_str(&file)?;
    let panels = items(&dashboard, "/panels");
    ensure!(panels.len() >= 6, "{} panels", panels.len());
    for panel in panels {
        let title = text(panel, "/title");
        let queries = items(panel, "/targets");
        ensure!(!queries.is_empty(), "panel {title} asks nothing");
        for query in queries.iter().map(|target| text(target, "/expr")) {
            wait::until(STEP, &format!("panel {title} shows a number"), || async {
                let answer = prometheus.ask("query", &[("query", query)]).await?;
                let tells = items(&answer, "/result").iter().map(value).any(|value| value.is_finite() && value != 0.0);
                Ok(Seen::when(tells, || format!("{query}: {answer}")))
            })
            .await?;
        }
    }
    Ok(())
}

/// The value of one series of an answer.
fn value(series: &Value) -> f64 {
    text(series, "/value/1").parse().unwrap_or(f64::NAN)
}

/// Two jobs of that queue were admitted to the reservation, left it for want of nodes, and ended on demand.
pub(crate) async fn of_tiers(prometheus: &Prometheus, queue: &str) -> Result<()> {
    let at = format!("{{cluster_queue={queue:?}}}");
    let admissions = format!("sum by (tier) (berth_tier_admissions_total{at})");
    are(prometheus, &admissions, &["tier"], &[("on-demand", 2.0), ("reserved", 2.0)]).await?;
    let departures = format!("sum by (tier, reason) (berth_tier_departures_total{at})");
    are(prometheus, &departures, &["tier", "reason"], &[("reserved StockOut", 2.0)]).await
}

/// Waits until a query has exactly these values, by the values of these labels.
async fn are(prometheus: &Prometheus, query: &str, labels: &[&str], wanted: &[(&str, f64)]) -> Result<()> {
    let wanted: BTreeMap<String, f64> = wanted.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    wait::until(STEP, &format!("{query} is {wanted:?}"), || async {
        let answer = prometheus.ask("query", &[("query", query)]).await?;
        let name = |series: &Value| {
            let words: Vec<&str> = labels.iter().map(|label| text(&series["metric"], &format!("/{label}"))).collect();
            words.join(" ")
        };
        let seen: BTreeMap<String, f64> =
            items(&answer, "/result").iter().map(|series| (name(series), value(series))).collect();
        Ok(Seen::when(seen == wanted, || format!("{seen:?}")))
    })
    .await
}
