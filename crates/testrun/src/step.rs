//! A step of a target, and its line in the table.

use std::path::PathBuf;
use std::process::Command;

use crate::counts::Counts;

/// Kind of a step's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Fetching from a package registry; counts against no target.
    Downloading,
    /// Compiling, linting or documenting.
    Compiling,
    /// Running tests or programs.
    Running,
}

/// Destination of the output of a command.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// To the terminal, as it comes.
    Shown,
    /// To a log file, which is printed when the command fails.
    Logged(PathBuf),
    /// Standard output to a file for the runner to read, standard error to the terminal.
    Read(PathBuf),
}

/// A command with a name in the table.
pub(crate) struct Step {
    /// Name in the table and in the file of budgets.
    pub(crate) name: String,
    /// Kind of its work.
    pub(crate) class: Class,
    /// The command.
    pub(crate) command: Command,
    /// Destination of its output.
    pub(crate) output: Output,
    /// Number of tests that must have been run, ignored ones among them: a filter that matches no test ends with success, too.
    pub(crate) tests: Option<usize>,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Name of the step.
    pub(crate) name: String,
    /// Kind of its work.
    pub(crate) class: Class,
    /// Seconds from start to end.
    pub(crate) wall: f64,
    /// Seconds of CPU with all descendants; `None` if they were not measured.
    pub(crate) cpu: Option<f64>,
    /// Largest sampled sum of the resident memory of its processes, in bytes.
    pub(crate) peak: Option<u64>,
    /// Counts of its tests.
    pub(crate) counts: Counts,
    /// True when it ended with success.
    pub(crate) passed: bool,
}
