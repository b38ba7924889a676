//! Differences between two digests of control's view, by object and field.
//!
//! A digest has the form `{"objects": {kind: {name: {field: value}}}, "problems": [text]}`.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Largest number of differences between two digests that the report lists; further differences are only counted.
const NAMED: usize = 500;

/// Collector of the differences between two digests.
#[derive(Default)]
struct Found(Vec<Value>);

/// Kind and name of the object that has a difference.
#[derive(Clone, Copy)]
struct Place<'a> {
    kind: &'a str,
    name: &'a str,
}

/// Compares the digest of control's view from watches with a digest from fresh lists. The report about two digests has `equal`, the `differences` by kind, name
/// and field with both values (the first 500, and `more` for the number of others), and for each digest its problems and its number of objects per kind.
pub(crate) fn report(incremental: &Value, fresh: &Value) -> Value {
    let mut found = Found::default();
    for (kind, one, other) in pairs(incremental.get("objects"), fresh.get("objects")) {
        for (name, one, other) in pairs(one, other) {
            found.compare(Place { kind, name }, "", one, other);
        }
    }
    let Found(mut differences) = found;
    let same_problems = incremental.get("problems") == fresh.get("problems");
    let equal = differences.is_empty() && same_problems;
    let more = differences.len().saturating_sub(NAMED);
    differences.truncate(NAMED);
    json!({
        "equal": equal,
        "differences": differences,
        "more": more,
        "incremental": side(incremental),
        "fresh": side(fresh),
    })
}

/// A digest's problems and number of objects per kind, without the objects.
fn side(digest: &Value) -> Value {
    let kinds = digest.get("objects").and_then(Value::as_object);
    let counts = kinds.into_iter().flatten().map(|(kind, objects)| {
        let count = objects.as_object().map_or(0, Map::len);
        (kind.clone(), json!(count))
    });
    json!({"problems": digest.get("problems"), "objects": counts.collect::<Map<_, _>>()})
}

/// A name in two JSON objects, with the value that each object has under the name.
type Pair<'a> = (&'a str, Option<&'a Value>, Option<&'a Value>);

/// All names in two JSON values, each with the values of both; a JSON value that is no object has no names.
fn pairs<'a>(one: Option<&'a Value>, other: Option<&'a Value>) -> Vec<Pair<'a>> {
    let one = one.and_then(Value::as_object);
    let other = other.and_then(Value::as_object);
    let names: BTreeSet<&'a str> = one.into_iter().chain(other).flat_map(Map::keys).map(String::as_str).collect();
    let of = |map: Option<&'a Map<String, Value>>, name: &str| map.and_then(|map| map.get(name));
    names.into_iter().map(|name| (name, of(one, name), of(other, name))).collect()
}

impl Found {
    fn compare(&mut self, place: Place<'_>, field: &str, one: Option<&Value>, other: Option<&Value>) {
        if one == other {
            return;
        }
        match (one, other) {
            (Some(Value::Object(_)), Some(Value::Object(_))) => {
                for (name, one, other) in pairs(one, other) {
                    let field = if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
                    self.compare(place, &field, one, other);
                }
            }
            // Two differing lists are reported without the entries that both lists have.
            (Some(Value::Array(one)), Some(Value::Array(other))) => {
                let (left, right) = (only(one, other), only(other, one));
                self.add(place, field, json!(left), json!(right));
            }
            _ => self.add(place, field, json!(one), json!(other)),
        }
    }

    fn add(&mut self, place: Place<'_>, field: &str, one: Value, other: Value) {
        let difference =
            json!({"kind": place.kind, "name": place.name, "field": field, "incremental": one, "fresh": other});
        self.0.push(difference);
    }
}

fn only<'a>(these: &'a [Value], those: &[Value]) -> Vec<&'a Value> {
    let known: BTreeSet<String> = those.iter().map(ToString::to_string).collect();
    these.iter().filter(|value| !known.contains(&value.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(used: &str, waiting: Value, workloads: Value) -> Value {
        json!({"problems": [], "objects": {
            "LocalQueue": {"ns/lq": {"usage": {"f/cpu": used}, "waiting": waiting}},
            "Workload": workloads,
        }})
    }

    #[test]
    fn recompute_report_of_equal_digests_is_equal() {
        let digest = digest("1 of 4", json!(["ns/a"]), json!({"ns/a": {"books": "waits"}}));
        let report = report(&digest, &digest);
        assert_eq!(report["equal"], json!(true), "{report}");
        assert_eq!(report["incremental"]["objects"], json!({"LocalQueue": 1, "Workload": 1}));
    }

    #[test]
    fn recompute_report_names_each_differing_object_and_field() {
        let one = digest("1 of 4", json!(["ns/a", "ns/b"]), json!({"ns/a": {}, "ns/b": {}}));
        let other = digest("2 of 4", json!(["ns/a", "ns/c"]), json!({"ns/a": {}}));
        let report = report(&one, &other);
        assert_eq!(report["equal"], json!(false));
        let expected = json!([
            {"kind": "LocalQueue", "name": "ns/lq", "field": "usage.f/cpu", "incremental": "1 of 4", "fresh": "2 of 4"},
            {"kind": "LocalQueue", "name": "ns/lq", "field": "waiting", "incremental": ["ns/b"], "fresh": ["ns/c"]},
            {"kind": "Workload", "name": "ns/b", "field": "", "incremental": {}, "fresh": null},
        ]);
        assert_eq!(report["differences"], expected);
    }

    #[test]
    fn recompute_report_with_problems_is_unequal_and_differences_are_bounded() {
        let sound = digest("1", json!([]), json!({}));
        let mut broken = sound.clone();
        broken["problems"] = json!(["queue cq: usage 1 but workloads hold 0"]);
        assert_eq!(report(&broken, &sound)["equal"], json!(false));
        let many: Map<String, Value> = (0..NAMED + 7).map(|n| (format!("ns/{n}"), json!({}))).collect();
        let report = report(&digest("1", json!([]), json!(many)), &sound);
        assert_eq!(report["differences"].as_array().map(Vec::len), Some(NAMED));
        assert_eq!(report["more"], json!(7));
    }
}
