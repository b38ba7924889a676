//! Streaming parser for the API server's lists, object by object. A page of large objects is never in memory at once, neither as bytes nor as objects.

use futures::{AsyncBufRead, AsyncBufReadExt};
use serde::Deserialize;
use std::io;

/// The fields of a list of the API server other than its objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rest {
    metadata: Meta,
}

/// Metadata of a list of the API server: its resourceVersion, and the token of its next page.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    /// The resourceVersion of the list.
    pub(crate) resource_version: Option<String>,
    /// The continue token with which the next page is requested.
    #[serde(rename = "continue")]
    pub(crate) token: Option<String>,
}

/// The objects of a list, read one by one.
pub(crate) struct Items<R> {
    from: R,
    scan: Scan,
}

impl<R: AsyncBufRead + Unpin> Items<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, scan: Scan::default() }
    }

    /// The JSON text of the next object of the list; `None` after the last object.
    ///
    /// # Errors
    /// The text cannot be read, is incomplete, or is no list.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        while !self.scan.is_over {
            let chunk = self.from.fill_buf().await?;
            if chunk.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the list breaks off"));
            }
            let (used, found) = self.scan.take(chunk);
            self.from.consume_unpin(used);
            if let Some(item) = found {
                return text(item).map(Some);
            }
        }
        Ok(None)
    }

    /// Metadata of the list, known after the list's last object was read.
    ///
    /// # Errors
    /// The text is no list.
    pub(crate) fn meta(self) -> io::Result<Meta> {
        let rest: Rest = serde_json::from_slice(&self.scan.rest)?;
        Ok(rest.metadata)
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// State of the parser within the JSON text of a list, which separates the objects in `items` from all other text. The list parser only looks at brackets and
/// strings, because each object is decoded later.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the place in a text, and what was read there")]
struct Scan {
    /// The JSON text of the list without its objects.
    rest: Vec<u8>,
    item: Vec<u8>,
    /// Number of open JSON brackets: of the current object if `in_items`, else of the list.
    depth: usize,
    in_items: bool,
    in_string: bool,
    is_escaped: bool,
    /// Position in `rest` of the last JSON string outside of the list's objects.
    string_at: usize,
    names_items: bool,
    is_over: bool,
}

impl Scan {
    /// Reads bytes of a list's JSON text up to the end of the list's next object. Returns the number of bytes used, and the object's text if the object is
    /// complete.
    fn take(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut left = bytes;
        while let Some((byte, next)) = left.split_first() {
            if self.in_string && !self.is_escaped {
                // Most bytes of a list are in JSON strings, so the bytes up to the next quote or backslash are copied in one piece.
                let plain = left.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(left.len());
                if plain > 0 {
                    let (text, next) = left.split_at(plain);
                    let into = if self.in_items { &mut self.item } else { &mut self.rest };
                    into.extend_from_slice(text);
                    left = next;
                    continue;
                }
            }
            left = next;
            let ends = if self.in_items { self.inside(*byte) } else { self.outside(*byte) };
            if ends {
                let item = std::mem::take(&mut self.item);
                return (bytes.len().saturating_sub(left.len()), (!item.is_empty()).then_some(item));
            }
        }
        (bytes.len(), None)
    }

    /// Whether a byte of the list's JSON text belongs to a string; the opening quote belongs to its string.
    fn is_of_string(&mut self, byte: u8) -> bool {
        if !self.in_string {
            self.in_string = byte == b'"';
            return self.in_string;
        }
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
        }
        true
    }

    /// Reads a byte of the list's JSON text outside of `items`. Returns true at the end of the list.
    fn outside(&mut self, byte: u8) -> bool {
        let begins = !self.in_string;
        let at = self.rest.len();
        self.rest.push(byte);
        if self.is_of_string(byte) {
            if begins {
                self.string_at = at;
            }
            return false;
        }
        match byte {
            b':' if self.depth == 1 => {
                let name = self.rest.get(self.string_at..at).unwrap_or_default().trim_ascii_end();
                self.names_items = name == b"\"items\"";
            }
            b',' if self.depth == 1 => self.names_items = false,
            b'[' if self.depth == 1 && self.names_items => {
                self.in_items = true;
                self.depth = 0;
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.is_over = self.depth == 0;
            }
            _ => {}
        }
        self.is_over
    }

    /// Reads a byte of the list's JSON text within `items`. Returns true at the end of an object.
    fn inside(&mut self, byte: u8) -> bool {
        if self.is_of_string(byte) {
            self.item.push(byte);
            return false;
        }
        match byte {
            b']' if self.depth == 0 => {
                self.rest.push(byte);
                self.in_items = false;
                self.names_items = false;
                self.depth = 1;
                // The end of `items` also ends a last value without brackets, such as a number.
                return !self.item.is_empty();
            }
            b',' if self.depth == 0 => return !self.item.is_empty(),
            _ if self.depth == 0 && byte.is_ascii_whitespace() => return false,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.item.push(byte);
        self.depth == 0 && matches!(byte, b'}' | b']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::io::{BufReader, Cursor};
    use serde_json::{Value, json};

    /// Parses a list whose text arrives in pieces of `piece` bytes, and returns the list's objects and metadata.
    async fn read(text: &str, piece: usize) -> io::Result<(Vec<String>, Meta)> {
        let mut items = Items::new(BufReader::with_capacity(piece, Cursor::new(text.as_bytes().to_vec())));
        let mut all = Vec::new();
        while let Some(item) = items.next().await? {
            all.push(item);
        }
        Ok((all, items.meta()?))
    }

    fn hard() -> Vec<Value> {
        vec![
            json!({"metadata": {"name": "a"}, "spec": {"items": [{"items": []}, 1], "text": "}],\"items\":[{\\\"\u{e9}"}}),
            json!({}),
            json!({"deep": [[[[{"x": "\\"}]]], "{", "[", "\\\""]}),
            json!({"metadata": {"name": "b", "resourceVersion": "no"}}),
        ]
    }

    #[tokio::test]
    async fn list_items_arrive_unchanged_however_the_body_is_split() {
        for count in 0..=hard().len() {
            let items = hard()[..count].to_vec();
            // serde_json sorts fields, so the metadata of the test's list comes after `items`; an API server writes a list's metadata before `items`.
            let sorted = json!({"apiVersion": "v1", "items": items, "kind": "\"items\":[", "metadata": {"continue": "t", "resourceVersion": "7"}});
            let pretty = serde_json::to_string_pretty(&sorted).unwrap();
            let body = serde_json::to_string(&items).unwrap();
            let own = format!(
                r#"{{"kind":"L","metadata":{{"resourceVersion":"7","continue":"t","items":[1]}},"items":{body}}}"#
            );
            for text in [sorted.to_string(), pretty, own] {
                for piece in [1, 2, 3, 7, 64, 4_096] {
                    let (read, meta) = read(&text, piece).await.unwrap();
                    let read: Vec<Value> = read.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
                    assert_eq!(read, items, "{text} in pieces of {piece}");
                    assert_eq!((meta.resource_version.as_deref(), meta.token.as_deref()), (Some("7"), Some("t")));
                }
            }
        }
    }

    #[tokio::test]
    async fn list_with_null_or_missing_items_is_empty() {
        for text in [r#"{"metadata":{"resourceVersion":"7"},"items":null}"#, r#"{"metadata":{"resourceVersion":"7"}}"#]
        {
            let (items, meta) = read(text, 5).await.unwrap();
            assert!(items.is_empty() && meta.token.is_none());
            assert_eq!(meta.resource_version.as_deref(), Some("7"));
        }
    }

    #[tokio::test]
    async fn list_body_that_breaks_off_is_an_error() {
        let full_text = r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}"#;
        for end in 0..full_text.len() {
            let error = read(&full_text[..end], 4).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        }
        assert!(read("[1]", 4).await.is_err() && read("{\"metadata\":1}", 4).await.is_err());
    }
}
