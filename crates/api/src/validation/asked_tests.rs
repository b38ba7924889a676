//! Test that every refusal of this crate is also tried on a real API server: each message must be in the end-to-end tests of the webhook or in the
//! tables of `e2e/cases`. `crates/jobs/tests/kinds/reviews.rs` has the same test for messages about jobs.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Messages that no webhook sends, because the schema refuses the object before the webhook is called: (message, table of cases, name of the case
/// with the schema's answer).
const ANSWERED_BEFORE: [(&str, &str, &str); 4] = [
    ("must have at least one pod set", "Workload.yaml", "wl empty podsets"),
    ("must be between 1 and the count, {count}", "Workload.yaml", "wl mincount"),
    ("must be unique", "Workload.yaml", "wl dup"),
    ("must be greater than 0", "Workload.yaml", "wl slice size"),
];
/// Format strings that are only parts of messages of the validation.
const PARTS: [&str; 4] = ["{}: Invalid value: {:?}: {}", "and {more} more", "covered resources", "{} x{}"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below the folder `folder` whose name ends in `end`.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_str().is_some_and(|name| name.ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The string literals of a Rust source, without those in its comments.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        assert!(
            !before.ends_with('#') || !from.starts_with('"'),
            "a raw string is not read: {}",
            rest.lines().next().unwrap_or_default()
        );
        rest = if from.starts_with("//") {
            from.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(text) = from.strip_prefix('"') {
            let (literal, rest) = literal(text);
            found.push(literal);
            rest
        } else if let Some(text) = from.strip_prefix('\'') {
            // After a single quote, the source has either a character or the name of a lifetime.
            let mut letters = text.char_indices();
            let escaped = letters.next().is_some_and(|(_, letter)| letter == '\\');
            let end = if escaped { letters.nth(1) } else { letters.next() };
            end.filter(|(_, letter)| *letter == '\'').map_or(text, |(at, _)| text.split_at(at.saturating_add(1)).1)
        } else {
            from.split_at(1).1
        };
    }
    found
}

/// The string literal whose content begins at the start of `text`, and the source after the literal.
fn literal(text: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (literal, text.split_at(at.saturating_add(1)).1),
            '\\' => match letters.next() {
                Some((_, '\n')) => while letters.next_if(|(_, letter)| letter.is_whitespace()).is_some() {},
                Some((_, escaped)) => literal.push(escaped),
                None => break,
            },
            letter => literal.push(letter),
        }
    }
    (literal, "")
}

/// The texts between the values of a message's format string. The quotes that `{:?}` puts around a value belong to the texts between the values of the message.
fn words(message: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once('{') {
        let (value, after) = after.split_once('}').unwrap();
        let quote = if value.ends_with(":?") { "\"" } else { "" };
        plain.extend([before, quote, "\n", quote]);
        rest = after;
    }
    plain.push_str(rest);
    let words = plain.split('\n').filter(|words| words.contains(char::is_alphabetic));
    words.map(str::to_owned).collect()
}

/// Whether the text `text` contains the texts `words` in their order.
fn has(text: &str, words: &[String]) -> bool {
    let mut rest = Some(text);
    for words in words {
        rest = rest.and_then(|text| text.split_once(words.as_str())).map(|(_, rest)| rest);
    }
    rest.is_some()
}

#[derive(Deserialize)]
struct Case {
    case: String,
    answers: Vec<Value>,
}

#[test]
fn validation_messages_are_each_tested_on_an_api_server() {
    let sources = files(&root().join("crates/api/src/validation"), ".rs");
    let sources = sources.iter().filter(|path| !path.ends_with("asked_tests.rs"));
    let mut messages = BTreeSet::new();
    for source in sources.map(|path| fs::read_to_string(path).unwrap()) {
        let rules = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        messages.extend(literals(rules).into_iter().filter(|text| text.contains(' ') && !words(text).is_empty()));
    }
    for part in PARTS {
        assert!(messages.remove(part), "{part:?} is none any more");
    }
    for (message, table, case) in ANSWERED_BEFORE {
        assert!(messages.remove(message), "{message:?} is no message any more");
        let text = fs::read_to_string(root().join("e2e/cases/crds").join(table)).unwrap();
        let cases: Vec<Case> = serde_saphyr::from_str(&text).unwrap();
        let found = cases.iter().find(|one| one.case == case).unwrap_or_else(|| panic!("{table} has no case {case}"));
        assert!(found.answers.iter().all(|answer| answer.get("refused").is_some()), "{case}: {:?}", found.answers);
    }
    assert!(messages.len() > 40, "{messages:?}");

    let tests = files(&root().join("e2e/tests/webhook"), ".rs");
    let mut asked: Vec<String> = tests.iter().flat_map(|path| literals(&fs::read_to_string(path).unwrap())).collect();
    for table in files(&root().join("e2e/cases"), ".yaml") {
        asked.extend(fs::read_to_string(table).unwrap().lines().map(str::to_owned));
    }
    let all: Vec<Vec<String>> = messages.iter().map(|message| words(message)).collect();
    let is_reported = |message: &[String]| {
        // If a test has a longer message that contains `message`, `message` itself does not count as tried.
        let within: Vec<&Vec<String>> =
            all.iter().filter(|other| other.as_slice() != message && has(&other.concat(), message)).collect();
        asked.iter().any(|text| has(text, message) && !within.iter().any(|other| has(text, other)))
    };
    let missing: Vec<&String> = messages.iter().filter(|message| !is_reported(&words(message))).collect();
    assert!(missing.is_empty(), "{} messages are asked of no API server: {missing:#?}", missing.len());
}

#[test]
fn string_literals_and_message_words_are_read_from_source() {
    let source = "// \"no\"\nfn a<'a>(b: &'a str) -> char { c(\"a \\\"b\\\"\", '\"', '\\'', \"one \\\n   two\") }";
    assert_eq!(literals(source), ["a \"b\"", "one two"]);
    assert_eq!(words("{name:?} is {many} of {}"), ["\" is ", " of "]);
    let reported_by = |text: &str| has(text, &words("must be nil when {} is empty"));
    assert!(reported_by("x: must be nil when cohort is empty") && !reported_by("is empty must be nil when"));
}
