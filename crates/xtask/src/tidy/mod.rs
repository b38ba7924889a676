//! The house rules as a machine check: `make tidy`.
//!
//! Each rule is a function from the repository ([`Tree`]) to findings, and has a test that shows it failing. Checks of clippy and rustfmt
//! are not repeated; the rule that the pure crates ask clippy for them is here.

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

/// Everything that the rules find in the repository at `root`, whose files are `tree`.
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
