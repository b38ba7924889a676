//! The runner of decision cases: it judges every case below a folder, and prints a line per family and kind, the reasons per family why cases do not apply to
//! Berth, and the totals.

use crate::applicable::reason_against;
use crate::case::{self, Case};
use crate::diff::Verdict;
use crate::kinds;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The file of feature gates in the folder of the cases, which is no case.
const NO_CASE: &str = "feature-gates.yaml";

/// The cases to run, the cases known to fail, and the verbosity of the report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Part of a path: only cases whose path below the folder contains this text run.
    pub only: Option<String>,
    /// True if the report lists every case with its verdict.
    pub verbose: bool,
    /// Paths of the cases that are known to fail. A failure of a case in this list does not fail the run. Each path of the list must exist, unless the run is
    /// restricted by `only`.
    pub known: BTreeSet<String>,
    /// True if Berth's rules apply where they depart from Kueue on purpose.
    pub as_shipped: bool,
}

/// Counts of verdicts on cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of cases in which Berth gives the expected result.
    pub passed: usize,
    /// Number of cases in which Berth gives another result.
    pub failed: usize,
    /// Number of cases that do not apply to Berth.
    pub not_applicable: usize,
}

/// The outcome of a run of decision cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts of verdicts by family and kind.
    pub groups: BTreeMap<(String, String), Counts>,
    /// Number of cases that do not apply to Berth, by family and reason.
    pub reasons: BTreeMap<(String, &'static str), usize>,
    /// Counts of verdicts on all cases.
    pub totals: Counts,
    /// Number of unexpected outcomes: failed cases that are not known to fail, and cases known to fail that pass, do not apply, or do not exist.
    pub surprises: usize,
}

/// A decision case with its verdict.
struct Judged {
    /// Folder of the case below the folder of all cases.
    family: String,
    kind: String,
    /// Path of the case below the folder of all cases.
    path: String,
    verdict: Verdict,
}

/// Runs the cases below a folder and prints their verdicts. A file that cannot be read is a failed case.
///
/// # Errors
/// The folder is absent or cannot be read, or the report cannot be written.
pub fn run(folder: &Path, options: &Options, out: &mut impl Write) -> io::Result<Report> {
    let mut report = Report::default();
    if !folder.exists() {
        let text = format!("{}: no such folder of cases", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let mut found = Found::default();
    found.collect(folder)?;
    found.files.sort();
    for (path, error) in &found.unreadable {
        let (family, kind) = ("unreadable".to_owned(), "unreadable".to_owned());
        let verdict = Verdict::Failed(vec![error.clone()]);
        report.take(Judged { family, kind, path: relative(folder, path), verdict }, options, out)?;
    }
    for path in &found.files {
        let relative = relative(folder, path);
        if options.only.as_ref().is_some_and(|only| !relative.contains(only)) {
            continue;
        }
        let family = family(folder, &relative);
        let (kind, verdict) = match std::fs::read_to_string(path) {
            Ok(text) => judge_as(&text, options.as_shipped),
            Err(error) => ("unreadable".to_owned(), Verdict::Failed(vec![error.to_string()])),
        };
        report.take(Judged { family, kind, path: relative, verdict }, options, out)?;
    }
    if options.only.is_none() {
        let there: BTreeSet<String> = found.files.iter().map(|path| relative(folder, path)).collect();
        for path in options.known.difference(&there) {
            report.surprises += 1;
            writeln!(out, "no case, but is listed as known to differ: {path}")?;
        }
    }
    report.summary(out)?;
    Ok(report)
}

fn relative(folder: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(folder).unwrap_or(path);
    // The path given to the runner may be a case file instead of a folder.
    let named =
        if relative.as_os_str().is_empty() { Path::new(path.file_name().unwrap_or_default()) } else { relative };
    named.display().to_string()
}

/// The family of a case: the folder below the given folder that has the case. The family of a case directly in the given folder is the name of the given
/// folder.
fn family(folder: &Path, relative: &str) -> String {
    let own = || folder.canonicalize().ok()?.file_name().map(|name| name.to_string_lossy().into_owned());
    relative.split_once('/').map(|(family, _)| family.to_owned()).or_else(own).unwrap_or_default()
}

impl Report {
    fn take(&mut self, case: Judged, options: &Options, out: &mut impl Write) -> io::Result<()> {
        let Judged { family, kind, path, verdict } = case;
        let counts = self.groups.entry((family.clone(), kind)).or_default();
        let known = options.known.contains(&path);
        match verdict {
            Verdict::Passed => {
                counts.passed += 1;
                self.totals.passed += 1;
                if known {
                    self.surprises += 1;
                    writeln!(out, "passed, but is listed as known to differ: {path}")?;
                }
                if options.verbose {
                    writeln!(out, "passed {path}")?;
                }
            }
            Verdict::NotApplicable(reason) => {
                counts.not_applicable += 1;
                self.totals.not_applicable += 1;
                *self.reasons.entry((family, reason)).or_default() += 1;
                if known {
                    self.surprises += 1;
                    writeln!(out, "not applicable, but is listed as known to differ: {path}")?;
                }
                if options.verbose {
                    writeln!(out, "not applicable ({reason}) {path}")?;
                }
            }
            Verdict::Failed(lines) => {
                counts.failed += 1;
                self.totals.failed += 1;
                self.surprises += usize::from(!known);
                writeln!(out, "{} {path}", if known { "FAILED as known" } else { "FAILED" })?;
                for line in lines.iter().flat_map(|text| text.lines()) {
                    writeln!(out, "    {line}")?;
                }
            }
        }
        Ok(())
    }

    fn summary(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:<20} {:<20} {:>7} {:>7} {:>15}", "family", "kind", "passed", "failed", "not applicable")?;
        for ((family, kind), counts) in &self.groups {
            let Counts { passed, failed, not_applicable } = counts;
            writeln!(out, "{family:<20} {kind:<20} {passed:>7} {failed:>7} {not_applicable:>15}")?;
        }
        for ((family, reason), count) in &self.reasons {
            writeln!(out, "{family:<20} not applicable: {count} for {reason}")?;
        }
        let Counts { passed, failed, not_applicable } = self.totals;
        let cases = passed + failed + not_applicable;
        writeln!(out, "conformance: {cases} cases, {passed} passed, {failed} failed, {not_applicable} not applicable")
    }
}

/// The YAML files below a folder, in order.
///
/// # Errors
/// A folder cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Found::default();
    found.collect(folder)?;
    found.files.sort();
    match found.unreadable.into_iter().next() {
        Some((path, error)) => Err(io::Error::other(format!("{}: {error}", path.display()))),
        None => Ok(found.files),
    }
}

/// Files that may be cases, and folders that cannot be read.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    unreadable: Vec<(PathBuf, String)>,
}

impl Found {
    fn collect(&mut self, folder: &Path) -> io::Result<()> {
        if folder.is_file() {
            self.files.push(folder.to_owned());
            return Ok(());
        }
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
            if path.is_dir() {
                if let Err(error) = self.collect(&path) {
                    self.unreadable.push((path, error.to_string()));
                }
            } else if is_yaml && path.file_name().is_some_and(|name| name != NO_CASE) {
                self.files.push(path);
            }
        }
        Ok(())
    }
}

/// The kind of a case and the verdict on it. A panic while a case is judged is a failure of this case, and the run continues with the other cases.
#[must_use]
pub fn judge(text: &str) -> (String, Verdict) {
    judge_as(text, false)
}

fn judge_as(text: &str, as_shipped: bool) -> (String, Verdict) {
    let case = match case::read(text) {
        Ok(case) => Case { as_shipped, ..case },
        Err(error) => return ("unreadable".to_owned(), Verdict::Failed(vec![error])),
    };
    let verdict = judge_case(&case);
    (case.kind, verdict)
}

/// The verdict on a decoded case.
#[must_use]
pub fn judge_case(case: &Case) -> Verdict {
    match reason_against(case) {
        Ok(Some(reason)) => return Verdict::NotApplicable(reason),
        Ok(None) => {}
        Err(error) => return Verdict::Failed(vec![error]),
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
