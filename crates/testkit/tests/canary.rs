//! The runner of decision cases can fail: a change of one expectation in one of Berth's own cases turns a pass into a failure.

use berth_testkit::conformance::judge;
use berth_testkit::diff::Verdict;
use serde_json::{Value, json};
use std::path::Path;

/// The paths of all scalars and empty containers below a JSON value.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| leaves(value, format!("{path}/{}", key.replace('/', "~1")), found));
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().enumerate().for_each(|(index, value)| leaves(value, format!("{path}/{index}"), found));
        }
        _ => found.push(path),
    }
}

/// Another JSON value in place of `value`, such as a number increased by one, a longer text, or the opposite of a boolean.
fn changed(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!(!value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => json!(value.wrapping_add(if value == i64::MAX { -1 } else { 1 })),
            None => json!(number.as_f64().unwrap_or_default() + 1.0),
        },
        Value::String(text) => match text.parse::<i64>() {
            Ok(number) => json!((number + 1).to_string()),
            Err(_) if text.len() == 20 && text.ends_with('Z') => json!("2001-01-01T00:00:00Z"),
            Err(_) if ["True", "False"].contains(&text.as_str()) => {
                json!(if text == "True" { "False" } else { "True" })
            }
            Err(_) => json!(format!("{text}x")),
        },
        Value::Null => json!("x"),
        Value::Array(_) => json!(["x"]),
        Value::Object(_) => json!({"x": ["x"]}),
    }
}

fn cases() -> Vec<(String, String, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        found.push((name, text.clone(), serde_saphyr::from_str(&text).unwrap()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn case_expecting_wrong_error_class_fails() {
    let (_, text, _) = cases().into_iter().find(|(name, ..)| name == "flavor-assignment-error").unwrap();
    for place in ["NoFit, error: affinity", "count: 1, error: affinity"] {
        let other = text.replace(place, &place.replace("affinity", "no TAS flavor assigned"));
        assert_ne!(text, other);
        assert!(matches!(judge(&other).1, Verdict::Failed(_)), "{place}");
    }
}

#[test]
fn case_with_any_changed_expectation_fails() {
    let mut compared = 0;
    let mut unnoticed = Vec::new();
    for (name, text, case) in cases() {
        assert_eq!(judge(&text).1, Verdict::Passed, "{name}");
        let mut paths = Vec::new();
        leaves(&case["expect"], "/expect".to_owned(), &mut paths);
        // The runner does not compare the text of the `error` that a case of kind `flavor-assignment` expects.
        let is_error = |path: &String| case["kind"] == json!("flavor-assignment") && path.ends_with("/error");
        paths.retain(|path| !path.contains("/eventsCompare/") && !is_error(path));
        for path in paths {
            compared += 1;
            let mut other = case.clone();
            let place = other.pointer_mut(&path).unwrap();
            *place = changed(place);
            if judge(&other.to_string()).1 == Verdict::Passed {
                unnoticed.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(unnoticed.is_empty(), "changed without notice:\n{}", unnoticed.join("\n"));
    assert!(compared >= 100, "only {compared} expectations");
}

/// Fields of `expect` that say how to compare, so that no case of Berth's suite changes them.
const NOT_COMPARED: [&str; 1] = ["cycle/eventsCompare"];

#[test]
fn compared_expectation_field_is_tried_by_some_own_case() {
    let mut tried = std::collections::BTreeSet::new();
    let mut known = std::collections::BTreeSet::new();
    for (name, _, case) in cases() {
        let kind = case["kind"].as_str().unwrap();
        let expect = case["expect"].as_object().unwrap();
        let after = expect.get("after").and_then(Value::as_object).into_iter().flatten();
        let deep = after.filter_map(|(_, part)| part.as_object()).flatten();
        tried.extend(expect.iter().chain(deep).map(|(field, _)| format!("{kind}/{field}")));
        // The decoder's error about an unknown field of `expect` lists the known fields, from which the test reads them.
        let mut other = case.clone();
        other["expect"]["surprise"] = json!(1);
        let text = format!("{:?}", judge(&other.to_string()).1);
        let (_, list) = text.split_once("expected ").unwrap_or_else(|| panic!("{name}: {text}"));
        known.extend(list.split('`').skip(1).step_by(2).map(|field| format!("{kind}/{field}")));
    }
    let left: Vec<_> = known.difference(&tried).filter(|field| !NOT_COMPARED.contains(&field.as_str())).collect();
    assert!(left.is_empty(), "no case of ours tries {left:?}");
    assert!(known.len() >= 60, "only {} fields", known.len());
}

#[test]
fn case_with_unknown_field_fails() {
    for (name, _, case) in cases() {
        for part in ["", "/input", "/expect", "/config"] {
            let mut other = case.clone();
            match other.pointer_mut(part) {
                Some(Value::Object(map)) => map.insert("surprise".to_owned(), json!(1)),
                Some(Value::Null) | None => continue,
                Some(_) => panic!("{name}: {part} is no map"),
            };
            let verdict = judge(&other.to_string()).1;
            let text = format!("{verdict:?}");
            assert!(text.contains("unknown field `surprise`"), "{name}: {part}: {text}");
        }
    }
}

#[test]
fn unreadable_case_is_judged_as_failed() {
    for text in ["", "[", "name: x", "{name: x, source: y, kind: nonsense, input: {}, expect: {}}"] {
        assert!(matches!(judge(text).1, Verdict::Failed(_)), "{text}");
    }
}
