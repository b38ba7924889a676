//! `make tidy`: a machine check of the house rules.
//!
//! Each rule is a function from the repository ([`Tree`]) to findings, and has a test in which the rule fails. `make tidy` repeats no rule of clippy and
//! rustfmt; one rule of `make tidy` checks that the pure crates enable the required clippy lints.

mod boundaries;
mod compatibility;
mod dependencies;
mod finding;
mod invariants;
mod layout;
mod purity;
mod renamed;
mod requirements;
mod shown;
mod source;
mod text;
mod tree;
mod unaware;
mod words;

use std::path::Path;

use anyhow::Result;

pub(crate) use finding::Finding;
pub(crate) use layout::long_files;
pub(crate) use source::{CommentLine, comments};
pub(crate) use tree::Tree;

/// The findings of all rules of `make tidy` about the repository at `root` with the files `tree`.
pub(crate) fn findings(root: &Path, tree: &Tree) -> Result<Vec<Finding>> {
    let mut found = boundaries::check(&boundaries::packages(root)?);
    found.extend(dependencies::check(tree));
    found.extend(purity::check(tree));
    found.extend(unaware::check(tree));
    found.extend(layout::check(tree));
    found.extend(renamed::check(tree));
    found.extend(requirements::check(tree));
    found.extend(invariants::check(tree));
    found.extend(compatibility::check(tree));
    found.extend(text::check(tree));
    found.extend(words::check(tree));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let found = findings(&root, &Tree::read(&root).unwrap()).unwrap();
        let list: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(list.is_empty(), "{}", list.join("\n"));
    }
}
