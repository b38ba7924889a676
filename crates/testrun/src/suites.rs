//! All tests: programs as Cargo built them, cut into suites that run by themselves.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::Program;

/// Package of the end-to-end tests.
pub(crate) const END_TO_END: &str = "e2e";

/// Tests that run in one process.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    /// Name in the table and in the file of budgets.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: Program,
    /// Prefix or name of its tests, as the program takes it; `None` for all of them.
    pub(crate) filter: Option<String>,
    /// Full names of its tests.
    pub(crate) tests: Vec<String>,
}

impl Suite {
    /// The command that runs it.
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
        // The output of a passing test counts as well: it may say that it was skipped.
        command.arg(if self.is_end_to_end() { "--nocapture" } else { "--show-output" });
        command
    }

    /// Whether it needs a control plane of its own, or may need one: unit tests of the harness do not.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.program.package == END_TO_END && !self.program.unit
    }
}

/// All suites of these programs, in the order of their names: one for the unit tests of a library or program, one for each module of a
/// folder of tests, and one for each end-to-end test, since each starts its own control plane.
///
/// # Errors
/// When a program does not list its tests.
pub(crate) fn of(programs: &[Program]) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for program in programs {
        suites.extend(cut(program, &tests(program)?));
    }
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// Names of the tests of a program, with the ignored ones.
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
