//! A unit of conversion: fields of one parent that have a meaning only together.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fields::Fields;
use super::placement::Rewritten;
use super::version::Version;
use crate::workload::DEFAULT_POD_SET_NAME;

/// Names in an object.
pub(super) type Names = &'static [&'static str];

/// Fields of one parent that are converted together.
pub(super) struct Unit {
    /// Names from the root to the parent; a name that ends in `[]` is a list whose items are identified by `name`.
    pub(super) parent: Names,
    /// Names of the fields, of both versions.
    pub(super) fields: Names,
    /// From v1beta2 to v1beta1; may lose.
    pub(super) down: fn(Fields) -> Fields,
    /// From v1beta1 to v1beta2.
    pub(super) up: fn(Fields) -> Fields,
    /// Returns true if Berth can decode these fields of v1beta2; any client that may write an object may write its annotations.
    pub(super) decodes: fn(&Fields) -> bool,
    /// Functions for fields whose result of `down` may be too large; `None` for other fields.
    pub(super) limited: Option<Limited>,
}

/// Functions for fields that may be too large to write out, and are then carried as they are.
pub(super) struct Limited {
    /// Returns true if `down` loses nothing of these fields of v1beta2 and is within the number that is left, from which it takes its part.
    pub(super) fits: fn(&Fields, &mut usize) -> bool,
    /// The v1beta1 fields to show in their place.
    pub(super) without: fn(Fields) -> Fields,
    /// A field in that version, from its text and within the number that is left; `None` if the functions above have to decide.
    pub(super) rewritten: for<'a> fn(&'a RawValue, Version, &mut usize) -> Option<Rewritten<'a>>,
}

impl Unit {
    /// Calls `visit` with every parent that exists, and a key that is unique in the object.
    pub(super) fn each(&self, object: &mut Fields, visit: &mut dyn FnMut(String, &mut Fields)) {
        let first = self.fields.first().copied().unwrap_or_default();
        walk(object, self.parent, String::new(), &mut |path, parent| visit(format!("{path}{first}"), parent));
    }

    /// Rewrites the fields of `parent` for v1beta1, within the number `left`; returns the original fields when that loses something.
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

    /// Rewrites the fields of `parent` for v1beta2: the `carried` fields, unless the v1beta1 fields were edited since.
    pub(super) fn up(&self, parent: &mut Fields, carried: Option<Value>) {
        let older = self.take(parent);
        let mut newer = match carried {
            Some(Value::Object(mut carried)) => {
                carried.retain(|name, _| self.fields.contains(&name.as_str()));
                // Limited fields are carried only if they were not written out, whatever number is left now.
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

/// Fields without those that are equal to absent ones: the API server adds `""` where that is the default.
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
        // Names are unique in what the server stores; an object that breaks this is still converted without loss.
        let key = if seen.contains(&item_name) { format!("{name}#{index}") } else { format!("{name}[{item_name}]") };
        seen.insert(item_name);
        walk(item, rest, format!("{path}{key}."), visit);
    }
}

/// Whether the fields decode as a `T`.
pub(super) fn decodes<T: DeserializeOwned>(fields: &Fields) -> bool {
    serde_json::from_value::<T>(Value::Object(fields.clone())).is_ok()
}

/// The field `from` under the name `to`, and nothing else.
pub(super) fn renamed(mut fields: Fields, from: &str, to: &str) -> Fields {
    fields.remove(from).into_iter().map(|value| (to.to_owned(), value)).collect()
}

/// No fields: the other version does not have them.
pub(super) fn nothing(_: Fields) -> Fields {
    Fields::new()
}

/// The fields as they are.
pub(super) fn unchanged(fields: Fields) -> Fields {
    fields
}
