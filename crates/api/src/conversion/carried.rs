//! The annotation `berth.dev/not-in-v1beta1`, in which an object in v1beta1 carries the fields that only v1beta2 has.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::plain::Plain;
use crate::labels::NOT_IN_V1BETA1;

/// Largest size in bytes of an object's annotations, keys and values together; the API server refuses a conversion with more.
const ANNOTATIONS: usize = 256 * 1024;
/// Key in the carried fields for the original annotations of an object, which is used if the annotations would not be the same after the annotation
/// `berth.dev/not-in-v1beta1` is added and removed again.
const OWN: &str = "metadata.annotations";

/// Adds the fields `carried` as an annotation to an object that is now in v1beta1.
///
/// The annotation with carried fields is omitted if the object has no metadata, or if its annotations would become too large.
pub(super) fn put(object: &mut Fields, mut carried: Fields) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let present = metadata.contains_key("annotations");
    let mut annotations = match metadata.remove("annotations") {
        None => Fields::new(),
        Some(Value::Object(annotations)) => {
            if annotations.is_empty() && !carried.is_empty() {
                carried.insert(OWN.to_owned(), Value::Object(Fields::new()));
            }
            annotations
        }
        Some(other) => {
            metadata.insert("annotations".to_owned(), other);
            return;
        }
    };
    // If the object already has an annotation with the key `NOT_IN_V1BETA1`, that annotation becomes a part of the carried fields.
    if let Some(entry) = annotations.remove_entry(NOT_IN_V1BETA1) {
        carried.insert(OWN.to_owned(), Value::Object(Map::from_iter([entry])));
    }
    if !carried.is_empty() {
        let value = Value::Object(carried).to_string();
        let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
        if annotations.iter().map(size).sum::<usize>() + NOT_IN_V1BETA1.len() + value.len() <= ANNOTATIONS {
            annotations.insert(NOT_IN_V1BETA1.to_owned(), Value::String(value));
        }
    }
    if present || !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
}

/// Removes the annotation with the carried fields from an object in v1beta1, and returns the fields; empty if the annotation is absent or was not
/// written by [`put`].
pub(super) fn take(object: &mut Fields) -> Fields {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return Fields::new() };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return Fields::new() };
    let Some(text) = annotations.remove(NOT_IN_V1BETA1) else { return Fields::new() };
    let mut carried = match text.as_str().and_then(|text| serde_json::from_str(text).ok()) {
        Some(Plain(Value::Object(carried))) => carried,
        _ => Fields::new(),
    };
    match carried.remove(OWN) {
        Some(Value::Object(mut own)) => {
            if let Some(entry) = own.remove_entry(NOT_IN_V1BETA1)
                && entry.1.is_string()
            {
                annotations.extend([entry]);
            }
        }
        _ if annotations.is_empty() => {
            metadata.remove("annotations");
        }
        _ => {}
    }
    carried
}
