//! Checks of the values of the metrics, beyond their existence.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{items, text};
use berth_e2e::prometheus::Prometheus;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::Value;

/// Every panel of the dashboard shows a number, and not only zeros, because every event that the panel counts has happened in the story.
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
                let is_shown =
                    items(&answer, "/result").iter().map(value).any(|value| value.is_finite() && value != 0.0);
                Ok(Seen::when(is_shown, || format!("{query}: {answer}")))
            })
            .await?;
        }
    }
    Ok(())
}

/// The metric of saved checkpoints can be queried by the name of the TrainingJob.
pub(crate) async fn of_a_training(prometheus: &Prometheus, job: &str) -> Result<()> {
    let query = format!("sum(training_checkpoint_saves_total{{job={job:?}}})");
    // Prometheus has no series for a moment after a scrape that took too long.
    wait::until(STEP, &format!("{query} tells of a save"), || async {
        let answer = prometheus.ask("query", &[("query", &query)]).await?;
        let saved = items(&answer, "/result").first().map_or(f64::NAN, value);
        Ok(Seen::when(saved >= 1.0, || answer.to_string()))
    })
    .await
}

/// The value of one series in an answer of Prometheus.
fn value(series: &Value) -> f64 {
    text(series, "/value/1").parse().unwrap_or(f64::NAN)
}

/// Checks the tier metrics of two jobs of a queue that were admitted to the reserved tier, left it because it has no nodes, and ended in the on-demand tier.
/// One of these jobs was held back for the time `held` before its admission, and all other steps of both jobs took the time `beside`.
pub(crate) async fn of_tiers(prometheus: &Prometheus, queue: &str, held: Duration, beside: Duration) -> Result<()> {
    let at = format!("{{cluster_queue={queue:?}}}");
    let admissions = format!("sum by (tier) (berth_tier_admissions_total{at})");
    are(prometheus, &admissions, &["tier"], &[("on-demand", 2.0), ("reserved", 2.0)]).await?;
    let departures = format!("sum by (tier, reason) (berth_tier_departures_total{at})");
    are(prometheus, &departures, &["tier", "reason"], &[("reserved StockOut", 2.0)]).await?;
    let waits = format!("sum by (tier) (berth_tier_wait_time_seconds_count{at})");
    are(prometheus, &waits, &["tier"], &[("on-demand", 2.0), ("reserved", 2.0)]).await?;
    // A wait is counted from a timestamp in whole seconds: the sum may be one second too long for each of the two jobs.
    let (held, beside) = (held.as_secs_f64(), beside.as_secs_f64() + 2.0);
    let sums = format!("sum by (tier) (berth_tier_wait_time_seconds_sum{at})");
    let answer = wait::until(STEP, &format!("{sums} has two tiers"), || async {
        let answer = prometheus.ask("query", &[("query", &sums)]).await?;
        let there = items(&answer, "/result").len() == 2;
        Ok(if there { Seen::Yes(answer) } else { Seen::NotYet(answer.to_string()) })
    })
    .await?;
    // The wait for the second tier begins when the job leaves the first tier, so the time for which the job was held back is no part of it.
    for (tier, range) in [("reserved", held..=held + beside), ("on-demand", 0.0..=beside)] {
        let series = items(&answer, "/result").iter().find(|series| text(series, "/metric/tier") == tier);
        let seconds = series.map_or(f64::NAN, value);
        ensure!(range.contains(&seconds), "waits for {tier} are {seconds} s in all, and not in {range:?}: {answer}");
    }
    Ok(())
}

/// Lines of the manager's metrics whose labels contain one of the texts in `names`.
pub(crate) async fn naming(stage: &Stage, names: &[String]) -> Result<Vec<String>> {
    let text = stage.manager.metrics().await?;
    let has_one = |line: &&str| names.iter().any(|name| line.contains(name.as_str()));
    Ok(text.lines().filter(has_one).map(str::to_owned).collect())
}

/// The queues and cohorts with the names `names` were deleted, and all of their series must be gone from the metrics.
pub(crate) async fn forgotten(stage: &Stage, names: &[String]) -> Result<()> {
    wait::until(STEP, "nothing is shown of what is deleted", || async {
        let left = naming(stage, names).await?;
        Ok(Seen::when(left.is_empty(), || left.join("\n")))
    })
    .await
}

/// Waits until a query has exactly the values in `wanted`, by the values of the labels `labels`.
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
