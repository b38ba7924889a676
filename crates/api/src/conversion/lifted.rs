//! An object of a conversion review. Fields that no conversion unit reads stay JSON text, and are written out as they were received.
//!
//! In the object's value, a field that stays JSON text is replaced by the index of its text. The conversion units of all kinds together decide which
//! fields are read, because the object's `kind` may be its last field. Only the syntax of such a JSON text is checked: a number out of range, half a
//! surrogate pair and two fields of one name are not found. The API server does not send JSON with any of these three faults.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ConversionError;
use super::fields::Fields;
use super::kinds::{known, looked_into};
use super::object::convert_within;
use super::placement::Rewritten;
use super::plain::Plain;
use super::unit::{Names, Unit};
use super::version::Version;

/// The objects of a conversion review, up to the first object that cannot be converted. One object that cannot be converted makes the whole review
/// fail, so the objects after it are not kept in memory.
#[derive(Default)]
pub(super) struct Objects<'a>(pub(super) Vec<Object<'a>>);

/// An object of a review.
pub(super) struct Object<'a> {
    /// The value of the converted object, in which a number stands for each field that no conversion unit reads: the index of the field's JSON text.
    pub(super) value: Value,
    lifted: Vec<Lifted<'a>>,
}

/// A field of the object that is kept outside of its value.
enum Lifted<'a> {
    Text(&'a RawValue),
    Rewritten(Rewritten<'a>),
}

impl Object<'_> {
    /// Whether the object has a kind and a version that can be converted.
    fn is_known(&self) -> bool {
        self.value.as_object().is_some_and(|object| known(object).is_ok())
    }

    /// Converts the object to the version `to`; `left` is the number of topology domains that the rest of the review may still write out.
    pub(super) fn convert(&mut self, to: Version, left: &mut usize) -> Result<(), ConversionError> {
        let Value::Object(object) = &mut self.value else { return Err(ConversionError::NoObject) };
        let (from, units) = known(object)?;
        if from != to {
            for unit in units {
                rewrite(unit, object, &mut self.lifted, to, left)?;
            }
        }
        convert_within(object, to, left)
    }

    /// Writes the object as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        write(&self.value, Place::ROOT, &self.lifted, out)
    }
}

/// Converts the fields of a conversion unit with `limited` directly from their JSON texts. If the JSON text of one field cannot be converted directly, all
/// fields of the conversion unit are decoded, and the conversion unit converts their values.
fn rewrite(
    unit: &Unit,
    object: &mut Fields,
    lifted: &mut [Lifted<'_>],
    to: Version,
    left: &mut usize,
) -> Result<(), ConversionError> {
    let Some(limited) = &unit.limited else { return Ok(()) };
    let mut found = Vec::new();
    unit.each(object, &mut |_, parent| {
        for field in unit.fields {
            match text(parent, field, lifted) {
                Some((_, text)) if text.get() == "null" => drop(parent.insert((*field).to_owned(), Value::Null)),
                Some(one) => found.push(one),
                None => {}
            }
        }
    });
    let mut rest = *left;
    let rewritten: Option<Vec<_>> = found.iter().map(|&(_, text)| (limited.rewritten)(text, to, &mut rest)).collect();
    if let Some(rewritten) = rewritten {
        for ((at, _), rewritten) in found.into_iter().zip(rewritten) {
            if let Some(place) = lifted.get_mut(at) {
                *place = Lifted::Rewritten(rewritten);
            }
        }
        *left = rest;
        return Ok(());
    }
    let mut outcome = Ok(());
    unit.each(object, &mut |_, parent| {
        for field in unit.fields {
            let Some((_, text)) = text(parent, field, lifted) else { continue };
            match serde_json::from_str::<Plain>(text.get()) {
                // A field whose value is a number is kept as JSON text: in the object's value it would look like the index of a text, and no conversion unit
                // changes numbers.
                Ok(Plain(Value::Number(_))) => {}
                Ok(Plain(value)) => drop(parent.insert((*field).to_owned(), value)),
                Err(error) => outcome = Err(ConversionError::Field { name: field, fault: error.to_string() }),
            }
        }
    });
    outcome
}

/// The JSON text that is kept for a field, with the number that stands for it in the object's value.
fn text<'a>(parent: &Fields, field: &str, lifted: &[Lifted<'a>]) -> Option<(usize, &'a RawValue)> {
    let at = number(parent.get(field)?)?;
    match lifted.get(at)? {
        Lifted::Text(text) => Some((at, *text)),
        Lifted::Rewritten(_) => None,
    }
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|at| usize::try_from(at).ok())
}

/// A place in an object on the path to the fields of a conversion unit.
#[derive(Clone, Copy)]
struct Place {
    /// Field names from the root of the object to the place, and further to the fields of the conversion unit.
    way: Names,
    /// Number of field names in `way` that lead to the place.
    depth: usize,
    /// True if the place in the object should hold a list whose items are read.
    list: bool,
}

/// The way in which a field is read: its members one by one, or the whole field.
enum Look {
    Into(Place),
    FullValue,
}

impl Place {
    const ROOT: Self = Self { way: &[], depth: 0, list: false };

    /// The way in which the field `name` at this place of an object is read; `None` if the field stays JSON text.
    fn look(self, name: &str) -> Option<Look> {
        let here = self.way.get(..self.depth)?;
        if name == "name" && here.last().is_some_and(|step| step.ends_with("[]")) {
            return Some(Look::FullValue);
        }
        let mut found = None;
        for (way, fields) in looked_into() {
            match way.strip_prefix(here).map(<[_]>::first) {
                Some(None) if fields.contains(&name) => return Some(Look::FullValue),
                Some(Some(&step)) if step.strip_suffix("[]").unwrap_or(step) == name => {
                    found = Some(Look::Into(Self { way, depth: self.depth + 1, list: step.ends_with("[]") }));
                }
                _ => {}
            }
        }
        found
    }

    fn item(self) -> Self {
        Self { list: false, ..self }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Objects<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List(PhantomData))
    }
}

struct List<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for List<'a> {
    type Value = Objects<'a>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Objects<'a>, A::Error> {
        let mut objects = Vec::new();
        while let Some(object) = seq.next_element::<Object<'a>>()? {
            let is_known = object.is_known();
            objects.push(object);
            if !is_known {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(Objects(objects))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut lifted = Vec::new();
        let value = Reading { place: Place::ROOT, lifted: &mut lifted }.deserialize(deserializer)?;
        Ok(Self { value, lifted })
    }
}

/// Reads the value at a place of an object from JSON.
struct Reading<'l, 'a> {
    place: Place,
    lifted: &'l mut Vec<Lifted<'a>>,
}

impl<'de: 'a, 'a> DeserializeSeed<'de> for Reading<'_, 'a> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Reading<'_, 'a> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        if self.place.list {
            return Plain::deserialize(MapAccessDeserializer::new(map)).map(|Plain(value)| value);
        }
        let mut fields = Fields::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match self.place.look(&name) {
                Some(Look::FullValue) => map.next_value::<Plain>()?.0,
                Some(Look::Into(place)) => map.next_value_seed(Reading { place, lifted: &mut *self.lifted })?,
                None => {
                    let at = self.lifted.len();
                    self.lifted.push(Lifted::Text(map.next_value::<&'de RawValue>()?));
                    Value::from(at)
                }
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        if !self.place.list {
            return Plain::deserialize(SeqAccessDeserializer::new(seq)).map(|Plain(value)| value);
        }
        let place = self.place.item();
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Reading { place, lifted: &mut *self.lifted })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
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

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Writes the value at a place of an object as JSON. An object or list in the value still has the type with which it was read, because a conversion unit
/// changes fields within an object, never the type of the object itself.
fn write(value: &Value, place: Place, lifted: &[Lifted<'_>], out: &mut Vec<u8>) -> serde_json::Result<()> {
    match value {
        Value::Object(fields) if !place.list => {
            out.push(b'{');
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                serde_json::to_writer(&mut *out, name)?;
                out.push(b':');
                match place.look(name) {
                    Some(Look::Into(place)) => write(value, place, lifted, out)?,
                    Some(Look::FullValue) => serde_json::to_writer(&mut *out, value)?,
                    None => match number(value).and_then(|at| lifted.get(at)) {
                        Some(Lifted::Text(text)) => out.extend_from_slice(text.get().as_bytes()),
                        Some(Lifted::Rewritten(assignment)) => assignment.write(out)?,
                        None => serde_json::to_writer(&mut *out, value)?,
                    },
                }
            }
            out.push(b'}');
        }
        Value::Array(items) if place.list => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, place.item(), lifted, out)?;
            }
            out.push(b']');
        }
        other => serde_json::to_writer(out, other)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests;
