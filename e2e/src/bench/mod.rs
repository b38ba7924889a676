//! The benchmark of the operator: the real binary on a real control plane, under Kueue's performance shapes.
//!
//! It measures wall time as a multiple of the API server's own time (the floor), time to admission, use of quota, requests, CPU and memory
//! of the operator. [`shape`] says which objects are created and when; [`workloads`] creates Workloads and plays their jobs; [`jobs`] runs
//! real Jobs; [`floor`] and [`least`] measure the API server; [`audit`] and [`meter`] count; [`report`] prints.
//!
//! Figures of different runs are never compared. Every goal is a ratio or a count of one run.

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

/// Settings of a run, read from the environment: `SHAPE`, `SCALE`, `PREEMPTION`, `BENCH_BEFORE`, `KUEUE`, `BENCH_JSON`, `IDLE`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `small` (15,000 Workloads over 30 queues), `large` (50,000 over 1,000) or `jobs` (1,000 Jobs over 5).
    pub shape: String,
    /// Factor on the number of objects per queue.
    pub scale: f64,
    /// True: queues preempt (reclaim Any, within the queue LowerPriority).
    pub preemption: bool,
    /// An older berth, measured before this one in the same run.
    pub before: Option<PathBuf>,
    /// The real Kueue, measured after Berth in the same run: its minimalkueue, or for Jobs its manager.
    pub kueue: Option<Kueue>,
    /// File for the figures as JSON.
    pub json: Option<PathBuf>,
    /// Seconds for which the restarted operator is watched while nothing happens; 0 leaves that out.
    pub idle_seconds: u64,
    /// True: an observer judges the run of Berth. The observer watches all objects, and so uses time of the API server and of the measured
    /// processors: only runs whose times are not reported have an observer.
    pub observed: bool,
}

impl Settings {
    /// A run of one shape at a scale, as a test makes it: observed, and with nothing else switched on.
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

    /// The programs that are measured, one after the other; `kueues` is Kueue's program that knows the shape.
    pub fn kinds(&self, kueues: impl FnOnce(Kueue) -> Kind) -> Vec<Kind> {
        let before = self.before.clone().map(Kind::Before);
        before.into_iter().chain([Kind::Berth]).chain(self.kueue.clone().map(kueues)).collect()
    }

    /// Reads the environment.
    ///
    /// # Errors
    /// If the value of a variable is not allowed; the message names the value.
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

/// Runs the shape of the settings.
///
/// # Errors
/// When the control plane or the operator fails, or the run makes no progress.
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
