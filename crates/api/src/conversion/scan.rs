//! A text that is known to be JSON, read without a second look at its form: topology assignments have thousands of values, and what serde
//! asks about each of them takes longer than the rest of a review.
//!
//! Everything here gives nothing where it finds something else than it looks for, a backslash anywhere among it: then the text is read in
//! the common way, which takes its time.

use serde_json::value::RawValue;

/// Where one is in such a text.
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    /// The beginning of a text in which every string stands for itself.
    pub(super) fn of(text: &'a RawValue) -> Option<Self> {
        let text = text.get();
        (!text.as_bytes().contains(&b'\\')).then_some(Self { text, at: 0 })
    }

    /// A string.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let from = self.at;
        let to = from + quote(self.text.as_bytes().get(from..)?)?;
        self.at = to + 1;
        self.text.get(from..to)
    }

    /// A number without sign, fraction and exponent; the last two are found by what reads on.
    pub(super) fn number(&mut self) -> Option<i64> {
        self.peek()?;
        let rest = self.text.get(self.at..)?;
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += length;
        rest.get(..length)?.parse().ok()
    }

    /// A list, whose items are read one by one.
    pub(super) fn list(&mut self, item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.between(b'[', b']', item)
    }

    /// The items of a list.
    pub(super) fn each<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        self.list(|scan| {
            items.push(item(scan)?);
            Some(())
        })?;
        Some(items)
    }

    /// An object, whose fields are read by their names.
    pub(super) fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.between(b'{', b'}', |scan| {
            let name = scan.text()?;
            scan.take(b':')?;
            field(scan, name)
        })
    }

    /// The field of an object that has one alone.
    pub(super) fn only<T>(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<T>) -> Option<T> {
        let mut found = None;
        self.object(|scan, name| once(&mut found, read(scan, name)?))?;
        found
    }

    /// What is read, and the text that says it.
    pub(super) fn whole<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<(&'a str, T)> {
        self.peek()?;
        let from = self.at;
        let value = read(self)?;
        Some((self.text.get(from..self.at)?, value))
    }

    fn between(&mut self, open: u8, close: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(open)?;
        if self.peek()? == close {
            return self.take(close);
        }
        loop {
            item(self)?;
            if self.peek()? == close {
                return self.take(close);
            }
            self.take(b',')?;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        found.then_some(())
    }

    /// The next byte after white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                other => return Some(other),
            }
        }
    }
}

/// Fills a place that is still empty: of two fields of one name nobody knows which counts.
pub(super) fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Where the string ends, eight bytes at a time.
fn quote(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // The lowest high bit that is left is that of the first byte without a difference.
        let difference = u64::from_le_bytes(*word) ^ QUOTES;
        let found = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
        if found != 0 {
            return Some(index * 8 + usize::try_from(found.trailing_zeros() / 8).ok()?);
        }
    }
    rest.iter().position(|byte| *byte == b'"').map(|at| words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned<T>(json: &str, read: impl FnOnce(&mut Scan<'_>) -> Option<T>) -> Option<T> {
        read(&mut Scan::of(serde_json::from_str(json).unwrap())?)
    }

    #[test]
    fn a_string_ends_at_its_quote_wherever_that_stands() {
        for length in 0..40 {
            for letter in ["a", "\u{a2}", "#", "!"] {
                let json = serde_json::to_string(&letter.repeat(length)).unwrap();
                let read = scanned(&json, |scan| scan.text().map(str::to_owned));
                assert_eq!(read, Some(letter.repeat(length)), "{json}");
            }
        }
        assert_eq!(quote(b"12345678"), None);
    }

    #[test]
    fn lists_objects_and_numbers_are_read_with_space_or_without() {
        let numbers = |json: &str| scanned(json, |scan| scan.each(Scan::number));
        assert_eq!(numbers("[ 1 ,\n20,3 ]"), Some(vec![1, 20, 3]));
        assert_eq!(numbers("[]"), Some(Vec::new()));
        for other in ["[-1]", "[1.0]", "[1e1]", "[9223372036854775808]", "[\"1\"]", "{}", "1", "null"] {
            assert_eq!(numbers(other), None, "{other}");
        }
        let text =
            |json: &str| scanned(json, |scan| scan.only(|scan, name| scan.text().map(|text| format!("{name}={text}"))));
        assert_eq!(text("{ \"a\" : \"b\" }"), Some("a=b".to_owned()));
        for other in [r#"{"a":"b","a":"b"}"#, "{}", "[]", r#"{"a":"\u0062"}"#] {
            assert_eq!(text(other), None, "{other}");
        }
        let whole = scanned("{\"a\": [1, 2] }", |scan| {
            scan.only(|scan, _| scan.whole(|scan| scan.each(Scan::number)).map(|(text, all)| (text.to_owned(), all)))
        });
        assert_eq!(whole, Some(("[1, 2]".to_owned(), vec![1, 2])));
    }
}
