//! A unit of conversion: fields of one parent that mean something only together.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Fields;
use crate::workload::DEFAULT_POD_SET_NAME;

/// Fields of one parent that are converted together.
pub(super) struct Unit {
    /// Names from the root to the parent; a name that ends in `[]` is a list whose items are told apart by `name`.
    pub(super) parent: &'static [&'static str],
    /// Names of the fields, of both versions.
    pub(super) fields: &'static [&'static str],
    /// From v1beta2 to v1beta1; may lose.
    pub(super) down: fn(Fields) -> Fields,
    /// From v1beta1 to v1beta2.
    pub(super) up: fn(Fields) -> Fields,
    /// Whether fields of v1beta2 are what Berth could read; anybody who may write an object may write its annotations.
    pub(super) decodes: fn(&Fields) -> bool,
    /// Whether `down` loses nothing of these fields of v1beta2; absent means: try it and compare.
    pub(super) lossless: Option<fn(&Fields) -> bool>,
}

impl Unit {
    /// Calls `visit` with every parent that exists, and a key that tells it from the others in the object.
    pub(super) fn each(&self, object: &mut Fields, visit: &mut dyn FnMut(String, &mut Fields)) {
        let first = self.fields.first().copied().unwrap_or_default();
        walk(object, self.parent, String::new(), &mut |path, parent| visit(format!("{path}{first}"), parent));
    }

    /// Rewrites the fields of `parent` for v1beta1; gives what they were when that loses something.
    pub(super) fn down(&self, parent: &mut Fields) -> Option<Fields> {
        let newer = self.take(parent);
        let faithful = self.lossless.map(|lossless| lossless(&newer));
        if faithful == Some(true) {
            parent.append(&mut (self.down)(newer));
            return None;
        }
        let mut older = (self.down)(newer.clone());
        let faithful = faithful.unwrap_or_else(|| (self.up)(older.clone()) == newer);
        parent.append(&mut older);
        (!faithful).then_some(newer)
    }

    /// Rewrites the fields of `parent` for v1beta2: as they were `carried`, unless they were edited since.
    pub(super) fn up(&self, parent: &mut Fields, carried: Option<Value>) {
        let older = self.take(parent);
        let mut newer = match carried {
            Some(Value::Object(mut carried)) => {
                carried.retain(|name, _| self.fields.contains(&name.as_str()));
                let unedited = settled((self.down)(carried.clone())) == settled(older.clone());
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
