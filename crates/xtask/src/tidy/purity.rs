//! Rule that the pure crates have no clock, I/O, async, randomness or process state, and no floats in amounts. In the pure crates, clippy refuses items listed
//! in `clippy.toml` and code that may panic. This rule of `make tidy` checks that the pure crates enable clippy's lints, and refuses modules of `std`, async
//! code and floats, for which clippy has no list.

use std::collections::BTreeSet;

use super::source::{is_name, shipped, test_modules};
use super::{Finding, Tree};

/// The pure crates, which only compute.
pub(crate) const PURE: [&str; 9] =
    ["quantity", "api", "engine", "jobs", "lease", "cache", "reconcile", "control", "invariants"];

/// Modules of `std` with I/O, clocks or process state, which pure crates must not use.
const MODULES: [&str; 9] = ["fs", "net", "env", "process", "thread", "io", "time", "sync", "os"];
/// Items that pure crates may use although the module of `std` is refused.
const HARMLESS: [&str; 3] = ["time::Duration", "sync::Arc", "sync::Weak"];
/// Keywords of async code. `clippy.toml` lists the types, functions and macros that pure crates must not use.
const WORDS: [&str; 2] = ["async", "await"];
/// File with clippy's settings for the pure crates.
const SETTINGS: &str = "clippy.toml";
/// Lists of refused items that `clippy.toml` must have.
const LISTS: [&str; 3] = ["disallowed-types", "disallowed-methods", "disallowed-macros"];
/// Files of the engine that may have floats: only files for values that Kueue publishes as floats, and no file that computes amounts.
const FLOATS: [&str; 4] = [
    "crates/engine/src/quota/share.rs",
    "crates/engine/src/queue/afs.rs",
    "crates/engine/src/queue/afs/ledgers.rs",
    "crates/engine/src/preempt/usage.rs",
];
/// Clippy lints that each pure crate must enable.
const LINTS: [&str; 10] = [
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::panic",
    "clippy::unreachable",
    "clippy::indexing_slicing",
    "clippy::print_stdout",
    "clippy::print_stderr",
    "clippy::disallowed_types",
    "clippy::disallowed_methods",
    "clippy::disallowed_macros",
];
/// Further clippy lints that the crates that compute amounts must enable.
const LINTS_OF_AMOUNTS: [&str; 4] = [
    "clippy::arithmetic_side_effects",
    "clippy::float_arithmetic",
    "clippy::cast_possible_truncation",
    "clippy::cast_sign_loss",
];
/// The crates that compute amounts of resources.
const COUNT: [&str; 2] = ["quantity", "engine"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = settings(tree);
    for name in PURE {
        let folder = format!("crates/{name}/src/");
        let root = format!("{folder}lib.rs");
        let amounts = if COUNT.contains(&name) { &LINTS_OF_AMOUNTS[..] } else { &[] };
        asked_of_clippy(&root, tree.text(&root).unwrap_or_default(), amounts, &mut found);
        for (path, text) in that_ship(tree, &folder) {
            file(path, &shipped(text), &mut found);
        }
    }
    found
}

/// Checks that the repository's root has the only file of clippy's settings, because clippy reads only the nearest settings file.
fn settings(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(SETTINGS).unwrap_or_default();
    let missing = LISTS.into_iter().filter(|list| !text.lines().any(|line| line.starts_with(list)));
    let mut found: Vec<Finding> =
        missing.map(|list| Finding::new(SETTINGS, 0, format!("has no list `{list}` for the pure crates"))).collect();
    for (path, _) in tree.files().filter(|(path, _)| path.ends_with(SETTINGS) && *path != SETTINGS) {
        found.push(Finding::new(path, 0, format!("hides the root's {SETTINGS} from the crates below it")));
    }
    found
}

fn asked_of_clippy(path: &str, text: &str, amounts: &[&str], found: &mut Vec<Finding>) {
    let text: String = text.split_whitespace().collect();
    let attribute = text.split_once("#![cfg_attr(not(test),deny(").and_then(|(_, rest)| rest.split_once(")]"));
    let asked = attribute.map(|(lints, _)| lints).unwrap_or_default();
    let missing: Vec<&str> = LINTS.iter().chain(amounts).copied().filter(|lint| !asked.contains(lint)).collect();
    if !missing.is_empty() {
        found.push(Finding::new(path, 0, format!("#![cfg_attr(not(test), deny(...))] lacks {}", missing.join(", "))));
    }
}

/// The Rust sources below a folder, without files that are test modules.
pub(crate) fn that_ship<'t>(tree: &'t Tree, folder: &str) -> Vec<(&'t str, &'t str)> {
    let mut sources: Vec<(&str, &str)> =
        tree.files().filter(|(path, _)| path.starts_with(folder) && path.ends_with(".rs")).collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(|(path, text)| files_of_tests(path, text)).collect();
    sources.retain(|(path, _)| !tests.contains(*path));
    sources
}

/// Paths of the files that a Rust source declares as its test modules.
fn files_of_tests(path: &str, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let inner = if matches!(stem, "lib" | "main" | "mod") { folder.to_owned() } else { format!("{folder}/{stem}") };
    test_modules(text).iter().map(|module| format!("{inner}/{module}.rs")).collect()
}

fn file(path: &str, code: &str, found: &mut Vec<Finding>) {
    let floats =
        (path.starts_with("crates/quantity/") || path.starts_with("crates/engine/")) && !FLOATS.contains(&path);
    for (index, line) in code.lines().enumerate() {
        let mut add = |message: String| found.push(Finding::new(path, index + 1, message));
        for word in line.split(|c| !is_name(c)) {
            if WORDS.contains(&word) {
                add(format!("`{word}` belongs to the runtime"));
            }
            if floats && matches!(word, "f32" | "f64") {
                add(format!("`{word}`: amounts are integers"));
            }
        }
    }
    for (line, used) in uses_of_std(code) {
        let module = used.split("::").next().unwrap_or_default();
        if MODULES.contains(&module) && !HARMLESS.contains(&used.as_str()) {
            found.push(Finding::new(path, line, format!("`std::{used}` reaches outside")));
        }
    }
}

/// Paths below `std` in a source, up to two names deep, with their line numbers; groups in braces are expanded.
fn uses_of_std(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("std::") {
        if code[..at].chars().next_back().is_some_and(is_name) {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        for first in branches(&code[at + "std::".len()..]) {
            let name: String = first.chars().take_while(|c| is_name(*c)).collect();
            match first[name.len()..].strip_prefix("::") {
                Some(rest) => found.extend(branches(rest).into_iter().map(|second| {
                    let second: String = second.chars().take_while(|c| is_name(*c) || *c == '*').collect();
                    (line, format!("{name}::{second}"))
                })),
                None => found.push((line, name)),
            }
        }
    }
    found
}

/// The parts of a `use` group in braces; the text itself if the text is no group.
fn branches(text: &str) -> Vec<&str> {
    let Some(inner) = text.trim_start().strip_prefix('{') else { return vec![text.trim_start()] };
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (index, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(inner[start..index].trim());
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(inner[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: &str = "#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, \
        clippy::indexing_slicing, clippy::print_stdout, clippy::print_stderr, clippy::disallowed_types, clippy::disallowed_methods, \
        clippy::disallowed_macros, clippy::arithmetic_side_effects, clippy::float_arithmetic, clippy::cast_possible_truncation, \
        clippy::cast_sign_loss))]\n";
    /// A `clippy.toml` for tests that has all required lists of refused items.
    const ALL_LISTS: (&str, &str) =
        (SETTINGS, "disallowed-types = []\ndisallowed-methods = []\ndisallowed-macros = []\n");

    /// Findings of the rule about a module of the engine with the given source.
    fn messages(source: &str) -> Vec<String> {
        let roots: Vec<(String, &str)> = PURE.iter().map(|name| (format!("crates/{name}/src/lib.rs"), ASKS)).collect();
        let mut files: Vec<(&str, &str)> = roots.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.extend([ALL_LISTS, ("crates/engine/src/a.rs", source)]);
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn impure_item_in_a_pure_crate_is_found() {
        for (source, word) in [
            ("use std::time::Instant;", "Instant"),
            ("use std::{collections::BTreeMap, fs::File};", "std::fs::File"),
            ("use std::{\n  time::{Duration, SystemTime},\n};", "std::time::SystemTime"),
            ("fn f() { std::env::var(); }", "std::env::var"),
            ("use std::io;", "std::io"),
            ("use std::sync::atomic::AtomicU64;", "std::sync::atomic"),
            ("use std::thread;", "std::thread"),
            ("async fn f() {}", "async"),
            ("f().await", "await"),
            ("let x: f64;", "f64"),
        ] {
            let messages = messages(source);
            assert!(messages.iter().any(|text| text.contains(word)), "{source}: {messages:?}");
        }
    }

    #[test]
    fn computation_and_tests_in_a_pure_crate_are_allowed() {
        let none: [String; 0] = [];
        let good =
            "use std::{sync::Arc, time::Duration}; // Instant\nuse rustc_hash::FxHashMap; let operand = \"tokio\";";
        assert_eq!(messages(good), none);
        assert_eq!(messages("#[cfg(test)]\nmod tests { use std::fs; }"), none);
    }

    #[test]
    fn test_module_file_of_a_pure_crate_may_be_impure() {
        let lib = format!("{ASKS}#[cfg(test)]\nmod a;\n");
        let files = [("crates/engine/src/lib.rs", lib.as_str()), ("crates/engine/src/a.rs", "use std::fs;")];
        assert!(!check(&Tree::of(&files)).iter().any(|finding| finding.path.ends_with("a.rs")));
        let files = [("crates/engine/src/lib.rs", ASKS), ("crates/engine/src/a.rs", "use std::fs;")];
        assert!(check(&Tree::of(&files)).iter().any(|finding| finding.path.ends_with("a.rs")));
    }

    #[test]
    fn clippy_settings_without_lists_or_beside_a_crate_are_found() {
        let messages = |files: &[(&str, &str)]| -> Vec<String> {
            settings(&Tree::of(files)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(messages(&[ALL_LISTS]).len(), 0);
        assert_eq!(messages(&[]).len(), LISTS.len());
        for hidden in ["crates/engine/clippy.toml", "crates/.clippy.toml"] {
            let found = messages(&[ALL_LISTS, (hidden, "")]);
            assert!(matches!(found.as_slice(), [one] if one.contains(hidden)), "{found:?}");
        }
    }

    #[test]
    fn pure_crate_without_the_clippy_lints_is_found() {
        let files = [("crates/jobs/src/lib.rs", "#![cfg_attr(not(test), deny(clippy::panic))]")];
        let messages: Vec<String> = check(&Tree::of(&files)).iter().map(ToString::to_string).collect();
        assert!(messages.iter().any(|text| text.contains("jobs") && text.contains("unwrap_used")), "{messages:?}");
        // The clippy lints about arithmetic are required only in the crates that compute amounts.
        let rest = ASKS.replace(", clippy::arithmetic_side_effects", "");
        let lacks = |name: &str| {
            let root = format!("crates/{name}/src/lib.rs");
            let found = check(&Tree::of(&[(root.as_str(), rest.as_str())]));
            found.iter().any(|finding| finding.path == root && finding.to_string().contains("arithmetic_side_effects"))
        };
        assert_eq!(PURE.map(lacks), PURE.map(|name| COUNT.contains(&name)));
    }
}
