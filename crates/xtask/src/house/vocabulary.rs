//! Private words in identifiers, for which docs/glossary.md has Kubernetes' or Kueue's terms.

use std::collections::BTreeMap;

use proc_macro2::TokenTree;

use super::counted::Counted;
use super::modules::bare;
use super::sources::{Package, Sources, each_group};
use crate::tidy::Finding;

/// Private words with their forms; the first form stands for all forms of the word.
const WORDS: [&[&str]; 24] = [
    &["told", "untold", "tell", "tells", "telling"],
    &["whole"],
    &["books", "booked", "book", "booking", "bookings", "rebooked", "unbooked"],
    &["cards", "card"],
    &["rung", "rungs", "ladder", "ladders", "climb", "climbs", "climbed", "climber", "climbers", "climbing"],
    &["flight", "flights", "flying", "fly", "flown", "land", "lands", "landed", "landing"],
    &["strays", "stray", "doubt", "doubts", "doubtful"],
    &["surroundings"],
    &["standing", "standings"],
    &["ration", "rations", "rationed", "rationing"],
    &["pace", "paces", "paced"],
    &["brain", "brains"],
    &["pulse", "pulses"],
    &["freight", "freights"],
    &["tap", "taps", "tapped"],
    &["candidacy", "candidacies"],
    &["governor", "governors"],
    &["wishes", "wish", "wished"],
    &["footing", "footings"],
    &["heir", "heirs"],
    &["vain"],
    &["feuds", "feud"],
    &["barred"],
    &["said", "unsaid"],
];

/// The private words of a package: each with the identifiers that contain the word and the number of their uses, tests included.
pub(crate) fn counted(package: &Package<'_>) -> BTreeMap<&'static str, BTreeMap<String, usize>> {
    let mut idents: BTreeMap<String, usize> = BTreeMap::new();
    for source in &package.sources {
        each_group(source.tokens.clone(), &mut |tokens| {
            for token in tokens {
                if let TokenTree::Ident(ident) = token {
                    *idents.entry(bare(&ident.to_string())).or_default() += 1;
                }
            }
        });
    }
    let mut found: BTreeMap<&'static str, BTreeMap<String, usize>> = BTreeMap::new();
    for (ident, count) in idents {
        for word in private_words(&ident) {
            found.entry(word).or_default().insert(ident.clone(), count);
        }
    }
    found
}

/// The uses of private words by package, for the baseline: a finding for each use of an identifier.
pub(crate) fn uses(sources: &Sources<'_>) -> BTreeMap<String, Counted> {
    let of_package = |package: &Package<'_>| {
        let words = counted(package);
        // An identifier with two private words counts once, as one use of private words.
        let idents: BTreeMap<&String, usize> = words.values().flatten().map(|(ident, count)| (ident, *count)).collect();
        let each =
            |(ident, count): (&String, usize)| vec![Finding::new(package.folder.as_str(), 0, ident.as_str()); count];
        let found: Vec<Finding> = idents.into_iter().flat_map(each).collect();
        (package.name.to_owned(), Counted { of: found.len(), found })
    };
    sources.packages.iter().map(of_package).collect()
}

/// The private words in an identifier, without duplicates. `in_flight` is a plain term, and so its `flight` does not count.
fn private_words(ident: &str) -> Vec<&'static str> {
    let parts = parts(ident);
    let is_plain = |at: usize| parts[at] == "flight" && at.checked_sub(1).is_some_and(|before| parts[before] == "in");
    let words: Vec<&str> = (0..parts.len()).filter(|at| !is_plain(*at)).map(|at| parts[at].as_str()).collect();
    let has = |forms: &&&[&'static str]| words.iter().any(|word| forms.contains(word));
    WORDS.iter().filter(has).filter_map(|forms| forms.first().copied()).collect()
}

/// The words of an identifier, in lower case.
fn parts(ident: &str) -> Vec<String> {
    let chars: Vec<char> = ident.chars().collect();
    let mut parts = vec![String::new()];
    for (index, c) in chars.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| chars[before]);
        let next_is_small = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
        let begins = c.is_uppercase() && before.is_some_and(|before| before.is_lowercase() || next_is_small);
        if begins || !c.is_alphabetic() {
            parts.push(String::new());
        }
        if c.is_alphabetic()
            && let Some(part) = parts.last_mut()
        {
            part.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::super::sources::Sources;
    use super::*;
    use crate::tidy::Tree;

    #[test]
    fn identifier_is_split_into_its_words() {
        for (ident, expected) in [
            ("untold_job2state", vec!["untold", "job", "state"]),
            ("RungOfHTTPServer", vec!["rung", "of", "http", "server"]),
            ("WHOLE_BOOKS", vec!["whole", "books"]),
            ("_x", vec!["x"]),
        ] {
            assert_eq!(parts(ident), expected, "{ident}");
        }
    }

    #[test]
    fn private_words_are_counted_in_identifiers_and_not_in_comments() {
        let files = [
            ("crates/a/Cargo.toml", ""),
            (
                "crates/a/src/lib.rs",
                "fn untold(told: Told) { assert!(told.whole_books, \"whole {}\", r#heir); } // told",
            ),
            ("crates/a/tests/b.rs", "/// Whole.\nfn f() { told() }"),
        ];
        let tree = Tree::of(&files);
        let sources = Sources::read(&tree).unwrap();
        let counted = counted(&sources.packages[0]);
        let line = |(word, idents): (&&str, &BTreeMap<String, usize>)| {
            let idents: Vec<String> = idents.iter().map(|(ident, count)| format!("{ident} {count}")).collect();
            format!("{word}: {}", idents.join(", "))
        };
        let lines: Vec<String> = counted.iter().map(line).collect();
        let expected =
            ["books: whole_books 1", "heir: heir 1", "told: Told 1, told 3, untold 1", "whole: whole_books 1"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn common_words_that_resemble_private_ones_are_allowed() {
        for ident in
            ["tolerate", "wholesale", "discard", "landscape", "paceless", "known", "outstanding", "InFlightWrites"]
        {
            assert!(private_words(ident).is_empty(), "{ident}");
        }
    }
}
