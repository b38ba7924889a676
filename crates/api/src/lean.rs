//! Decoding of objects without `metadata.managedFields`: no code reads the managed fields, and they are as large as the rest of an object.
//!
//! serde_json can keep a JSON text as it is (`RawValue`), and marks it by an object whose first field has a special name. If a client sends an object with the
//! field name of `RawValue`, serde_json parses the text in that field, at any depth. A client that can choose a field's name (an annotation of a JobSet's pods,
//! a managed field of a Job) could crash Berth's process with deeply nested JSON, so decoding refuses an object with the field name of `RawValue`.
//!
//! The filter for `managedFields` stands between the JSON reader and the decoding of a type. This filter for `managedFields` works for every kind,
//! and costs one comparison for each field of the object and of its metadata.

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use std::borrow::Cow;
use std::fmt;

/// The field name by which serde_json marks a text that is kept as a `RawValue`.
pub(crate) const RAW: &str = "$serde_json::private::RawValue";

/// Decodes an object without its managed fields.
///
/// # Errors
/// Fails if the JSON does not decode as a `K`, or if an object in it has the field name by which serde_json marks a `RawValue`.
pub fn decode<'de, K: Deserialize<'de>>(text: &'de str) -> Result<Box<K>, serde_json::Error> {
    if may_name_raw(text) {
        return Err(serde_json::Error::custom(format!("no field may be called {RAW:?}")));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let object = K::deserialize(Filtered { inner: &mut json, level: Level::Object })?;
    json.end()?;
    Ok(Box::new(object))
}

/// Whether a JSON text contains the field name [`RAW`], or letters of that name as escapes. An API server does not escape the letters of [`RAW`]
/// itself, but it passes on managed fields that are not objects as it got them.
fn may_name_raw(text: &str) -> bool {
    if text.match_indices('$').any(|(at, _)| text.get(at..).is_some_and(|from| from.starts_with(RAW))) {
        return true;
    }
    let mut rest = text;
    while let Some((_, escaped)) = rest.split_once('\\') {
        let code = escaped.strip_prefix('u').and_then(|code| u8::from_str_radix(code.get(..4)?, 16).ok());
        if code.is_some_and(|code| RAW.as_bytes().contains(&code)) {
            return true;
        }
        let mut letters = escaped.chars();
        letters.next();
        rest = letters.as_str();
    }
    false
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Fields of the object itself; the field `metadata` is decoded by level `Metadata`.
    Object,
    /// Fields of the metadata.
    Metadata,
}

struct Filtered<T> {
    inner: T,
    level: Level,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Filtered<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Filtered { inner: visitor, level: self.level })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Filtered { inner: visitor, level: self.level })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Filtered { inner: visitor, level: self.level })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filtered<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { inner: map, level: self.level, metadata: false })
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Filtered { inner, level: self.level })
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
}

struct Fields<A> {
    inner: A,
    level: Level,
    /// True if the last key was the object's `metadata`.
    metadata: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        loop {
            let Some(Key(key)) = self.inner.next_key()? else { return Ok(None) };
            if self.level == Level::Metadata && key == "managedFields" {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            self.metadata = self.level == Level::Object && key == "metadata";
            return match key {
                Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some),
                Cow::Owned(key) => seed.deserialize(StringDeserializer::new(key)).map(Some),
            };
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.metadata {
            return self.inner.next_value_seed(Filtered { inner: seed, level: Level::Metadata });
        }
        self.inner.next_value_seed(seed)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Filtered<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Filtered { inner, level: self.level })
    }
}

/// A field's name, borrowed from the input where possible.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl<'de> Visitor<'de> for Name {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }

        deserializer.deserialize_str(Name).map(Key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobset::JobSet;
    use crate::{ClusterQueue, Workload, WorkloadPriorityClass};
    use k8s_openapi::api::batch::v1::Job;
    use kube_core::Resource;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn object(more: Value) -> Value {
        let mut object = json!({
            "metadata": {
                "name": "a\u{e9}\"b", "namespace": "n", "uid": "u", "generation": 3, "labels": {"managedFields": "kept"},
                "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "q"}],
            },
        });
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    }

    /// Checks that `decode` gives the same object as a full decoding from which the managed fields are then removed.
    fn check<K: Resource + DeserializeOwned + Serialize>(object: &Value) {
        let text = object.to_string();
        let lean: Box<K> = decode(&text).unwrap();
        let mut full: K = serde_json::from_str(&text).unwrap();
        assert!(full.meta_mut().managed_fields.take().is_some());
        assert_eq!(serde_json::to_value(&lean).unwrap(), serde_json::to_value(full).unwrap());
        assert_eq!(lean.meta().labels.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn decoded_object_lacks_only_its_managed_fields() {
        check::<Job>(&object(json!({"spec": {"template": {"metadata": {"labels": {"managedFields": "x"}}, "spec":
            {"containers": [{"name": "c"}]}}}, "status": {"active": 1}})));
        check::<Workload>(&object(json!({"spec": {"queueName": "q", "podSets": [{"count": 1, "template": {"metadata":
            {"annotations": {"a": "b"}}, "spec": {"containers": []}}}]}, "status": {"conditions": []}})));
        check::<ClusterQueue>(&object(json!({"spec": {"cohortName": "c"}, "metadataOfTheFuture": {}})));
        check::<WorkloadPriorityClass>(&object(json!({"value": 7})));
    }

    #[test]
    fn field_named_like_raw_value_is_refused_when_decoding() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for name in [RAW, r"\u0024serde_json::private::RawValue", r"$serde_json::private::RawV\u0061lue"] {
            let text = format!(r#"{{"{name}": "[1]"}}"#);
            assert_eq!(read(&text), json!([1]), "then none of this is needed");
            let fields = format!(r#"{{"managedFields": [{{"fieldsV1": {text}}}]}}"#);
            let pods = format!(r#"{{"spec": {{"template": {{"metadata": {fields}, "spec": {{"containers": []}}}}}}}}"#);
            assert!(decode::<Job>(&pods).is_err() && decode::<JobSet>(&pods).is_err(), "{pods}");
            assert!(decode::<Value>(&format!(r#"{{"metadata": {{"annotations": {text}}}}}"#)).is_err());
        }
        let others =
            r#"{"a": "$serde_json \u003cb\u003e \u0026 \u2028 \\u0024 \"$\"", "$serde_json::private": "\u00e4\\"}"#;
        assert_eq!(*decode::<Value>(others).unwrap(), read(others));
    }

    #[test]
    fn malformed_job_fails_to_decode() {
        let bad = object(json!({"spec": {"parallelism": "many"}}));
        assert!(decode::<Job>(&bad.to_string()).is_err());
        assert!(decode::<Job>("[]").is_err() && decode::<Job>("{} x").is_err());
    }
}
