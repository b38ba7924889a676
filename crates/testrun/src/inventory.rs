//! `make inventory`: numbers of tests, scenarios and cases, and the numbers of seeds of each law in `make test` and `make night`.
//!
//! The inventory counts tests in the lists that test programs print. The inventory counts scenarios, decision cases and seeds of laws in the output of the
//! clone's last `make test`, so that a test that did not run does not count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use berth_testrun::folders;

use crate::cargo::cargo;
use crate::plan::{SEEDS_FILE, logs, night};
use crate::suites::Suite;

/// The text that `make inventory` prints.
///
/// # Errors
/// A program does not list its tests, or `make test` has left no logs.
pub(crate) fn listing(suites: &[Suite]) -> Result<String> {
    let mut text = String::new();
    let mut tests: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for suite in suites {
        let counts = tests.entry(suite.program.package.clone()).or_default();
        counts[usize::from(!suite.program.unit)] += suite.tests.len();
    }
    let _ = writeln!(text, "tests              unit  of folders");
    for (package, [unit, folder]) in &tests {
        let _ = writeln!(text, "  {package:<14} {unit:>6} {folder:>11}");
    }
    let sum = |of: usize| tests.values().map(|counts| counts[of]).sum::<usize>();
    let _ = writeln!(text, "  {:<14} {:>6} {:>11}", "all", sum(0), sum(1));
    let _ = writeln!(text, "doctests           {}", doctests()?);
    let ignored: Vec<String> = suites.iter().map(ignored).collect::<Result<Vec<_>>>()?.concat();
    let _ = writeln!(text, "ignored            {}: {}", ignored.len(), ignored.join(", "));
    let golden = cases_in(&folders::repository().join("crates/engine/tests/cases"), "=== ")?;
    let _ = writeln!(text, "golden cases       {golden} of the engine");
    let jobs = cases_in(&folders::repository().join("crates/jobs/cases"), "- name: ")?;
    let _ = writeln!(text, "                   {jobs} of kinds of job");
    for name in ["conformance-to-the-letter", "conformance-as-shipped"] {
        let message = lines_in(name, " cases")?;
        let _ = writeln!(text, "decision cases     {}", message.first().map_or("none ran", String::as_str));
    }
    let scenarios = scenarios()?;
    let _ = writeln!(text, "scenarios          {} in {} tests", scenarios.values().sum::<usize>(), scenarios.len());
    for (suite, count) in &scenarios {
        let _ = writeln!(text, "  {suite:<40} {count:>4}");
    }
    let _ = writeln!(text, "seeds a law, in the last `make test` of this clone");
    for (law, seeds) in seeds()? {
        let _ = writeln!(text, "  {seeds:>8} {law}");
    }
    let _ = writeln!(text, "the same at night, by part of `make night`: test programs, filter, variables");
    for part in night::distinct(&night::parts()) {
        for wide in &part.runs {
            let set: Vec<String> = wide.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let _ = writeln!(text, "  {:<10} {} {} {}", part.name, wide.suites.trim(), wide.filter, set.join(" "));
        }
    }
    Ok(text)
}

fn doctests() -> Result<usize> {
    let output = cargo(&["test", "--locked", "--workspace", "--doc", "--quiet", "--", "--list", "--format", "terse"])
        .output()?;
    ensure!(output.status.success(), "listing doctests: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.ends_with(": test")).count())
}

fn ignored(suite: &Suite) -> Result<Vec<String>> {
    let mut command = suite.program.command();
    command.args(suite.filter.as_slice()).args(["--list", "--format", "terse", "--ignored"]);
    let output = command.output().with_context(|| format!("listing {}", suite.name))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(|test| format!("{} {test}", suite.program.package))
        .collect())
}

/// Number of lines that begin a case of inputs and expected outputs, in all files below a folder.
fn cases_in(folder: &Path, beginning: &str) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            count += cases_in(&path, beginning)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            count += text.lines().filter(|line| line.starts_with(beginning)).count();
        }
    }
    Ok(count)
}

/// Lines that contain a text, in a step's log of the last `make test`.
fn lines_in(log: &str, what: &str) -> Result<Vec<String>> {
    let path = logs().join(format!("{log}.log"));
    let text = fs::read_to_string(&path).with_context(|| format!("{}: run `make test` first", path.display()))?;
    Ok(text.lines().filter(|line| line.contains(what)).map(|line| line.trim().to_owned()).collect())
}

/// Number of passed scenarios by end-to-end test.
fn scenarios() -> Result<BTreeMap<String, usize>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(logs()).context("run `make test` first")? {
        let path = entry?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("e2e-") && path.extension().is_some_and(|extension| extension == "log") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let count = text.lines().filter(|line| line.starts_with("scenario ") && line.contains(": ok")).count();
            if count > 0 {
                found.insert(name, count);
            }
        }
    }
    Ok(found)
}

/// Number of seeds by law, as the laws noted their numbers in the last `make test`.
fn seeds() -> Result<BTreeMap<String, u64>> {
    let path = logs().join(SEEDS_FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("{}: run `make test` first", path.display()))?;
    let mut found = BTreeMap::new();
    for (law, seeds) in text.lines().filter_map(|line| line.split_once(' ')) {
        let seeds = seeds.parse().with_context(|| format!("{law}: {seeds}"))?;
        found.entry(law.to_owned()).and_modify(|most: &mut u64| *most = (*most).max(seeds)).or_insert(seeds);
    }
    Ok(found)
}
