//! docs/compatibility.md calls a row working only with a test, gives a reason for every other row, names only tests that exist, has the
//! right counts, and has a row for every name of Kueue's in the sources.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::requirements::unknown_tests;
use super::{Finding, Tree};

const PAGE: &str = "docs/compatibility.md";
/// Columns of its tables: the part of Kueue, the state, tests or reasons.
const COLUMNS: usize = 3;
/// Heads of the required sections.
const SECTIONS: [&str; 7] = [
    "## Feature gates",
    "## Fields",
    "## Labels",
    "## Annotations",
    "## Conditions and their reasons",
    "## Metrics",
    "## Job kinds",
];
/// The states, and whether each needs a test.
const STATES: [(&str, bool); 3] = [("works", true), ("differs", false), ("not yet", false)];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else { return vec![Finding::new(PAGE, 0, "is missing")] };
    let mut found = Vec::new();
    for section in SECTIONS.iter().filter(|section| !page.lines().any(|line| line == **section)) {
        found.push(Finding::new(PAGE, 0, format!("has no section {section:?}")));
    }
    let mut names = BTreeSet::new();
    let mut counts: BTreeMap<&str, usize> = STATES.iter().map(|(state, _)| (*state, 0)).collect();
    let mut section = "";
    for (index, line) in page.lines().enumerate() {
        if line.starts_with("## ") {
            section = line;
        }
        let Some(inner) = line.trim().strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else { continue };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if cells.first().is_some_and(|first| *first == "Kueue's" || first.starts_with("---")) {
            continue;
        }
        let mut add = |message: String| found.push(Finding::new(PAGE, index + 1, message));
        let &[name, state, shown] = cells.as_slice() else {
            add(format!("{} columns, {COLUMNS} are wanted", cells.len()));
            continue;
        };
        if !names.insert((section, name)) {
            add(format!("{name} has two rows"));
        }
        let Some((_, tested)) = STATES.iter().find(|(known, _)| *known == state) else {
            add(format!("state {state:?}; allowed are works, differs, not yet"));
            continue;
        };
        *counts.entry(state).or_default() += 1;
        if *tested && !shown.contains('`') {
            add(format!("{name} works, and no test is named"));
        }
        if shown.is_empty() {
            add(format!("{name}: no word on why"));
        }
        let named = if *tested { shown } else { from_first_file(shown) };
        unknown_tests(tree, named).into_iter().for_each(&mut add);
    }
    found.extend(counted(page, &counts));
    let rows: Vec<(&str, &str)> = names.into_iter().collect();
    found.extend(known::without_a_row(tree, &rows).into_iter().map(|message| Finding::new(PAGE, 0, message)));
    found
}

/// The part of a reason from the first file in backquotes on: quoted fields and values before it are no tests.
fn from_first_file(reason: &str) -> &str {
    let mut quotes = reason.match_indices('`').map(|(at, _)| at);
    while let (Some(from), Some(to)) = (quotes.next(), quotes.next()) {
        if is_file(&reason[from + 1..to]) {
            return &reason[from..];
        }
    }
    ""
}

/// Whether a name is written as the path of a file. Keys of labels and annotations have a slash as well, and no ending.
fn is_file(name: &str) -> bool {
    name.contains('/') && Path::new(name).extension().is_some()
}

/// Checks that the sentence with the number of rows of each state is right.
fn counted(page: &str, counts: &BTreeMap<&str, usize>) -> Option<Finding> {
    let of = |state: &str| counts.get(state).copied().unwrap_or_default();
    let sentence = format!("{} rows work, {} differ, {} are to come.", of("works"), of("differs"), of("not yet"));
    // The sentence may be broken over two lines.
    let text = page.split_whitespace().fold(String::new(), |text, word| text + " " + word);
    (!text.contains(&format!(" {sentence}"))).then(|| Finding::new(PAGE, 0, format!("must say {sentence:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) = ("e2e/tests/a.rs", "async fn a_test() {}");

    fn said(rows: &str) -> Vec<String> {
        let heads = SECTIONS.join("\n\n");
        let of = |state: &str| rows.matches(&format!("| {state} |")).count();
        let sentence = format!("{} rows work, {} differ,\n{} are to come.", of("works"), of("differs"), of("not yet"));
        told(&format!("# P\n\n{sentence}\n\n{heads}\n\n{HEAD}\n{rows}\n"))
    }

    const HEAD: &str = "| Kueue's | state | shown by, or why |\n|---|---|---|";

    fn told(page: &str) -> Vec<String> {
        check(&Tree::of(&[TEST, (PAGE, page)])).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn compatibility_sentence_with_wrong_row_counts_is_found() {
        let rows = "| `A` | not yet | x |\n| `B` | not yet | x |";
        let page = |sentence: &str| format!("# P\n\n{sentence}\n\n{}\n\n{HEAD}\n{rows}\n", SECTIONS.join("\n\n"));
        assert_eq!(told(&page("0 rows work, 0 differ, 2 are to come.")), [""; 0]);
        let right = "must say \"0 rows work, 0 differ, 2 are to come.\"";
        for wrong in ["0 rows work, 0 differ, 3 are to come.", "10 rows work, 0 differ, 2 are to come.", ""] {
            assert_eq!(told(&page(wrong)), [right], "{wrong}");
        }
    }

    #[test]
    fn compatibility_row_with_test_or_explanation_is_accepted() {
        let rows = "| `A` | works | `e2e/tests/a.rs` `a_test` |\n| `B` | differs | on purpose: `x` is shorter |\n| `C` | not yet | issue 6 |";
        assert_eq!(said(rows), Vec::<String>::new());
    }

    #[test]
    fn compatibility_reason_quotes_before_its_first_file_are_not_tests() {
        let reason = "with `x` of `kueue.x-k8s.io/y` on, as `a_test` shows";
        for state in ["differs", "not yet"] {
            assert_eq!(said(&format!("| `A` | {state} | {reason} |")), [""; 0], "{state}");
            let shown = format!("| `A` | {state} | {reason}: `e2e/tests/a.rs` `a_test` |");
            assert_eq!(said(&shown), [""; 0], "{state}");
        }
    }

    #[test]
    fn compatibility_row_of_any_state_with_missing_test_is_found() {
        for state in ["works", "differs", "not yet"] {
            for (shown, message) in [
                ("`e2e/tests/a.rs` `b`", "e2e/tests/a.rs has no test or scenario b"),
                ("`e2e/tests/b.rs` `a_test`", "e2e/tests/b.rs does not exist"),
                ("`e2e/tests/a.rs` `a_test`, and with it off `Told`", "e2e/tests/a.rs has no test or scenario Told"),
            ] {
                assert_eq!(
                    said(&format!("| `A` | {state} | {shown} |")).first().map(String::as_str),
                    Some(message),
                    "{state}"
                );
            }
        }
    }

    #[test]
    fn compatibility_row_without_evidence_or_valid_form_is_found() {
        for (row, message) in [
            ("| `A` | works | we think |", "`A` works, and no test is named"),
            ("| `A` | works | `e2e/tests/a.rs` `b` |", "e2e/tests/a.rs has no test or scenario b"),
            ("| `A` | works | `e2e/tests/b.rs` `b` |", "e2e/tests/b.rs does not exist"),
            ("| `A` | differs | |", "`A`: no word on why"),
            ("| `A` | fine | x |", "state \"fine\"; allowed are works, differs, not yet"),
            ("| `A` | works |", "2 columns, 3 are wanted"),
            ("| `A` | not yet | x |\n| `A` | not yet | x |", "`A` has two rows"),
        ] {
            assert_eq!(said(row).first().map(String::as_str), Some(message), "{row}");
        }
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        assert_eq!(check(&Tree::of(&[(PAGE, "# P\n\n0 rows work, 0 differ, 0 are to come.\n")])).len(), SECTIONS.len());
    }
}
