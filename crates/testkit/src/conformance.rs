//! The runner: every case below a folder, a line per family and kind, the totals last.

use crate::applicable::reason_against;
use crate::case::{self, Case};
use crate::diff::Verdict;
use crate::kinds;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What to run and how much to say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only cases whose path below the folder contains this.
    pub only: Option<String>,
    /// Every case with its verdict.
    pub verbose: bool,
    /// Cases that are known to differ, by path below the folder: they fail, but not the run.
    pub known: BTreeSet<String>,
}

/// Counts of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Everything expected was found.
    pub passed: usize,
    /// Something differs.
    pub failed: usize,
    /// Not for Berth.
    pub not_applicable: usize,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// By family and kind.
    pub groups: BTreeMap<(String, String), Counts>,
    /// Cases that are not for Berth, by reason.
    pub reasons: BTreeMap<&'static str, usize>,
    /// All.
    pub totals: Counts,
    /// Failed cases that are not known to differ, and cases known to differ that do not.
    pub surprises: usize,
}

/// Runs the cases below a folder and prints what became of them.
///
/// # Errors
/// When a folder or file cannot be read, or the report cannot be written.
pub fn run(folder: &Path, options: &Options, out: &mut impl Write) -> io::Result<Report> {
    let mut report = Report::default();
    if !folder.exists() {
        writeln!(out, "conformance: {} absent, 0 cases", folder.display())?;
        return Ok(report);
    }
    for path in files(folder)? {
        let relative = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        // The table of gates stands beside the families and is no case.
        let Some((family, _)) = relative.split_once('/') else { continue };
        if options.only.as_ref().is_some_and(|only| !relative.contains(only)) {
            continue;
        }
        let (kind, verdict) = judge(family, &std::fs::read_to_string(&path)?);
        let counts = report.groups.entry((family.to_owned(), kind)).or_default();
        let tell = |out: &mut dyn Write, word: &str| writeln!(out, "{word} {relative}");
        match verdict {
            Verdict::Passed => {
                counts.passed += 1;
                if options.known.contains(&relative) {
                    report.surprises += 1;
                    tell(out, "passed, but is listed as known to differ:")?;
                }
                report.totals.passed += 1;
                if options.verbose {
                    tell(out, "passed")?;
                }
            }
            Verdict::NotApplicable(reason) => {
                counts.not_applicable += 1;
                report.totals.not_applicable += 1;
                *report.reasons.entry(reason).or_default() += 1;
                if options.verbose {
                    tell(out, &format!("not applicable ({reason})"))?;
                }
            }
            Verdict::Failed(lines) => {
                counts.failed += 1;
                report.totals.failed += 1;
                let known = options.known.contains(&relative);
                report.surprises += usize::from(!known);
                tell(out, if known { "FAILED as known" } else { "FAILED" })?;
                for line in lines.iter().flat_map(|text| text.lines()) {
                    writeln!(out, "    {line}")?;
                }
            }
        }
    }
    summary(&report, out)?;
    Ok(report)
}

fn summary(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:<20} {:<20} {:>7} {:>7} {:>15}", "family", "kind", "passed", "failed", "not applicable")?;
    for ((family, kind), counts) in &report.groups {
        let Counts { passed, failed, not_applicable } = counts;
        writeln!(out, "{family:<20} {kind:<20} {passed:>7} {failed:>7} {not_applicable:>15}")?;
    }
    for (reason, count) in &report.reasons {
        writeln!(out, "not applicable: {count} for {reason}")?;
    }
    let Counts { passed, failed, not_applicable } = report.totals;
    let cases = passed + failed + not_applicable;
    writeln!(out, "conformance: {cases} cases, {passed} passed, {failed} failed, {not_applicable} not applicable")
}

/// The YAML files below a folder, in order.
///
/// # Errors
/// When a folder cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}

/// The kind and verdict of a case's text. A panic is a failure of this case alone.
#[must_use]
pub fn judge(family: &str, text: &str) -> (String, Verdict) {
    let case = match case::read(text) {
        Ok(case) => case,
        Err(error) => return ("unreadable".to_owned(), Verdict::Failed(vec![error])),
    };
    let verdict = judge_case(family, &case);
    (case.kind, verdict)
}

/// The verdict on a case that has been read.
#[must_use]
pub fn judge_case(family: &str, case: &Case) -> Verdict {
    if let Some(reason) = reason_against(family, case) {
        return Verdict::NotApplicable(reason);
    }
    match catch_unwind(AssertUnwindSafe(|| kinds::run(case))) {
        Ok(Ok(diff)) => diff.verdict(),
        Ok(Err(error)) => Verdict::Failed(vec![error]),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Verdict::Failed(vec![format!("panic: {text}")])
        }
    }
}
