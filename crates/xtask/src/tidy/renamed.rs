//! Rule about the map of renamed tests, `crates/xtask/renamed`, with a line `package old new` per test: every new name must exist. With the map of renamed
//! tests, a reader finds the current name of a test that an earlier commit names.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree};

const MAPS: &str = "crates/xtask/renamed/";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut functions = BTreeMap::new();
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.starts_with(MAPS)) {
        for (index, line) in text.lines().enumerate() {
            let mut add = |message: String| found.push(Finding::new(path, index + 1, message));
            let [package, _, new] = line.split(' ').collect::<Vec<_>>()[..] else {
                add(format!("{line:?} is no line `package old new`"));
                continue;
            };
            let known = functions.entry(package.to_owned()).or_insert_with(|| functions_of(tree, package));
            if !known.contains(new) {
                add(format!("package {package} has no test {new}"));
            }
        }
    }
    found
}

/// Names of all functions in the sources of a package.
fn functions_of<'a>(tree: &'a Tree, package: &str) -> BTreeSet<&'a str> {
    let folder = if package == "e2e" { "e2e/".to_owned() } else { format!("crates/{package}/") };
    let sources = tree.files().filter(|(path, _)| path.starts_with(&folder) && path.ends_with(".rs"));
    let named = |line: &'a str| line.split_once("fn ")?.1.split_once('(').map(|(name, _)| name);
    sources.flat_map(|(_, text)| text.lines().filter_map(named)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(map: &str) -> Vec<String> {
        let map_file = format!("{MAPS}a.txt");
        let tree = Tree::of(&[("crates/a/src/lib.rs", "    fn b_is_c() {}"), (map_file.as_str(), map)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn map_of_renamed_tests_names_tests_that_exist() {
        assert_eq!(messages("a old b_is_c\n"), [""; 0]);
        assert_eq!(messages("a old b_is\n"), ["crates/xtask/renamed/a.txt:1: package a has no test b_is"]);
        assert_eq!(messages("a b_is_c\n"), ["crates/xtask/renamed/a.txt:1: \"a b_is_c\" is no line `package old new`"]);
    }
}
