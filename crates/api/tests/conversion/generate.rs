//! Objects that are generated from a schema: any field of the schema may be present, with a few values that are likely to be equal.

use serde_json::{Map, Value, json};

/// Words for the values of texts.
const WORDS: [&str; 9] = ["main", "a", "b-1", "node-17.zone-a", "node-4.zone-a", "x.y/z", "0", "MayStopSearch", ""];

/// A pseudo-random source of choices that a seed reproduces.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn word(&mut self) -> Value {
        json!(WORDS[self.below(WORDS.len() as u64) as usize])
    }
}

/// A value for the schema; required fields are always present, other fields three times out of five.
pub(crate) fn value(schema: &Value, name: &str, dice: &mut Dice) -> Value {
    if name == "template" {
        return template(dice);
    }
    if let Some(choices) = schema["enum"].as_array() {
        return choices[dice.below(choices.len() as u64) as usize].clone();
    }
    match schema["type"].as_str() {
        Some("object") => fields(schema, dice),
        Some("array") => items(schema, name, dice),
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(-1) + dice.below(3) as i64),
        Some("boolean") => json!(dice.one_in(2)),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        Some("string") => dice.word(),
        _ => [json!(3), json!("500m"), json!("2Gi")][dice.below(3) as usize].clone(),
    }
}

fn fields(schema: &Value, dice: &mut Dice) -> Value {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut out = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if required.contains(&name.as_str()) || dice.below(5) < 3 {
            out.insert(name.clone(), value(field, name, dice));
        }
    }
    if schema["additionalProperties"].is_object() {
        for _ in 0..dice.below(3) {
            let key = dice.word().as_str().unwrap_or_default().to_owned();
            out.insert(key, value(&schema["additionalProperties"], "", dice));
        }
    }
    if out.contains_key("slices") && !dice.one_in(4) {
        in_order(&mut out, dice);
    } else if let Some(Value::Array(domains)) = out.get("domains") {
        let levels = out["levels"].as_array().map_or(0, Vec::len);
        let domains = domains.iter().map(|domain| {
            let values: Vec<Value> = (0..levels).map(|_| dice.word()).collect();
            json!({"values": values, "count": domain["count"]})
        });
        let domains: Vec<Value> = domains.collect();
        out.insert("domains".to_owned(), json!(domains));
    }
    Value::Object(out)
}

fn items(schema: &Value, name: &str, dice: &mut Dice) -> Value {
    let least = schema["minItems"].as_u64().unwrap_or(0);
    let mut out: Vec<Value> = (0..least + dice.below(3)).map(|_| value(&schema["items"], name, dice)).collect();
    let keys: Vec<&str> =
        schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !keys.is_empty() || schema["x-kubernetes-list-type"] == "set" {
        let mut seen = Vec::new();
        out.retain(|item| {
            let id: Vec<Value> =
                if keys.is_empty() { vec![item.clone()] } else { keys.iter().map(|key| item[*key].clone()).collect() };
            let new = !seen.contains(&id);
            seen.push(id);
            new
        });
    }
    Value::Array(out)
}

/// Makes the slices of a placement match its levels and their own counts, as the rules of the schema require.
fn in_order(assignment: &mut Map<String, Value>, dice: &mut Dice) {
    let levels = assignment["levels"].as_array().map_or(0, Vec::len);
    let slice = |dice: &mut Dice| {
        let length = 1 + dice.below(4);
        let list = |dice: &mut Dice| -> Vec<Value> { (0..length).map(|_| dice.word()).collect() };
        let level = |dice: &mut Dice| match dice.below(3) {
            0 => json!({"universal": dice.word()}),
            1 => json!({"individual": {"roots": list(dice)}}),
            _ => json!({"individual": {"roots": list(dice), "prefix": dice.word(), "suffix": dice.word()}}),
        };
        let values: Vec<Value> = (0..levels).map(|_| level(dice)).collect();
        let counts: Vec<u64> = (0..length).map(|_| 1 + dice.below(3)).collect();
        let counts = if dice.one_in(2) { json!({"universal": counts[0]}) } else { json!({"individual": counts}) };
        json!({"domainCount": length, "valuesPerLevel": values, "podCounts": counts})
    };
    let slices: Vec<Value> = (0..dice.below(3)).map(|_| slice(dice)).collect();
    assignment.insert("slices".to_owned(), json!(slices));
}

/// A pod template with a few fields, because templates are the same in both versions.
fn template(dice: &mut Dice) -> Value {
    json!({
        "metadata": {"labels": {"a": dice.word()}},
        "spec": {"nodeSelector": {"n": dice.word()}, "containers": [
            {"name": "c", "image": dice.word(), "resources": {"requests": {"cpu": dice.below(9)}}},
        ]},
    })
}

/// Metadata as the API server stores it, with or without annotations; `own` is the key of Berth's annotation.
pub(crate) fn metadata(own: &str, dice: &mut Dice) -> Value {
    let mut out = json!({"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": dice.word()}, "managedFields": [{"manager": "m"}]});
    match dice.below(6) {
        0 => out["annotations"] = json!({"a": "b"}),
        1 => out["annotations"] = json!({"a": "b", own: dice.word()}),
        2 => out["annotations"] = json!({}),
        _ => {}
    }
    out
}

/// Replaces one node anywhere in the value by a value of an unexpected type.
pub(crate) fn broken(value: &mut Value, dice: &mut Dice) {
    let strange = [json!(null), json!(""), json!(-1), json!([]), json!({}), json!([{"name": 7}]), json!(u64::MAX)];
    let count = match value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    if count == 0 || dice.one_in(4) {
        *value = strange[dice.below(strange.len() as u64) as usize].clone();
        return;
    }
    let chosen = dice.below(count as u64) as usize;
    let child = match value {
        Value::Object(map) => map.values_mut().nth(chosen),
        Value::Array(list) => list.get_mut(chosen),
        _ => None,
    };
    if let Some(child) = child {
        broken(child, dice);
    }
}
