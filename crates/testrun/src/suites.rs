//! Test suites: the test programs that Cargo built, cut into parts that run in separate processes.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::Program;

/// Package of the end-to-end tests.
pub(crate) const END_TO_END: &str = "e2e";

/// A test suite: tests that run in one process.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    /// Name of the test suite in the table of steps and in the file of time budgets.
    pub(crate) name: String,
    /// The test program that has the suite's tests.
    pub(crate) program: Program,
    /// Prefix or name of the suite's tests, as the test program takes it; `None` for all tests.
    pub(crate) filter: Option<String>,
    /// Full names of the tests in the suite.
    pub(crate) tests: Vec<String>,
}

impl Suite {
    /// The command that runs the test suite.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.program.command();
        match (&self.filter, self.tests.as_slice()) {
            (None, _) => {}
            (Some(_), [test]) => {
                command.args([test, "--exact"]);
            }
            (Some(filter), _) => {
                command.arg(filter);
            }
        }
        // Test programs print the output of passing tests, too, because this output may say that a test was skipped.
        command.arg(if self.is_end_to_end() { "--nocapture" } else { "--show-output" });
        command
    }

    /// Whether the suite has end-to-end tests, which need a control plane of their own; the unit tests of the end-to-end package need no control plane.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.program.package == END_TO_END && !self.program.unit
    }
}

/// All suites of the test programs, sorted by name: one suite for the unit tests of a library or program, one for each module of a folder of tests, and one for
/// each end-to-end test, because each end-to-end test starts its own control plane.
///
/// # Errors
/// A program does not list its tests.
pub(crate) fn of(programs: &[Program]) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for program in programs {
        suites.extend(cut(program, &tests(program)?));
    }
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// Names of the tests of a test program, including ignored tests.
fn tests(program: &Program) -> Result<Vec<String>> {
    let output = program.command().args(["--list", "--format", "terse"]).output();
    let output = output.with_context(|| format!("starting {}", program.path.display()))?;
    ensure!(output.status.success(), "{} lists no tests: {}", program.path.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn cut(program: &Program, tests: &[String]) -> Vec<Suite> {
    let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let part = match test.split_once("::") {
            _ if program.unit => String::new(),
            Some(_) if program.package == END_TO_END => test.clone(),
            Some((module, _)) => format!("{module}::"),
            None => test.clone(),
        };
        parts.entry(part).or_default().push(test.clone());
    }
    let suite = |(part, tests): (String, Vec<String>)| {
        let name = match part.as_str() {
            "" => program.name(),
            part => format!("{} {}", program.package, part.trim_end_matches("::").replace("::", " ")),
        };
        let filter = Some(part).filter(|part| !part.is_empty());
        Suite { name, program: program.clone(), filter, tests }
    };
    parts.into_iter().map(suite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, unit: bool) -> Program {
        let target = package.to_owned();
        Program { package: package.to_owned(), target, unit, path: "p".into(), folder: "f".into() }
    }

    fn shown(package: &str, unit: bool, tests: &[&str]) -> Vec<(String, Option<String>, usize)> {
        let tests: Vec<String> = tests.iter().map(|test| (*test).to_owned()).collect();
        let suites = cut(&program(package, unit), &tests);
        suites.into_iter().map(|suite| (suite.name, suite.filter, suite.tests.len())).collect()
    }

    #[test]
    fn test_suites_are_cut_by_module_or_single_scenario() {
        let some = |text: &str| Some(text.to_owned());
        let tests = ["laws::a::b", "laws::c", "alone"];
        let of_engine = [("engine alone".to_owned(), some("alone"), 1), ("engine laws".to_owned(), some("laws::"), 2)];
        assert_eq!(shown("engine", false, &tests), of_engine);
        assert_eq!(shown("engine", true, &tests), [("engine unit".to_owned(), None, 3)]);
        let of_crash =
            [("e2e crash a".to_owned(), some("crash::a"), 1), ("e2e crash b".to_owned(), some("crash::b"), 1)];
        assert_eq!(shown("e2e", false, &["crash::a", "crash::b"]), of_crash);
    }

    #[test]
    fn single_test_of_a_module_is_named_in_full() {
        let suites =
            cut(&program("engine", false), &["cases::all".to_owned(), "laws::a".to_owned(), "laws::b".to_owned()]);
        let args = |suite: &Suite| -> Vec<String> {
            suite.command().get_args().map(|arg| arg.to_string_lossy().into_owned()).collect()
        };
        let found: Vec<Vec<String>> = suites.iter().map(args).collect();
        assert_eq!(found, [vec!["cases::all", "--exact", "--show-output"], vec!["laws::", "--show-output"]]);
    }
}
