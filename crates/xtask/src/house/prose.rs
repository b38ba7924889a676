//! Text of comments and pages, split into paragraphs and sentences with line numbers.

use crate::tidy::{CommentLine, comments};

/// The role of a paragraph in its page or comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The paragraph is running text or the entry of a list.
    Text,
    Heading,
    /// The paragraph is the cell of a table.
    Cell,
}

/// A unit of text in a page or comment: a paragraph, an entry of a list, a heading or a cell of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    pub(crate) place: Place,
    /// The paragraph's text, with one space between lines.
    pub(crate) text: String,
    /// The byte offsets in `text` at which lines of the file begin, each with the line's number from 1, in ascending order.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    /// The line number, from 1, of a byte offset in the paragraph.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.lines.iter().rev().find(|(start, _)| *start <= offset).map_or(0, |(_, line)| *line)
    }

    /// The sentences of the paragraph, each with its line number in the file. A full stop, exclamation mark or question mark ends a sentence if the next word
    /// begins like a sentence.
    pub(crate) fn sentences(&self) -> Vec<(usize, &str)> {
        let (mut found, mut start, mut in_code) = (Vec::new(), 0, false);
        for (at, c) in self.text.char_indices() {
            in_code ^= c == '`';
            if in_code || !matches!(c, '.' | '!' | '?') {
                continue;
            }
            let rest = &self.text[at + c.len_utf8()..];
            let closed = rest.trim_start_matches([')', '"', '*', '_', '`']);
            let begins = closed.strip_prefix(' ').and_then(|next| next.trim_start().chars().next());
            let word = self.text[start..at].rsplit([' ', '(']).next().unwrap_or_default();
            if begins.is_some_and(begins_sentence) && !ABBREVIATIONS.contains(&word) {
                let end = self.text.len() - closed.len();
                found.push((self.line(start), &self.text[start..end]));
                start = end + (closed.len() - closed.trim_start().len());
            }
        }
        if !self.text[start..].trim().is_empty() {
            found.push((self.line(start), &self.text[start..]));
        }
        found
    }
}

/// Abbreviations that end with a full stop within a sentence, without their last full stop.
const ABBREVIATIONS: [&str; 6] = ["e.g", "i.e", "cf", "vs", "etc", "approx"];

/// Whether a sentence of a comment or page may begin with this character.
fn begins_sentence(c: char) -> bool {
    c.is_uppercase() || c.is_ascii_digit() || matches!(c, '`' | '[' | '(' | '*' | '_' | '"' | '<')
}

/// The paragraphs of the comments in a source. Comments on adjacent lines form one text if the comments have equal markers and no code is before them on their
/// lines.
pub(crate) fn of_comments(source: &str) -> Vec<Paragraph> {
    let comments = comments(source);
    let joined = |a: &CommentLine, b: &CommentLine| a.marker == b.marker && a.line + 1 == b.line && a.alone && b.alone;
    let blocks = comments.chunk_by(joined);
    blocks.flat_map(|block| paragraphs(block.iter().map(|line| (line.line, line.text.as_str())))).collect()
}

/// The paragraphs of a page.
pub(crate) fn of_page(text: &str) -> Vec<Paragraph> {
    paragraphs(text.lines().enumerate().map(|(index, line)| (index + 1, line)))
}

/// Heading of the first column in a table of bad examples; the cells of this column are not checked.
const BAD_EXAMPLES: &str = "instead of";

/// Splits lines of Markdown into paragraphs. Code blocks are left out.
fn paragraphs<'t>(lines: impl Iterator<Item = (usize, &'t str)>) -> Vec<Paragraph> {
    let mut reader = Reader::default();
    for (line, text) in lines {
        reader.line(line, text.trim());
    }
    reader.end();
    reader.found
}

#[derive(Default)]
struct Reader {
    found: Vec<Paragraph>,
    open: Option<Paragraph>,
    in_code: bool,
    /// True if the current table is a table of bad examples, whose first column is left out; `None` outside of tables.
    table: Option<bool>,
}

impl Reader {
    fn line(&mut self, line: usize, text: &str) {
        if text.starts_with("```") || text.starts_with("~~~") {
            self.end();
            self.in_code = !self.in_code;
            return;
        }
        if self.in_code {
            return;
        }
        let text = text.trim_start_matches('>').trim_start();
        if let Some(row) = text.strip_prefix('|') {
            self.end();
            self.row(line, row);
            return;
        }
        self.table = None;
        let heading = text.trim_start_matches('#');
        if text.is_empty() {
            self.end();
        } else if heading.len() < text.len() && heading.starts_with(' ') {
            self.end();
            self.add_line(Place::Heading, line, heading);
        } else if let Some(entry) = entry(text) {
            self.end();
            self.add(line, entry);
        } else {
            self.add(line, text);
        }
    }

    /// Adds a line of the file to the current paragraph.
    fn add(&mut self, line: usize, text: &str) {
        let open =
            self.open.get_or_insert_with(|| Paragraph { place: Place::Text, text: String::new(), lines: Vec::new() });
        if !open.text.is_empty() {
            open.text.push(' ');
        }
        open.lines.push((open.text.len(), line));
        open.text.push_str(text);
    }

    fn add_line(&mut self, place: Place, line: usize, text: &str) {
        let text = text.trim().to_owned();
        if !text.is_empty() {
            self.found.push(Paragraph { place, text, lines: vec![(0, line)] });
        }
    }

    fn row(&mut self, line: usize, row: &str) {
        let cells = cells(row);
        let bad_first =
            *self.table.get_or_insert_with(|| cells.first().is_some_and(|cell| cell.trim() == BAD_EXAMPLES));
        for cell in cells.into_iter().skip(usize::from(bad_first)) {
            if !cell.trim().trim_matches([':', '-']).is_empty() {
                self.add_line(Place::Cell, line, &cell);
            }
        }
    }

    fn end(&mut self) {
        self.found.extend(self.open.take().filter(|open| !open.text.is_empty()));
    }
}

/// The text of a list entry in Markdown, without the entry's marker; `None` for a line that begins no list entry.
fn entry(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = if digits.len() < text.len() { digits.strip_prefix(". ") } else { None };
    ["- ", "* ", "+ "].into_iter().find_map(|mark| text.strip_prefix(mark)).or(numbered).map(str::trim_start)
}

/// The cells of a table row in Markdown: a bar within backquotes or after a backslash separates no cells.
fn cells(row: &str) -> Vec<String> {
    let (mut found, mut cell, mut in_code, mut before) = (Vec::new(), String::new(), false, ' ');
    for c in row.chars() {
        in_code ^= c == '`';
        if c == '|' && !in_code && before != '\\' {
            found.push(std::mem::take(&mut cell));
        } else {
            cell.push(c);
        }
        before = c;
    }
    found.push(cell);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(paragraphs: &[Paragraph]) -> Vec<(usize, &str)> {
        paragraphs.iter().flat_map(Paragraph::sentences).collect()
    }

    #[test]
    fn comments_are_split_into_sentences_with_their_lines() {
        let source = "/// One thing. Two\n/// things, e.g. These. `Three` too\n///\n/// Four.\nfn f() {} // five\n// six\n\n// seven\n//! eight";
        let expected = [
            (1, "One thing."),
            (1, "Two things, e.g. These."),
            (2, "`Three` too"),
            (4, "Four."),
            (5, "five"),
            (6, "six"),
            (8, "seven"),
            (9, "eight"),
        ];
        assert_eq!(sentences(&of_comments(source)), expected);
    }

    #[test]
    fn punctuation_within_a_sentence_does_not_end_it() {
        let text = "See `a. B` and v1.2 of x.rs. (It is so.) He said \"Yes.\" Then? No! 3 more.";
        let expected = [
            (1, "See `a. B` and v1.2 of x.rs."),
            (1, "(It is so.)"),
            (1, "He said \"Yes.\""),
            (1, "Then?"),
            (1, "No!"),
            (1, "3 more."),
        ];
        assert_eq!(sentences(&of_page(text)), expected);
    }

    #[test]
    fn pages_are_split_into_paragraphs_by_place() {
        let page = "# Title\nText\nof two lines.\n- entry\n  goes on\n2. second\n> quoted\n\n```\ncode\n```\n| head | b `x|y` |\n|---|:--:|\n| cell | |\n";
        let found: Vec<(Place, String)> = of_page(page).into_iter().map(|part| (part.place, part.text)).collect();
        let expected = [
            (Place::Heading, "Title"),
            (Place::Text, "Text of two lines."),
            (Place::Text, "entry goes on"),
            (Place::Text, "second quoted"),
            (Place::Cell, "head"),
            (Place::Cell, "b `x|y`"),
            (Place::Cell, "cell"),
        ];
        assert_eq!(found, expected.map(|(place, text)| (place, text.to_owned())));
    }

    #[test]
    fn bad_examples_of_a_style_guide_are_left_out() {
        let page = "| instead of | write |\n|---|---|\n| What it has. | Its history. |\n\n| a | b |\n|---|---|\n| What it has. | x |\n";
        let found = of_page(page);
        let texts: Vec<&str> = found.iter().map(|paragraph| paragraph.text.as_str()).collect();
        assert_eq!(texts, ["write", "Its history.", "a", "b", "What it has.", "x"]);
    }
}
