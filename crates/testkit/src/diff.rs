//! Differences between the expectations of a case and the result of Berth.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Verdict on a decision case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result has everything that the case expects.
    Passed,
    /// The differences between expectation and result, a line each.
    Failed(Vec<String>),
    /// The case tests a feature that Berth does not have or has in another form; the text is the reason.
    NotApplicable(&'static str),
}

/// Collector of the differences between expectation and result.
#[derive(Debug, Default)]
pub struct Diff {
    lines: Vec<String>,
    compared: usize,
}

impl Diff {
    /// Adds a difference unless the expected value equals the result.
    pub fn eq<T: PartialEq + Debug>(&mut self, place: &str, want: &T, got: &T) {
        self.compared += 1;
        if want != got {
            self.lines.push(format!("{place}:\n  want {want:?}\n  got  {got:?}"));
        }
    }

    /// Adds a difference if a value is expected and the result has another value.
    pub fn eq_if<T: PartialEq + Debug>(&mut self, place: &str, want: Option<&T>, got: impl FnOnce() -> T) {
        if let Some(want) = want {
            self.eq(place, want, &got());
        }
    }

    /// Compares an expected map with the resulting map, and adds a difference for each key with unequal values.
    pub fn maps<V: PartialEq + Debug>(&mut self, place: &str, want: &BTreeMap<String, V>, got: &BTreeMap<String, V>) {
        self.compared += 1;
        let keys: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
        for key in keys {
            match (want.get(key), got.get(key)) {
                (Some(want), Some(got)) => self.eq(&format!("{place}/{key}"), want, got),
                (Some(want), None) => self.note(format!("{place}/{key}: want {want:?}, got nothing")),
                (None, got) => self.note(format!("{place}/{key}: want nothing, got {got:?}")),
            }
        }
    }

    /// Adds a difference that is described by a text.
    pub fn note(&mut self, text: impl Into<String>) {
        self.compared += 1;
        self.lines.push(text.into());
    }

    /// The verdict from the collected differences. A case without any comparison fails.
    #[must_use]
    pub fn verdict(mut self) -> Verdict {
        if self.compared == 0 {
            self.note("nothing was compared");
        }
        if self.lines.is_empty() { Verdict::Passed } else { Verdict::Failed(self.lines) }
    }
}

/// A sorted copy of a list, for the comparison of lists whose order does not matter.
#[must_use]
pub fn sorted(list: &[String]) -> Vec<String> {
    let mut list = list.to_vec();
    list.sort();
    list
}
