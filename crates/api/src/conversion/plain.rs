//! JSON that is decoded as it is, whatever the names of its fields; [`crate::lean`] describes the field name that has a special meaning for serde_json. The
//! decoder of a single object can refuse an object with the special field name of serde_json; a conversion review with such an object must be answered, because
//! the review contains other objects.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A JSON value of any type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plain(pub(super) Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any).map(Self)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, Plain(value))) = map.next_entry::<String, Plain>()? {
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Plain(item)) = seq.next_element::<Plain>()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lean::RAW;

    #[test]
    fn plain_json_equals_serde_value_and_malformed_json_is_refused() {
        let all = json!({"a": [null, true, -1, u64::MAX, 1.5, "t\n", {}], "b": {"c": {"d": []}}});
        assert_eq!(serde_json::from_str::<Plain>(&all.to_string()).unwrap(), Plain(all.clone()));
        assert_eq!(serde_json::from_value::<Plain>(all.clone()).unwrap(), Plain(all));
        for wrong in ["", "[1", "{\"a\"}", "1e400", r#""\ud800""#] {
            assert!(serde_json::from_str::<Plain>(wrong).is_err(), "{wrong}");
        }
        let deep = [vec!['['; 200], vec![']'; 200]].concat();
        assert!(serde_json::from_str::<Plain>(&deep.iter().collect::<String>()).is_err());
    }

    #[test]
    fn plain_json_keeps_text_under_raw_value_field() {
        let text = format!(r#"[{{"{RAW}": "[1]"}}]"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!([[1]]), "then none of this is needed");
        assert_eq!(serde_json::from_str::<Plain>(&text).unwrap(), Plain(json!([{RAW: "[1]"}])));
    }
}
