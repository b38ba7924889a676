//! Rule about texts of conditions and reasons of events: the constants of berth-api are the only source of these texts, so that docs/compatibility.md can be
//! compared with the constants. The crates `cache`, `reconcile` and `control` have no string literal with the text of a constant. The engine, which does not
//! depend on berth-api, may have such a literal, and each word among the reasons that it gives must equal a constant. Control or the engine uses each of
//! Berth's own constants.

use std::collections::BTreeSet;

use super::source::{is_name, shipped, shipped_texts, shipped_texts_behind};
use super::{Finding, Tree};

/// Files of berth-api with the constants of condition texts and event reasons.
const LISTS: [&str; 3] =
    ["crates/api/src/conditions.rs", "crates/api/src/conditions/own.rs", "crates/api/src/conditions/events.rs"];
/// Module of constants with Kueue's reasons. docs/compatibility.md has a row for each of Kueue's reasons, so these constants may be unused.
const OF_KUEUE: &str = "reasons";
/// End of the name of a constant with the first part of a text, such as of a condition type that another word completes.
const BEGINNING: &str = "_PREFIX";
/// Folders of sources that must use the constants of berth-api instead of string literals.
const CONTROL: [&str; 3] = ["crates/cache/src/", "crates/reconcile/src/", "crates/control/src/"];
/// Beginnings of the paths of test fixtures; fixtures may have string literals, because they stand for texts that users and other programs write.
const TESTING: [&str; 2] = ["crates/cache/src/testing", "crates/reconcile/src/testing"];
/// Code that comes directly before the string literal of an event's reason.
const BEFORE_REASON: [&str; 3] = ["EventType::Normal,", "EventType::Warning,", "reason:"];
/// Source files with the reasons that the engine gives.
const ENGINE: [&str; 4] = [
    "crates/engine/src/answers.rs",
    "crates/engine/src/explain/figures.rs",
    "crates/engine/src/preempt/candidates.rs",
    "crates/engine/src/preempt/fair.rs",
];
/// String literals, by file, that equal a constant's text but have another meaning: an API kind, a feature gate, or the status of a condition.
const SOMETHING_ELSE: [(&str, &str); 5] = [
    ("crates/cache/src/feature_gates.rs", "ConcurrentAdmission"),
    ("crates/reconcile/src/queues/figures.rs", "Unknown"),
    ("crates/control/src/offline.rs", "AdmissionCheck"),
    ("crates/control/src/offline/manifest.rs", "AdmissionCheck"),
    ("crates/cache/src/object/resource.rs", "AdmissionCheck"),
];

struct Constant<'a> {
    /// File and line number, from 1, of the constant.
    place: (&'static str, usize),
    list: &'a str,
    name: &'a str,
    value: &'a str,
}

impl Constant<'_> {
    fn path(&self) -> String {
        format!("{}::{}", self.list, self.name)
    }

    /// Whether a text equals the constant's text, or begins with the constant's text if the constant is a prefix.
    fn is_in(&self, text: &str) -> bool {
        text == self.value || (self.name.ends_with(BEGINNING) && text.starts_with(self.value))
    }
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    with(tree, &SOMETHING_ELSE)
}

fn with(tree: &Tree, something_else: &[(&str, &str)]) -> Vec<Finding> {
    let constants: Vec<Constant<'_>> = LISTS.into_iter().flat_map(|path| constants(path, tree)).collect();
    let mut found = Vec::new();
    let mut met = BTreeSet::new();
    let is_of_tests = |path: &str| path.ends_with("tests.rs") || TESTING.iter().any(|folder| path.starts_with(folder));
    let is_ours = |path: &str| CONTROL.iter().any(|folder| path.starts_with(folder));
    let ships = |path: &str| is_ours(path) && path.ends_with(".rs") && !is_of_tests(path);
    for (path, source) in tree.files().filter(|(path, _)| ships(path)) {
        for (line, text) in shipped_texts(source) {
            let same: Vec<String> = constants.iter().filter(|word| word.is_in(&text)).map(Constant::path).collect();
            if same.is_empty() {
                continue;
            }
            match something_else.iter().find(|(of, word)| *of == path && *word == text) {
                Some(other) => _ = met.insert(other),
                None => found.push(Finding::new(path, line, format!("{text:?} is {} of berth-api", same.join(" or ")))),
            }
        }
        for (line, text) in shipped_texts_behind(source, &BEFORE_REASON) {
            if is_word(&text) && !constants.iter().any(|word| word.is_in(&text)) {
                found.push(Finding::new(path, line, format!("the reason {text:?} is in no list of berth-api")));
            }
        }
    }
    for (path, word) in something_else.iter().filter(|other| !met.contains(other)) {
        found.push(Finding::new(*path, 0, format!("has no {word:?} any more that the check has to let pass")));
    }
    found.extend(of_the_engine(tree, &constants));
    found.extend(left_over(tree, &constants));
    found
}

fn constants<'a>(path: &'static str, tree: &'a Tree) -> Vec<Constant<'a>> {
    let mut found = Vec::new();
    let mut list = "";
    for (index, line) in tree.text(path).unwrap_or_default().lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(" {")) {
            list = name;
        }
        let value = line.strip_suffix("\";").and_then(|line| line.split_once(" = \""));
        if let Some((name, value)) = value.filter(|(name, _)| name.chars().all(is_name)) {
            found.push(Constant { place: (path, index + 1), list, name, value });
        }
    }
    found
}

/// Whether a string literal is a single word that begins with a capital letter.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(is_name)
}

/// Findings about words in the engine's string literals that equal no constant.
fn of_the_engine(tree: &Tree, constants: &[Constant<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in ENGINE {
        for (line, text) in shipped_texts(tree.text(path).unwrap_or_default()) {
            if is_word(&text) && !constants.iter().any(|word| word.value == text) {
                found.push(Finding::new(path, line, format!("{text:?} is not among the reasons of berth-api")));
            }
        }
    }
    found
}

/// Findings about unused constants; Kueue's reasons are left out.
fn left_over(tree: &Tree, constants: &[Constant<'_>]) -> Vec<Finding> {
    let of_crates = |path: &str| path.starts_with("crates/") && path.ends_with(".rs") && !LISTS.contains(&path);
    let sources: Vec<String> =
        tree.files().filter(|(path, _)| of_crates(path)).map(|(_, source)| shipped(source)).collect();
    let found_text: BTreeSet<String> = ENGINE
        .into_iter()
        .flat_map(|path| shipped_texts(tree.text(path).unwrap_or_default()))
        .map(|(_, text)| text)
        .collect();
    let is_used = |word: &Constant<'_>| {
        let path = word.path();
        let alone = |source: &str, at: usize| {
            !source[..at].ends_with(is_name) && !source[at + path.len()..].starts_with(is_name)
        };
        let names_it = |source: &String| source.match_indices(&path).any(|(at, _)| alone(source, at));
        found_text.contains(word.value) || sources.iter().any(names_it)
    };
    let unused = constants.iter().filter(|word| word.list != OF_KUEUE && !is_used(word));
    unused.map(|word| Finding::new(word.place.0, word.place.1, format!("nobody writes {}", word.path()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUEUE: (&str, &str) = (
        LISTS[0],
        "pub mod types {\n    strings! {\n        /// It is.\n        DONE = \"Done\";\n    }\n}\n\
         pub mod reasons {\n    strings! {\n        DONE = \"Done\";\n        DUE_TO_PREFIX = \"DueTo\";\n    }\n}\n",
    );
    const USES: (&str, &str) = ("crates/jobs/src/a.rs", "f(types::DONE)");

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = [KUEUE, USES].iter().chain(files).copied().collect();
        with(&Tree::of(&files), &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn condition_word_spelled_out_in_control_is_found() {
        let found = messages(&[("crates/control/src/a/b.rs", "\nif is(\"Done\") { f(\"DueToThis\") }")]);
        assert_eq!(
            found,
            [
                "crates/control/src/a/b.rs:2: \"Done\" is types::DONE or reasons::DONE of berth-api",
                "crates/control/src/a/b.rs:2: \"DueToThis\" is reasons::DUE_TO_PREFIX of berth-api",
            ]
        );
    }

    #[test]
    fn event_reason_missing_in_the_lists_is_found() {
        let found = messages(&[(
            "crates/control/src/a.rs",
            "f(EventType::Normal, \"New\", \"Done so\");\nN { reason: \"Newer\" }",
        )]);
        assert_eq!(
            found,
            [
                "crates/control/src/a.rs:1: the reason \"New\" is in no list of berth-api",
                "crates/control/src/a.rs:2: the reason \"Newer\" is in no list of berth-api",
            ]
        );
    }

    #[test]
    fn words_of_tests_and_other_crates_are_allowed() {
        let none: [String; 0] = [];
        let control = "f(\"Done so\", \"ThisDueTo\"); // \"Done\"\n#[cfg(test)]\nmod tests { f(\"Done\"); }";
        let others = [
            ("crates/control/src/a.rs", control),
            ("crates/control/src/a_tests.rs", "f(\"Done\")"),
            ("crates/control/tests/b.rs", "f(\"Done\")"),
            ("crates/webhook/src/c.rs", "f(\"Done\")"),
        ];
        assert_eq!(messages(&others), none);
    }

    #[test]
    fn word_exempted_for_a_file_passes_until_unused() {
        let path = "crates/control/src/a.rs";
        let here = |source: &str| {
            let tree = Tree::of(&[KUEUE, USES, (path, source)]);
            with(&tree, &[(path, "Done")]).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(here("kind(\"Done\")"), [""; 0]);
        assert_eq!(here(""), [format!("{path}: has no \"Done\" any more that the check has to let pass")]);
    }

    #[test]
    fn engine_reason_missing_in_the_lists_is_found() {
        let found = messages(&[(ENGINE[0], "f(\"Done\", \"Other\", \"Other things\", \"other\")")]);
        assert_eq!(found, [format!("{}:1: \"Other\" is not among the reasons of berth-api", ENGINE[0])]);
    }

    #[test]
    fn reason_constant_that_nothing_writes_is_found() {
        let own =
            "pub mod own_reasons {\n    STOCK = \"Stock\";\n    STOCK_OUT = \"StockOut\";\n    SAID = \"Said\";\n}\n";
        let control = "f(own_reasons::STOCK_OUT); // own_reasons::STOCK";
        let found = messages(&[(LISTS[1], own), ("crates/control/src/a.rs", control), (ENGINE[1], "f(\"Said\")")]);
        assert_eq!(found, [format!("{}:2: nobody writes own_reasons::STOCK", LISTS[1])]);
    }

    #[test]
    fn lists_of_conditions_and_reasons_are_read() {
        let tree = Tree::read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let many = LISTS.map(|path| constants(path, &tree).len());
        assert!(many[0] >= 100 && many[1] >= 50 && many[2] >= 15, "{many:?}");
    }
}
