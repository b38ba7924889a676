//! The report of an import: a line for each value that has no counterpart, and the faults that stop the import.

use crate::decide::manifests::{Manifest, named, refused};
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest number of characters of a value in a line.
const SHOWN: usize = 80;

/// A line of the report, with the place by which lines are ordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    file: String,
    line: u64,
    object: (usize, Option<usize>),
    text: String,
}

/// Lines about values without a counterpart, and faults of the documents. Lines of the report are ordered by file, and within a file by line.
#[derive(Debug, Default)]
pub(super) struct Report {
    notes: BTreeSet<Entry>,
    faults: BTreeSet<Entry>,
}

impl Report {
    /// Adds a line about a field; `path` is empty for the object itself.
    pub(super) fn note(&mut self, at: &Manifest, path: &str, why: impl AsRef<str>) {
        self.notes.insert(entry(at, path, why.as_ref()));
    }

    /// Adds a line about all documents together.
    pub(super) fn note_all(&mut self, why: impl Into<String>) {
        self.notes.insert(Entry { file: String::new(), line: 0, object: (0, None), text: why.into() });
    }

    /// Adds a fault of a field, with the allowed values.
    pub(super) fn fault(&mut self, at: &Manifest, path: &str, allowed: impl AsRef<str>) {
        self.faults.insert(entry(at, path, allowed.as_ref()));
    }

    /// Adds a fault of several documents together, which has no file and line.
    pub(super) fn fault_all(&mut self, why: impl Into<String>) {
        self.faults.insert(Entry { file: String::new(), line: 0, object: (0, None), text: why.into() });
    }

    /// The text at a field; `None` if the field is absent, or has another type, which is a fault.
    pub(super) fn text(&mut self, at: &Manifest, path: &str) -> Option<String> {
        match at.value(path) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.is_empty()),
            Some(_) => {
                self.fault(at, path, "a text is needed");
                None
            }
        }
    }

    /// The lines of the report.
    ///
    /// # Errors
    /// The error lists all faults.
    pub(super) fn lines(self) -> anyhow::Result<Vec<String>> {
        let faults: Vec<String> = self.faults.into_iter().map(|fault| fault.text).collect();
        refused(&faults)?;
        Ok(self.notes.into_iter().map(|note| note.text).collect())
    }

    /// Whether a fault stops the import.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }
}

fn entry(at: &Manifest, path: &str, why: &str) -> Entry {
    let (file, line, document, item) = at.position(path);
    let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let value = at.value(path).filter(|_| !path.is_empty());
    let value = value.map(|value| format!("{}: ", cut(&value.to_string()))).unwrap_or_default();
    let text = format!("{}: {}: {field}{value}{why}", at.place_of(path), named(&at.object));
    Entry { file: file.to_owned(), line, object: (document, item), text }
}

fn cut(text: &str) -> String {
    let mut letters = text.chars();
    let begin: String = letters.by_ref().take(SHOWN).collect();
    if letters.next().is_some() { format!("{begin}...") } else { begin }
}
