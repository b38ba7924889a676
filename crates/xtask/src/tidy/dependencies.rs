//! Rule against dependencies in a manifest that no source uses: such a dependency would be compiled and audited for nothing.

use std::collections::BTreeSet;

use super::source::is_name;
use super::{Finding, Tree};

/// File name of a Cargo manifest; the workspace's manifest is in the root folder.
const WORKSPACE: &str = "Cargo.toml";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut members = BTreeSet::new();
    for (path, text) in tree.files() {
        let Some(folder) = path.strip_suffix(WORKSPACE).filter(|folder| !folder.is_empty()) else { continue };
        let sources = || tree.files().filter(|(path, _)| path.starts_with(folder) && path.ends_with(".rs"));
        for (line, name) in named(text) {
            let word = name.replace('-', "_");
            if !sources().any(|(_, text)| text.split(|c| !is_name(c)).any(|other| other == word)) {
                found.push(Finding::new(path, line, format!("no source of the crate names {name}")));
            }
            members.insert(name);
        }
    }
    for (line, name) in named(tree.text(WORKSPACE).unwrap_or_default()) {
        if !members.contains(name) {
            found.push(Finding::new(WORKSPACE, line, format!("no crate depends on {name}")));
        }
    }
    found
}

/// The dependencies in all sections of a Cargo manifest, with their line numbers.
fn named(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut listed = false;
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            listed = line.trim_end().ends_with("dependencies]");
        } else if listed && let Some(name) = line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()) {
            found.push((index + 1, name));
        }
    }
    found.retain(|(_, name)| !name.starts_with('#'));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_that_no_source_names_is_found() {
        let files = [
            (
                "Cargo.toml",
                "[workspace.dependencies]\nused-one = \"1\"\nnobodys = \"1\"\n\n[profile.dev]\nopt-level = 2\n",
            ),
            (
                "crates/a/Cargo.toml",
                "[package]\nname = \"a\"\n\n[dependencies]\n# Why.\nused-one.workspace = true\nidle = \"1\"\n\n[dev-dependencies]\nof-tests = \"1\"\n",
            ),
            ("crates/a/src/lib.rs", "use used_one::One;\nlet idled = 1;\n"),
            ("crates/a/tests/a.rs", "fn main() { of_tests::run(); }\n"),
            ("crates/b/src/lib.rs", "use idle::Idle;\n"),
        ];
        let messages: Vec<String> = check(&Tree::of(&files)).iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            ["crates/a/Cargo.toml:7: no source of the crate names idle", "Cargo.toml:3: no crate depends on nobodys",]
        );
    }
}
