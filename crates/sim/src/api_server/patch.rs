//! Merge patches, and server-side apply as far as Berth uses it.

use serde_json::{Value, json};

/// RFC 7386 merge patch.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        if !patch.is_null() {
            *target = patch.clone();
        }
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(map) = target else { return };
    for (field, change) in changes {
        if change.is_null() {
            map.remove(field);
        } else {
            merge(map.entry(field.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Server-side apply of a status by a field manager whose body has all fields that the manager owns: these fields are replaced.
pub(super) fn apply_status(object: &mut Value, body: &Value, manager: &str) {
    let mut status = object["status"].as_object().cloned().unwrap_or_default();
    let wanted = body["status"].as_object().cloned().unwrap_or_default();
    if manager == "kueue-admission" {
        for field in ["admission", "requeueState", "resourceRequests", "accumulatedPastExecutionTimeSeconds"] {
            status.remove(field);
        }
    }
    for (field, mut value) in wanted {
        if let (Some(new), Some(old)) = (value.as_array_mut(), status.get(&field).and_then(Value::as_array))
            && field == "conditions"
        {
            // Conditions of other field managers stay; the body of the admission manager has all conditions that the manager owns.
            let stays = |kind: &str| manager != "kueue-admission" || kind == "WaitingForReplacementPods";
            let kept = old.iter().filter(|one| stays(one["type"].as_str().unwrap_or_default()));
            let kept: Vec<Value> = kept.filter(|one| !new.iter().any(|n| n["type"] == one["type"])).cloned().collect();
            new.extend(kept);
        }
        assert!(value != json!({}), "an apply of an empty {field} stores null");
        status.insert(field, value);
    }
    object["status"] = Value::Object(status);
}

/// Server-side apply of annotations and of the counts of pod sets.
pub(super) fn apply_counts(object: &mut Value, body: &Value) {
    merge(&mut object["metadata"]["annotations"], &body["metadata"]["annotations"]);
    for wanted in body["spec"]["podSets"].as_array().into_iter().flatten() {
        let sets = object["spec"]["podSets"].as_array_mut().expect("a Workload has pod sets");
        let set = sets.iter_mut().find(|set| set["name"] == wanted["name"]).expect("a pod set of that name");
        set["count"] = wanted["count"].clone();
    }
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
    object["metadata"]["generation"] = json!(generation + 1);
}
