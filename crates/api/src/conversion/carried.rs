//! The annotation in which an object in v1beta1 carries fields that only v1beta2 has.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::plain::Plain;
use crate::labels::NOT_IN_V1BETA1;

/// Most bytes of an object's annotations, keys and values together; with more the API server refuses a conversion.
const ANNOTATIONS: usize = 256 * 1024;
/// Under this key the annotations themselves are carried, where adding one to them would not be undone by removing it.
const OWN: &str = "metadata.annotations";

/// Puts `carried` into the annotation of an object that is v1beta1 now.
///
/// It is left out when the object has no metadata or no room for it.
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
    // An object that has the annotation already keeps it as a part of the carried fields.
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

/// Takes the carried fields of an object in v1beta1; none when there is no annotation or it was not written by [`put`].
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
