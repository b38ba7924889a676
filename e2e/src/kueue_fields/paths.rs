//! Paths into objects, as the API server writes them.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bad_fields::steps;

/// The path of the field `name` in the object at the path `place`.
pub(super) fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// The place of a field: its path without indexes and keys, for example `a.b[]` or `a{}`; empty for the object itself.
pub(super) fn place(field: &str) -> String {
    let mut place = String::new();
    let mut rest = field.trim_start_matches("<nil>");
    while let Some((before, behind)) = rest.split_once('[') {
        let (index, after) = behind.split_once(']').unwrap_or((behind, ""));
        let one = if index.parse::<usize>().is_ok() { "[]" } else { "{}" };
        place.push_str(before);
        place.push_str(one);
        rest = after;
    }
    place + rest
}

/// An object with values set at paths; the value `null` removes a field.
pub(super) fn changed(mut object: Value, changes: &[(String, Value)]) -> Result<Value> {
    for (path, value) in changes {
        set(&mut object, &steps(path), value).with_context(|| format!("{path} of {object}"))?;
    }
    Ok(object)
}

fn set(into: &mut Value, steps: &[&str], value: &Value) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        *into = value.clone();
        return Ok(());
    };
    let index = step.parse::<usize>();
    if into.is_null() {
        *into = if index.is_ok() { json!([]) } else { json!({}) };
    }
    match (into, index) {
        (Value::Array(list), Ok(index)) => {
            if index == list.len() {
                list.push(Value::Null);
            }
            set(list.get_mut(index).with_context(|| format!("no entry {index}"))?, rest, value)
        }
        (Value::Object(map), _) if rest.is_empty() && value.is_null() => {
            map.remove(*step);
            Ok(())
        }
        (Value::Object(map), _) => set(map.entry(*step).or_insert(Value::Null), rest, value),
        (other, _) => bail!("{step} is no place in {other}"),
    }
}

/// The value of an object at a path.
pub(super) fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).into_iter().try_fold(object, |at, step| match step.parse::<usize>() {
        Ok(index) if at.is_array() => at.get(index),
        _ => at.get(step),
    })
}
