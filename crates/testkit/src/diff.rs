//! Differences between what a case expects and what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Verdict on a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything expected was found.
    Passed,
    /// The differences, a line each.
    Failed(Vec<String>),
    /// The case asks for a feature that Berth does not have, or has otherwise.
    NotApplicable(&'static str),
}

/// Collects differences.
#[derive(Debug, Default)]
pub struct Diff {
    lines: Vec<String>,
    compared: usize,
}

impl Diff {
    /// Two values must be equal.
    pub fn eq<T: PartialEq + Debug>(&mut self, place: &str, want: &T, got: &T) {
        self.compared += 1;
        if want != got {
            self.lines.push(format!("{place}:\n  want {want:?}\n  got  {got:?}"));
        }
    }

    /// Equal where something is expected.
    pub fn eq_if<T: PartialEq + Debug>(&mut self, place: &str, want: Option<&T>, got: impl FnOnce() -> T) {
        if let Some(want) = want {
            self.eq(place, want, &got());
        }
    }

    /// Two maps must be equal; the differences are shown key by key.
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

    /// A difference in words.
    pub fn note(&mut self, text: impl Into<String>) {
        self.compared += 1;
        self.lines.push(text.into());
    }

    /// The verdict. A case in which nothing was compared did not pass.
    #[must_use]
    pub fn verdict(mut self) -> Verdict {
        if self.compared == 0 {
            self.note("nothing was compared");
        }
        if self.lines.is_empty() { Verdict::Passed } else { Verdict::Failed(self.lines) }
    }
}

/// A list as a set that is shown in order.
#[must_use]
pub fn sorted(list: &[String]) -> Vec<String> {
    let mut list = list.to_vec();
    list.sort();
    list
}
