//! The members of a JSON object.

use serde_json::{Map, Value};

/// The members of a JSON object.
pub(super) type Fields = Map<String, Value>;

/// The text of the field `field`; empty if the field is absent or is not a string.
pub(super) fn text<'a>(object: &'a Fields, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
