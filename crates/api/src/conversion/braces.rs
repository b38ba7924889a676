//! JSON objects that are decoded into types.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// A value that is decoded from a JSON object only: a derived type would also accept an array of the values of its fields.
#[derive(Serialize)]
pub(super) struct InBraces<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InBraces<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Braces(PhantomData))
    }
}

struct Braces<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Braces<T> {
    type Value = InBraces<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(InBraces)
    }
}
