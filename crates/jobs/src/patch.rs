//! Merge patches (RFC 7386) as the difference of two values.

use serde_json::{Map, Value};

/// The merge patch that turns `from` into `to`, with nulls for removed keys; `None` if the values are equal. `to` must have no nulls, which a merge patch
/// cannot express.
#[must_use]
pub fn merge_diff(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(have), Value::Object(want)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for key in have.keys().filter(|key| !want.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in want {
        let change = match have.get(key) {
            Some(old) => merge_diff(old, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The value `target` after a merge patch, as the API server computes it.
pub(crate) fn merged(target: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut result = target.as_object().cloned().unwrap_or_default();
    for (key, change) in changes {
        if change.is_null() {
            result.remove(key);
        } else {
            let old = result.get(key).cloned().unwrap_or(Value::Null);
            result.insert(key.clone(), merged(&old, change));
        }
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_of_difference_applied_gives_target_state() {
        let cases = [
            (json!({}), json!({}), None),
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({}), Some(json!({"a": null}))),
            (json!({"a": 1}), json!({"a": 2, "b": {"c": [1]}}), Some(json!({"a": 2, "b": {"c": [1]}}))),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"y": 2}}), Some(json!({"a": {"x": null}}))),
            (json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]}))),
            (json!({"a": {"x": 1}}), json!({"b": 1}), Some(json!({"a": null, "b": 1}))),
        ];
        for (from, to, expected) in cases {
            let patch = merge_diff(&from, &to);
            assert_eq!(patch, expected, "{from} -> {to}");
            assert_eq!(merged(&from, &patch.unwrap_or_else(|| json!({}))), to);
        }
    }
}
