//! A conversion unit: fields of one parent object that have a meaning only together.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fields::Fields;
use super::placement::Rewritten;
use super::version::Version;
use crate::workload::DEFAULT_POD_SET_NAME;

/// Names of fields in an object.
pub(super) type Names = &'static [&'static str];

/// Conversion unit: fields of one parent object that are converted together.
pub(super) struct Unit {
    /// Names from the root to the parent object; a name that ends in `[]` is a list whose items are identified by their field `name`.
    pub(super) parent: Names,
    /// Names of the conversion unit's fields in both versions.
    pub(super) fields: Names,
    /// Converts the fields of the unit from v1beta2 to v1beta1; the conversion may lose something.
    pub(super) down: fn(Fields) -> Fields,
    /// Converts the fields of the unit from v1beta1 to v1beta2.
    pub(super) up: fn(Fields) -> Fields,
    /// Returns true if Berth can decode the fields of the unit in v1beta2. The fields that an annotation carries need this check, because any client that can
    /// write an object can write its annotations.
    pub(super) decodes: fn(&Fields) -> bool,
    /// Functions for a conversion unit whose fields may be too large in v1beta1; `None` for other units.
    pub(super) limited: Option<Limited>,
}

/// Functions for fields that may be too large to write out in v1beta1. Fields that are too large for v1beta1 are carried in the annotation
/// `berth.dev/not-in-v1beta1` as they are in v1beta2.
pub(super) struct Limited {
    /// Returns true if `down` loses nothing of the fields of v1beta2, and if they have no more topology domains than may still be written out; the function
    /// subtracts their number from the number that is left.
    pub(super) fits: fn(&Fields, &mut usize) -> bool,
    /// The v1beta1 fields that an object shows if its v1beta2 fields are too large to be written out.
    pub(super) without: fn(Fields) -> Fields,
    /// Converts a field directly from its JSON text to the given version, with no more topology domains than may still be written out; `None` if
    /// `fits`, `down` and `without` have to convert the field.
    pub(super) rewritten: for<'a> fn(&'a RawValue, Version, &mut usize) -> Option<Rewritten<'a>>,
}

impl Unit {
    /// Calls `visit` with every object that has fields of the conversion unit, and with a key that is unique in the converted object.
    pub(super) fn each(&self, object: &mut Fields, visit: &mut dyn FnMut(String, &mut Fields)) {
        let first = self.fields.first().copied().unwrap_or_default();
        walk(object, self.parent, String::new(), &mut |path, parent| visit(format!("{path}{first}"), parent));
    }

    /// Converts the fields of the conversion unit in `parent` to v1beta1, with at most `left` topology domains; returns the original fields if the conversion
    /// loses something.
    pub(super) fn down(&self, parent: &mut Fields, left: &mut usize) -> Option<Fields> {
        let newer = self.take(parent);
        if let Some(limited) = &self.limited {
            if (limited.fits)(&newer, left) {
                parent.append(&mut (self.down)(newer));
                return None;
            }
            parent.append(&mut (limited.without)(newer.clone()));
            return Some(newer);
        }
        let mut older = (self.down)(newer.clone());
        let faithful = (self.up)(older.clone()) == newer;
        parent.append(&mut older);
        (!faithful).then_some(newer)
    }

    /// Converts the fields of the conversion unit in `parent` to v1beta2: the result is the `carried` fields, unless a client edited the v1beta1 fields since.
    pub(super) fn up(&self, parent: &mut Fields, carried: Option<Value>) {
        let older = self.take(parent);
        let mut newer = match carried {
            Some(Value::Object(mut carried)) => {
                carried.retain(|name, _| self.fields.contains(&name.as_str()));
                // Fields of a conversion unit with `limited` are carried only if they were not written out in v1beta1, whatever number may be written
                // out now.
                let shown = self.limited.as_ref().map_or(self.down, |limited| limited.without);
                let unedited = settled(shown(carried.clone())) == settled(older.clone());
                if unedited && (self.decodes)(&carried) { carried } else { (self.up)(older) }
            }
            _ => (self.up)(older),
        };
        parent.append(&mut newer);
    }

    fn take(&self, parent: &mut Fields) -> Fields {
        self.fields.iter().filter_map(|name| parent.remove_entry(*name)).collect()
    }
}

/// The fields of an object without empty ones, which are equal to absent fields: the API server adds `""` where that is the default.
fn settled(mut fields: Fields) -> Fields {
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
    fields
}

fn walk(here: &mut Fields, way: &[&str], path: String, visit: &mut dyn FnMut(String, &mut Fields)) {
    let Some((step, rest)) = way.split_first() else {
        return visit(path, here);
    };
    let Some(name) = step.strip_suffix("[]") else {
        if let Some(Value::Object(child)) = here.get_mut(*step) {
            walk(child, rest, format!("{path}{step}."), visit);
        }
        return;
    };
    let Some(Value::Array(items)) = here.get_mut(name) else { return };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter_mut().enumerate() {
        let Value::Object(item) = item else { continue };
        let item_name = item.get("name").and_then(Value::as_str).unwrap_or(DEFAULT_POD_SET_NAME).to_owned();
        // The names of a list's items are unique in a stored object; an object with two items of one name is converted without loss nevertheless.
        let key = if seen.contains(&item_name) { format!("{name}#{index}") } else { format!("{name}[{item_name}]") };
        seen.insert(item_name);
        walk(item, rest, format!("{path}{key}."), visit);
    }
}

/// Whether fields of an object decode as the type `T`.
pub(super) fn decodes<T: DeserializeOwned>(fields: &Fields) -> bool {
    serde_json::from_value::<T>(Value::Object(fields.clone())).is_ok()
}

/// The value of the field `from` under the name `to`, without the other fields.
pub(super) fn renamed(mut fields: Fields, from: &str, to: &str) -> Fields {
    fields.remove(from).into_iter().map(|value| (to.to_owned(), value)).collect()
}

/// No fields: the conversion of a unit whose fields the other version does not have.
pub(super) fn nothing(_: Fields) -> Fields {
    Fields::new()
}

/// The fields as they are.
pub(super) fn unchanged(fields: Fields) -> Fields {
    fields
}
