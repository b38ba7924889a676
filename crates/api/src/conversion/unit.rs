//! A unit of conversion: fields of one parent that mean something only together.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::placement::Rewritten;
use super::{Fields, Version};
use crate::workload::DEFAULT_POD_SET_NAME;

/// Names in an object.
pub(super) type Names = &'static [&'static str];

/// Fields of one parent that are converted together.
pub(super) struct Unit {
    /// Names from the root to the parent; a name that ends in `[]` is a list whose items are told apart by `name`.
    pub(super) parent: Names,
    /// Names of the fields, of both versions.
    pub(super) fields: Names,
    /// From v1beta2 to v1beta1; may lose.
    pub(super) down: fn(Fields) -> Fields,
    /// From v1beta1 to v1beta2.
    pub(super) up: fn(Fields) -> Fields,
    /// Whether fields of v1beta2 are what Berth could read; anybody who may write an object may write its annotations.
    pub(super) decodes: fn(&Fields) -> bool,
    /// Where `down` is not to be tried in vain, as it may be too much.
    pub(super) limited: Option<Limited>,
}

/// What may be too much to write out, and is then carried whole.
pub(super) struct Limited {
    /// Whether `down` loses nothing of these fields of v1beta2 and is within what is left, from which it takes its share.
    pub(super) fits: fn(&Fields, &mut usize) -> bool,
    /// What v1beta1 shows of them in its place.
    pub(super) without: fn(Fields) -> Fields,
    /// What a field becomes in that version, from its text and within what is left; nothing where only the functions above know.
    pub(super) rewritten: for<'a> fn(&'a RawValue, Version, &mut usize) -> Option<Rewritten<'a>>,
}

impl Unit {
    /// Calls `visit` with every parent that exists, and a key that tells it from the others in the object.
    pub(super) fn each(&self, object: &mut Fields, visit: &mut dyn FnMut(String, &mut Fields)) {
        let first = self.fields.first().copied().unwrap_or_default();
        walk(object, self.parent, String::new(), &mut |path, parent| visit(format!("{path}{first}"), parent));
    }

    /// Rewrites the fields of `parent` for v1beta1, within what is `left`; gives what they were when that loses something.
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

    /// Rewrites the fields of `parent` for v1beta2: as they were `carried`, unless they were edited since.
    pub(super) fn up(&self, parent: &mut Fields, carried: Option<Value>) {
        let older = self.take(parent);
        let mut newer = match carried {
            Some(Value::Object(mut carried)) => {
                carried.retain(|name, _| self.fields.contains(&name.as_str()));
                // What is limited is carried only where it was not written out, whatever is left now.
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

/// Without fields that say as much as absent ones: the server adds `""` where that is the default.
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

/// Whether the fields are some of a `T`.
pub(super) fn decodes<T: DeserializeOwned>(fields: &Fields) -> bool {
    serde_json::from_value::<T>(Value::Object(fields.clone())).is_ok()
}

/// The field `from` under the name `to`, and nothing else.
pub(super) fn renamed(mut fields: Fields, from: &str, to: &str) -> Fields {
    fields.remove(from).into_iter().map(|value| (to.to_owned(), value)).collect()
}

/// Nothing: the other version has no such field.
pub(super) fn nothing(_: Fields) -> Fields {
    Fields::new()
}

/// The fields as they are.
pub(super) fn unchanged(fields: Fields) -> Fields {
    fields
}
