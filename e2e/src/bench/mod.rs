//! The benchmark of the operator: the real binary on a real control plane, under Kueue's performance shapes.
//!
//! The benchmark measures wall time as a multiple of the API server's own time (the floor), time to admission, use of quota, requests, CPU and memory
//! of the operator. The module [`shape`] says which objects are created and when; [`workloads`] creates Workloads and simulates their jobs; [`jobs`]
//! runs real Jobs; [`floor`] and [`least`] measure the API server; [`audit`] and [`meter`] count; [`report`] prints the figures.
//!
//! The benchmark never compares figures of different runs. Every goal is a ratio of two figures of one run, or a count within one run.

pub mod audit;
pub mod feed;
pub mod floor;
pub mod jobs;
pub mod least;
pub mod meter;
pub mod plane;
pub mod report;
pub mod shape;
pub mod subject;
pub mod workloads;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use self::subject::Kind;
use crate::kueue::Kueue;

/// Settings of a benchmark run, read from the environment variables `SHAPE`, `SCALE`, `PREEMPTION`, `BENCH_BEFORE`, `KUEUE`, `BENCH_JSON`, `IDLE`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The shape of the run, one of `small` (15,000 Workloads over 30 queues), `large` (50,000 Workloads over 1,000 queues) or `jobs` (1,000 Jobs over 5
    /// queues).
    pub shape: String,
    /// Factor by which the number of objects per queue is multiplied.
    pub scale: f64,
    /// True if the queues preempt: they reclaim from any Workload of their cohort, and within the queue from Workloads of lower priority.
    pub preemption: bool,
    /// Path of an older Berth, which the benchmark measures before the present Berth in the same run.
    pub before: Option<PathBuf>,
    /// The real Kueue, which the benchmark measures after Berth in the same run: minimalkueue for Workloads without jobs, Kueue's manager for Jobs.
    pub kueue: Option<Kueue>,
    /// Path of the file into which the figures are written as JSON.
    pub json: Option<PathBuf>,
    /// Seconds for which the benchmark watches the restarted operator while nothing happens; 0 leaves this measurement out.
    pub idle_seconds: u64,
    /// True if an observer judges the run of Berth. The observer watches all objects and so uses time of the API server and of the measured
    /// processors: only runs whose times are not reported have an observer.
    pub observed: bool,
}

impl Settings {
    /// Settings of a run that a test makes: one shape at a scale, with an observer, and with all options off.
    pub fn of(shape: &str, scale: f64) -> Settings {
        let shape = shape.to_owned();
        Settings {
            shape,
            scale,
            preemption: false,
            before: None,
            kueue: None,
            json: None,
            idle_seconds: 0,
            observed: true,
        }
    }

    /// The programs that the benchmark measures, one after the other; the function `kueues` selects Kueue's program for the shape.
    pub fn kinds(&self, kueues: impl FnOnce(Kueue) -> Kind) -> Vec<Kind> {
        let before = self.before.clone().map(Kind::Before);
        before.into_iter().chain([Kind::Berth]).chain(self.kueue.clone().map(kueues)).collect()
    }

    /// Reads the settings of a run from the environment.
    ///
    /// # Errors
    /// Fails if the value of a variable is not allowed; the message names the value.
    pub fn from_environment() -> Result<Settings> {
        let get = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let number = |name: &str, default: f64| -> Result<f64> {
            let Some(text) = get(name) else { return Ok(default) };
            text.parse().with_context(|| format!("{name}={text} is not a number"))
        };
        let shape = get("SHAPE").unwrap_or_else(|| "small".to_owned());
        ensure!(["small", "large", "jobs"].contains(&shape.as_str()), "SHAPE={shape}: small, large or jobs");
        let scale = number("SCALE", 1.0)?;
        ensure!(scale > 0.0 && scale <= 100.0, "SCALE={scale} must be above 0 and at most 100");
        Ok(Settings {
            preemption: match get("PREEMPTION").as_deref() {
                None | Some("0") => false,
                Some("1") => true,
                Some(other) => bail!("PREEMPTION={other}: 0 or 1"),
            },
            before: get("BENCH_BEFORE").map(PathBuf::from),
            kueue: Kueue::asked()?,
            json: get("BENCH_JSON").map(PathBuf::from),
            idle_seconds: number("IDLE", 20.0)? as u64,
            observed: false,
            shape,
            scale,
        })
    }
}

/// Runs the shape that the settings name; returns the figures.
///
/// # Errors
/// Fails if the control plane or the operator fails, or if the run makes no progress.
pub async fn run(settings: &Settings) -> Result<report::Report> {
    let mut report = match settings.shape.as_str() {
        "jobs" => jobs::run(settings).await?,
        shape => workloads::run(&shape::Shape::named(shape, settings.scale)?, settings).await?,
    };
    report.settings(settings);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_berth_is_measured_before_this_one() {
        let names = |settings: Settings| settings.kinds(Kind::Minimal).iter().map(Kind::name).collect::<Vec<_>>();
        assert_eq!(names(Settings::of("small", 1.0)), ["berth"]);
        let both = Settings { before: Some("older/berth".into()), ..Settings::of("small", 1.0) };
        assert_eq!(names(both), ["berth, before", "berth"]);
    }
}
