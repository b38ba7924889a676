//! Rule about docs/requirements.md: the page names only existing tests, and no row is empty.

use super::{Finding, Tree};

const PAGE: &str = "docs/requirements.md";
/// Number of columns of a table in docs/requirements.md: row, promise, shown by, missing.
const COLUMNS: usize = 4;
/// Headings of the first column in a table of requirements.
const HEADS: [&str; 2] = ["row", "id"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    rows(tree, PAGE).1
}

/// First cells of the rows in the tables of requirements of a page, and findings about these rows.
pub(super) fn rows<'t>(tree: &'t Tree, page: &str) -> (Vec<&'t str>, Vec<Finding>) {
    let Some(text) = tree.text(page) else { return (Vec::new(), vec![Finding::new(page, 0, "is missing")]) };
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let Some(inner) = line.trim().strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else { continue };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        let first = cells.first().copied().unwrap_or_default();
        if HEADS.contains(&first) || first.starts_with("---") {
            continue;
        }
        rows.push(first);
        let mut add = |message: String| found.push(Finding::new(page, index + 1, message));
        if cells.len() != COLUMNS {
            add(format!("{} columns, {COLUMNS} are wanted", cells.len()));
            continue;
        }
        if cells[2].is_empty() && cells[3].is_empty() {
            add("shows nothing and misses nothing".to_owned());
        }
        unknown_tests(tree, cells[2]).into_iter().for_each(&mut add);
    }
    if rows.is_empty() {
        found.push(Finding::new(page, 0, "has no rows"));
    }
    (rows, found)
}

/// Messages about wrong tests in a cell of a requirements table: the cell has file names in backquotes, and after each file the names of tests or scenarios in
/// it.
pub(crate) fn unknown_tests(tree: &Tree, cell: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut file = None;
    for name in cell.split('`').skip(1).step_by(2) {
        if name.contains('/') {
            file = tree.text(name).map(|text| (name, text));
            if file.is_none() {
                wrong.push(format!("{name} does not exist"));
            }
        } else if let Some((path, text)) = file
            && !holds(text, name)
        {
            wrong.push(format!("{path} has no test or scenario {name}"));
        } else if file.is_none() {
            wrong.push(format!("{name} stands behind no file"));
        }
    }
    if cell.contains(&format!("`{ALL_CASES}`")) && !cell.contains("/tests/cases/") {
        wrong.push(format!("{ALL_CASES} runs all cases of the engine: name the file and the case"));
    }
    wrong
}

/// Name of the test that reads every case of the engine, and so does not show a single requirement.
const ALL_CASES: &str = "golden_cases_print_their_expected_output";

/// Whether a source file has a function, a scenario or a case with the given name.
fn holds(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}("))
        || text.contains(&format!("(\"{name}\","))
        || text.contains(&format!("=== {name}\n"))
        || text.contains(&format!("- name: {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) = ("e2e/tests/a.rs", "async fn a_test() {}\n(\"story\", b(s))");

    fn messages(rows: &str) -> Vec<String> {
        let page = format!("# P\n\n| row | promise | shown by | missing |\n|---|---|---|---|\n{rows}\n");
        check(&Tree::of(&[TEST, (PAGE, &page)])).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn requirement_row_with_existing_tests_is_accepted() {
        assert!(
            messages("| A.1 | p | `e2e/tests/a.rs` `a_test` `story` | |\n| A.2 | p | | not yet (issue 5) |").is_empty()
        );
    }

    #[test]
    fn case_in_a_requirement_is_matched_by_its_full_name() {
        let file = ("cases/job.yaml", "cases:\n- name: one pod, and no more\n  with: {}\n");
        let messages = |name: &str| unknown_tests(&Tree::of(&[file]), &format!("`cases/job.yaml` `{name}`"));
        assert_eq!(messages("one pod, and no more"), Vec::<String>::new());
        assert_eq!(messages("one pod"), ["cases/job.yaml has no test or scenario one pod"]);
    }

    #[test]
    fn requirement_row_with_missing_test_or_evidence_is_found() {
        for (row, message) in [
            ("| A.1 | p | `e2e/tests/b.rs` `a_test` | |", "e2e/tests/b.rs does not exist"),
            ("| A.1 | p | `e2e/tests/a.rs` `a` | |", "e2e/tests/a.rs has no test or scenario a"),
            ("| A.1 | p | `a_test` | |", "a_test stands behind no file"),
            ("| A.1 | p | | |", "shows nothing and misses nothing"),
            ("| A.1 | p | x |", "3 columns, 4 are wanted"),
            ("", "has no rows"),
        ] {
            assert_eq!(messages(row).first().map(String::as_str), Some(message), "{row}");
        }
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
