//! Changes of stored objects by writes: merge patches, and the apply of a Workload's status.

use berth_reconcile::workload::status::OWNED;
use serde_json::{Map, Value, json};

/// Applies a change to a JSON value that is a map; a value of another type is replaced by an empty map before the change.
pub(super) fn with_map<R: Default>(value: &mut Value, change: impl FnOnce(&mut Map<String, Value>) -> R) -> R {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => change(map),
        _ => R::default(),
    }
}

/// Applies a change to the map in a field of a JSON object; an absent map is created before the change.
pub(super) fn edit<R: Default>(
    object: &mut Value,
    field: &str,
    change: impl FnOnce(&mut Map<String, Value>) -> R,
) -> R {
    with_map(object, |map| with_map(map.entry(field.to_owned()).or_insert(Value::Null), change))
}

/// JSON merge patch, RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    with_map(target, |map| {
        for (field, change) in changes {
            if change.is_null() {
                map.remove(field);
            } else {
                merge(map.entry(field.clone()).or_insert(Value::Null), change);
            }
        }
    });
}

/// Server-side apply of a Workload's status by the field manager whose body has all fields that the manager owns: absent fields are removed, and fields of
/// other managers stay.
pub(super) fn apply_status(object: &mut Value, body: &Value) {
    let mut status = body.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    edit(object, "status", |old| {
        if let Some(pods) = old.get("reclaimablePods") {
            status.insert("reclaimablePods".into(), pods.clone());
        }
        let foreign = |condition: &&Value| {
            let kind = condition.get("type").and_then(Value::as_str);
            !kind.is_some_and(|kind| OWNED.contains(&kind))
        };
        let conditions = old.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let kept: Vec<Value> = conditions.filter(foreign).cloned().collect();
        if let (false, Value::Array(list)) = (kept.is_empty(), status.entry("conditions").or_insert_with(|| json!([])))
        {
            list.extend(kept);
        }
        *old = status;
    });
}
