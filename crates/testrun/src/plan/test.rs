//! `make test` and `make check`: all checks that a change must pass, and the quick checks of the inner loop.

use std::env;
use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use berth_testrun::folders;
use berth_testrun::programs::{CONTROL_PLANE, CRANE, GCS, GoModule, HELM, JOBSET, PROMETHEUS};

use super::{Run, SEEDS_FILE, in_the_background, logged, logs, machine_lock, shown};
use crate::budgets::Start;
use crate::cargo::{cargo, program};
use crate::dependencies;
use crate::lanes::{self, Lanes};
use crate::step::{Class, Step};
use crate::suites::Suite;

/// Programs of other projects that the end-to-end tests run.
const PROGRAMS: [GoModule; 6] = [CONTROL_PLANE, JOBSET, HELM, PROMETHEUS, GCS, CRANE];
/// Number of lanes of end-to-end tests. An idle control plane takes a sixth of two cores, so that more lanes would cost more than they gain.
const LANES: usize = 2;
/// Number of seeds that each law tries in `make test`; `make night` tries more seeds.
const SEEDS: &str = "5000";
/// Number of seeds that each law tries in `make check`.
const FEW_SEEDS: &str = "500";
/// End-to-end tests that measure times, or whose time-outs a busy machine would reach; no other step runs at the same time.
const ALONE: [&str; 2] = ["e2e webhook webhook_answers_under_load_and_floods", "e2e failover"];
/// Path of the folder of Kueue's decision cases, from the root of the repository.
const CASES: &str = "crates/testkit/cases";

impl Run {
    /// The steps that check the house rules and run clippy.
    fn lints(&self) -> Result<Vec<Step>> {
        let mut tidy = Command::new(program("xtask"));
        tidy.arg("tidy").current_dir(folders::repository());
        let clippy = cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        Ok(vec![logged("house rules", Class::Running, tidy), logged("clippy", Class::Compiling, clippy)])
    }

    /// The steps that judge Kueue's decision cases, by Kueue's exact rules and by Berth's own rules.
    fn conformance(&self) -> Vec<Step> {
        let step = |name: &str, more: &[&str]| {
            let mut command = Command::new(program("berth-testkit"));
            command
                .args(["conformance", CASES, "--known", "crates/testkit/known-differences.txt"])
                .args(more)
                .current_dir(folders::repository());
            logged(name, Class::Running, command)
        };
        vec![
            step("conformance to the letter", &[]),
            step("conformance as shipped", &["--known", "crates/testkit/differences-as-shipped.txt", "--as-shipped"]),
        ]
    }

    /// The steps that run unit tests, laws and cases, sorted by time budget, the largest first.
    fn units(&self, suites: &[Suite], seeds: &str) -> Vec<Step> {
        let mut steps: Vec<Step> =
            suites.iter().filter(|suite| !suite.is_end_to_end()).map(|suite| self.suite(suite)).collect();
        for step in &mut steps {
            step.command.env("BERTH_SEEDS_FILE", logs().join(SEEDS_FILE));
            if env::var_os("BERTH_CASES").is_none() {
                step.command.env("BERTH_CASES", seeds);
            }
        }
        self.longest_first(&mut steps);
        steps
    }

    /// Takes a lock for end-to-end tests on this machine, which is held as long as the returned file is open; end-to-end tests of other clones wait for this
    /// lock.
    pub(super) fn machine(&self) -> Result<File> {
        let file = machine_lock()?;
        if file.try_lock().is_err() {
            println!("== another clone runs its end-to-end tests; waiting for end-to-end.lock in the cache folder");
            file.lock().context("waiting for the machine")?;
        }
        Ok(file)
    }
}

/// Rows of the table in docs/testing.md: a step, and its part in `make check` and in `make test`.
pub(crate) fn summary() -> Vec<[String; 3]> {
    let row = |step: &str, check: &str, test: &str| [step.to_owned(), check.to_owned(), test.to_owned()];
    vec![
        row("format, house rules, clippy", "all", "all"),
        row("Kueue's decision cases, to the letter and as Berth ships", "all", "all"),
        row("unit tests, stories of jobs, golden cases", "all", "all"),
        row("laws over random worlds", &format!("{FEW_SEEDS} seeds each"), &format!("{SEEDS} seeds each")),
        row("examples in the documentation of crates", "-", "all; without any, no step"),
        row("end-to-end tests on real control planes", "`smoke`", &format!("all, in {LANES} lanes")),
        row(
            "faults at each kind of write (`e2e crash`)",
            "-",
            "all where quota depends on the write, else three of six",
        ),
        row("attacks by a tenant (`e2e tenants`)", "-", "with webhooks all, else one for each root; all at night"),
        row(
            "simulations of two replicas (`sim seeds`)",
            "20 seeds",
            "300 seeds, or at least 60 as 90 s permit; 100,000 at night",
        ),
        row("random stories of control", "10 to 60 seeds a law", "the same; worlds with a tenant's writes for 90 s"),
        row("jobs of a mebibyte that wait (`e2e large`)", "-", "60; 500 in the part `shipped`"),
        row("end-to-end tests that measure times", "-", &format!("after the others, alone: `{}`", ALONE.join("`, `"))),
        row("the demo as a test", "-", "once"),
    ]
}

/// True if the documentation of a crate has an example. Doc tests run only if a crate has an example, because doc tests would compile most libraries once more,
/// which takes two minutes.
fn has_examples() -> Result<bool> {
    let output = Command::new("git").args(["ls-files", "-z", "--", "*.rs"]).output().context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("names of sources")?;
    // A file that git lists may have been deleted from the work tree, so unreadable files are left out.
    Ok(names.split_terminator('\0').filter_map(|name| fs::read_to_string(name).ok()).any(|source| has_example(&source)))
}

/// Whether a source has a Rust code block in a doc comment: rustdoc compiles code blocks without another language.
fn has_example(source: &str) -> bool {
    const WORDS: [&str; 6] = ["", "rust", "no_run", "ignore", "should_panic", "compile_fail"];
    let mut inside = false;
    for line in source.lines().map(str::trim_start) {
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            inside = false;
            continue;
        };
        let Some(language) = text.trim_start().strip_prefix("```") else { continue };
        let is_rust = |word: &str| WORDS.contains(&word.trim()) || word.trim().starts_with("edition");
        if !inside && language.split(',').all(is_rust) {
            return true;
        }
        inside = !inside;
    }
    false
}

/// Runs `make test`: all checks that a change must pass.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn test(run: &Run) -> Result<bool> {
    let mut passed = run.runner.run(shown("format", Class::Running, cargo(&["fmt", "--all", "--check"])))?;
    passed &= run.programs(&PROGRAMS)?;
    passed &= run.definitions()?;
    let Some(suites) = run.everything()? else { return Ok(false) };
    let mut background = run.lints()?;
    background.extend(run.conformance());
    background.extend(run.units(&suites, SEEDS));
    if has_examples()? {
        background.push(logged("doctests", Class::Compiling, cargo(&["test", "--locked", "--workspace", "--doc"])));
    }
    for step in &mut background {
        step.command = in_the_background(&step.command);
    }
    let _ = fs::remove_file(logs().join(SEEDS_FILE));
    let _machine = run.machine()?;
    let (alone, together): (Vec<&Suite>, Vec<&Suite>) = suites
        .iter()
        .filter(|suite| suite.is_end_to_end())
        .partition(|suite| ALONE.iter().any(|name| suite.name.starts_with(name)));
    let mut together: Vec<Step> = together.into_iter().map(|suite| run.suite(suite)).collect();
    let mut demo = Command::new(program("demo"));
    demo.env("DEMO_ONCE", "1").env("BERTH_BINARY", program("berth"));
    together.push(logged("demo", Class::Running, demo));
    run.longest_first(&mut together);
    let lists = vec![
        Lanes { steps: together, at_once: LANES, is_shared: false },
        Lanes { steps: background, at_once: 1, is_shared: true },
    ];
    passed &= lanes::run(&run.runner, lists)?;
    let alone: Vec<Step> = alone.into_iter().map(|suite| run.suite(suite)).collect();
    passed &= lanes::run(&run.runner, vec![Lanes { steps: alone, at_once: 1, is_shared: false }])?;
    run.keep()?;
    dependencies::bound()?;
    Ok(passed)
}

/// Runs `make check`, the inner loop: format, house rules, clippy, unit tests, laws on few seeds, and one test on a real control plane.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn check(run: &Run) -> Result<bool> {
    let mut passed = run.runner.run(shown("format", Class::Running, cargo(&["fmt", "--all", "--check"])))?;
    passed &= run.programs(&[CONTROL_PLANE])?;
    let Some(suites) = run.everything()? else { return Ok(false) };
    let mut steps = run.lints()?;
    steps.extend(run.conformance());
    steps.extend(run.units(&suites, FEW_SEEDS));
    passed &= lanes::run(&run.runner, vec![Lanes { steps, at_once: 2, is_shared: false }])?;
    for suite in suites.iter().filter(|suite| suite.name.starts_with("e2e smoke")) {
        passed &= run.runner.run(run.suite(suite))?;
    }
    if run.start == Start::Nothing {
        run.keep()?;
        dependencies::bound()?;
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::has_example;

    #[test]
    fn doc_example_is_a_block_without_another_language() {
        for rust in
            ["/// ```\n/// a();\n/// ```", "    //! ```no_run,edition2024", "/// ```text\n/// a\n/// ```\n/// ```rust"]
        {
            assert!(has_example(rust), "{rust}");
        }
        for other in ["/// ```text\n/// a\n/// ```\nfn b() {}", "// ```\n// a();", "/// ``` yaml\n/// a: b\n/// ```"] {
            assert!(!has_example(other), "{other}");
        }
    }
}
