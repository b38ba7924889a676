//! Operations of JSON patches. The JSON patches apply to the object as it was received, so that fields which Berth's types do not know stay as they
//! are.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Adds a member of an object, or replaces its value.
pub(crate) fn add(path: String, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// Adds entries to a map of strings that the object may not have yet.
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

/// Adds an item to a list that the object may not have yet.
pub(crate) fn item<T>(path: &str, have: Option<&Vec<T>>, new: Value) -> Value {
    match have {
        Some(_) => add(format!("{path}/-"), new),
        None => add(path.to_owned(), json!([new])),
    }
}
