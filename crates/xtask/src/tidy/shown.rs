//! Data files with the tests that show the rows of a page: each data file has the rows of its page, and below each row the source files with their tests.

use std::collections::BTreeMap;

use super::requirements::unknown_tests;
use super::{Finding, Tree};

/// The tests of one row.
struct Entry<'a> {
    line: usize,
    section: &'a str,
    row: &'a str,
    /// Source files, each with the names of the tests, scenarios or cases that show the row.
    files: Vec<(&'a str, Vec<&'a str>)>,
}

/// Rows of a page that have at least one test in the data file, by section and first cell.
pub(super) struct Shown<'a>(BTreeMap<(&'a str, &'a str), usize>);

impl Shown<'_> {
    /// Whether a row has a test.
    pub(super) fn has(&self, section: &str, row: &str) -> bool {
        self.0.contains_key(&(section, row))
    }

    /// Findings about rows of the data file that the page does not have.
    pub(super) fn without_a_row(&self, file: &str, is_row: impl Fn(&str, &str) -> bool) -> Vec<Finding> {
        let strange = self.0.iter().filter(|((section, row), _)| !is_row(section, row));
        strange.map(|((_, row), line)| Finding::new(file, *line, format!("the page has no row {row}"))).collect()
    }
}

/// Reads a data file. In a data file, a heading of the page begins a section, `= name` begins a row, a line without indentation is a source file, and a line
/// with two leading spaces is a test in this file.
pub(super) fn read<'a>(tree: &'a Tree, file: &str) -> (Shown<'a>, Vec<Finding>) {
    let Some(text) = tree.text(file) else {
        return (Shown(BTreeMap::new()), vec![Finding::new(file, 0, "is missing")]);
    };
    let mut found = Vec::new();
    let mut section = "";
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with("# ")) {
        let mut add = |message: &str| found.push(Finding::new(file, index + 1, message));
        if line.starts_with("## ") {
            section = line;
        } else if let Some(row) = line.strip_prefix("= ") {
            entries.push(Entry { line: index + 1, section, row, files: Vec::new() });
        } else if let Some(entry) = entries.last_mut() {
            match (line.strip_prefix("  "), entry.files.last_mut()) {
                (None, _) => entry.files.push((line, Vec::new())),
                (Some(test), Some((_, tests))) => tests.push(test),
                (Some(_), None) => add("a test stands below its file"),
            }
        } else {
            add("a file stands below its row");
        }
    }
    let mut rows = BTreeMap::new();
    for entry in entries {
        let mut add = |message: String| found.push(Finding::new(file, entry.line, message));
        let quoted = |names: &[&str]| names.iter().map(|name| format!(" `{name}`")).collect::<String>();
        let cell: Vec<String> = entry.files.iter().map(|(path, tests)| format!("`{path}`{}", quoted(tests))).collect();
        unknown_tests(tree, &cell.join("; ")).into_iter().for_each(&mut add);
        if entry.files.iter().all(|(_, tests)| tests.is_empty()) {
            add(format!("{} has no test", entry.row));
        } else if rows.insert((entry.section, entry.row), entry.line).is_some() {
            add(format!("{} stands here twice", entry.row));
        }
    }
    (Shown(rows), found)
}
