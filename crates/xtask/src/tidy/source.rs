//! Rust source reduced to code outside of tests: comments, strings and tests become blanks, and line numbers stay.

/// A Rust source without comments, string contents and items marked `#[cfg(test)]`.
pub(crate) fn shipped(source: &str) -> String {
    without_tests(&code(source))
}

/// The string literals of a Rust source outside of tests, each on one line with its line number, from 1.
pub(crate) fn shipped_texts(source: &str) -> Vec<(usize, String)> {
    shipped_texts_behind(source, &[""])
}

/// The string literals of [`shipped_texts`] that directly follow one of the given pieces of code.
pub(crate) fn shipped_texts_behind(source: &str, pieces: &[&str]) -> Vec<(usize, String)> {
    let marked = without_tests(&filled(source, QUOTE));
    let (mut found, mut text, mut code, mut line) = (Vec::new(), String::new(), String::new(), 1);
    for (mark, c) in marked.chars().zip(source.chars()) {
        if mark == QUOTE {
            text.push(c);
            continue;
        }
        if let Some(inner) = text.strip_prefix(QUOTE).and_then(|rest| rest.strip_suffix(QUOTE)) {
            if pieces.iter().any(|piece| code.trim_end().ends_with(piece)) {
                found.push((line, inner.to_owned()));
            }
            code.push(QUOTE);
        }
        text.clear();
        code.push(mark);
        line += usize::from(c == '\n');
    }
    found
}

/// Names of the modules that a Rust source declares in other files, and that are compiled only for tests.
pub(crate) fn test_modules(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (_, rest) in marked(source) {
        if let Some(name) = rest.strip_prefix("mod ").and_then(|rest| rest.split_once(';')).map(|(name, _)| name.trim())
            && name.chars().all(is_name)
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// Lines of a Rust source with the mark `#[cfg(test)]`: line number from 1, and the code after the mark and after further attributes.
pub(crate) fn marked(source: &str) -> Vec<(usize, String)> {
    let code = code(source);
    let behind = |(start, _): (usize, &str)| {
        let mut rest = code[start + MARK.len()..].trim_start();
        while let Some((_, after)) = rest.strip_prefix("#[").and_then(|attribute| attribute.split_once(']')) {
            rest = after.trim_start();
        }
        (code[..start].matches('\n').count() + 1, rest.to_owned())
    };
    code.match_indices(MARK).map(behind).collect()
}

/// A line of a comment in Rust source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommentLine {
    /// Line number of the comment, from 1.
    pub(crate) line: usize,
    /// The marker of the comment: `//`, `///`, `//!` or `/*`.
    pub(crate) marker: &'static str,
    /// True if no code is before the comment on its line.
    pub(crate) alone: bool,
    /// Text of the comment without its marker and without spaces at its ends.
    pub(crate) text: String,
}

const MARKERS: [&str; 4] = ["///", "//!", "//", "/*"];

/// The lines of all comments in a source.
pub(crate) fn comments(source: &str) -> Vec<CommentLine> {
    let chars: Vec<char> = source.chars().collect();
    let (mut found, mut at, mut line, mut alone) = (Vec::new(), 0, 1, true);
    while at < chars.len() {
        let end = end_of_token(&chars, at);
        if end == at {
            match chars[at] {
                '\n' => (line, alone) = (line + 1, true),
                c => alone &= c.is_whitespace(),
            }
            at += 1;
            continue;
        }
        let token: String = chars[at..end].iter().collect();
        if let Some(marker) = MARKERS.into_iter().find(|marker| token.starts_with(marker)) {
            let inner = token.strip_prefix(marker).unwrap_or_default();
            let inner = if marker == "/*" { inner.strip_suffix("*/").unwrap_or(inner) } else { inner };
            for (index, text) in inner.split('\n').enumerate() {
                found.push(CommentLine { line: line + index, marker, alone, text: text.trim().to_owned() });
            }
        } else {
            alone = false;
        }
        line += token.matches('\n').count();
        at = end;
    }
    found
}

const MARK: &str = "#[cfg(test)]";
const QUOTE: char = '"';

/// Whether a character can be part of a Rust identifier.
pub(crate) fn is_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// Replaces comments, strings and character literals of a Rust source by blanks.
fn code(source: &str) -> String {
    filled(source, ' ')
}

/// Replaces comments and character literals of a Rust source by blanks, and each character of a string by `filler`.
fn filled(source: &str, filler: char) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    let fill = |out: &mut String, from: usize, to: usize, with: char| {
        out.extend(chars[from..to.min(chars.len())].iter().map(|c| if *c == '\n' { '\n' } else { with }));
    };
    while at < chars.len() {
        let end = end_of_token(&chars, at);
        if end > at {
            let is_text = matches!(chars[at], '"' | 'r');
            fill(&mut out, at, end, if is_text { filler } else { ' ' });
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// The index after the comment, string or character literal that begins at `at`; `at` itself if none of these begins at `at`.
fn end_of_token(chars: &[char], at: usize) -> usize {
    let in_name = at > 0 && is_name(chars[at - 1]);
    match (chars[at], chars.get(at + 1)) {
        ('/', Some('/')) => chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length),
        ('/', Some('*')) => end_of_block(chars, at),
        ('"', _) => end_of_text(chars, at),
        ('r', Some('"' | '#')) if !in_name => end_of_raw(chars, at),
        ('\'', Some('\\')) => chars[at + 3..].iter().position(|c| *c == '\'').map_or(chars.len(), |l| at + l + 4),
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn end_of_block(chars: &[char], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') if depth == 1 => return at + 2,
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_of_text(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The index after a raw string `r#"..."#` that begins at the given index; the given index itself for a raw identifier such as `r#type`.
fn end_of_raw(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(start + 1 + hashes) != Some(&'"') {
        return start;
    }
    let mut at = start + 2 + hashes;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// Replaces every item marked `#[cfg(test)]` by blanks, up to the item's closing brace, or up to its semicolon if the item has no brace.
fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find(MARK) {
        let (mut depth, mut end) = (0_usize, out.len());
        for (index, byte) in out.bytes().enumerate().skip(start + MARK.len()) {
            match byte {
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(byte, b'}' | b';') {
                end = index + 1;
                break;
            }
        }
        let blanks: String = out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blanks);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_source_excludes_comments_texts_and_tests() {
        let source = "use a; // tokio\n/* b /* c */ d */ let x = \"HashMap\\\" e\"; let y = r#\"f \" g\"#;\nlet l: &'static str = r#type; \
                      let c = ('\"', '\\'', 'h');\n#[cfg(test)]\nfn i(j: [u8; 2]) { k{} }\nlet m;\n#[cfg(test)]\nmod tests {\n use n;\n}\nlet o;";
        let left = shipped(source);
        assert_eq!(left.lines().count(), source.lines().count());
        let words: Vec<&str> = left.split(|c| !is_name(c)).filter(|word| !word.is_empty()).collect();
        let expected = "use a let x let y let l static str r type let c let m let o";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn shipped_texts_exclude_comments_and_tests() {
        let source = "f(\"One\", \"\"); // \"Two\"\nlet c = ('\"', 'é'); g(\"Thr\\\"ee\", r\"Four\");\n#[cfg(test)]\nmod tests { \"Five\" }\n\
                      h(\"Si\\\nx\"); i(\"Sévén\")";
        let expected = [(1, "One"), (1, ""), (2, "Thr\\\"ee"), (6, "Sévén")];
        assert_eq!(shipped_texts(source), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn shipped_texts_are_selected_by_the_token_before_them() {
        let source = "f(A, /* so */\n \"One\", \"Two\"); g(B, x, \"Three\"); h { c: \"Four\" }";
        assert_eq!(shipped_texts_behind(source, &["A,", "c:"]), [(2, "One".to_owned()), (2, "Four".to_owned())]);
    }

    #[test]
    fn comments_are_read_by_line_with_marker_outside_texts() {
        let source = "//! A\nlet a = \"// no\"; // B\n/// C.\n///\n/* D\n E */ let b = '\"'; // F\nlet c = r#\"/* no */\"#;\n    //G";
        let found: Vec<(usize, &str, bool, String)> =
            comments(source).into_iter().map(|c| (c.line, c.marker, c.alone, c.text)).collect();
        let expected = [
            (1, "//!", true, "A"),
            (2, "//", false, "B"),
            (3, "///", true, "C."),
            (4, "///", true, ""),
            (5, "/*", true, "D"),
            (6, "/*", true, "E"),
            (6, "//", false, "F"),
            (8, "//", true, "G"),
        ];
        assert_eq!(found, expected.map(|(line, marker, alone, text)| (line, marker, alone, text.to_owned())));
    }

    #[test]
    fn test_modules_are_known_by_their_cfg_attribute() {
        let source =
            "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod inner { mod other; }\nmod shipped;\n// #[cfg(test)] mod no;";
        assert_eq!(test_modules(source), ["tests"]);
    }
}
