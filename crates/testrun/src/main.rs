//! Runs the steps of `make test` and `make demo`, measures each, and ends with a table.

mod cargo;
mod counts;
mod plan;
mod processes;
mod runner;
mod table;

use std::env;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use counts::Counts;
use runner::{Class, Line, Runner};

fn main() -> Result<ExitCode> {
    let began = seconds("TESTRUN_BEGAN").unwrap_or_else(now);
    let runner = Runner::new()?;
    let before = |name: &str, class, wall| Line {
        name: name.to_owned(),
        class,
        wall,
        cpu: None,
        peak: None,
        counts: Counts::default(),
        passed: true,
    };
    if let Some(fetched) = seconds("TESTRUN_FETCHED") {
        runner.add(before("download crates", Class::Downloading, fetched - began));
        runner.add(before("compile testrun", Class::Compiling, now() - fetched));
    }
    let passed = match env::args().nth(1).as_deref() {
        Some("test") => plan::test(&runner)?,
        Some("demo") => plan::demo(&runner)?,
        other => bail!("testrun test|demo, not {other:?}"),
    };
    println!("\n{}", table::table(&runner.lines(), runner.cores(), now() - began));
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn seconds(variable: &str) -> Option<f64> {
    env::var(variable).ok()?.parse().ok()
}
