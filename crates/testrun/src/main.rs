//! The program `testrun`: runs the steps of a target of the Makefile, measures each step, and prints a table. The script `.ci/testrun` compiles and starts the
//! program.

mod budgets;
mod cargo;
mod clock;
mod counts;
mod dependencies;
mod inventory;
mod lanes;
mod page;
mod plan;
mod processes;
mod runner;
mod step;
mod suites;
mod table;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use berth_testrun::folders;
use berth_testrun::programs::CONTROL_PLANE;

use budgets::{Budgets, REFERENCE, Start};
use clock::now;
use counts::Counts;
use plan::Run;
use runner::Runner;
use step::{Class, Line};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["fetch" | "build", name] = words.as_slice() {
        plan::programs_of_others(words[0], name)?;
        return Ok(ExitCode::SUCCESS);
    }
    if words == ["advisories"] {
        return Ok(if plan::packages::advisories()? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if words == ["page"] {
        fs::write(page::path(), page::text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let began = seconds("TESTRUN_BEGAN").unwrap_or_else(now);
    let run = start(began)?;
    let passed = match words.as_slice() {
        ["test"] => plan::test::test(&run)?,
        ["check"] => plan::test::check(&run)?,
        ["decide"] => plan::demo::decide(&run)?,
        ["demo"] => plan::demo::demo(&run)?,
        ["unit", of] => plan::inner::unit(&run, of)?,
        ["scenario", suite, scenario] => plan::inner::scenario(&run, suite, scenario)?,
        ["night"] => plan::night::night(&run, None)?,
        ["night", part] => plan::night::night(&run, Some(part))?,
        ["image", name] => plan::image::image(&run, name)?,
        ["controlplane"] => run.programs(&[CONTROL_PLANE])?,
        ["inventory"] => {
            let Some(suites) = run.everything()? else { return Ok(ExitCode::FAILURE) };
            println!("{}", inventory::listing(&suites)?);
            return Ok(ExitCode::SUCCESS);
        }
        other => bail!(
            "testrun test|check|decide|demo|unit CRATE|scenario SUITE NAME|night [PART]|image NAME|controlplane|inventory|page, not {other:?}"
        ),
    };
    println!("\n{}", report(&run, now() - began)?);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Restores compiled dependencies from the cache, and begins the measurement of a run of `testrun`.
fn start(began: f64) -> Result<Run> {
    let called = now();
    let warm = cargo::target().join("debug/.fingerprint").is_dir();
    let restored = dependencies::restore()?;
    let start = match (warm, restored) {
        (true, _) => Start::Warm,
        (false, true) => Start::Cached,
        (false, false) => Start::Nothing,
    };
    if start == Start::Nothing {
        dependencies::note_beginning()?;
    }
    let budgets = Budgets::read()?;
    let runner = Runner::new(began, budgets.all(start))?;
    let add = |name: &str, class, wall| {
        let (name, counts) = (name.to_owned(), Counts::default());
        runner.add(Line { name, class, wall, cpu: None, peak: None, counts, passed: true });
    };
    if let Some(fetched) = seconds("TESTRUN_FETCHED") {
        add("download crates", Class::Downloading, fetched - began);
        add("compile testrun", Class::Compiling, called - fetched);
    }
    if restored {
        println!("== compiled dependencies come from the cache");
        add("restore dependencies", Class::Running, now() - called);
    }
    Ok(Run { runner, start, budgets })
}

/// The text of the table of steps, followed by messages about time budgets.
fn report(run: &Run, wall: f64) -> Result<String> {
    let lines = run.runner.lines();
    let built = format!("build {}", CONTROL_PLANE.name);
    if let Some(line) = lines.iter().find(|line| line.name == built && line.passed) {
        let _ = fs::write(speed_file()?, format!("{:.0}\n", line.wall));
    }
    let mut text = table::table(&lines, run.runner.cores(), wall);
    let speed = fs::read_to_string(speed_file()?).ok().and_then(|text| text.trim().parse::<f64>().ok());
    // The time budgets of steps do not shrink on a faster machine, because a background step waits for other steps whatever the speed of the machine.
    let scale = speed.map_or(1.0, |seconds| seconds / REFERENCE).max(1.0);
    match speed {
        Some(speed) => {
            text += &format!(
                "machine: it built the control plane's programs in {speed:.0} s; budgets are for {REFERENCE:.0} s, times {scale:.2} here\n"
            );
        }
        None => text += "machine: it has not built the control plane's programs yet; budgets are taken as they are\n",
    }
    text += &run.budgets.verdict(&lines, run.start, scale);
    Ok(text)
}

/// File with the number of seconds in which this machine built the control plane's programs.
fn speed_file() -> Result<PathBuf> {
    let cache = folders::cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    Ok(cache.join("machine-seconds"))
}

fn seconds(variable: &str) -> Option<f64> {
    env::var(variable).ok()?.parse().ok()
}
