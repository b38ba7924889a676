//! Rule about docs/invariants.md: every invariant has a row, the rows are in order, and a row names existing tests or says which part of the invariant no test
//! shows.

use super::{Finding, Tree, requirements};

const PAGE: &str = "docs/invariants.md";
/// Groups of invariants, with the number of invariants in each group.
const GROUPS: [(&str, usize); 7] = [("Q", 8), ("L", 9), ("C", 6), ("R", 6), ("V", 7), ("D", 4), ("S", 7)];

fn ids() -> Vec<String> {
    GROUPS.iter().flat_map(|(group, count)| (1..=*count).map(move |number| format!("{group}{number}"))).collect()
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let (rows, mut found) = requirements::rows(tree, PAGE);
    let ids = ids();
    if rows != ids {
        found.push(Finding::new(PAGE, 0, format!("has rows {}; wanted are {}", rows.join(" "), ids.join(" "))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(page: &str) -> Vec<String> {
        let tree = Tree::of(&[("e2e/tests/a.rs", "fn a_test() {}"), (PAGE, page)]);
        check(&tree).iter().map(|finding| finding.message.clone()).collect()
    }

    fn page() -> String {
        let rows: String = ids().iter().map(|id| format!("| {id} | p | `e2e/tests/a.rs` `a_test` | |\n")).collect();
        format!("# P\n\n| id | what holds | shown by | missing |\n|---|---|---|---|\n{rows}")
    }

    #[test]
    fn page_with_every_invariant_is_accepted() {
        assert_eq!(messages(&page()), [""; 0]);
        assert_eq!(ids().len(), 47);
    }

    #[test]
    fn invariant_without_row_or_test_is_found() {
        let row = "| L5 | p | `e2e/tests/a.rs` `a_test` | |\n";
        assert!(messages(&page().replace(row, "")).iter().any(|text| text.starts_with("has rows Q1 Q2")));
        assert_eq!(messages(&page().replace(row, "| L5 | p | | |\n")), ["shows nothing and misses nothing"]);
        let unknown = page().replace(row, "| L5 | p | `e2e/tests/a.rs` `b_test` | |\n");
        assert_eq!(messages(&unknown), ["e2e/tests/a.rs has no test or scenario b_test"]);
    }
}
