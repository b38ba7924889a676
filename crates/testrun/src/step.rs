//! A step of a Makefile target, and the step's line in the table at the end of a run.

use std::path::PathBuf;
use std::process::Command;

use crate::counts::Counts;

/// Kind of a step's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The step fetches from a package registry; the time of such a step counts against no budget.
    Downloading,
    /// The step compiles, lints or documents.
    Compiling,
    /// The step runs tests or programs.
    Running,
}

/// Destination of the output of a step's command.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// The output of the step's command goes to the terminal at once.
    Shown,
    /// The output of the step's command goes to a log file, which is printed if the command fails.
    Logged(PathBuf),
    /// The standard output of the step's command goes to a file that the runner reads, and the command's standard error goes to the terminal.
    Read(PathBuf),
}

/// A step of a Makefile target: a command with a name in the table of steps.
pub(crate) struct Step {
    /// Name of the step in the table of steps and in the file of time budgets.
    pub(crate) name: String,
    /// Kind of the step's work.
    pub(crate) class: Class,
    /// The command of the step.
    pub(crate) command: Command,
    /// Destination of the command's output.
    pub(crate) output: Output,
    /// Number of tests that the step must run, including ignored tests. Without this number, a step whose filter matches no test would pass.
    pub(crate) tests: Option<usize>,
}

/// A line of the table of steps.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Name of the step.
    pub(crate) name: String,
    /// Kind of the step's work.
    pub(crate) class: Class,
    /// Seconds from the start of the step to its end.
    pub(crate) wall: f64,
    /// CPU seconds of the step's process and all its descendants; `None` if they were not measured.
    pub(crate) cpu: Option<f64>,
    /// Largest sampled sum of the resident memory of the step's processes, in bytes.
    pub(crate) peak: Option<u64>,
    /// Counts of the step's tests.
    pub(crate) counts: Counts,
    /// True if the step ended with success.
    pub(crate) passed: bool,
}
