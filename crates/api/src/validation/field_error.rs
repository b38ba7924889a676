//! The error for one broken rule, with field, value and fault, and the comparison of errors before and after a change.

use std::fmt;

/// The error for one broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// Path of the field, for example `spec.resourceGroups[0].flavors[1].name`.
    pub field: String,
    /// The refused value as text; empty if a value is missing.
    pub value: String,
    /// The fault, and the allowed values if there is a choice.
    pub message: String,
}

impl FieldError {
    /// An error about the field `field` with the value `value`.
    pub fn new(field: impl Into<String>, value: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.into(), message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: {}", self.field, self.message)
        } else {
            write!(f, "{}: Invalid value: {:?}: {}", self.field, self.value, self.message)
        }
    }
}

/// The errors in one line, separated by `; `, for the message of a condition.
pub fn summary(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl FieldError {
    /// The error without list indexes and without the list of allowed values, for the comparison of errors.
    fn likeness(&self) -> (String, &str, &str) {
        let mut field = String::with_capacity(self.field.len());
        for (at, part) in self.field.split('[').enumerate() {
            let index = part.split_once(']').filter(|(index, _)| index.bytes().all(|byte| byte.is_ascii_digit()));
            if at > 0 {
                field.push('[');
            }
            field.push_str(index.map_or(part, |(_, rest)| rest));
        }
        (field, &self.value, self.message.split_once(": ").map_or(self.message.as_str(), |(rule, _)| rule))
    }
}

/// The errors in `errors` that are not in `before`: values that were stored under older rules may stay, and may move within their lists.
pub fn newly_broken(errors: Vec<FieldError>, before: &[FieldError]) -> Vec<FieldError> {
    let mut known: Vec<_> = before.iter().map(FieldError::likeness).collect();
    let mut is_new = |error: &FieldError| match known.iter().position(|known| *known == error.likeness()) {
        Some(at) => {
            known.swap_remove(at);
            false
        }
        None => true,
    };
    errors.into_iter().filter(|error| is_new(error)).collect()
}

/// Largest number of allowed values in a message.
const SHOWN: usize = 16;

/// The error for a value that is not supported, with the supported values.
pub(super) fn supported<'a>(field: String, value: &str, allowed: impl IntoIterator<Item = &'a str>) -> FieldError {
    let mut all = allowed.into_iter();
    let mut names: Vec<String> = all.by_ref().take(SHOWN).map(|name| format!("{name:?}")).collect();
    // The list of allowed values is cut: there may be an error for each of thousands of names, and each error would repeat all allowed values.
    let more = all.count();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    FieldError::new(field, value, format!("supported values: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_error_may_move_and_only_further_errors_are_new() {
        let error = |at: usize, value: &str, allowed: &str| {
            FieldError::new(format!("spec.groups[{at}].on"), value, format!("supported values: {allowed}"))
        };
        let before = [error(0, "x", "\"a\"")];
        assert_eq!(newly_broken(vec![error(1, "x", "\"a\", \"b\"")], &before), []);
        let again = error(2, "x", "\"a\"");
        assert_eq!(newly_broken(vec![error(1, "x", "\"a\""), again.clone()], &before), [again]);
        let other = error(0, "y", "\"a\"");
        assert_eq!(newly_broken(vec![other.clone()], &before), [other]);
        let label = |key: &str| FieldError::new(format!("metadata.labels[{key}]"), "x", "is immutable");
        assert_eq!(newly_broken(vec![label("a")], &[label("b")]), [label("a")]);
    }
}
