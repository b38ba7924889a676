//! Rule about the deciding crates: the engine and control have no code for tests, so that both behave equally in a test, in the runner of decision cases and in
//! a cluster. No feature, build condition or environment variable changes the engine and control, and their code does not mention decision cases.

use super::purity::that_ship;
use super::source::{is_name, marked, shipped, shipped_texts};
use super::{Finding, Tree};

/// The deciding crates.
const DECIDE: [&str; 4] = ["engine", "cache", "reconcile", "control"];
/// Texts in a Cargo manifest, without spaces, that allow several variants of a crate.
const VARIANTS: [&str; 4] = ["[features]", "features.", "optional=true", "build="];
/// Words in code that refer to decision cases.
const CASES: [&str; 3] = ["testkit", "conformance", "cases/"];
/// The only allowed build conditions in the engine and control: lint settings for code outside of tests.
const LINTS: [&str; 3] = ["(not(test),deny(", "(not(test),expect(", "(not(test),allow("];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in DECIDE {
        let folder = format!("crates/{name}/");
        manifest(tree, &folder, &mut found);
        for (path, text) in that_ship(tree, &format!("{folder}src/")) {
            conditions(path, text, &mut found);
            names(path, text, &mut found);
        }
    }
    found
}

fn manifest(tree: &Tree, folder: &str, found: &mut Vec<Finding>) {
    let (manifest, build) = (format!("{folder}Cargo.toml"), format!("{folder}build.rs"));
    for (index, line) in tree.text(&manifest).unwrap_or_default().lines().enumerate() {
        let close = line.replace(' ', "");
        let is_there =
            |word: &&&str| if word.ends_with("true") { close.contains(**word) } else { close.starts_with(**word) };
        if let Some(word) = VARIANTS.iter().find(is_there) {
            found.push(Finding::new(&manifest, index + 1, format!("`{word}`: what decides is built in one way")));
        }
        if line.contains(CASES[0]) {
            found.push(Finding::new(&manifest, index + 1, "what decides does not know who tests it"));
        }
    }
    if tree.text(&build).is_some() {
        found.push(Finding::new(build, 0, "what decides is built in one way"));
    }
}

fn conditions(path: &str, text: &str, found: &mut Vec<Finding>) {
    for (line, behind) in marked(text) {
        if !behind.starts_with("mod ") {
            found.push(Finding::new(path, line, "only modules are for tests alone, nothing within what ships"));
        }
    }
    let code = shipped(text);
    for (at, _) in code.match_indices("cfg") {
        let word: String = code[at..].chars().take_while(|c| is_name(*c)).collect();
        if code[..at].chars().next_back().is_some_and(is_name) || !matches!(word.as_str(), "cfg" | "cfg_attr") {
            continue;
        }
        let rest: String = code[at + word.len()..].chars().filter(|c| !c.is_whitespace()).take(32).collect();
        if word == "cfg" || !LINTS.iter().any(|lint| rest.starts_with(lint)) {
            let line = code[..at].matches('\n').count() + 1;
            found.push(Finding::new(path, line, format!("`{word}`: what decides is the same in every build")));
        }
    }
    for (index, _) in code.lines().enumerate().filter(|(_, line)| line.contains("env!(")) {
        found.push(Finding::new(path, index + 1, "`env!`: what decides does not depend on where it is built"));
    }
}

fn names(path: &str, text: &str, found: &mut Vec<Finding>) {
    let code = shipped(text);
    let code = code.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned()));
    for (line, found_text) in code.chain(shipped_texts(text)) {
        if let Some(word) = CASES.iter().find(|word| found_text.contains(**word)) {
            found.push(Finding::new(path, line, format!("`{word}`: what decides does not know the cases")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn code_that_differs_in_tests_is_found() {
        for (source, line) in [
            ("fn f() { if cfg!(test) { return; } }", 1),
            ("\n#[cfg(not(test))]\nfn f() {}", 2),
            ("#[cfg(feature = \"slow\")]\nmod a;", 1),
            ("#[cfg( test )]\nmod a;", 1),
            ("fn f() {\n    #[cfg(test)]\n    g();\n}", 2),
            ("#[cfg(test)]\n#[inline]\nfn f() {}", 1),
            ("#[cfg_attr(test, path = \"b.rs\")]\nmod a;", 1),
            ("const A: Option<&str> =\n option_env!(\"A\");", 2),
            ("use berth_testkit::Case;", 1),
            ("let folder = \"../shared/conformance\";", 1),
            ("\nread(\"tests/cases/a.txt\");", 2),
        ] {
            for path in ["crates/engine/src/a.rs", "crates/control/src/a/b.rs"] {
                let found_text = messages(&[(path, source)]);
                assert!(
                    found_text.len() == 1 && found_text[0].starts_with(&format!("{path}:{line}: ")),
                    "{source}: {found_text:?}"
                );
            }
        }
    }

    #[test]
    fn feature_optional_dependency_or_build_script_is_found() {
        for manifest in [
            "[features]\nslow = []",
            "features.slow = []",
            "serde.optional=true",
            "[dependencies]\nserde = { version = \"1\", optional = true }",
            "[package]\nbuild = \"b.rs\"",
            "[dev-dependencies]\nberth-testkit.workspace = true",
        ] {
            assert_eq!(messages(&[("crates/engine/Cargo.toml", manifest)]).len(), 1, "{manifest}");
        }
        assert_eq!(messages(&[("crates/control/build.rs", "fn main() {}")]).len(), 1);
    }

    #[test]
    fn test_modules_lints_and_other_crates_are_allowed() {
        let none: [String; 0] = [];
        let lib = "#![cfg_attr(\n    not(test),\n    deny(clippy::panic)\n)]\n// cfg!(test) of the testkit\nfn f() { debug_assert!(true); }\n\
                   #[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[path = \"b.rs\"]\nmod more { fn f() { cfg!(test); read(\"cases/a\"); } }\n";
        let tests = "fn f() { env!(\"CARGO_MANIFEST_DIR\"); \"tests/cases\"; }";
        assert_eq!(messages(&[("crates/engine/src/lib.rs", lib), ("crates/engine/src/tests.rs", tests)]), none);
        assert_eq!(messages(&[("crates/runtime/src/a.rs", "fn f() { cfg!(test); }")]), none);
        assert_eq!(messages(&[("crates/engine/Cargo.toml", "[dependencies]\na = { default-features = false }")]), none);
    }
}
