//! JSON in the bytes that Go's encoding/json writes, so that Kueue and Berth compute hashes from equal texts.

use serde_json::Value;

/// Form in which Go writes the value of a field as JSON.
pub(super) enum Form {
    /// Form of a text, a number or a boolean.
    Plain,
    /// Form of a map from texts to texts, which Go sorts by key.
    Texts,
    /// Form of a map from texts to quantities, which Go sorts by key, with the quantities in Kubernetes' canonical notation.
    Quantities,
    /// Form of a list whose values have one form.
    List(&'static Form),
    /// Form of a struct, whose fields Go writes in the order of their declaration.
    Fields(&'static [Field]),
}

/// A field of a Go struct.
pub(super) struct Field {
    name: &'static str,
    form: &'static Form,
    kept: Kept,
}

/// Condition under which Go writes a field as JSON.
pub(super) enum Kept {
    /// Go always writes the field, because the field has no `omitempty`.
    Always,
    /// Go writes the field, a pointer with `omitempty`, if it is not nil; its target may be zero or empty.
    Given,
    /// Go writes the field, a value with `omitempty`, if it is neither zero nor empty.
    Filled,
}

/// A field of a Go struct, by its name, its form, and the condition under which Go writes it.
pub(super) const fn field(name: &'static str, form: &'static Form, kept: Kept) -> Field {
    Field { name, form, kept }
}

/// The JSON text that Go writes for a value of the form `form`.
pub(super) fn write(value: &Value, form: &Form) -> String {
    let mut text = String::new();
    put(&mut text, Some(value), form);
    text
}

fn put(text: &mut String, value: Option<&Value>, form: &Form) {
    match (form, value) {
        (Form::Fields(fields), Some(Value::Object(object))) => {
            let kept = fields.iter().filter_map(|field| {
                let value = object.get(field.name);
                field.is_kept(value).then_some((field.name, value, field.form))
            });
            enclosed(text, ('{', '}'), kept, |text, (name, value, form)| {
                quote(text, name);
                text.push(':');
                put(text, value, form);
            });
        }
        (Form::List(of), Some(Value::Array(items))) if !items.is_empty() => {
            enclosed(text, ('[', ']'), items.iter(), |text, item| put(text, Some(item), of));
        }
        (Form::Texts | Form::Quantities, Some(Value::Object(map))) if !map.is_empty() => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            enclosed(text, ('{', '}'), entries.into_iter(), |text, (key, value)| {
                quote(text, key);
                text.push(':');
                let quantity = value.as_str().filter(|_| matches!(form, Form::Quantities));
                match quantity.and_then(|quantity| berth_quantity::canonical(quantity).ok()) {
                    Some(quantity) => quote(text, &quantity),
                    None => plain(text, value),
                }
            });
        }
        (Form::Plain, Some(value)) => plain(text, value),
        // An absent or empty list or map is written as null, because the API server leaves out empty lists and maps.
        _ => text.push_str("null"),
    }
}

impl Field {
    fn is_kept(&self, value: Option<&Value>) -> bool {
        match self.kept {
            Kept::Always => true,
            Kept::Given => value.is_some(),
            Kept::Filled => value.is_some_and(|value| match value {
                Value::Null => false,
                Value::Bool(is) => *is,
                Value::Number(number) => number.as_i64() != Some(0),
                Value::String(text) => !text.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
            }),
        }
    }
}

fn enclosed<T>(
    text: &mut String,
    (open, close): (char, char),
    items: impl Iterator<Item = T>,
    one: impl Fn(&mut String, T),
) {
    text.push(open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            text.push(',');
        }
        one(text, item);
    }
    text.push(close);
}

fn plain(text: &mut String, value: &Value) {
    match value {
        Value::String(value) => quote(text, value),
        other => text.push_str(&other.to_string()),
    }
}

/// Writes a quoted text; Go also escapes HTML markup and HTML line ends.
fn quote(text: &mut String, value: &str) {
    for character in Value::from(value).to_string().chars() {
        match character {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
}
