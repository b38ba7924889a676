//! Rule about docs/compatibility.md: a row with the state `works` has a test, every other row has a reason, the page's counts of rows are right, and every name
//! of Kueue in the sources has a row. A data file names the tests of the page's rows, and these tests must exist.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Finding, Tree, shown};

const PAGE: &str = "docs/compatibility.md";
/// Data file with the tests of the rows of docs/compatibility.md.
const SHOWN: &str = "crates/xtask/shown/compatibility.txt";
/// Number of columns of the tables in docs/compatibility.md: the part of Kueue, the state, and notes.
const COLUMNS: usize = 3;
/// Headings of the sections that docs/compatibility.md must have.
const SECTIONS: [&str; 7] = [
    "## Feature gates",
    "## Fields",
    "## Labels",
    "## Annotations",
    "## Conditions and their reasons",
    "## Metrics",
    "## Job kinds",
];
/// The allowed states of a row in docs/compatibility.md, and whether a row with each state needs a test.
const STATES: [(&str, bool); 3] = [("works", true), ("differs", false), ("not yet", false)];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else { return vec![Finding::new(PAGE, 0, "is missing")] };
    let (shown, mut found) = shown::read(tree, SHOWN);
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
        let &[name, state, notes] = cells.as_slice() else {
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
        if *tested && !shown.has(section, name) {
            add(format!("{name} works, and {SHOWN} names no test"));
        }
        if !*tested && notes.is_empty() {
            add(format!("{name}: no word on why"));
        }
        if let Some(source) = notes.split('`').skip(1).step_by(2).find(|quoted| is_source(quoted)) {
            add(format!("{name} names {source}: tests stand in {SHOWN}"));
        }
    }
    found.extend(shown.without_a_row(SHOWN, |section, row| names.contains(&(section, row))));
    found.extend(counted(page, &counts));
    let rows: Vec<(&str, &str)> = names.into_iter().collect();
    found.extend(known::without_a_row(tree, &rows).into_iter().map(|message| Finding::new(PAGE, 0, message)));
    found
}

/// Whether a name is the path of a source or of a table of cases. A name with a slash but without a file extension is the key of a label or annotation.
fn is_source(name: &str) -> bool {
    let ending = Path::new(name).extension();
    name.contains('/')
        && ending.is_some_and(|ending| ["rs", "yaml", "txt"].map(Into::into).contains(&ending.to_owned()))
}

/// Checks the sentence of docs/compatibility.md with the number of rows in each state.
fn counted(page: &str, counts: &BTreeMap<&str, usize>) -> Option<Finding> {
    let of = |state: &str| counts.get(state).copied().unwrap_or_default();
    let sentence = format!("{} rows work, {} differ, {} are to come.", of("works"), of("differs"), of("not yet"));
    // The page's sentence with the counts of rows may span two lines.
    let text = page.split_whitespace().fold(String::new(), |text, word| text + " " + word);
    (!text.contains(&format!(" {sentence}"))).then(|| Finding::new(PAGE, 0, format!("must say {sentence:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) = ("e2e/tests/a.rs", "async fn a_test() {}");

    /// Findings about a page with the given rows in its last section, and with a data file of the text `data`.
    fn messages(rows: &str, data: &str) -> Vec<String> {
        let heads = SECTIONS.join("\n\n");
        let of = |state: &str| rows.matches(&format!("| {state} |")).count();
        let sentence = format!("{} rows work, {} differ,\n{} are to come.", of("works"), of("differs"), of("not yet"));
        findings_of_page(&format!("# P\n\n{sentence}\n\n{heads}\n\n{HEAD}\n{rows}\n"), data)
    }

    const HEAD: &str = "| Kueue's | state | notes |\n|---|---|---|";
    /// The data file of the tests: the row `A` in the page's last section, which has the rows, has a test.
    const DATA: &str = "# Tests\n\n## Job kinds\n= `A`\ne2e/tests/a.rs\n  a_test\n";

    fn findings_of_page(page: &str, data: &str) -> Vec<String> {
        check(&Tree::of(&[TEST, (PAGE, page), (SHOWN, data)])).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn compatibility_sentence_with_wrong_row_counts_is_found() {
        let rows = "| `A` | not yet | x |\n| `B` | not yet | x |";
        let page = |sentence: &str| format!("# P\n\n{sentence}\n\n{}\n\n{HEAD}\n{rows}\n", SECTIONS.join("\n\n"));
        assert_eq!(findings_of_page(&page("0 rows work, 0 differ, 2 are to come."), ""), [""; 0]);
        let right = "must say \"0 rows work, 0 differ, 2 are to come.\"";
        for wrong in ["0 rows work, 0 differ, 3 are to come.", "10 rows work, 0 differ, 2 are to come.", ""] {
            assert_eq!(findings_of_page(&page(wrong), ""), [right], "{wrong}");
        }
    }

    #[test]
    fn compatibility_row_with_test_or_explanation_is_accepted() {
        let rows = "| `A` | works | |\n| `B` | differs | on purpose: `x` of `kueue.x-k8s.io/y` is shorter |\n| `C` | not yet | later |";
        assert_eq!(messages(rows, DATA), [""; 0]);
        assert_eq!(messages(&rows.replace("| works | |", "| works | `docs/a.md` says how |"), DATA), [""; 0]);
    }

    #[test]
    fn compatibility_test_that_does_not_exist_is_found() {
        let row = "| `A` | works | |";
        for (from, to, message) in [
            ("a_test", "b", "e2e/tests/a.rs has no test or scenario b"),
            ("e2e/tests/a.rs", "e2e/tests/b.rs", "e2e/tests/b.rs does not exist"),
            ("  a_test\n", "", "`A` has no test"),
            ("= `A`\n", "", "a file stands below its row"),
            ("e2e/tests/a.rs\n", "", "a test stands below its file"),
            ("= `A`", "= `B`", "`A` works, and crates/xtask/shown/compatibility.txt names no test"),
            ("## Job kinds", "## Fields", "`A` works, and crates/xtask/shown/compatibility.txt names no test"),
        ] {
            let findings = messages(row, &DATA.replace(from, to));
            assert_eq!(findings.first().map(String::as_str), Some(message), "{from} {to}");
        }
        assert_eq!(messages(row, &format!("{DATA}= `Z`\ne2e/tests/a.rs\n  a_test\n")), ["the page has no row `Z`"]);
        assert_eq!(messages(row, &format!("{DATA}{}", &DATA[22..])), ["`A` stands here twice"]);
    }

    #[test]
    fn compatibility_row_without_evidence_or_valid_form_is_found() {
        for (row, message) in [
            ("| `B` | works | we think |", "`B` works, and crates/xtask/shown/compatibility.txt names no test"),
            (
                "| `A` | works | `e2e/tests/a.rs` `a_test` |",
                "`A` names e2e/tests/a.rs: tests stand in crates/xtask/shown/compatibility.txt",
            ),
            ("| `A` | differs | |", "`A`: no word on why"),
            ("| `A` | fine | x |", "state \"fine\"; allowed are works, differs, not yet"),
            ("| `A` | works |", "2 columns, 3 are wanted"),
            ("| `A` | not yet | x |\n| `A` | not yet | x |", "`A` has two rows"),
        ] {
            assert_eq!(messages(row, DATA).first().map(String::as_str), Some(message), "{row}");
        }
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        let page = (PAGE, "# P\n\n0 rows work, 0 differ, 0 are to come.\n");
        assert_eq!(check(&Tree::of(&[page, (SHOWN, "")])).len(), SECTIONS.len());
    }
}
