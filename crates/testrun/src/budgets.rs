//! Time budgets of test steps: `.ci/budgets.txt`, for a machine that builds the control plane's programs in eight minutes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use berth_testrun::folders;

use crate::step::{Class, Line};

/// Seconds in which the machine for which the time budgets of test steps are given builds the control plane's programs.
pub(crate) const REFERENCE: f64 = 480.0;
/// A step is reported if it takes longer than its time budget multiplied by this factor.
const TOLERATED: f64 = 1.5;
/// A step that takes fewer seconds than this is never reported as over its time budget, because the times of short steps vary by as much.
const NOTICED: f64 = 5.0;

/// State of Cargo's target folder and of the cache at the beginning of a run of `testrun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Cargo's target folder has artifacts of an earlier run.
    Warm,
    /// The clone is fresh, and the cache has compiled dependencies.
    Cached,
    /// The run begins with neither a target folder nor cached dependencies.
    Nothing,
}

/// Time budgets in seconds by step, for each kind of start ([`Start`]).
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    steps: BTreeMap<String, [f64; 3]>,
}

impl Budgets {
    /// Reads `.ci/budgets.txt`, the file of time budgets.
    ///
    /// # Errors
    /// A line does not have the form of a budget.
    pub(crate) fn read() -> Result<Budgets> {
        let path = folders::repository().join(".ci/budgets.txt");
        Self::parse(&std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?)
    }

    /// Parses time budgets, a line per step: seconds for a warm start, for a cached start and for a start from nothing, and the step's name. A single number is
    /// the budget for all three kinds of start.
    fn parse(text: &str) -> Result<Budgets> {
        let mut budgets = Budgets::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let seconds: Vec<f64> = words.iter().map_while(|word| word.parse().ok()).collect();
            let of = match seconds.as_slice() {
                [all] => [*all; 3],
                [warm, cached, nothing] => [*warm, *cached, *nothing],
                _ => anyhow::bail!("{line:?}: one number of seconds or three, then the name of a step"),
            };
            let name = words[seconds.len()..].join(" ");
            ensure!(!name.is_empty(), "{line:?} names no step");
            ensure!(budgets.steps.insert(name, of).is_none(), "{line:?}: the step has two lines");
        }
        Ok(budgets)
    }

    /// Time budget of a step in seconds; `None` if the budgets have no line for the step.
    pub(crate) fn of(&self, step: &str, start: Start) -> Option<f64> {
        let [warm, cached, nothing] = *self.steps.get(step)?;
        Some(match start {
            Start::Warm => warm,
            Start::Cached => cached,
            Start::Nothing => nothing,
        })
    }

    /// Time budgets of all steps in seconds.
    pub(crate) fn all(&self, start: Start) -> BTreeMap<String, f64> {
        self.steps.keys().filter_map(|step| Some((step.clone(), self.of(step, start)?))).collect()
    }

    /// The message about steps over their time budget and steps without a budget. `scale` is the time that this machine needs, relative to the reference
    /// machine.
    pub(crate) fn verdict(&self, lines: &[Line], start: Start, scale: f64) -> String {
        let mut text = String::new();
        for line in lines.iter().filter(|line| line.class != Class::Downloading) {
            match self.of(&line.name, start) {
                Some(budget) if line.wall > NOTICED && line.wall > budget * scale * TOLERATED => {
                    let allowed = budget * scale;
                    let _ = writeln!(text, "over budget: {} took {:.0} s, of {allowed:.0} s", line.name, line.wall);
                }
                None if line.wall > NOTICED => {
                    let _ = writeln!(text, "without a budget: {} took {:.0} s", line.name, line.wall);
                }
                _ => {}
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;

    fn line(name: &str, wall: f64) -> Line {
        Line {
            name: name.to_owned(),
            class: Class::Running,
            wall,
            cpu: None,
            peak: None,
            counts: Counts::default(),
            passed: true,
        }
    }

    #[test]
    fn step_beyond_scaled_budget_by_half_is_named_in_verdict() -> Result<()> {
        let budgets = Budgets::parse("# Seconds.\n10 engine laws\n1 20 30 compile tests\n")?;
        let lines = [line("engine laws", 16.0), line("compile tests", 29.0), line("new", 6.0), line("short", 1.0)];
        let message = budgets.verdict(&lines, Start::Cached, 1.0);
        assert_eq!(message, "over budget: engine laws took 16 s, of 10 s\nwithout a budget: new took 6 s\n");
        assert_eq!(budgets.verdict(&lines[..1], Start::Warm, 2.0), "");
        assert!(Budgets::parse("1 2 two numbers").is_err());
        assert!(Budgets::parse("7").is_err());
        Ok(())
    }

    #[test]
    fn budgets_file_of_the_repository_is_read() -> Result<()> {
        assert!(!Budgets::read()?.steps.is_empty());
        Ok(())
    }
}
