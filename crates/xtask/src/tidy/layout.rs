//! Rules about the places of files, the lengths of files, and the doc comment at the beginning of a crate.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// Files and folders that the top level of the repository may have.
const TOP: [&str; 23] = [
    ".ci",
    ".editorconfig",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "charts",
    "clippy.toml",
    "crates",
    "crds",
    "deny.toml",
    "docs",
    "e2e",
    "examples",
    "rust-toolchain.toml",
    "rustfmt.toml",
    ".gitattributes",
    "ARCHITECTURE.md",
];

/// Largest allowed number of lines of a file in the repository.
const LINES: usize = 500;
/// Files that may have more lines than other files, each with the reason.
const LONGER: [(&str, &str); 0] = [];
/// Files whose length is not limited: files that a program writes, and lists that grow with the repository.
const GENERATED: [&str; 10] = [
    "Cargo.lock",
    "crates/xtask/renamed/",
    "crates/xtask/shown/",
    "crds/",
    "charts/kustomize/berth.yaml",
    "e2e/azurite/package-lock.json",
    "e2e/controlplane/go.sum",
    "e2e/helm/go.sum",
    "e2e/helm3/go.sum",
    "e2e/prometheus/go.sum",
];

/// File and module names that say nothing about the content.
const EMPTY_NAMES: [&str; 5] = ["util", "utils", "helpers", "common", "misc"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let top: BTreeSet<&str> =
        tree.files().map(|(path, _)| path.split_once('/').map_or(path, |(folder, _)| folder)).collect();
    for name in top.iter().filter(|name| !TOP.contains(name)) {
        found.push(Finding::new(*name, 0, "has no place at the top level"));
    }
    for (path, lines) in long_files(tree).filter(|(path, _)| LONGER.iter().all(|(long, _)| long != path)) {
        found.push(Finding::new(path, 0, format!("{lines} lines; split it by topic, {LINES} are allowed")));
    }
    for (path, text) in tree.files() {
        let named = path.split(['/', '.']).any(|part| EMPTY_NAMES.contains(&part.replace('-', "_").as_str()));
        if named {
            found.push(Finding::new(path, 0, "name it after what it is about"));
        }
        if is_root(path) && !text.starts_with("//! ") {
            found.push(Finding::new(
                path,
                1,
                "begins with `//!`: what it is for, what it never does, where to start reading",
            ));
        }
        if path.ends_with(".md") {
            let titles = titles(text);
            if titles != 1 {
                found.push(Finding::new(path, 0, format!("{titles} titles (`# `), one is wanted")));
            }
            let fences = (1..).zip(text.lines()).filter(|(_, line)| is_fence_with_text(line));
            found.extend(fences.map(|(line, _)| {
                Finding::new(path, line, "text behind a fence belongs to its own line: it is shown as code here")
            }));
        }
    }
    for (path, _) in LONGER {
        if tree.text(path).is_none_or(|text| text.lines().count() <= LINES) {
            found.push(Finding::new(path, 0, "needs no exception for its length any more"));
        }
    }
    found
}

/// Files with more lines than allowed, each with its number of lines; generated files are left out.
pub(crate) fn long_files(tree: &Tree) -> impl Iterator<Item = (&str, usize)> {
    let written = |path: &str| GENERATED.iter().any(|place| path.starts_with(place));
    let lines = tree.files().map(|(path, text)| (path, text.lines().count()));
    lines.filter(move |(path, lines)| *lines > LINES && !written(path))
}

/// Whether a file is the root of a crate, test or program.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["crates", _, "src", "lib.rs" | "main.rs"] | ["e2e", "src", "lib.rs"] => true,
        ["crates", _, "tests", file] | ["e2e", "tests", file] | ["e2e", "src", "bin", file] => file.ends_with(".rs"),
        ["crates", _, "tests", _, "mod.rs"] | ["e2e", "tests", _, "mod.rs"] => true,
        _ => false,
    }
}

/// Whether a line of Markdown is the fence of a code block and has more text after the fence than the name of a language.
fn is_fence_with_text(line: &str) -> bool {
    line.trim_start().strip_prefix("```").is_some_and(|rest| rest.contains(['`', ' ']))
}

/// Number of first-level headings of a Markdown text, outside of code blocks.
fn titles(text: &str) -> usize {
    let mut code = false;
    let mut count = 0;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        count += usize::from(!code && line.starts_with("# "));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn path_outside_the_known_top_level_is_refused() {
        assert_eq!(messages("scripts/build.sh", ""), ["has no place at the top level"]);
        assert!(messages("charts/berth/Chart.yaml", "").is_empty());
    }

    #[test]
    fn file_beyond_the_line_limit_is_found_unless_generated() {
        let long = "x\n".repeat(LINES + 1);
        assert_eq!(messages("crates/engine/src/a.rs", &long).len(), 1);
        assert!(messages("crates/engine/src/a.rs", &"x\n".repeat(LINES)).is_empty());
        assert!(messages("crds/a.yaml", &long).is_empty());
    }

    #[test]
    fn path_named_util_or_helpers_is_found() {
        for path in ["crates/engine/src/util.rs", "crates/control/src/utils/a.rs", "e2e/src/helpers.rs"] {
            assert_eq!(messages(path, "").len(), 1, "{path}");
        }
        assert!(messages("crates/engine/src/utility.rs", "").is_empty());
    }

    #[test]
    fn crate_root_without_a_doc_comment_is_found() {
        for path in ["crates/engine/src/lib.rs", "e2e/src/lib.rs", "e2e/tests/a.rs", "e2e/tests/a/mod.rs"] {
            assert_eq!(messages(path, "mod a;\n").len(), 1, "{path}");
            assert!(messages(path, "//! Text.\nmod a;\n").is_empty(), "{path}");
        }
        assert!(messages("crates/engine/src/a.rs", "use b;").is_empty());
    }

    #[test]
    fn page_without_exactly_one_title_is_found() {
        assert!(messages("docs/a.md", "# A\n```\n# comment\n```\n## B\n").is_empty());
        assert_eq!(messages("docs/a.md", "# A\n# B\n").len(), 1);
        assert_eq!(messages("docs/a.md", "A\n").len(), 1);
    }

    #[test]
    fn text_behind_a_fence_is_found() {
        assert!(messages("docs/a.md", "# A\n```yaml\na: b\n```\nText\n").is_empty());
        assert_eq!(messages("docs/a.md", "# A\n```yaml\na: b\n``` Text\n").len(), 1);
        assert_eq!(messages("docs/a.md", "# A\n  ```  `Text` of an entry\n").len(), 1);
    }
}
