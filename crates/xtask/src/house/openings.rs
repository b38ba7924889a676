//! Sentences that begin with a word that names no subject (docs/STYLE.md).

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemFn, ReturnType, Signature, TraitItemFn, Type};

use super::PAGES;
use super::counted::Counted;
use super::prose::{Paragraph, Place};
use super::sources::{Source, Sources};
use crate::tidy::Finding;

/// Words with which a sentence must not begin.
const BANNED: [&str; 8] = ["What", "Who", "Whom", "Whose", "Whoever", "Whatever", "Those", "Of"];
/// The word with which a sentence may begin only in the comment of a function that returns a bool.
const OF_ANSWERS: &str = "Whether";
/// Two words that a sentence must not have as its beginning.
const SO_MANY: [&str; 2] = ["So", "many"];

/// Sentences with a banned opening, by package and for all pages together.
pub(crate) fn counted(sources: &Sources<'_>) -> BTreeMap<String, Counted> {
    let mut found = BTreeMap::new();
    for package in &sources.packages {
        let counted: &mut Counted = found.entry(package.name.to_owned()).or_default();
        for source in &package.sources {
            let answers = lines_about_answers(source);
            count(source.path, &source.prose, &answers, counted);
        }
    }
    let counted = found.entry(PAGES.to_owned()).or_default();
    for page in &sources.pages {
        count(page.path, &page.prose, &BTreeSet::new(), counted);
    }
    found
}

/// Counts the sentences of paragraphs. Headings are no sentences, and the cell of a table is a sentence if it begins with a capital letter.
fn count(path: &str, paragraphs: &[Paragraph], answers: &BTreeSet<usize>, counted: &mut Counted) {
    for paragraph in paragraphs.iter().filter(|paragraph| paragraph.place != Place::Heading) {
        for (line, sentence) in paragraph.sentences() {
            let begin = sentence.trim_start_matches(['*', '_', '(']);
            if paragraph.place == Place::Cell && !begin.starts_with(char::is_uppercase) {
                continue;
            }
            counted.of += 1;
            let is_answer = answers.contains(&line) && begin.starts_with(OF_ANSWERS);
            if is_banned(begin) && !is_answer {
                counted.found.push(Finding::new(path, line, sentence));
            }
        }
    }
}

/// Whether a sentence begins with a banned word, in upper or lower case.
fn is_banned(sentence: &str) -> bool {
    let mut words = sentence.split(|c: char| !c.is_alphanumeric());
    let first = words.next().unwrap_or_default();
    let is = |word: &str| first == word || first == word.to_lowercase();
    BANNED.into_iter().any(is) || is(OF_ANSWERS) || (is(SO_MANY[0]) && words.next() == Some(SO_MANY[1]))
}

/// The lines of doc comments of functions that return a bool.
fn lines_about_answers(source: &Source<'_>) -> BTreeSet<usize> {
    struct Answers(BTreeSet<usize>);
    impl Answers {
        fn function(&mut self, attributes: &[Attribute], signature: &Signature) {
            let is_bool = matches!(&signature.output, ReturnType::Type(_, output)
                if matches!(&**output, Type::Path(output) if output.path.is_ident("bool")));
            if is_bool {
                let docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
                self.0.extend(docs.map(|doc| doc.pound_token.spans[0].start().line));
            }
        }
    }
    impl<'ast> Visit<'ast> for Answers {
        fn visit_item_fn(&mut self, function: &'ast ItemFn) {
            self.function(&function.attrs, &function.sig);
            visit::visit_item_fn(self, function);
        }
        fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
            self.function(&function.attrs, &function.sig);
            visit::visit_impl_item_fn(self, function);
        }
        fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
            self.function(&function.attrs, &function.sig);
            visit::visit_trait_item_fn(self, function);
        }
    }
    let mut answers = Answers(BTreeSet::new());
    answers.visit_file(&source.file);
    answers.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Tree;

    /// The sentences with a banned opening in a source file and a page of a test.
    fn found(source: &str, page: &str) -> Vec<String> {
        let files = [("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", source), ("docs/a.md", page)];
        let tree = Tree::of(&files);
        let counted = counted(&Sources::read(&tree).unwrap());
        counted.values().flat_map(|counted| &counted.found).map(ToString::to_string).collect()
    }

    #[test]
    fn banned_opening_of_a_comment_sentence_is_found() {
        for word in BANNED.into_iter().chain(["So many", "Whether"]) {
            for text in [word.to_owned(), word.to_lowercase()] {
                let source = format!("/// It is here. \n///\n/// {text} of them.\nstruct A;");
                assert_eq!(found(&source, ""), [format!("crates/a/src/lib.rs:3: {text} of them.")]);
            }
        }
    }

    #[test]
    fn sentences_within_a_comment_are_all_checked() {
        let source = "fn f() {\n    // The job waits. What it waits for\n    // is quota. Who stops it?\n    g(); // of others\n}";
        let expected = ["2: What it waits for is quota.", "3: Who stops it?", "4: of others"];
        assert_eq!(found(source, ""), expected.map(|rest| format!("crates/a/src/lib.rs:{rest}")));
    }

    #[test]
    fn string_literals_code_and_other_words_are_allowed() {
        let none: [&str; 0] = [];
        let source = "//! Whole jobs. Often. `What` is a word. \"What\" as well. Soft. So much. Offers. OF=control.\n//! ```\n//! What\n//! ```\n\
                      const A: &str = \"What it is. // Who\";\n/// # What it is\nstruct A;";
        assert_eq!(found(source, ""), none);
    }

    #[test]
    fn whether_may_open_only_comments_of_functions_returning_bool() {
        let source = "/// Text.\n/// Whether it is so.\nfn f() -> bool { true }\ntrait T {\n    /// Whether it is so.\n    fn g(&self) -> bool;\n}\n\
                      impl A {\n    /// Whether it is so.\n    fn h() -> bool {\n        // Whether it is so.\n        true\n    }\n}\n\
                      struct B {\n    /// Whether it is so.\n    b: bool,\n}\n/// Whether it is so.\nfn i() -> Option<bool> { None }\n/// What it is.\nfn j() -> bool { true }";
        let lines: Vec<String> =
            found(source, "").iter().map(|line| line.split(':').nth(1).unwrap().to_owned()).collect();
        assert_eq!(lines, ["11", "16", "19", "21"]);
    }

    #[test]
    fn pages_are_checked_except_headings_and_small_cells() {
        let page = "# What it is\n\n**Who** asks? It does.\n\n- whose job\n\n| what | b |\n|---|---|\n| of x | Those of y. |\n";
        let expected = ["3: **Who** asks?", "5: whose job", "9: Those of y."];
        assert_eq!(found("", page), expected.map(|rest| format!("docs/a.md:{rest}")));
    }

    #[test]
    fn sentences_are_counted_by_package() {
        let files = [
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "/// One. Two. What three.\nstruct A;"),
            ("crates/b/Cargo.toml", ""),
            ("crates/b/src/lib.rs", "struct B; // four"),
            ("README.md", "# R\n\nFive."),
        ];
        let tree = Tree::of(&files);
        let counted = counted(&Sources::read(&tree).unwrap());
        let numbers: Vec<(&str, usize, usize)> =
            counted.iter().map(|(name, counted)| (name.as_str(), counted.of, counted.found.len())).collect();
        assert_eq!(numbers, [("a", 3, 1), ("b", 1, 0), ("pages", 1, 0)]);
    }
}
