//! Operations of JSON patches, on the object as it came, so that fields unknown to our types are left alone.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Adds a member, or replaces its value.
pub(crate) fn add(path: String, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// Adds to a map of strings that may not be there yet.
pub(crate) fn entries<'a>(
    path: &str,
    have: Option<&BTreeMap<String, String>>,
    new: impl IntoIterator<Item = (&'a str, String)>,
) -> Vec<Value> {
    let entry = |(key, value): (&str, String)| {
        add(format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), json!(value))
    };
    let mut operations: Vec<Value> = new.into_iter().map(entry).collect();
    if have.is_none() && !operations.is_empty() {
        operations.insert(0, add(path.to_owned(), json!({})));
    }
    operations
}

/// Adds to a list that may not be there yet.
pub(crate) fn item<T>(path: &str, have: Option<&Vec<T>>, new: Value) -> Value {
    match have {
        Some(_) => add(format!("{path}/-"), new),
        None => add(path.to_owned(), json!([new])),
    }
}
