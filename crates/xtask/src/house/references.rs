//! References that lead nowhere: names of pages that are not in the repository, and issue numbers.

use std::collections::BTreeMap;

use super::PAGES;
use super::counted::Counted;
use super::prose::Paragraph;
use super::sources::Sources;
use crate::tidy::{Finding, Tree};

/// File extension of a page.
const PAGE: &str = ".md";

/// References to missing pages and to issue numbers: in comments counted by package, and in pages counted together.
pub(crate) fn counted(sources: &Sources<'_>) -> BTreeMap<String, Counted> {
    let mut found = BTreeMap::new();
    for package in &sources.packages {
        let counted: &mut Counted = found.entry(package.name.to_owned()).or_default();
        for source in &package.sources {
            count(sources.tree, [source.path, &package.folder], &source.prose, counted);
        }
    }
    let counted = found.entry(PAGES.to_owned()).or_default();
    for page in &sources.pages {
        count(sources.tree, [page.path, ""], &page.prose, counted);
    }
    found
}

/// Counts the references to pages and issues in a file's paragraphs. `path` is the path of the file, and `package` is the folder of its package.
fn count(tree: &Tree, [path, package]: [&str; 2], paragraphs: &[Paragraph], counted: &mut Counted) {
    for paragraph in paragraphs {
        let mut add = |offset: usize, name: &str| {
            counted.found.push(Finding::new(path, paragraph.line(offset), name));
        };
        for (offset, name) in pages(&paragraph.text) {
            counted.of += 1;
            if !is_there(tree, [path, package], name) {
                add(offset, name);
            }
        }
        for (offset, name) in issues(&paragraph.text) {
            counted.of += 1;
            add(offset, name);
        }
    }
}

/// Names of pages (`*.md`) in a text, with their byte offsets. Addresses of other sites and patterns of file names do not count as names of pages.
fn pages(text: &str) -> Vec<(usize, &str)> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let mut found = Vec::new();
    for (at, _) in text.match_indices(PAGE) {
        let end = at + PAGE.len();
        if text[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let start = text[..at].rfind(|c| !in_name(c)).map_or(0, |before| before + char_length(text, before));
        let (name, stem) = (&text[start..end], &text[start..at]);
        if !stem.is_empty() && !stem.ends_with('/') && !name.starts_with("//") {
            found.push((start, name));
        }
    }
    found
}

fn char_length(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Whether the repository has a page under the given name: by path from the root, from the package or from the referring file, or by file name if the name has
/// no folder.
fn is_there(tree: &Tree, [path, package]: [&str; 2], name: &str) -> bool {
    let folder = path.rfind('/').map_or("", |at| &path[..=at]);
    let beside = plain(&format!("{folder}{name}"));
    let by_name = |file: &str| file.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    tree.text(name).is_some()
        || tree.text(&format!("{package}{name}")).is_some()
        || tree.text(&beside).is_some()
        || (!name.contains('/') && tree.files().any(|(file, _)| by_name(file)))
}

/// A file path in which the parts `.` and `..` are resolved.
fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Places in a text that name an issue by its number, such as "issue 6" or "issues #6 and #7".
fn issues(text: &str) -> Vec<(usize, &str)> {
    let words: Vec<(usize, &str)> = text
        .split(' ')
        .scan(0, |offset, word| {
            let start = *offset;
            *offset += word.len() + 1;
            Some((start, word))
        })
        .collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let [(start, word), (next, number)] = pair else { continue };
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let digits = number.trim_start_matches('#').chars().take_while(char::is_ascii_digit).count();
        let end = next + number.len() - number.trim_start_matches('#').len() + digits;
        if matches!(word.as_str(), "issue" | "issues") && digits > 0 {
            found.push((*start, text[*start..end].trim_start_matches(|c: char| !c.is_alphanumeric())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sources::Sources;
    use super::*;

    fn found(source: &str, page: &str) -> Vec<String> {
        let files = [
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", source),
            ("crates/a/cases/README.md", "# R"),
            ("README.md", "# R"),
            ("docs/a.md", page),
            ("docs/decisions/b.md", "# B"),
            ("docs/results/c.md", "# C\n\nSee old.md."),
        ];
        let tree = Tree::of(&files);
        let counted = counted(&Sources::read(&tree).unwrap());
        counted.values().flat_map(|counted| &counted.found).map(ToString::to_string).collect()
    }

    #[test]
    fn reference_to_a_missing_page_is_found() {
        let source = "//! See kueue.md 3.2, `docs/b.md` and\n//! ../a.md.\nfn f() { g(\"x.md\"); } // y.md";
        let expected = ["1: kueue.md", "1: docs/b.md", "2: ../a.md", "3: y.md"];
        assert_eq!(found(source, "# A"), expected.map(|rest| format!("crates/a/src/lib.rs:{rest}")));
        let page = "# See z.md\n\n| [a](decisions/x.md#y) |\n|---|\n";
        assert_eq!(found("", page), ["docs/a.md:1: z.md", "docs/a.md:3: decisions/x.md"]);
    }

    #[test]
    fn reference_to_existing_page_pattern_or_address_is_allowed() {
        let none: [&str; 0] = [];
        let source = "//! README.md, b.md, docs/a.md, cases/README.md, ../cases/README.md, ../../../docs/decisions/b.md#part, docs/*.md, *.md, .md,\n\
                      //! https://a.example/x.md, docs/<name>.md, x.mdx";
        assert_eq!(found(source, "# A\n\n[b](decisions/b.md), [r](../README.md), docs/results/c.md"), none);
    }

    #[test]
    fn issue_numbers_are_found_across_lines() {
        let source = "// As issue 6 says. (Issue #7), issues\n// 8 and 9; an issue of 10, tissue 11, issue-12";
        let expected = ["1: issue 6", "1: Issue #7", "1: issues 8"];
        assert_eq!(found(source, "# A"), expected.map(|rest| format!("crates/a/src/lib.rs:{rest}")));
    }
}
